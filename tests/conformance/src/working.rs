//! Tools: a command that is allowed or not, a file that is made, and one that is edited.

use std::path::Path;

use protocol::{ContentPart, CreateSession, EventBody, ItemKind, TurnOutcome};
use sandbox::{ChangeKind, SavedChanges};
use session::SessionTimeouts;

use crate::script::{BEFORE, COMMAND_OUTPUT, FILE, MENDED, NEW_LINE, OLD_LINE, OTHER_FILE, OTHER_OUTPUT, TRACE, say};
use crate::stage::{Answer, Turn, World};

pub(crate) async fn a_command_runs_when_allowed(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::COMMAND, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains(COMMAND_OUTPUT), "{turn:?}");
    assert!(has_item(&turn, ItemKind::ToolCall) && has_item(&turn, ItemKind::ToolResult), "{turn:?}");
    let asked = turn.has(|event| matches!(event, EventBody::PermissionRequested(_)));
    assert_eq!(asked, stage.player.asks(), "{turn:?}");
    assert!(added(&turn).contains(&TRACE.to_owned()), "{turn:?}");
    assert!(!stage.on_host(TRACE).exists(), "changes stay in the layer");
    stage.close().await;
}

pub(crate) async fn a_command_does_not_run_when_denied(world: World) {
    if !world.player.asks() {
        return;
    }
    let stage = world.open().await;
    let turn = stage.turn(say::COMMAND, Answer::No).await;
    assert!(turn.has(|event| matches!(event, EventBody::PermissionRequested(_))), "{turn:?}");
    assert!(matches!(turn.outcome(), Some(TurnOutcome::Completed | TurnOutcome::Interrupted)), "{turn:?}");
    assert!(!turn.words().contains(COMMAND_OUTPUT), "{turn:?}");
    assert_eq!(added(&turn), [""; 0], "{turn:?}");
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    stage.close().await;
}

pub(crate) async fn a_file_is_written(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::FILE, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(added(&turn).contains(&FILE.0.to_owned()), "{turn:?}");
    assert!(turn.words().contains("It is made."), "{turn:?}");
    assert!(told_changes(&turn).any(|(path, diff)| path.ends_with(FILE.0) && diff.contains(ADDED)), "{turn:?}");
    assert!(!stage.on_host(FILE.0).exists(), "changes stay in the layer");
    stage.close().await;
}

pub(crate) async fn a_line_of_a_file_is_replaced(world: World) {
    let mode = world.player.mode();
    let prepare = |folder: &Path, _: &mut CreateSession| {
        std::fs::write(folder.join("workspace").join(MENDED), BEFORE).unwrap();
    };
    let stage = world.open_as(mode, SessionTimeouts::default(), prepare).await;
    let turn = stage.turn(say::EDIT, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("It is mended."), "{turn:?}");
    let replaces = |diff: &str| {
        let has = |line: String| diff.lines().any(|told| told == line);
        has(format!("-{OLD_LINE}")) && has(format!("+{NEW_LINE}")) && !has("-the first line".to_owned())
    };
    assert!(told_changes(&turn).any(|(path, diff)| path.ends_with(MENDED) && replaces(diff)), "{turn:?}");
    assert_eq!((added(&turn), modified(&turn)), (Vec::new(), vec![MENDED.to_owned()]), "{turn:?}");
    let saved = SavedChanges::open(&stage.sessions.changes_directory(&stage.id)).unwrap();
    let (kinds, path) = (saved.changes().map(|change| change.kind).collect::<Vec<_>>(), Path::new(MENDED));
    assert_eq!(kinds, [ChangeKind::Modified], "{turn:?}");
    assert!(replaces(&saved.diff(path).unwrap().unwrap()), "{turn:?}");
    assert_eq!(saved.read(path).unwrap(), BEFORE.replace(OLD_LINE, NEW_LINE).as_bytes());
    assert_eq!(std::fs::read_to_string(stage.on_host(MENDED)).unwrap(), BEFORE, "changes stay in the layer");
    stage.close().await;
}

pub(crate) async fn an_edit_is_not_asked_for_where_edits_are_accepted(world: World) {
    if !world.player.asks() {
        return;
    }
    let stage = world.open_with("acceptEdits", SessionTimeouts::default()).await;
    let turn = stage.turn(say::OTHER_FILE, Answer::No).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(added(&turn).contains(&OTHER_FILE.0.to_owned()) && turn.asked() == 0, "{turn:?}");
    // A command is not accepted with it.
    let other = stage.turn(say::OTHER_COMMAND, Answer::No).await;
    assert!(!other.words().contains(OTHER_OUTPUT) && other.asked() == 1, "{other:?}");
    stage.close().await;
}

fn has_item(turn: &Turn, kind: ItemKind) -> bool {
    turn.has(|event| matches!(event, EventBody::ItemCompleted(completed) if completed.item.kind == kind))
}

/// What the diff of [`FILE`] says.
const ADDED: &str = "\n+made by an agent\n";

/// The files that the agent itself told it changed, each with its diff.
fn told_changes(turn: &Turn) -> impl Iterator<Item = (&str, &str)> {
    let items = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::ItemCompleted(completed) => Some(&completed.item),
        _ => None,
    });
    items.flat_map(|item| &item.content).filter_map(|part| match part {
        ContentPart::FileRef { path, diff: Some(diff), .. } => Some((path.as_str(), diff.as_str())),
        _ => None,
    })
}

/// The files that are new in the workspace.
fn added(turn: &Turn) -> Vec<String> {
    let told = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::WorkspaceChanged(changed) => Some(changed.added.clone()),
        _ => None,
    });
    told.flatten().collect()
}

/// The files that were there before and are others now.
fn modified(turn: &Turn) -> Vec<String> {
    let told = turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::WorkspaceChanged(changed) => Some(changed.modified.clone()),
        _ => None,
    });
    told.flatten().collect()
}
