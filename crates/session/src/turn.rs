//! Where a turn stands, and where it goes from there.
//!
//! Pure: the actor tells what happened and does what the answer says. Every pair of phase and input has
//! an answer, so no order of events can leave a turn open.
//!
//! Not here: ids, records, clocks, the agent.

use protocol::TurnOutcome;

/// Where a session stands between two turns or inside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No turn; a prompt may start one.
    Idle,
    /// The agent works.
    Running,
    /// The agent waits for this many answers; never zero.
    Waiting(usize),
    /// The agent was asked to stop; the turn will end like this.
    Stopping(TurnOutcome),
}

/// Something that happened to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// A message is there to be handed to the agent.
    Prompt,
    /// The agent asked for a permission or an answer.
    Asked,
    /// A pending permission or question was resolved.
    Answered,
    /// Somebody asked to stop the turn.
    Interrupt,
    /// Nothing came from the agent for too long, or its turn takes longer than the policy lets it.
    TooLong,
    /// The agent was asked to stop and had its time.
    GraceOver,
    /// The agent said that its turn is over.
    Done(TurnOutcome),
    /// The agent's process is gone.
    Gone,
    /// The session ends by command.
    Terminate,
}

/// What the actor must do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Record `turn.started` and hand the prompt to the agent.
    Start,
    /// The message has to wait for the end of the turn.
    Busy,
    /// Keep what was asked until somebody answers.
    Keep,
    /// Refuse what was asked at once: there is no turn it could belong to.
    Refuse,
    /// Resolve everything pending and ask the agent to stop.
    Stop,
    /// Resolve everything pending and record `turn.ended`.
    End(TurnOutcome),
    /// As `StopSession`, and the agent's process must die: it does not listen.
    Abandon(TurnOutcome),
}

impl Phase {
    /// The next phase, and what to do.
    #[expect(clippy::match_same_arms, reason = "a table is read row by row")]
    pub(crate) fn step(self, input: Input) -> (Self, Effect) {
        match (self, input) {
            (Self::Idle, Input::Prompt) => (Self::Running, Effect::Start),
            (_, Input::Prompt) => (self, Effect::Busy),

            (Self::Running, Input::Asked) => (Self::Waiting(1), Effect::Keep),
            (Self::Waiting(count), Input::Asked) => (Self::Waiting(count + 1), Effect::Keep),
            (Self::Idle | Self::Stopping(_), Input::Asked) => (self, Effect::Refuse),

            (Self::Waiting(count), Input::Answered) if count > 1 => (Self::Waiting(count - 1), Effect::None),
            (Self::Waiting(_), Input::Answered) => (Self::Running, Effect::None),
            (_, Input::Answered) => (self, Effect::None),

            (Self::Running | Self::Waiting(_), Input::Interrupt) => {
                (Self::Stopping(TurnOutcome::Interrupted), Effect::Stop)
            }
            // Whoever waits for a person is not silent, and has a deadline of its own.
            (Self::Running, Input::TooLong) => (Self::Stopping(TurnOutcome::TimedOut), Effect::Stop),
            (_, Input::Interrupt | Input::TooLong) => (self, Effect::None),

            (Self::Stopping(outcome), Input::GraceOver) => (Self::Idle, Effect::Abandon(outcome)),
            (_, Input::GraceOver) => (self, Effect::None),

            (Self::Idle, Input::Done(_) | Input::Gone | Input::Terminate) => (Self::Idle, Effect::None),
            // The agent had finished before it heard us: then the work is done, and the record says so.
            (Self::Stopping(_), Input::Done(TurnOutcome::Completed)) => {
                (Self::Idle, Effect::End(TurnOutcome::Completed))
            }
            (Self::Stopping(outcome), Input::Done(_) | Input::Gone) => (Self::Idle, Effect::End(outcome)),
            (_, Input::Done(outcome)) => (Self::Idle, Effect::End(outcome)),
            (_, Input::Gone) => (Self::Idle, Effect::End(TurnOutcome::Failed)),
            (_, Input::Terminate) => (Self::Idle, Effect::End(TurnOutcome::Interrupted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OUTCOMES: [TurnOutcome; 4] =
        [TurnOutcome::Completed, TurnOutcome::Failed, TurnOutcome::Interrupted, TurnOutcome::TimedOut];

    fn phases() -> Vec<Phase> {
        let stopping = [TurnOutcome::Interrupted, TurnOutcome::TimedOut].map(Phase::Stopping);
        [vec![Phase::Idle, Phase::Running, Phase::Waiting(1), Phase::Waiting(2)], stopping.to_vec()].concat()
    }

    fn inputs() -> Vec<Input> {
        let plain = vec![
            Input::Prompt,
            Input::Asked,
            Input::Answered,
            Input::Interrupt,
            Input::TooLong,
            Input::GraceOver,
            Input::Gone,
            Input::Terminate,
        ];
        [plain, OUTCOMES.map(Input::Done).to_vec()].concat()
    }

    #[test]
    fn the_whole_table() {
        let rows: Vec<String> = phases()
            .into_iter()
            .flat_map(|phase| inputs().into_iter().map(move |input| (phase, input)))
            .map(|(phase, input)| {
                let (next, effect) = phase.step(input);
                format!("{phase:?} + {input:?} -> {next:?}, {effect:?}")
            })
            .collect();
        insta::assert_snapshot!(rows.join("\n"));
    }

    fn any_input() -> impl Strategy<Value = Input> {
        proptest::sample::select(inputs())
    }

    proptest! {
        #[test]
        fn a_turn_starts_once_and_ends_once(script in prop::collection::vec(any_input(), 0..200)) {
            let (mut phase, mut open) = (Phase::Idle, false);
            for input in script {
                let (next, effect) = phase.step(input);
                match effect {
                    Effect::Start => {
                        prop_assert!(!open, "a second turn started in {phase:?}");
                        open = true;
                    }
                    Effect::End(_) | Effect::Abandon(_) => {
                        prop_assert!(open, "a turn ended that was not open, in {phase:?}");
                        open = false;
                    }
                    _ => {}
                }
                phase = next;
                prop_assert_eq!(open, phase != Phase::Idle);
                prop_assert_ne!(phase, Phase::Waiting(0));
            }
        }

        #[test]
        fn whatever_happened_the_agent_going_away_ends_it(script in prop::collection::vec(any_input(), 0..200)) {
            let phase = script.into_iter().fold(Phase::Idle, |phase, input| phase.step(input).0);
            prop_assert_eq!(phase.step(Input::Gone).0, Phase::Idle);
            prop_assert_eq!(phase.step(Input::Terminate).0, Phase::Idle);
        }
    }
}
