//! Handling of the changes at the end of `viv run`: keep, apply, discard or ask.

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionInfo, TurnOutcome};

use super::RunEnding;
use crate::args::OnFinish;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::prompter;
use crate::sessions::{apply, diff};

/// Maximum number of lines of a diff that is shown at the end.
const SHOWN_LINES: usize = 100;

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
    /// They are saved for review.
    Kept,
    /// They were applied or discarded.
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
    /// Keeps, applies or discards the changes.
    pub(super) async fn settle(&self, choice: OnFinish, ending: RunEnding) -> Result<ChangesOutcome, Failure> {
        let directory = host::data_dir(self.config)?.change_set(&self.session.session_id);
        if !directory.exists() {
            return Ok(ChangesOutcome::Kept);
        }
        match choice {
            OnFinish::Apply if ending == RunEnding::Turn(TurnOutcome::Completed) => self.apply(),
            OnFinish::Apply => {
                anstream::eprintln!("the turn was not completed: the changes are kept, not applied");
                Ok(ChangesOutcome::Kept)
            }
            OnFinish::Ask if matches!(ending, RunEnding::Turn(_)) => self.ask().await,
            OnFinish::Discard => self.discard(),
            OnFinish::Keep => self.show().map(|_| ChangesOutcome::Kept),
            OnFinish::Ask => Ok(ChangesOutcome::Kept),
        }
    }

    /// Shows the changes; returns false if there are none.
    fn show(&self) -> Result<bool, Failure> {
        let changed = diff::open(self.config, &self.session.session_id)?.changes().len() > 0;
        if changed {
            anstream::eprint!("{}", diff::stat(self.config, &self.session.session_id)?);
            let whole = diff::render(self.config, &self.session.session_id)?;
            // `viv sessions diff` shows a long diff.
            if whole.lines().count() <= SHOWN_LINES {
                anstream::eprint!("{whole}");
            }
        }
        Ok(changed)
    }

    async fn ask(&self) -> Result<ChangesOutcome, Failure> {
        if !self.show()? {
            return Ok(ChangesOutcome::Kept);
        }
        match prompter::ask_choice("changes? [a]pply · [d]iscard · [k]eep: ").await.as_str() {
            "a" | "apply" => self.apply(),
            "d" | "discard" => self.discard(),
            _ => Ok(ChangesOutcome::Kept),
        }
    }

    fn apply(&self) -> Result<ChangesOutcome, Failure> {
        anstream::eprint!("{}", apply::all(self.config, self.session, self.policy)?);
        Ok(ChangesOutcome::Done)
    }

    fn discard(&self) -> Result<ChangesOutcome, Failure> {
        let directory = host::data_dir(self.config)?.change_set(&self.session.session_id);
        let discarded = sandbox::discard(&directory);
        discarded.map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        anstream::eprintln!("the changes were discarded");
        Ok(ChangesOutcome::Done)
    }
}
