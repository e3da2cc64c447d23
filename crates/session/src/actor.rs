//! One session, run by one task.
//!
//! The actor is the only one that touches its sandbox, its agent and its turn, so nothing here is locked.
//! Commands come before deadlines and deadlines before output: an agent that never stops printing can
//! still be stopped. Whatever is told to a client or to the agent is on record first.

mod ask;
mod changes;
mod grants;
mod launch;
mod leave;
mod memory;
mod play;
mod queue;
mod reach;
mod settling;
mod tools;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use protocol::{Grant, TurnId, TurnOutcome};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::settling::Settling;
use crate::command::{Command, Reply};
use crate::host::SessionHost;
use crate::live::{Live, Sign};
use crate::pending::Pending;
use crate::plan::Plan;
use crate::queue::QueuedMessage;
use crate::receipts::{Content, Receipt, Receipts};
use crate::recorder::Recorder;
use crate::seat::{Departure, Seat};
use crate::turn::{Effect, Input, Phase};
use crate::{AcceptedMessage, SessionError, UserMessage, WhenBusy};

pub(crate) use ask::{Why, resolved_permission, resolved_question};
pub(crate) use changes::summary;

/// So many messages may wait in one session.
const QUEUE_CAP: usize = 64;
/// And so many more that steer: a session with a full queue is one that somebody must be able to turn.
const STEERING_CAP: usize = 8;

/// Whether the actor goes on.
type Flow = ControlFlow<()>;

/// One session.
pub(crate) struct Actor {
    host: Arc<SessionHost>,
    seat: Arc<Seat>,
    plan: Plan,
    recorder: Recorder,
    live: Option<Live>,
    phase: Phase,
    queue: VecDeque<Arc<QueuedMessage>>,
    receipts: Receipts,
    pending: Pending,
    /// What was allowed for the rest of the session.
    grants: Vec<Grant>,
    quiet: Quiet,
    /// When an agent that was asked to stop must have stopped.
    stop_by: Option<Instant>,
    /// When a grant ends, and what may be reached with it.
    grant_by: Option<Instant>,
    /// When the turn ends at the latest, as the policy says; while a person is waited for it goes on.
    turn_by: Instant,
    turns: u64,
    /// The agent was started at least once by this actor: what waits may start it again.
    woken: bool,
    /// The record broke off; what it left open is closed before anything else is written.
    torn: bool,
    /// What was last told of the workspace.
    told_changes: Option<protocol::WorkspaceChanged>,
    /// The record of the last turn, on its way to the disk.
    settling: Settling,
}

/// Since when nothing was heard, and up to which record.
struct Quiet {
    since: Instant,
    last: u64,
}

enum Happened {
    Command(Option<Box<Command>>),
    Settled(Result<(), SessionError>),
    Deadline,
    Sign(Sign),
}

impl Actor {
    /// Serves a session until it ends, is closed, or every handle to it is gone.
    pub(crate) async fn run(mut self: Box<Self>, mut commands: mpsc::Receiver<Box<Command>>) {
        loop {
            let deadline = self.next_deadline();
            let happened = tokio::select! {
                biased;
                command = commands.recv() => Happened::Command(command),
                () = until(deadline) => Happened::Deadline,
                outcome = self.settling.settled(), if self.settling.is_running() => Happened::Settled(outcome),
                sign = next_sign(self.live.as_mut()) => Happened::Sign(sign),
            };
            // Boxed: thousands of sessions wait above, and none of them needs room for what follows.
            match Box::pin(self.live_through(happened)).await {
                Flow::Continue(()) => self.pause(),
                Flow::Break(()) => break,
            }
        }
        // Who closed the host said so before; everything else that leads here has ended the session.
        self.seat.depart(Departure::Ended);
        self.host.leave(&self.seat);
    }

    async fn live_through(&mut self, happened: Happened) -> Flow {
        let flow = match happened {
            Happened::Command(Some(command)) => Ok(self.obey(*command).await),
            Happened::Command(None) => Ok(Flow::Break(())),
            Happened::Deadline => self.look_at_the_clock().await,
            Happened::Settled(outcome) => outcome.map(Flow::Continue),
            Happened::Sign(sign) => self.hear(sign).await,
        };
        let flow = match flow {
            Ok(Flow::Continue(())) => self.start_what_waits().await.map(Flow::Continue),
            other => other,
        };
        match flow {
            Ok(flow) => flow,
            Err(error) => {
                self.lose_record(&error).await;
                Flow::Continue(())
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Flow {
        match command {
            Command::Send(message, reply) => {
                let outcome = self.send(message).await;
                self.answer(reply, outcome).await;
            }
            Command::Unqueue(turn, reply) => {
                let outcome = self.unqueue(&turn).await;
                self.answer(reply, outcome).await;
            }
            Command::Resume(reply) => {
                let outcome = if self.live.is_none() { self.wake().await } else { Ok(()) };
                self.answer(reply, outcome).await;
            }
            Command::Interrupt(reply) => {
                let outcome = self.step(Input::Interrupt).await;
                self.answer(reply, outcome).await;
            }
            Command::Permission(id, answer, reply) => {
                let outcome = self.reply_permission(&id, answer).await;
                self.answer(reply, outcome).await;
            }
            Command::Question(id, answers, reply) => {
                let outcome = self.reply_question(&id, answers).await;
                self.answer(reply, outcome).await;
            }
            Command::Revoke(grant, reply) => {
                let outcome = self.revoke(&grant).await;
                self.answer(reply, outcome).await;
            }
            Command::Change(change, reply) => {
                let outcome = self.change(change).await;
                self.answer(reply, outcome).await;
            }
            Command::Terminate(reply) => {
                let outcome = self.terminate().await;
                let ended = outcome.is_ok();
                // The entry goes first: who hears the answer must not find the session still running.
                if ended {
                    self.host.leave(&self.seat);
                }
                self.answer(reply, outcome).await;
                return if ended { Flow::Break(()) } else { Flow::Continue(()) };
            }
            Command::Close => {
                self.seat.depart(Departure::HostCloses);
                self.close().await;
                return Flow::Break(());
            }
        }
        Flow::Continue(())
    }

    async fn answer<T>(&mut self, reply: Reply<T>, outcome: Result<T, SessionError>) {
        let broken = match &outcome {
            Err(SessionError::Journal(error)) => Some(error.to_string()),
            _ => None,
        };
        // Whoever asked may have left; what was done stays done.
        self.show();
        let _ = reply.send(outcome);
        if let Some(error) = broken {
            self.lose_record(&error).await;
        }
    }

    async fn send(&mut self, message: UserMessage) -> Result<AcceptedMessage, SessionError> {
        let content = Content::of(&message);
        if let Some(before) = self.receipts.find(message.client_message_id.as_deref()) {
            let name = || message.client_message_id.clone().unwrap_or_default();
            let same = before.content == content;
            return if same { Ok(before.accepted.clone()) } else { Err(SessionError::MessageIdReused(name())) };
        }
        if self.live.is_none() {
            self.wake().await?;
        }
        let sequence = self.recorder.last();
        let free = self.phase == Phase::Idle && self.queue.is_empty();
        if !free && message.when_busy == WhenBusy::Refuse {
            return Err(SessionError::TurnRunning(self.plan.id.clone()));
        }
        let room = if message.when_busy == WhenBusy::Steer { QUEUE_CAP + STEERING_CAP } else { QUEUE_CAP };
        if self.queue.len() >= room {
            return Err(SessionError::QueueFull { id: self.plan.id.clone(), waiting: self.queue.len() });
        }
        let turn = self.next_turn();
        let accepted = AcceptedMessage { turn_id: turn.clone(), sequence, queued: !free };
        let name = message.client_message_id.clone();
        if free {
            self.start_turn(turn, message).await?;
        } else {
            self.enqueue(turn, message).await?;
        }
        self.receipts.keep(name.as_deref(), Receipt { accepted: accepted.clone(), content });
        Ok(accepted)
    }

    fn next_turn(&mut self) -> TurnId {
        self.turns += 1;
        TurnId::numbered(self.plan.epoch, self.turns)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let running = self.phase == Phase::Running;
        let too_long = running.then(|| self.turn_by.min(self.quiet.since + self.host.config.timeouts.silence));
        [self.pending.first_deadline(), self.stop_by, self.grant_by, too_long].into_iter().flatten().min()
    }

    async fn look_at_the_clock(&mut self) -> Result<Flow, SessionError> {
        let now = Instant::now();
        self.expire(now).await?;
        if self.grant_by.is_some_and(|grant_by| grant_by <= now) {
            self.exchange_policy();
        }
        if self.stop_by.is_some_and(|stop_by| stop_by <= now) {
            self.step(Input::GraceOver).await?;
        }
        if self.phase == Phase::Running && self.turn_by <= now {
            self.step(Input::TooLong).await?;
        }
        if self.phase == Phase::Running && self.quiet.since + self.host.config.timeouts.silence <= now {
            self.consider_silence(now).await?;
        }
        Ok(Flow::Continue(()))
    }

    async fn consider_silence(&mut self, now: Instant) -> Result<(), SessionError> {
        let last = self.recorder.last();
        // The gateway writes into the same record: an agent whose model speaks is not silent.
        if last > self.quiet.last {
            self.quiet = Quiet { since: now, last };
            return Ok(());
        }
        self.step(Input::TooLong).await
    }

    fn heard(&mut self) {
        self.quiet = Quiet { since: Instant::now(), last: self.recorder.last() };
    }

    /// Tells the turn what happened and does what it answers.
    async fn step(&mut self, input: Input) -> Result<(), SessionError> {
        let (phase, effect) = self.phase.step(input);
        self.phase = phase;
        match effect {
            Effect::Stop => self.ask_to_stop().await,
            Effect::End(outcome) => self.end_turn(outcome, None).await,
            Effect::Abandon(outcome) => self.abandon(outcome).await,
            Effect::None | Effect::Start | Effect::Busy | Effect::Keep | Effect::Refuse => Ok(()),
        }
    }

    async fn end_turn(&mut self, outcome: TurnOutcome, reason: Option<&str>) -> Result<(), SessionError> {
        self.stop_by = None;
        self.void_pending(reason.unwrap_or("turn_ended"))?;
        self.keep_changes().await?;
        self.keep_memory().await;
        self.await_accounts(outcome).await;
        self.recorder.turn_ended(outcome, reason.map(|reason| serde_json::json!({"reason": reason})))?;
        // The next turn need not wait for the disk, but no more than one turn is on its way there.
        self.settling.settled().await?;
        self.settling.begin(&self.host.shelf, &self.plan.id, &self.recorder);
        Ok(())
    }

    /// An agent may end its turn at the last word of an answer, before the gateway has written what it cost.
    async fn await_accounts(&mut self, outcome: TurnOutcome) {
        // Who stopped an agent stopped its calls in the middle: they are read to their end without anybody waiting.
        if matches!(outcome, TurnOutcome::Completed | TurnOutcome::Failed) {
            let _ = tokio::time::timeout(self.host.config.timeouts.billing, self.recorder.turn.accounted()).await;
        }
    }

    /// Between two things that happen. A session that waits for its next turn holds no descriptor, so that
    /// thousands can wait.
    fn pause(&self) {
        self.show();
        if self.phase == Phase::Idle && self.queue.is_empty() && !self.settling.is_running() {
            self.seat.rest();
        }
    }

    /// Lets others see how it stands.
    fn show(&self) {
        self.seat.show(self.recorder.native_session_id.as_deref(), self.pending.told(), &self.grants, &self.queue);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn next_sign(live: Option<&mut Live>) -> Sign {
    match live {
        Some(live) => live.next().await,
        None => std::future::pending().await,
    }
}
