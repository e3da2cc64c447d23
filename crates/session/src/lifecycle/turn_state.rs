//! State machine of a turn.
//!
//! It is pure: the actor passes an input and carries out the returned effect. Every pair of state and input has a
//! transition, so no order of events can leave a turn open.
//!
//! Not here: ids, records, clocks, the agent.

use protocol::TurnOutcome;

/// The state of a session's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnState {
    /// No turn runs; a prompt can start one.
    Idle,
    /// The agent works.
    Running,
    /// The agent waits for this many answers, at least one.
    Waiting(usize),
    /// The agent was asked to stop; the turn will end with this outcome.
    Stopping(TurnOutcome),
}

/// Something that happened to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnInput {
    /// A prompt is ready for the agent.
    Prompt,
    /// The agent sent a permission request or a question.
    Asked,
    /// A pending request was resolved.
    Answered,
    /// A client asked to stop the turn.
    Interrupt,
    /// The agent was silent for too long, or the turn exceeded the policy's timeout.
    TimedOut,
    /// The agent was asked to stop and did not stop in time.
    StopTimedOut,
    /// The agent reported the end of its turn.
    Done(TurnOutcome),
    /// The agent process has exited.
    Exited,
    /// The session is being terminated.
    Terminate,
}

/// The action that the actor must take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEffect {
    /// Do nothing.
    None,
    /// Record `turn.started` and send the prompt to the agent.
    Start,
    /// Queue the message until the turn ends.
    Busy,
    /// Keep the request until a person answers.
    Keep,
    /// Refuse the request at once, because it belongs to no running turn.
    Refuse,
    /// Refuse all pending requests and ask the agent to stop.
    Stop,
    /// Refuse all pending requests and record `turn.ended`.
    End(TurnOutcome),
    /// As `End`, and kill the agent process, which did not stop.
    Abandon(TurnOutcome),
}

impl TurnState {
    /// Returns the next state and the effect of `input`.
    #[expect(clippy::match_same_arms, reason = "a table is read row by row")]
    pub(crate) fn step(self, input: TurnInput) -> (Self, TurnEffect) {
        match (self, input) {
            (Self::Idle, TurnInput::Prompt) => (Self::Running, TurnEffect::Start),
            (_, TurnInput::Prompt) => (self, TurnEffect::Busy),

            (Self::Running, TurnInput::Asked) => (Self::Waiting(1), TurnEffect::Keep),
            (Self::Waiting(count), TurnInput::Asked) => (Self::Waiting(count + 1), TurnEffect::Keep),
            (Self::Idle | Self::Stopping(_), TurnInput::Asked) => (self, TurnEffect::Refuse),

            (Self::Waiting(count), TurnInput::Answered) if count > 1 => (Self::Waiting(count - 1), TurnEffect::None),
            (Self::Waiting(_), TurnInput::Answered) => (Self::Running, TurnEffect::None),
            (_, TurnInput::Answered) => (self, TurnEffect::None),

            (Self::Running | Self::Waiting(_), TurnInput::Interrupt) => {
                (Self::Stopping(TurnOutcome::Interrupted), TurnEffect::Stop)
            }
            // An agent that waits for a person is not silent, and the request has its own deadline.
            (Self::Running, TurnInput::TimedOut) => (Self::Stopping(TurnOutcome::TimedOut), TurnEffect::Stop),
            (_, TurnInput::Interrupt | TurnInput::TimedOut) => (self, TurnEffect::None),

            (Self::Stopping(outcome), TurnInput::StopTimedOut) => (Self::Idle, TurnEffect::Abandon(outcome)),
            (_, TurnInput::StopTimedOut) => (self, TurnEffect::None),

            (Self::Idle, TurnInput::Done(_) | TurnInput::Exited | TurnInput::Terminate) => {
                (Self::Idle, TurnEffect::None)
            }
            // The agent had finished before it got the interrupt: the work is done.
            (Self::Stopping(_), TurnInput::Done(TurnOutcome::Completed)) => {
                (Self::Idle, TurnEffect::End(TurnOutcome::Completed))
            }
            (Self::Stopping(outcome), TurnInput::Done(_) | TurnInput::Exited) => (Self::Idle, TurnEffect::End(outcome)),
            (_, TurnInput::Done(outcome)) => (Self::Idle, TurnEffect::End(outcome)),
            (_, TurnInput::Exited) => (Self::Idle, TurnEffect::End(TurnOutcome::Failed)),
            (_, TurnInput::Terminate) => (Self::Idle, TurnEffect::End(TurnOutcome::Interrupted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTCOMES: [TurnOutcome; 4] =
        [TurnOutcome::Completed, TurnOutcome::Failed, TurnOutcome::Interrupted, TurnOutcome::TimedOut];

    fn states() -> Vec<TurnState> {
        let stopping = [TurnOutcome::Interrupted, TurnOutcome::TimedOut].map(TurnState::Stopping);
        [vec![TurnState::Idle, TurnState::Running, TurnState::Waiting(1), TurnState::Waiting(2)], stopping.to_vec()]
            .concat()
    }

    fn inputs() -> Vec<TurnInput> {
        let plain = vec![
            TurnInput::Prompt,
            TurnInput::Asked,
            TurnInput::Answered,
            TurnInput::Interrupt,
            TurnInput::TimedOut,
            TurnInput::StopTimedOut,
            TurnInput::Exited,
            TurnInput::Terminate,
        ];
        [plain, OUTCOMES.map(TurnInput::Done).to_vec()].concat()
    }

    #[test]
    fn transition_table() {
        let rows: Vec<String> = states()
            .into_iter()
            .flat_map(|state| inputs().into_iter().map(move |input| (state, input)))
            .map(|(state, input)| {
                let (next, effect) = state.step(input);
                format!("{state:?} + {input:?} -> {next:?}, {effect:?}")
            })
            .collect();
        insta::assert_snapshot!(rows.join("\n"));
    }

    fn any_input() -> impl Strategy<Value = TurnInput> {
        proptest::sample::select(inputs())
    }

    proptest! {
        #[test]
        fn every_turn_starts_once_and_ends_once(script in prop::collection::vec(any_input(), 0..200)) {
            let (mut state, mut open) = (TurnState::Idle, false);
            for input in script {
                let (next, effect) = state.step(input);
                match effect {
                    TurnEffect::Start => {
                        prop_assert!(!open, "a second turn started in {state:?}");
                        open = true;
                    }
                    TurnEffect::End(_) | TurnEffect::Abandon(_) => {
                        prop_assert!(open, "a turn ended that was not open, in {state:?}");
                        open = false;
                    }
                    _ => {}
                }
                state = next;
                prop_assert_eq!(open, state != TurnState::Idle);
                prop_assert_ne!(state, TurnState::Waiting(0));
            }
        }

        #[test]
        fn exit_and_termination_end_any_turn(script in prop::collection::vec(any_input(), 0..200)) {
            let state = script.into_iter().fold(TurnState::Idle, |state, input| state.step(input).0);
            prop_assert_eq!(state.step(TurnInput::Exited).0, TurnState::Idle);
            prop_assert_eq!(state.step(TurnInput::Terminate).0, TurnState::Idle);
        }
    }
}
