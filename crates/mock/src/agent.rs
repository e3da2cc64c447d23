//! The agent's life: wait for a prompt, take a turn, wait again.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use agents::{AgentLine, HostLine, PermissionMode};
use protocol::{Attachment, TurnOutcome};
use serde_json::Value;
use uuid::Uuid;

use crate::inbox::{Arrival, Inbox};
use crate::stop::Stop;
use crate::text_command::TextCommand;
use crate::voice::Voice;
use crate::{MockSettings, ProcessEnd};

/// The agent and all it remembers.
pub(crate) struct Agent<W> {
    pub(crate) settings: MockSettings,
    pub(crate) voice: Voice<W>,
    pub(crate) inbox: Inbox,
    /// The permission mode now; leaving plan mode changes it.
    pub(crate) mode: PermissionMode,
    /// Programs that may run without asking again.
    pub(crate) allowed: BTreeSet<String>,
    /// The conversation, as the model sees it.
    pub(crate) history: Vec<Value>,
    /// Model calls, commands, permissions and questions so far: each has a number.
    pub(crate) counter: u64,
    prompts: VecDeque<(String, Vec<Attachment>)>,
    closed: bool,
}

impl<W: Write> Agent<W> {
    pub(crate) fn new(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: W) -> Self {
        Self {
            voice: Voice::new(stdout, settings.delay),
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

    /// From the first line to the last.
    pub(crate) fn live(mut self) -> ProcessEnd {
        match self.turns() {
            Stop::Ending(ending) => ending,
            Stop::Interrupted | Stop::Failed => ProcessEnd::Exit(0),
        }
    }

    fn turns(&mut self) -> Stop {
        if let Err(stop) = self.greet() {
            return stop;
        }
        loop {
            let turn = self.next_prompt().and_then(|(text, attachments)| self.turn(&text, &attachments));
            if let Err(stop) = turn {
                return stop;
            }
        }
    }

    fn greet(&mut self) -> Result<(), Stop> {
        let resumed = self.settings.resume.is_some();
        let session = self.settings.resume.clone().unwrap_or_else(|| format!("mock-{}", Uuid::now_v7()));
        let (model, mode) = (self.settings.model.clone(), self.mode.as_str().to_owned());
        Ok(self.voice.say(&AgentLine::Ready { session, resumed, model, mode })?)
    }

    fn turn(&mut self, text: &str, attachments: &[Attachment]) -> Result<(), Stop> {
        let done = match TextCommand::parse(text) {
            Some(command) => self.obey(&command),
            None => self.converse(text, attachments),
        };
        let outcome = match done {
            Ok(()) => TurnOutcome::Completed,
            Err(Stop::Interrupted) => TurnOutcome::Interrupted,
            Err(Stop::Failed) => TurnOutcome::Failed,
            Err(ending @ Stop::Ending(_)) => return Err(ending),
        };
        Ok(self.voice.say(&AgentLine::TurnEnded { outcome })?)
    }

    /// The next prompt; when our input is closed and all prompts are done, the end.
    fn next_prompt(&mut self) -> Result<(String, Vec<Attachment>), Stop> {
        loop {
            if let Some(prompt) = self.prompts.pop_front() {
                return Ok(prompt);
            }
            if self.closed {
                return Err(Stop::Ending(ProcessEnd::Exit(0)));
            }
            let heard = self.wait(|arrival| matches!(arrival, Arrival::Host(_) | Arrival::Closed).then_some(()));
            // An interrupt between two turns has nothing to stop.
            if let Err(ending @ Stop::Ending(_)) = heard {
                return Err(ending);
            }
        }
    }

    /// Waits until `wanted` takes an arrival. Prompts are kept for later, an interrupt ends the wait.
    pub(crate) fn wait<T>(&mut self, wanted: impl FnMut(&Arrival) -> Option<T>) -> Result<T, Stop> {
        self.wait_until(None, wanted).and_then(|found| found.ok_or(Stop::Interrupted))
    }

    /// Waits for a while; only an interrupt ends it early.
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), Stop> {
        self.wait_until(Some(Instant::now() + time), |_| None::<()>).map(|_| ())
    }

    fn wait_until<T>(
        &mut self,
        deadline: Option<Instant>,
        mut wanted: impl FnMut(&Arrival) -> Option<T>,
    ) -> Result<Option<T>, Stop> {
        // What closed earlier is closed for every later wait too.
        if self.closed
            && deadline.is_none()
            && let Some(found) = wanted(&Arrival::Closed)
        {
            return Ok(Some(found));
        }
        loop {
            let arrival = match deadline {
                Some(deadline) => {
                    self.inbox.arrivals.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
                }
                None => self.inbox.arrivals.recv().ok(),
            };
            let Some(arrival) = arrival else { return Ok(None) };
            let found = wanted(&arrival);
            match arrival {
                Arrival::Host(HostLine::Prompt { text, attachments }) => self.prompts.push_back((text, attachments)),
                Arrival::Host(HostLine::Interrupt) => return Err(Stop::Interrupted),
                Arrival::Unreadable(error) => {
                    self.voice.error(format!("cannot read the host's line: {error}"), "invalid_request")?;
                }
                Arrival::Closed => self.closed = true,
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
