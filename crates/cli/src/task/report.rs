//! The report of a task: lines for a person while it runs, a JSON document at the end.

use std::path::Path;

use base::PrintableText;
use protocol::{ProblemCode, SessionId};
use sandbox::ExecResult;
use serde_json::{Value, json};
use session::AgentResponse;
use store::DataDir;

use super::TaskOutcome;
use super::document::TaskFile;
use crate::failure::Failure;
use crate::output::{self, message};

/// Report of a task.
pub(super) struct TaskReport {
    json: bool,
    task: String,
    test_id: Option<String>,
    session: Option<SessionId>,
    commands: Vec<Value>,
    answers: Vec<Value>,
    artifacts: Vec<(String, Vec<u8>)>,
    trajectory: Option<String>,
}

impl TaskReport {
    pub(super) fn new(file: &TaskFile, json: bool) -> Self {
        Self {
            json,
            task: file.name.clone(),
            test_id: file.test_id.clone(),
            session: None,
            commands: Vec::new(),
            answers: Vec::new(),
            artifacts: Vec::new(),
            trajectory: None,
        }
    }

    pub(super) fn begin(&mut self, session: &SessionId) {
        self.session = Some(session.clone());
        self.line(&format!("\x1b[1mtask\x1b[0m {} · session {session}", PrintableText::exact_line(&self.task)));
    }

    pub(super) fn started(&self, command: &[String]) {
        self.line(&format!("\x1b[34m▶\x1b[0m {}", PrintableText::exact_line(&command.join(" "))));
    }

    pub(super) fn finished(&mut self, command: &[String], result: &ExecResult) {
        let stdout = String::from_utf8_lossy(&result.stdout);
        self.indented(&stdout);
        self.commands.push(json!({
            "command": command,
            "exit_code": result.exit.code,
            "signal": result.exit.signal,
            "timed_out": result.timed_out,
            "wall_micros": u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX),
            "stdout": stdout,
            "stderr": String::from_utf8_lossy(&result.stderr),
        }));
    }

    pub(super) fn prompted(&self, prompt: &str) {
        self.line(&format!("\x1b[34m▶\x1b[0m {}", PrintableText::exact(prompt)));
    }

    pub(super) fn answered(&mut self, response: &AgentResponse) {
        self.indented(&response.text);
        let AgentResponse { text, usage, cost_picos, unpriced_calls, .. } = response;
        self.answers
            .push(json!({"text": text, "usage": usage, "cost_picos": cost_picos, "unpriced_calls": unpriced_calls}));
    }

    /// Reports an artifact; `is_expected` says whether its content is as expected.
    pub(super) fn artifact(&mut self, path: &str, content: &[u8], is_expected: bool) {
        let mark = if is_expected { "\x1b[32m✓\x1b[0m" } else { "\x1b[31m✗\x1b[0m" };
        self.line(&format!("{mark} artifact {} · {} bytes", PrintableText::exact_line(path), content.len()));
        self.artifacts.push((path.to_owned(), content.to_vec()));
    }

    /// Copies the journal and the artifacts to `logs`. An earlier failure takes precedence over a failed copy.
    pub(super) fn save(
        &mut self,
        file: &TaskFile,
        directory: &DataDir,
        outcome: Result<TaskOutcome, Failure>,
    ) -> Result<TaskOutcome, Failure> {
        let (Some(logs), Some(session)) = (&file.logs, self.session.clone()) else { return outcome };
        let saved = self.copy(logs, &session, directory).map_err(|error| {
            Failure::new(ProblemCode::RuntimeError, format!("cannot write to `{}`", logs.display())).because(&error)
        });
        outcome.and_then(|outcome| saved.map(|()| outcome))
    }

    fn copy(&mut self, logs: &Path, session: &SessionId, directory: &DataDir) -> std::io::Result<()> {
        let trajectory = logs.join("trajectory");
        std::fs::create_dir_all(&trajectory)?;
        let copied = trajectory.join(format!("{session}.jsonl"));
        std::fs::copy(directory.journal(session), &copied)?;
        self.trajectory = Some(copied.to_string_lossy().into_owned());
        for (path, content) in &self.artifacts {
            let target = logs.join("artifacts").join(session.as_str());
            std::fs::create_dir_all(&target)?;
            // The whole path becomes the file name, so names are unique and stay in this folder.
            std::fs::write(target.join(path.trim_start_matches('/').replace('/', "_")), content)?;
        }
        Ok(())
    }

    /// Prints the end of the report: a JSON document, or a line for a person.
    pub(super) fn print(&self, outcome: &Result<TaskOutcome, Failure>) -> Result<(), Failure> {
        if self.json {
            let text = format!("{}\n", self.document(outcome));
            return output::write_json(&text).map_err(|error| Failure::output_failed(&error));
        }
        if let Some(trajectory) = &self.trajectory {
            self.line(&format!("trajectory {trajectory}"));
        }
        match outcome {
            Ok(TaskOutcome::Done) => self.line(&format!("\x1b[32m✔\x1b[0m {} passed", self.name())),
            Ok(TaskOutcome::Stopped(_)) => self.line(&format!("{} was stopped", self.name())),
            Err(failure) => self.line(&format!("\x1b[31m✘\x1b[0m {} failed: {}", self.name(), failure.code().as_str())),
        }
        Ok(())
    }

    fn name(&self) -> PrintableText {
        PrintableText::exact_line(self.test_id.as_deref().unwrap_or(&self.task))
    }

    pub(super) fn document(&self, outcome: &Result<TaskOutcome, Failure>) -> Value {
        let (word, failure) = match outcome {
            Ok(TaskOutcome::Done) => ("passed", None),
            Ok(TaskOutcome::Stopped(_)) => ("stopped", None),
            Err(failure) => ("failed", Some(json!({"class": failure.code().as_str(), "message": failure.to_string()}))),
        };
        let artifacts = self.artifacts.iter().map(
            |(path, content)| json!({"path": path, "bytes": content.len(), "text": String::from_utf8_lossy(content)}),
        );
        json!({
            "task": self.task,
            "test_id": self.test_id,
            "session": self.session,
            "outcome": word,
            "failure": failure,
            "commands": self.commands,
            "answers": self.answers,
            "artifacts": artifacts.collect::<Vec<_>>(),
            "trajectory": self.trajectory,
        })
    }

    /// Prints output of a program or an agent.
    fn indented(&self, text: &str) {
        for line in PrintableText::clean(text).as_str().lines() {
            self.line(&format!("  {line}"));
        }
    }

    fn line(&self, line: &str) {
        if !self.json {
            message!("{line}");
        }
    }
}
