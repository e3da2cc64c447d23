//! Creation of sessions, and refusals.

use protocol::{CreateSession, EnforcementState, EventBody};
use session::SessionError;

use crate::stage::{Stage, id, in_directory, kinds, request, type_of};

crate::trials!(
    first_event_is_the_effective_policy,
    agent_works_in_the_directory,
    one_of_concurrent_creates_succeeds,
    invalid_request_is_refused_and_leaves_nothing,
    session_id_cannot_be_reused,
);

async fn first_event_is_the_effective_policy() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let first = kinds(&stage.events(&session));
    assert_eq!(first[..3], ["policy.effective", "session_registered", "session.started"]);
    let EventBody::PolicyEffective(effective) = &stage.events(&session)[0].draft.body else {
        panic!("the first event is another one")
    };
    let tools = effective.keys.get("tools").unwrap();
    assert_eq!(tools.state, EnforcementState::Weaker, "calls that an agent does not ask about are not checked");
    let info = stage.sessions.get(&session).unwrap();
    assert_eq!((info.agent.as_str(), info.permission_mode.as_str(), info.ended), ("mock", "default", false));
    assert!(info.event_count >= 3);
    assert_eq!(stage.sessions.list(None, 10).unwrap().sessions.len(), 1);
}

async fn agent_works_in_the_directory() {
    let stage = Stage::new();
    let workspace = stage.workspace();
    let info = stage.create("s1", in_directory(&workspace)).await.unwrap();
    assert_eq!(info.directory.as_deref(), Some(workspace.canonicalize().unwrap().to_str().unwrap()));
    stage.turn(&info.session_id, "/file hello.md").await;
    assert!(workspace.join("hello.md").exists());
}

async fn one_of_concurrent_creates_succeeds() {
    let stage = Stage::new();
    let creates = (0..8).map(|_| {
        let sessions = stage.sessions.clone();
        let options = session::SessionOptions::default();
        tokio::spawn(async move { sessions.create(id("s1"), request(), options).await })
    });
    let mut made = 0;
    for create in creates.collect::<Vec<_>>() {
        match create.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert!(matches!(error, SessionError::AlreadyExists(_)), "{error}"),
        }
    }
    assert_eq!(made, 1);
    let registered = stage.events(&id("s1"));
    assert_eq!(registered.iter().filter(|event| type_of(event) == "session_registered").count(), 1);
}

async fn invalid_request_is_refused_and_leaves_nothing() {
    let stage = Stage::new();
    let file = stage.workspace().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = [
        (CreateSession { agent: "nobody".to_owned(), ..request() }, "unsupported_agent"),
        (CreateSession { permission_mode: Some("yolo".to_owned()), ..request() }, "mode_not_supported"),
        (in_directory("relative/path".as_ref()), "invalid_request"),
        (in_directory(&stage.directory.path().join("nowhere")), "invalid_request"),
        (in_directory(&file), "invalid_request"),
        (CreateSession { variant: Some("high".to_owned()), ..request() }, "invalid_request"),
        (with_skills(&stage.workspace()), "invalid_request"),
        (with_skills("/".as_ref()), "directory_not_allowed"),
        (in_directory("/".as_ref()), "directory_not_allowed"),
        (in_directory(&stage.directory.path().join("data")), "directory_not_allowed"),
    ];
    for (request, code) in refused {
        let error = stage.create("s1", request).await.unwrap_err();
        assert_eq!(error.code().as_str(), code, "{error}");
    }
    assert!(stage.sessions.list(None, 10).unwrap().sessions.is_empty());
    assert!(!stage.directory.path().join("scratch").exists());
    stage.session("s1").await;
}

/// Returns a request with skills of a host directory, which the unconfined backend does not support.
fn with_skills(place: &std::path::Path) -> CreateSession {
    let skills = serde_json::json!({"sources": [{"type": "local", "source": place}]});
    CreateSession { skills: Some(skills), ..request() }
}

async fn session_id_cannot_be_reused() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.sessions.terminate(&session).await.unwrap();
    let again = stage.create("s1", request()).await;
    assert!(matches!(again, Err(SessionError::AlreadyExists(_))));
}
