//! Files in a session's workspace over the API.

use axum::body::Body;
use http::Request;
use serde_json::json;

use crate::client::ApiResponse;
use crate::stage::Stage;

crate::trials!(
    file_can_be_written_read_moved_and_removed,
    archive_stream_is_unpacked,
    paths_cannot_leave_the_workspace,
    files_need_a_running_session,
    truncated_directory_list_has_a_header,
    link_is_listed_as_a_special_file,
);

async fn call(stage: &Stage, method: &str, path: &str, body: impl Into<Body>) -> ApiResponse {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost");
    let kind = if method == "POST" && path.contains("/move") { "application/json" } else { "application/octet-stream" };
    stage.client.call(builder.header("content-type", kind).body(body.into()).unwrap()).await
}

async fn file_can_be_written_read_moved_and_removed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let at = |route: &str, path: &str| format!("/v1/fs/{route}?session_id=s1&path={path}");
    let written = call(&stage, "PUT", &at("file", "notes/a.txt"), "hello").await;
    assert_eq!(
        (written.status, written.json()),
        (200, json!({"path": "notes/a.txt", "bytesWritten": 5})),
        "{}",
        written.text()
    );
    assert_eq!(call(&stage, "GET", &at("file", "/workspace/notes/a.txt"), "").await.text(), "hello");
    let stat = call(&stage, "GET", &at("stat", "notes/a.txt"), "").await.json();
    assert_eq!((&stat["entryType"], &stat["size"]), (&json!("file"), &json!(5)));
    assert_eq!(stat["path"], "/workspace/notes/a.txt");
    assert_eq!(call(&stage, "POST", &at("mkdir", "kept"), "").await.status, 200);
    let body = json!({"from": "notes/a.txt", "to": "kept/b.txt"}).to_string();
    assert_eq!(call(&stage, "POST", "/v1/fs/move?session_id=s1", body.clone()).await.status, 200);
    assert_eq!(call(&stage, "POST", "/v1/fs/move?session_id=s1", body).await.status, 404);
    let listed = call(&stage, "GET", &at("entries", "kept"), "").await.json();
    assert_eq!((&listed[0]["name"], listed.as_array().unwrap().len()), (&json!("b.txt"), 1));
    let refused = call(&stage, "DELETE", &at("entry", "kept"), "").await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &"file_wrong_kind".into()));
    assert_eq!(call(&stage, "DELETE", &format!("{}&recursive=true", at("entry", "kept")), "").await.status, 200);
    let gone = call(&stage, "GET", &at("file", "kept/b.txt"), "").await;
    assert_eq!((gone.status, &gone.json()["code"]), (404, &"file_not_found".into()));
}

async fn archive_stream_is_unpacked() {
    let stage = Stage::new();
    stage.session("s1").await;
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in [("one.txt", "1"), ("deep/two.txt", "22")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let path = "/v1/fs/upload-batch?session_id=s1&path=in";
    let unpacked = call(&stage, "POST", path, archive.into_inner().unwrap()).await;
    assert_eq!(unpacked.status, 200, "{}", unpacked.text());
    assert_eq!(
        unpacked.json(),
        json!({"paths": ["/workspace/in/one.txt", "/workspace/in/deep/two.txt"], "truncated": false})
    );
    let read = call(&stage, "GET", "/v1/fs/file?session_id=s1&path=in/deep/two.txt", "").await;
    assert_eq!(read.text(), "22");
    let refused = call(&stage, "POST", path, "not an archive, but long enough to be parsed as one").await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &"archive_refused".into()));
}

async fn paths_cannot_leave_the_workspace() {
    let stage = Stage::new();
    stage.session("s1").await;
    for path in ["/etc/passwd", "../../etc/passwd", "/workspace/../etc/passwd", "%2Fetc%2Fpasswd"] {
        for route in ["file", "stat", "entries"] {
            let refused = call(&stage, "GET", &format!("/v1/fs/{route}?session_id=s1&path={path}"), "").await;
            assert_eq!((refused.status, &refused.json()["code"]), (400, &"file_outside_workspace".into()), "{path}");
        }
    }
}

async fn files_need_a_running_session() {
    let stage = Stage::new();
    let status = async |path: &str| {
        let answer = call(&stage, "GET", path, "").await;
        (answer.status, answer.json()["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(status("/v1/fs/entries").await, (400, "invalid_request".to_owned()));
    assert_eq!(status("/v1/fs/entries?session_id=none").await, (404, "session_not_found".to_owned()));
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/terminate", "").await;
    assert_eq!(status("/v1/fs/entries?session_id=s1").await, (409, "session_ended".to_owned()));
    stage.session("s2").await;
    stage.sessions.close_all().await;
    let stage = stage.restarted();
    let asleep = call(&stage, "GET", "/v1/fs/entries?session_id=s2", "").await;
    assert_eq!((asleep.status, &asleep.json()["code"]), (409, &"sandbox_gone".into()));
    assert_eq!(stage.client.post("/v1/sessions/s2/resume", "").await.status, 204);
    assert_eq!(call(&stage, "GET", "/v1/fs/entries?session_id=s2", "").await.status, 200);
}

async fn truncated_directory_list_has_a_header() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    for number in 0..10_000 {
        std::fs::File::create(workspace.join(format!("f{number}"))).unwrap();
    }
    let body = json!({"agent": "mock", "directory": workspace}).to_string();
    assert_eq!(stage.client.post("/v1/sessions/s1", &body).await.status, 200);
    let list = async || call(&stage, "GET", "/v1/fs/entries?session_id=s1&path=", "").await;
    let whole = list().await;
    assert_eq!(whole.json().as_array().unwrap().len(), 10_000);
    assert!(!whole.headers.contains_key("x-viv-truncated"));
    std::fs::File::create(workspace.join("one-more")).unwrap();
    let cut = list().await;
    assert_eq!(
        (cut.json().as_array().unwrap().len(), &cut.headers["x-viv-truncated"]),
        (10_000, &"true".parse().unwrap())
    );
}

async fn link_is_listed_as_a_special_file() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    std::fs::create_dir(workspace.join("folder")).unwrap();
    std::os::unix::fs::symlink("folder", workspace.join("inside")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", workspace.join("outside")).unwrap();
    let body = json!({"agent": "mock", "directory": workspace}).to_string();
    assert_eq!(stage.client.post("/v1/sessions/s1", &body).await.status, 200);
    let listed = call(&stage, "GET", "/v1/fs/entries?session_id=s1&path=", "").await.json();
    let returned: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["name"], &entry["entryType"], &entry["special"]))
        .collect();
    let (file, link) = (json!("file"), json!("symlink"));
    let expected = [
        (&json!("folder"), &json!("directory"), &json!(null)),
        (&json!("inside"), &file, &link),
        (&json!("outside"), &file, &link),
    ];
    assert_eq!(returned, expected);
    let through = call(&stage, "GET", "/v1/fs/file?session_id=s1&path=outside", "").await;
    assert_eq!((through.status, &through.json()["code"]), (400, &"file_outside_workspace".into()));
}
