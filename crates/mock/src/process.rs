//! The main loop: wait for a prompt, run a turn, repeat.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use agents::{AgentLine, HostLine, PermissionMode};
use protocol::{Attachment, TurnOutcome};
use serde_json::Value;
use uuid::Uuid;

use crate::inbox::{Inbox, InboxMessage};
use crate::line_printer::LinePrinter;
use crate::text_command::TextCommand;
use crate::turn_stop::TurnStop;
use crate::{MockSettings, ProcessEnd};

/// The state of the mock agent.
pub(crate) struct MockProcess<W> {
    pub(crate) settings: MockSettings,
    pub(crate) printer: LinePrinter<W>,
    pub(crate) inbox: Inbox,
    /// The current permission mode; approving a plan ends plan mode.
    pub(crate) mode: PermissionMode,
    /// Programs that can run without a further permission.
    pub(crate) allowed: BTreeSet<String>,
    /// The conversation in the format of the model API.
    pub(crate) history: Vec<Value>,
    /// The last number given to a model call, command, permission or question.
    pub(crate) counter: u64,
    prompts: VecDeque<(String, Vec<Attachment>)>,
    closed: bool,
}

impl<W: Write> MockProcess<W> {
    pub(crate) fn new(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: W) -> Self {
        Self {
            printer: LinePrinter::new(stdout, settings.delay),
            inbox: Inbox::open(stdin),
            mode: settings.mode,
            allowed: BTreeSet::new(),
            history: Vec::new(),
            counter: 0,
            prompts: VecDeque::new(),
            closed: false,
            settings,
        }
    }

    /// Runs the agent from its first line to its end.
    pub(crate) fn run(mut self) -> ProcessEnd {
        match self.run_turns() {
            TurnStop::ProcessEnds(ending) => ending,
            TurnStop::Interrupted | TurnStop::Failed => ProcessEnd::Exit(0),
        }
    }

    fn run_turns(&mut self) -> TurnStop {
        if let Err(stop) = self.print_ready() {
            return stop;
        }
        loop {
            let turn = self.next_prompt().and_then(|(text, attachments)| self.run_turn(&text, &attachments));
            if let Err(stop) = turn {
                return stop;
            }
        }
    }

    fn print_ready(&mut self) -> Result<(), TurnStop> {
        let resumed = self.settings.resume.is_some();
        let session = self.settings.resume.clone().unwrap_or_else(|| format!("mock-{}", Uuid::now_v7()));
        let (model, mode) = (self.settings.model.clone(), self.mode.as_str().to_owned());
        Ok(self.printer.print_line(&AgentLine::Ready { session, resumed, model, mode })?)
    }

    fn run_turn(&mut self, text: &str, attachments: &[Attachment]) -> Result<(), TurnStop> {
        let done = match TextCommand::parse(text) {
            Some(command) => self.run_text_command(&command),
            None => self.run_model_turn(text, attachments),
        };
        let outcome = match done {
            Ok(()) => TurnOutcome::Completed,
            Err(TurnStop::Interrupted) => TurnOutcome::Interrupted,
            Err(TurnStop::Failed) => TurnOutcome::Failed,
            Err(ending @ TurnStop::ProcessEnds(_)) => return Err(ending),
        };
        Ok(self.printer.print_line(&AgentLine::TurnEnded { outcome })?)
    }

    /// Returns the next prompt. Stops the process when stdin is closed and all prompts are done.
    fn next_prompt(&mut self) -> Result<(String, Vec<Attachment>), TurnStop> {
        loop {
            if let Some(prompt) = self.prompts.pop_front() {
                return Ok(prompt);
            }
            if self.closed {
                return Err(TurnStop::ProcessEnds(ProcessEnd::Exit(0)));
            }
            let result =
                self.wait(|message| matches!(message, InboxMessage::Host(_) | InboxMessage::Closed).then_some(()));
            // An interrupt between two turns has no effect.
            if let Err(ending @ TurnStop::ProcessEnds(_)) = result {
                return Err(ending);
            }
        }
    }

    /// Waits until `wanted` accepts a message. Prompts are queued, and an interrupt ends the wait.
    pub(crate) fn wait<T>(&mut self, wanted: impl FnMut(&InboxMessage) -> Option<T>) -> Result<T, TurnStop> {
        self.wait_until(None, wanted).and_then(|found| found.ok_or(TurnStop::Interrupted))
    }

    /// Waits for a time. Only an interrupt ends the wait early.
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), TurnStop> {
        self.wait_until(Some(Instant::now() + time), |_| None::<()>).map(|_| ())
    }

    fn wait_until<T>(
        &mut self,
        deadline: Option<Instant>,
        mut wanted: impl FnMut(&InboxMessage) -> Option<T>,
    ) -> Result<Option<T>, TurnStop> {
        // A closed stdin also ends every later wait.
        if self.closed
            && deadline.is_none()
            && let Some(found) = wanted(&InboxMessage::Closed)
        {
            return Ok(Some(found));
        }
        loop {
            let message = match deadline {
                Some(deadline) => {
                    self.inbox.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
                }
                None => self.inbox.messages.recv().ok(),
            };
            let Some(message) = message else { return Ok(None) };
            let found = wanted(&message);
            match message {
                InboxMessage::Host(HostLine::Prompt { text, attachments }) => {
                    self.prompts.push_back((text, attachments));
                }
                InboxMessage::Host(HostLine::Interrupt) => return Err(TurnStop::Interrupted),
                InboxMessage::Unreadable(error) => {
                    self.printer.print_error(format!("invalid line from the host: {error}"), "invalid_request")?;
                }
                InboxMessage::Closed => self.closed = true,
                _ => {}
            }
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}
