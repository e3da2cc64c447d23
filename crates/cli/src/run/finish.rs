//! Handling of the changes at the end of `viv run`: keep, apply, discard or ask.

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionEndReason, SessionEnded, SessionInfo, TurnOutcome};
use sandbox::{SavedChanges, render_diff};

use super::RunEnding;
use crate::args::OnFinish;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::{message, print_message_part};
use crate::prompter;
use crate::sessions::consent::{ShownPart, ShownSet};
use crate::sessions::{apply, diff};

/// Maximum number of lines of a diff that is shown at the end.
const SHOWN_LINES: usize = 100;

/// The answers to the question about the changes.
const CHOICES: [&str; 6] = ["a", "apply", "d", "discard", "k", "keep"];

/// The changes of a run.
pub(super) struct RunChanges<'a> {
    pub(super) config: &'a Config,
    pub(super) session: &'a SessionInfo,
    /// Policy of the session.
    pub(super) policy: &'a EffectivePolicy,
}

/// Result of handling the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangesOutcome {
    /// The session changed nothing.
    Unchanged,
    /// The changes are saved for review.
    Kept,
    /// The changes were applied or discarded.
    Done,
}

/// Fails if `--on-finish=ask` is used without a terminal.
pub(super) fn check(choice: OnFinish, on_terminal: bool) -> Result<(), Failure> {
    if choice == OnFinish::Ask && !on_terminal {
        let what = "`--on-finish=ask` needs a terminal";
        return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv run --on-finish=keep mock hello"));
    }
    Ok(())
}

impl RunChanges<'_> {
    /// Keeps, applies or discards the changes. The set that is shown is the set that is applied.
    pub(super) async fn settle(&self, choice: OnFinish, ending: RunEnding) -> Result<ChangesOutcome, Failure> {
        let directory = host::data_dir(self.config)?.change_set(&self.session.session_id);
        if !directory.exists() {
            return Ok(ChangesOutcome::Unchanged);
        }
        let mut saved = diff::open(self.config, &self.session.session_id, None)?;
        if saved.changes().len() == 0 && choice != OnFinish::Discard {
            return Ok(ChangesOutcome::Unchanged);
        }
        match choice {
            OnFinish::Apply if ending == RunEnding::Turn(TurnOutcome::Completed) => {
                print_message_part(&self.shown(&saved)?);
                self.apply(&mut saved)
            }
            OnFinish::Apply => {
                message!("the turn was not completed: the changes are kept, not applied");
                Ok(ChangesOutcome::Kept)
            }
            OnFinish::Ask if matches!(ending, RunEnding::Turn(_)) => self.ask(&mut saved).await,
            OnFinish::Discard => self.discard(),
            OnFinish::Keep => self.show(&saved).map(|()| ChangesOutcome::Kept),
            OnFinish::Ask => Ok(ChangesOutcome::Kept),
        }
    }

    /// Returns the number, digest and paths of the set.
    fn shown(&self, saved: &SavedChanges) -> Result<String, Failure> {
        let summary = saved.summary().map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        ShownSet { saved, session: self.session, paths: &[], part: ShownPart::Files }.text(&summary)
    }

    /// Shows the set, and its diff unless that is long.
    fn show(&self, saved: &SavedChanges) -> Result<(), Failure> {
        print_message_part(&self.shown(saved)?);
        let whole = render_diff(saved, None).map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        // `viv sessions diff` shows a long diff.
        if whole.lines().count() <= SHOWN_LINES {
            print_message_part(&whole);
        }
        Ok(())
    }

    async fn ask(&self, saved: &mut SavedChanges) -> Result<ChangesOutcome, Failure> {
        self.show(saved)?;
        match prompter::ask_choice("changes? [a]pply · [d]iscard · [k]eep: ", &CHOICES).await.as_str() {
            "a" | "apply" => self.apply(saved),
            "d" | "discard" => self.discard(),
            _ => Ok(ChangesOutcome::Kept),
        }
    }

    fn apply(&self, saved: &mut SavedChanges) -> Result<ChangesOutcome, Failure> {
        print_message_part(&apply::shown(saved, self.session, self.policy)?);
        Ok(ChangesOutcome::Done)
    }

    fn discard(&self) -> Result<ChangesOutcome, Failure> {
        let directory = host::data_dir(self.config)?.change_set(&self.session.session_id);
        let discarded = sandbox::discard(&directory);
        discarded.map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        message!("the changes were discarded");
        Ok(ChangesOutcome::Done)
    }
}

/// Returns the outcome of a turn that the end of its session ended.
pub(super) fn outcome_of(ended: &SessionEnded) -> TurnOutcome {
    match ended.reason {
        SessionEndReason::Completed => TurnOutcome::Completed,
        SessionEndReason::Error => TurnOutcome::Failed,
        SessionEndReason::Terminated => TurnOutcome::Interrupted,
    }
}
