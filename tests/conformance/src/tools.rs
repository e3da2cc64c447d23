//! Tools: allowed and denied commands, new files and edited files.

use std::path::Path;

use protocol::{ContentPart, CreateSession, EventBody, ItemKind, TurnOutcome};
use sandbox::{ChangeKind, SavedChanges};
use session::SessionTimeouts;

use crate::model_script::{
    COMMAND_FILE, COMMAND_OUTPUT, EDITED_FILE, EDITED_FILE_CONTENT, FILE, NEW_LINE, OLD_LINE, OTHER_FILE, OTHER_OUTPUT,
    prompts,
};
use crate::scenario_session::{Scenario, TurnEvents, UserReply};

pub(crate) async fn allowed_command_runs(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::COMMAND, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains(COMMAND_OUTPUT), "{turn:?}");
    assert!(has_item(&turn, ItemKind::ToolCall) && has_item(&turn, ItemKind::ToolResult), "{turn:?}");
    let has_request = turn.has(|event| matches!(event, EventBody::PermissionRequested(_)));
    assert_eq!(has_request, session.agent.asks(), "{turn:?}");
    assert!(added(&turn).contains(&COMMAND_FILE.to_owned()), "{turn:?}");
    assert!(!session.on_host(COMMAND_FILE).exists(), "changes stay in the layer");
    session.close().await;
}

pub(crate) async fn denied_command_does_not_run(scenario: Scenario) {
    if !scenario.agent.asks() {
        return;
    }
    let session = scenario.open().await;
    let turn = session.turn(prompts::COMMAND, UserReply::No).await;
    assert!(turn.has(|event| matches!(event, EventBody::PermissionRequested(_))), "{turn:?}");
    assert!(matches!(turn.outcome(), Some(TurnOutcome::Completed | TurnOutcome::Interrupted)), "{turn:?}");
    assert!(!turn.text().contains(COMMAND_OUTPUT), "{turn:?}");
    assert_eq!(added(&turn), [""; 0], "{turn:?}");
    let next = session.turn("hello", UserReply::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    session.close().await;
}

pub(crate) async fn file_is_written(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::FILE, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(added(&turn).contains(&FILE.0.to_owned()), "{turn:?}");
    assert!(turn.text().contains("It is made."), "{turn:?}");
    assert!(reported_changes(&turn).any(|(path, diff)| path.ends_with(FILE.0) && diff.contains(ADDED)), "{turn:?}");
    assert!(!session.on_host(FILE.0).exists(), "changes stay in the layer");
    session.close().await;
}

pub(crate) async fn line_of_a_file_is_replaced(scenario: Scenario) {
    let mode = scenario.agent.mode();
    let prepare = |folder: &Path, _: &mut CreateSession| {
        std::fs::write(folder.join("workspace").join(EDITED_FILE), EDITED_FILE_CONTENT).unwrap();
    };
    let session = scenario.open_with_request(mode, SessionTimeouts::default(), prepare).await;
    let turn = session.turn(prompts::EDIT, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("It is mended."), "{turn:?}");
    let replaces = |diff: &str| {
        let has = |line: String| diff.lines().any(|reported| reported == line);
        has(format!("-{OLD_LINE}")) && has(format!("+{NEW_LINE}")) && !has("-the first line".to_owned())
    };
    assert!(reported_changes(&turn).any(|(path, diff)| path.ends_with(EDITED_FILE) && replaces(diff)), "{turn:?}");
    assert_eq!((added(&turn), modified(&turn)), (Vec::new(), vec![EDITED_FILE.to_owned()]), "{turn:?}");
    let saved = SavedChanges::open(&session.sessions.changes_directory(&session.id)).unwrap();
    let (kinds, path) = (saved.changes().map(|change| change.kind).collect::<Vec<_>>(), Path::new(EDITED_FILE));
    assert_eq!(kinds, [ChangeKind::Modified], "{turn:?}");
    assert!(replaces(&saved.diff(path).unwrap().unwrap()), "{turn:?}");
    assert_eq!(saved.read(path).unwrap(), EDITED_FILE_CONTENT.replace(OLD_LINE, NEW_LINE).as_bytes());
    assert_eq!(
        std::fs::read_to_string(session.on_host(EDITED_FILE)).unwrap(),
        EDITED_FILE_CONTENT,
        "changes stay in the layer"
    );
    session.close().await;
}

pub(crate) async fn accept_edits_mode_does_not_ask_for_edits(scenario: Scenario) {
    if !scenario.agent.asks() {
        return;
    }
    let session = scenario.open_with("acceptEdits", SessionTimeouts::default()).await;
    let turn = session.turn(prompts::OTHER_FILE, UserReply::No).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(added(&turn).contains(&OTHER_FILE.0.to_owned()) && turn.permission_count() == 0, "{turn:?}");
    // The mode does not accept commands.
    let other = session.turn(prompts::OTHER_COMMAND, UserReply::No).await;
    assert!(!other.text().contains(OTHER_OUTPUT) && other.permission_count() == 1, "{other:?}");
    session.close().await;
}

fn has_item(turn: &TurnEvents, kind: ItemKind) -> bool {
    turn.has(|event| matches!(event, EventBody::ItemCompleted(completed) if completed.item.kind == kind))
}

/// Part of the diff of [`FILE`].
const ADDED: &str = "\n+made by an agent\n";

/// Returns the changed files that the agent reported, with their diffs.
fn reported_changes(turn: &TurnEvents) -> impl Iterator<Item = (&str, &str)> {
    let items = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::ItemCompleted(completed) => Some(&completed.item),
        _ => None,
    });
    items.flat_map(|item| &item.content).filter_map(|part| match part {
        ContentPart::FileRef { path, diff: Some(diff), .. } => Some((path.as_str(), diff.as_str())),
        _ => None,
    })
}

/// Returns the new files of the workspace.
fn added(turn: &TurnEvents) -> Vec<String> {
    let reported = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::WorkspaceChanged(changed) => Some(changed.added.clone()),
        _ => None,
    });
    reported.flatten().collect()
}

/// Returns the changed files of the workspace.
fn modified(turn: &TurnEvents) -> Vec<String> {
    let reported = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::WorkspaceChanged(changed) => Some(changed.modified.clone()),
        _ => None,
    });
    reported.flatten().collect()
}
