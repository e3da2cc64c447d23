//! What becomes of a session's changes when its turn is done.

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionInfo, TurnOutcome};

use super::RunEnding;
use crate::args::OnFinish;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::prompter;
use crate::sessions::{apply, diff};

/// A diff of so many lines is shown when a session is over.
const SHOWN_LINES: usize = 100;

/// What a session leaves.
pub(super) struct RunChanges<'a> {
    pub(super) config: &'a Config,
    pub(super) session: &'a SessionInfo,
    /// What the session was under.
    pub(super) policy: &'a EffectivePolicy,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangesOutcome {
    /// It is there to be looked at.
    Kept,
    /// It is on the host, or gone.
    Done,
}

/// Refuses, before anything is done, to ask where nobody can answer.
pub(super) fn check(wish: OnFinish, on_terminal: bool) -> Result<(), Failure> {
    if wish == OnFinish::Ask && !on_terminal {
        let what = "`--on-finish=ask` needs a terminal to ask on";
        return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv run --on-finish=keep AGENT PROMPT"));
    }
    Ok(())
}

impl RunChanges<'_> {
    /// Does to the changes what was wished.
    pub(super) async fn settle(&self, wish: OnFinish, ending: RunEnding) -> Result<ChangesOutcome, Failure> {
        let directory = host::data_dir(self.config)?.changes(&self.session.session_id);
        if !directory.exists() {
            return Ok(ChangesOutcome::Kept);
        }
        match wish {
            OnFinish::Apply if ending == RunEnding::Turn(TurnOutcome::Completed) => self.apply(),
            OnFinish::Apply => {
                anstream::eprintln!("the turn was not completed: its changes are kept, not applied");
                Ok(ChangesOutcome::Kept)
            }
            OnFinish::Ask if matches!(ending, RunEnding::Turn(_)) => self.ask().await,
            OnFinish::Discard => self.discard(),
            OnFinish::Keep => self.tell().map(|_| ChangesOutcome::Kept),
            OnFinish::Ask => Ok(ChangesOutcome::Kept),
        }
    }

    /// Shows what was changed; false when nothing was.
    fn tell(&self) -> Result<bool, Failure> {
        let changed = diff::open(self.config, &self.session.session_id)?.changes().len() > 0;
        if changed {
            anstream::eprint!("{}", diff::stat(self.config, &self.session.session_id)?);
            let whole = diff::render(self.config, &self.session.session_id)?;
            // A long one would push everything else off the screen: there is a command for it.
            if whole.lines().count() <= SHOWN_LINES {
                anstream::eprint!("{whole}");
            }
        }
        Ok(changed)
    }

    async fn ask(&self) -> Result<ChangesOutcome, Failure> {
        if !self.tell()? {
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
        let directory = host::data_dir(self.config)?.changes(&self.session.session_id);
        let discarded = sandbox::discard(&directory);
        discarded.map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        anstream::eprintln!("its changes were discarded");
        Ok(ChangesOutcome::Done)
    }
}
