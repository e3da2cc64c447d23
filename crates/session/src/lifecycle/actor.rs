//! The actor of a session: one task that owns the sandbox, the agent and the turn.
//!
//! Nothing else touches them, so nothing here is locked. Commands are served before deadlines, and deadlines before
//! output, so that an agent that never stops printing can still be stopped. Every event is recorded before a client
//! or the agent sees it.

mod agent_memory;
mod ending;
mod grants;
mod launch;
mod message_queue;
mod permissions;
mod policy_update;
mod saved_changes;
mod status;
mod storage_limit;
mod tool_gate;
mod turn_sync;
mod turns;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use protocol::{Grant, SessionStatus};
use store::{StorageExceeded, StorageMeter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::turn_sync::TurnSync;
use crate::SessionError;
use crate::lifecycle::{
    ActorCommand, ActorExit, AgentProcess, AgentSignal, MessageReceipts, PendingRequests, QueuedMessage, Recorder,
    ReplySender, SessionHandle, SessionHost, SessionPlan, TurnInput, TurnState,
};

pub use grants::grant_pattern;
pub(crate) use permissions::{resolved_permission, resolved_question};
pub(crate) use saved_changes::summarize_changes;

/// Whether the actor continues.
type Flow = ControlFlow<()>;

/// The actor of one session.
pub(crate) struct Actor {
    host: Arc<SessionHost>,
    handle: Arc<SessionHandle>,
    plan: SessionPlan,
    recorder: Recorder,
    agent: Option<AgentProcess>,
    turn: TurnState,
    queue: VecDeque<Arc<QueuedMessage>>,
    receipts: MessageReceipts,
    pending: PendingRequests,
    /// Permissions that a person gave for the rest of the session.
    grants: Vec<Grant>,
    silence: SilenceTimer,
    /// When an agent that was asked to stop is killed.
    stop_deadline: Option<Instant>,
    /// When the next policy grant expires.
    grant_deadline: Option<Instant>,
    /// When the turn times out by its policy. Checked only while the agent works, not while it waits for a person.
    turn_deadline: Instant,
    /// When the free disk space is checked again, while a turn runs.
    space_deadline: Instant,
    turn_count: u64,
    /// Whether this actor has started the agent. Queued messages start the agent again only after that.
    agent_started: bool,
    /// Whether a journal write failed. Open items are closed before the next write.
    journal_broken: bool,
    /// The changes that were last recorded in `workspace.changed`.
    recorded_changes: Option<protocol::WorkspaceChanged>,
    /// When the agent is stopped because no turn runs.
    idle_deadline: Option<Instant>,
    /// When the session ends, by the host's configuration.
    ttl_deadline: Option<Instant>,
    /// The fsync of the last turn.
    turn_sync: TurnSync,
    /// The last recorded status.
    status: SessionStatus,
    /// Why the agent was stopped, until that is recorded.
    sleep_reason: Option<&'static str>,
}

/// When something last happened, and the number of the last record then.
struct SilenceTimer {
    since: Instant,
    last_sequence: u64,
}

/// Something that wakes the actor.
enum ActorEvent {
    Command(Option<Box<ActorCommand>>),
    Synced(Result<(), SessionError>),
    Deadline,
    StorageReached(StorageExceeded),
    Signal(AgentSignal),
}

impl Actor {
    /// Serves a session until it ends, the host closes it, or every handle to it is dropped.
    pub(crate) async fn run(mut self: Box<Self>, mut commands: mpsc::Receiver<Box<ActorCommand>>) {
        loop {
            let deadline = self.next_deadline();
            let event = tokio::select! {
                biased;
                command = commands.recv() => ActorEvent::Command(command),
                () = until(deadline) => ActorEvent::Deadline,
                exceeded = storage_reached(self.recorder.storage()), if self.agent.is_some() => {
                    ActorEvent::StorageReached(exceeded)
                }
                outcome = self.turn_sync.wait(), if self.turn_sync.is_running() => ActorEvent::Synced(outcome),
                signal = next_signal(self.agent.as_mut()) => ActorEvent::Signal(signal),
            };
            // Boxed: thousands of idle sessions wait above, and must not reserve memory for the work below.
            match Box::pin(self.handle_event(event)).await {
                Flow::Continue(()) => self.publish_and_release(),
                Flow::Break(()) => break,
            }
        }
        // A closing host has set its reason before; every other way here has ended the session.
        self.handle.set_exit(ActorExit::Ended);
        self.host.unregister(&self.handle);
    }

    async fn handle_event(&mut self, event: ActorEvent) -> Flow {
        let flow = match event {
            ActorEvent::Command(Some(command)) => Ok(self.execute(*command).await),
            ActorEvent::Command(None) => Ok(Flow::Break(())),
            ActorEvent::Deadline => self.handle_deadline().await,
            ActorEvent::Synced(outcome) => outcome.map(Flow::Continue),
            ActorEvent::StorageReached(exceeded) => Err(exceeded.into()),
            ActorEvent::Signal(signal) => self.handle_signal(signal).await,
        };
        let flow = match flow {
            Ok(Flow::Continue(())) => self.start_queued().await.map(Flow::Continue),
            other => other,
        };
        match flow {
            Ok(flow) => flow,
            Err(error) => {
                self.handle_failure(&error).await;
                Flow::Continue(())
            }
        }
    }

    async fn execute(&mut self, command: ActorCommand) -> Flow {
        match command {
            ActorCommand::Send(message, reply) => {
                let outcome = self.accept_message(message).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Unqueue(turn, reply) => {
                let outcome = self.unqueue(&turn).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Resume(reply) => {
                let outcome = if self.agent.is_none() { self.resume_agent().await } else { Ok(()) };
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::RunQueue => self.run_queue(),
            ActorCommand::Drain(draining) => self.tell_draining(draining),
            ActorCommand::Interrupt(reply) => {
                let outcome = self.advance_turn(TurnInput::Interrupt).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Permission(id, answer, reply) => {
                let outcome = self.reply_permission(&id, answer).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Question(id, answers, reply) => {
                let outcome = self.reply_question(&id, answers).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Revoke(grant, reply) => {
                let outcome = self.revoke(&grant).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::ChangePolicy(change, reply) => {
                let outcome = self.change_policy(change).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Update(update, reply) => {
                let outcome = self.update(update).await;
                self.reply_to(reply, outcome).await;
            }
            ActorCommand::Terminate(reply) => {
                let outcome = self.terminate().await;
                let ended = outcome.is_ok();
                // Unregistered first: a caller who has the reply must not find the session still running.
                if ended {
                    self.host.unregister(&self.handle);
                }
                self.reply_to(reply, outcome).await;
                return if ended { Flow::Break(()) } else { Flow::Continue(()) };
            }
            ActorCommand::Close => {
                self.handle.set_exit(ActorExit::HostCloses);
                self.close().await;
                return Flow::Break(());
            }
        }
        Flow::Continue(())
    }

    async fn reply_to<T>(&mut self, reply: ReplySender<T>, outcome: Result<T, SessionError>) {
        let (journal_error, exceeded) = match &outcome {
            Err(SessionError::Journal(error)) => (Some(error.to_string()), None),
            // Without an agent, the command was refused before it changed anything.
            Err(SessionError::Storage(exceeded)) => (None, Some(*exceeded).filter(|_| self.agent.is_some())),
            _ => (None, None),
        };
        self.publish_snapshot();
        // The caller may be gone; the command has taken effect all the same.
        let _ = reply.send(outcome);
        if let Some(error) = journal_error {
            self.handle_journal_failure(&error).await;
        }
        if let Some(exceeded) = exceeded {
            self.handle_failure(&exceeded.into()).await;
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let running = self.turn == TurnState::Running;
        let timeout = running.then(|| self.turn_deadline.min(self.silence.since + self.host.config.timeouts.silence));
        let space_check = (self.turn != TurnState::Idle).then_some(self.space_deadline);
        let lives = [self.idle_deadline, self.ttl_deadline].into_iter().flatten().min();
        [self.pending.first_deadline(), self.stop_deadline, self.grant_deadline, timeout, space_check, lives]
            .into_iter()
            .flatten()
            .min()
    }

    async fn handle_deadline(&mut self) -> Result<Flow, SessionError> {
        let now = Instant::now();
        self.expire(now).await?;
        if self.grant_deadline.is_some_and(|deadline| deadline <= now) {
            self.apply_policy();
        }
        if self.stop_deadline.is_some_and(|deadline| deadline <= now) {
            self.advance_turn(TurnInput::StopTimedOut).await?;
        }
        if self.turn != TurnState::Idle && self.space_deadline <= now {
            self.space_deadline = now + self.host.config.timeouts.free_space_check;
            self.host.store.check_free_space()?;
        }
        if self.turn == TurnState::Running && self.turn_deadline <= now {
            self.advance_turn(TurnInput::TimedOut).await?;
        }
        if self.turn == TurnState::Running && self.silence.since + self.host.config.timeouts.silence <= now {
            self.check_silence(now).await?;
        }
        self.check_lifetime(now).await
    }

    async fn check_silence(&mut self, now: Instant) -> Result<(), SessionError> {
        let last_sequence = self.recorder.last();
        // The gateway writes to the same journal: an agent that waits for a streaming model is not silent.
        if last_sequence > self.silence.last_sequence {
            self.silence = SilenceTimer { since: now, last_sequence };
            return Ok(());
        }
        self.advance_turn(TurnInput::TimedOut).await
    }

    fn reset_silence(&mut self) {
        self.silence = SilenceTimer { since: Instant::now(), last_sequence: self.recorder.last() };
    }

    /// Publishes the snapshot, and closes files while the session is idle, so that thousands of sessions can wait
    /// without holding a descriptor.
    fn publish_and_release(&mut self) {
        self.publish_snapshot();
        if self.turn == TurnState::Idle && self.queue.is_empty() && !self.turn_sync.is_running() {
            self.handle.release_files();
        }
    }

    fn publish_snapshot(&mut self) {
        self.note_status();
        let native_session_id = self.recorder.native_session_id.as_deref();
        self.handle.publish(native_session_id, self.pending.requests(), &self.grants, &self.queue);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn storage_reached(storage: Option<&Arc<StorageMeter>>) -> StorageExceeded {
    match storage {
        Some(storage) => storage.reached().await,
        None => std::future::pending().await,
    }
}

async fn next_signal(agent: Option<&mut AgentProcess>) -> AgentSignal {
    match agent {
        Some(agent) => agent.next().await,
        None => std::future::pending().await,
    }
}
