//! Workspace directories: those that callers may name, and those that are always refused.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::json;
use server::{AccessToken, AuthMode, ServerConfig, TokenScope};

use crate::client::ApiResponse;
use crate::stage::{Stage, config};

crate::trials!(
    data_directory_and_root_are_never_workspaces,
    drive_scope_may_only_use_workspace_roots,
    caller_without_token_is_limited_to_workspace_roots,
    workspace_rules_apply_to_replays_and_skills,
    session_on_a_forbidden_directory_cannot_resume_or_fork,
);

fn guarded(roots: &[PathBuf]) -> Stage {
    let tokens = vec![
        AccessToken::new("admin", [TokenScope::Admin]),
        AccessToken::new("driver", [TokenScope::Drive, TokenScope::Read]),
    ];
    let workspace_roots: Arc<[PathBuf]> = roots.into();
    Stage::with(ServerConfig { auth: AuthMode::Tokens(tokens), workspace_roots, ..config() })
}

async fn call(stage: &Stage, token: &str, method: &str, path: &str, body: &str) -> ApiResponse {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost");
    let builder = builder.header("authorization", format!("Bearer {token}")).header("content-type", "application/json");
    stage.client.call(builder.body(Body::from(body.to_owned())).unwrap()).await
}

async fn create(stage: &Stage, token: &str, directory: impl Into<PathBuf>) -> ApiResponse {
    let body = json!({"agent": "mock", "directory": directory.into()}).to_string();
    call(stage, token, "POST", "/v1/sessions/x", &body).await
}

#[track_caller]
fn refused(answer: &ApiResponse, case: &str) {
    let problem = answer.json();
    assert_eq!((answer.status, &problem["code"]), (403, &"directory_not_allowed".into()), "{case}: {problem}");
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("viv ")), "{case}: {problem}");
}

#[track_caller]
fn nothing_was_started(stage: &Stage) {
    assert!(!stage.directory.path().join("scratch").exists(), "a sandbox was made");
    let journals = std::fs::read_dir(stage.directory.path().join("data/trajectory")).unwrap().count();
    assert_eq!(journals, 0, "something was recorded");
}

async fn data_directory_and_root_are_never_workspaces() {
    let stage = guarded(&[PathBuf::from("/")]);
    let place = stage.directory.path();
    std::os::unix::fs::symlink(place.join("data"), place.join("link")).unwrap();
    let own = ["data", "data/trajectory", "data/nowhere/..", "link", "link/trajectory", "data/../data"];
    let own = own.iter().map(|path| place.join(path)).chain(["/".into(), "/..".into(), "/usr/../".into()]);
    for path in own.filter(|path| path.exists()) {
        for token in ["driver", "admin"] {
            refused(&create(&stage, token, &path).await, &format!("{token} {}", path.display()));
        }
    }
    nothing_was_started(&stage);
    assert_eq!(call(&stage, "driver", "GET", "/v1/sessions", "").await.json(), json!({"sessions": []}));
}

async fn drive_scope_may_only_use_workspace_roots() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    for folder in ["open/project", "openly"] {
        std::fs::create_dir_all(place.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("/etc", place.join("open/etc")).unwrap();
    let stage = guarded(&[place.join("open")]);
    for outside in ["openly", "open/etc", "open/../openly", "open/../nowhere", "nowhere"] {
        refused(&create(&stage, "driver", place.join(outside)).await, outside);
    }
    refused(&create(&stage, "driver", "/etc").await, "/etc");
    nothing_was_started(&stage);
    let hint = create(&stage, "driver", "/etc").await.json()["hint"].clone();
    assert_eq!(hint, "viv serve --workspace-root=/etc");
    assert_eq!(create(&stage, "driver", place.join("open/project")).await.status, 200);
    let anywhere = json!({"agent": "mock", "directory": place.join("openly")}).to_string();
    assert_eq!(call(&stage, "admin", "POST", "/v1/sessions/y", &anywhere).await.status, 200);
    let nowhere = call(&stage, "driver", "POST", "/v1/sessions/z", r#"{"agent":"mock"}"#).await;
    assert_eq!(nowhere.status, 200, "without a directory a session has an empty workspace");
}

async fn caller_without_token_is_limited_to_workspace_roots() {
    let place = tempfile::tempdir().unwrap();
    let body = json!({"agent": "mock", "directory": place.path()}).to_string();
    let open = tempfile::tempdir().unwrap();
    let stage = Stage::with(ServerConfig { workspace_roots: [open.path().into()].into(), ..config() });
    refused(&stage.client.post("/v1/sessions/x", &body).await, "something else was opened");
    nothing_was_started(&stage);
    stage.session("x").await;
    let stage = Stage::with(ServerConfig { workspace_roots: [].into(), ..config() });
    assert_eq!(stage.client.post("/v1/sessions/x", &body).await.status, 200, "nothing in particular was opened");
}

async fn workspace_rules_apply_to_replays_and_skills() {
    let stage = guarded(&[]);
    let workspace = stage.workspace();
    assert_eq!(create(&stage, "admin", &workspace).await.status, 200);
    call(&stage, "driver", "POST", "/v1/sessions/x/messages/stream", r#"{"message":"/ask hello"}"#).await;
    let replay = "/v1/sessions/x/replay";
    refused(&call(&stage, "driver", "POST", replay, "").await, "the recorded directory");
    for path in [stage.directory.path().join("data"), PathBuf::from("/")] {
        let body = json!({"sessionId": "again", "directory": path}).to_string();
        refused(&call(&stage, "driver", "POST", replay, &body).await, "another directory");
        refused(&call(&stage, "admin", "POST", replay, &body).await, "another directory");
    }
    assert_eq!(call(&stage, "admin", "POST", replay, r#"{"sessionId":"again"}"#).await.status, 200);
    let data = stage.directory.path().join("data").display().to_string();
    for (kind, source) in [("local", data.clone()), ("git", data.clone()), ("git", format!("file://{data}"))] {
        let skills = json!({"sources": [{"type": kind, "source": source}]});
        let body = json!({"agent": "mock", "skills": skills}).to_string();
        for token in ["driver", "admin"] {
            refused(&call(&stage, token, "POST", "/v1/sessions/y", &body).await, &source);
        }
    }
}

async fn session_on_a_forbidden_directory_cannot_resume_or_fork() {
    let stage = guarded(&[]);
    let workspace = stage.directory.path().join("project");
    std::fs::create_dir(&workspace).unwrap();
    assert_eq!(create(&stage, "admin", &workspace).await.status, 200);
    // A session of an earlier version can be on a directory that is now forbidden.
    std::fs::rename(&workspace, stage.directory.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(stage.directory.path().join("data"), &workspace).unwrap();
    let forked = call(&stage, "driver", "POST", "/v1/sessions/x/fork", r#"{"sessionId":"y"}"#).await;
    refused(&forked, "a fork");
    assert_eq!(call(&stage, "driver", "GET", "/v1/sessions/y", "").await.status, 404);
}
