//! The agent's own terminal UI: its prompt, an answer, a tool that makes a file, and the exit.

use std::time::Duration;

use avt::Terminal;
use protocol::{EventBody, SessionEndReason, TerminalStart};
use sandbox::{SavedChanges, WindowSize};
use session::{SessionTimeouts, TerminalUpdate, TerminalViewer, ViewerAccess};

use crate::model_script::{FILE, prompts};
use crate::scenario_session::Scenario;

const SIZE: WindowSize = WindowSize { rows: 40, columns: 120 };
/// The longest wait for a text on the screen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a person presses Enter again. A busy agent may take an early Enter for a part of pasted text.
const ENTER_AGAIN: Duration = Duration::from_secs(15);

/// A person in front of the terminal UI, with a terminal emulator.
struct Person {
    viewer: TerminalViewer,
    screen: Terminal,
}

impl Person {
    fn text(&self) -> String {
        let lines = (0..usize::from(SIZE.rows)).filter_map(|row| self.screen.screen().line(row).map(avt::Line::text));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Draws output until `wanted` is on the screen.
    async fn until(&mut self, wanted: &str) {
        assert!(self.shows_within(PATIENCE, wanted).await, "`{wanted}` was not shown:\n{}", self.text());
    }

    /// Draws output until `wanted` is on the screen; returns whether that happened in time.
    async fn shows_within(&mut self, time: Duration, wanted: &str) -> bool {
        let shown = tokio::time::timeout(time, async {
            while !self.text().contains(wanted) {
                match self.viewer.next().await {
                    Some(TerminalUpdate::Output(bytes)) => self.screen.feed(&*String::from_utf8_lossy(&bytes)),
                    Some(TerminalUpdate::Resized(_)) => {}
                    None => panic!("the agent ended before `{wanted}` was shown:\n{}", self.text()),
                }
            }
        });
        shown.await.is_ok()
    }

    /// Types a line, and waits for the answer `wanted`.
    async fn ask(&mut self, text: &str, wanted: &str) {
        self.type_line(text).await;
        if !self.shows_within(ENTER_AGAIN, wanted).await {
            self.viewer.write(b"\r".to_vec()).await;
        }
        self.until(wanted).await;
    }

    /// Types a line: first the text, and Enter when the agent has drawn the text.
    async fn type_line(&mut self, text: &str) {
        self.viewer.write(text.as_bytes().to_vec()).await;
        self.until(text).await;
        self.viewer.write(b"\r".to_vec()).await;
    }

    /// Types the command that ends the agent, and waits for its end.
    async fn exit(&mut self, command: &str) {
        self.type_line(command).await;
        if !self.has_ended_within(ENTER_AGAIN).await {
            self.viewer.write(b"\r".to_vec()).await;
            assert!(self.has_ended_within(PATIENCE).await, "the agent did not exit:\n{}", self.text());
        }
    }

    async fn has_ended_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, async { while self.viewer.next().await.is_some() {} }).await.is_ok()
    }
}

/// Returns a text of the agent's first screen that shows that its prompt is ready.
fn ready(agent: &str) -> &'static str {
    match agent {
        "claude" => "bypass permissions on",
        "codex" => "? for shortcuts",
        "gemini" | "qwen" => "Type your message",
        "opencode" => "Ask anything",
        "copilot" => "help",
        _ => "/workspace",
    }
}

pub(crate) async fn terminal_ui_answers_makes_a_file_and_exits(scenario: Scenario) {
    let agent = scenario.agent.name;
    // The mock has no terminal UI; the end-to-end tests of the CLI show the refusal.
    if agent == "mock" {
        return;
    }
    let interactive = |_: &std::path::Path, request: &mut protocol::CreateSession| {
        request.terminal = Some(TerminalStart { rows: SIZE.rows, columns: SIZE.columns, prompt: None });
    };
    let session = scenario.open_with_request("bypass", SessionTimeouts::default(), interactive).await;
    let viewer = session.sessions.view_terminal(&session.id, ViewerAccess::Type).unwrap();
    let screen = Terminal::new(SIZE.columns.into(), SIZE.rows.into()).unwrap();
    let mut person = Person { viewer, screen };
    person.until(ready(agent)).await;
    person.ask(prompts::FILE, "It is made.").await;
    // A watcher who comes later sees the same screen, and cannot type.
    let watcher = session.sessions.view_terminal(&session.id, ViewerAccess::Watch).unwrap();
    let Some(TerminalUpdate::Output(snapshot)) = watcher.next().await else { panic!("no first screen") };
    let mut second = Terminal::new(SIZE.columns.into(), SIZE.rows.into()).unwrap();
    second.feed(&*String::from_utf8(snapshot).unwrap());
    let second = Person { viewer: watcher, screen: second };
    assert!(second.text().contains("It is made."), "{}", second.text());
    let exit = if matches!(agent, "gemini" | "qwen" | "pi") { "/quit" } else { "/exit" };
    person.exit(exit).await;
    let ended = session.until(0, |event| matches!(event, EventBody::SessionEnded(_))).await;
    let EventBody::SessionEnded(ended) = &ended.draft.body else { panic!() };
    assert_eq!(ended.reason, SessionEndReason::Completed, "{ended:?}");
    let saved = SavedChanges::open(&session.sessions.changes_directory(&session.id)).unwrap();
    let paths: Vec<_> = saved.changes().map(|change| change.path.display().to_string()).collect();
    assert!(paths.iter().any(|path| path.contains(FILE.0)), "{paths:?}");
    assert!(!session.on_host(FILE.0).exists(), "changes stay in the layer");
}
