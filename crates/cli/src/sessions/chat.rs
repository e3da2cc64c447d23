//! `viv sessions attach` on a terminal: a chat with the agent of a session.
//!
//! While a turn runs, its output is shown as `viv run` shows it, and requests are asked. Between turns, a line editor with a
//! history reads the next message. The session lives in another process and goes on when the chat is left.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::ProblemCode;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use store::{DataDir, SessionRecord};

use super::summary::SessionSummary;
use crate::client::ApiClient;
use crate::failure::Failure;
use crate::output::message;
use crate::run::{AnswerMode, Conversation, RunOutput};
use crate::session_access::SessionAccess;
use crate::signals::StopSignals;

/// Most messages in the history.
const HISTORY: usize = 1000;

/// Runs the chat until Ctrl-D, Ctrl-C or the end of the session.
pub(super) async fn carry_out(directory: &DataDir, record: &SessionRecord) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    let access = SessionAccess::Remote(ApiClient::of_session(directory, record).await?);
    let summary = SessionSummary::read(directory, &record.info)?;
    let is_busy = matches!(summary.state, "running" | "waiting");
    // The events of a running turn are shown from its start, so that open requests are asked.
    let seen = if is_busy { summary.turn_begins_after() } else { access.last_event(&record.info.session_id).await? };
    let mut conversation =
        Conversation::of(&access, record.info.clone(), seen, AnswerMode::Ask, RunOutput::Text).await?;
    greet(&conversation, &summary);
    let editor = LineEditor::open(directory)?;
    let chat = async {
        if is_busy {
            conversation.follow_turn().await?;
        }
        while !conversation.session.ended
            && let Some(text) = editor.read().await?
        {
            if !text.trim().is_empty() {
                conversation.talk(&text).await?;
                message!("\x1b[2m{}\x1b[0m", conversation.timeline.bill());
            }
        }
        Ok::<_, Failure>(())
    };
    let left = tokio::select! {
        left = chat => left.map(|()| ExitCode::SUCCESS),
        stop = signals.received() => Ok(stop.exit_code()),
    };
    conversation.end_line().map_err(|error| Failure::output_failed(&error))?;
    let name = conversation.name();
    let state = if conversation.session.ended { "has ended" } else { "goes on" };
    message!("session {name} {state} · viv sessions show {name}");
    left
}

fn greet(conversation: &Conversation<'_>, summary: &SessionSummary) {
    let (name, agent) = (conversation.name(), &conversation.session.agent);
    message!("\x1b[1msession\x1b[0m {name} · agent {agent} · {} · Ctrl-D leaves", summary.state);
    for (mark, text) in [("›", &summary.last_prompt), ("●", &summary.result)] {
        if let Some(text) = text {
            message!("\x1b[2m{mark} {}\x1b[0m", super::list::shortened(text, 200));
        }
    }
}

/// The line editor. Reading blocks a thread, which the terminal ends.
struct LineEditor {
    editor: Arc<Mutex<DefaultEditor>>,
    history: std::path::PathBuf,
}

impl LineEditor {
    fn open(directory: &DataDir) -> Result<Self, Failure> {
        let settings = rustyline::Config::builder().max_history_size(HISTORY).map_err(|error| failed(&error))?;
        let settings = settings.auto_add_history(true).bracketed_paste(true).build();
        let mut editor = DefaultEditor::with_config(settings).map_err(|error| failed(&error))?;
        let history = directory.root().join("history");
        // The first chat has no history.
        let _ = editor.load_history(&history);
        Ok(Self { editor: Arc::new(Mutex::new(editor)), history })
    }

    /// Returns the next message; `None` at Ctrl-D or Ctrl-C.
    async fn read(&self) -> Result<Option<String>, Failure> {
        let (editor, history) = (Arc::clone(&self.editor), self.history.clone());
        let read = tokio::task::spawn_blocking(move || {
            let mut editor = lock(&editor);
            let line = editor.readline("› ");
            // A history that cannot be saved does not stop the chat.
            let _ = editor.save_history(&history);
            line
        });
        match read.await.map_err(|error| failed(&error))? {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::from_error(ProblemCode::StreamError, error)
}
