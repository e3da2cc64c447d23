//! `viv sessions apply`: apply the changes of a session to the workspace on the host.

pub(super) mod retry;

use std::fmt::Write as _;

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionInfo};
use sandbox::{
    ApplyError, ApplyOptions, ApplyReport, SavedChanges, apply, denying_rule, finish, quoted, undo, visible,
};

use super::consent::{Consent, ShownPart, ShownSet};
use super::{commits, diff};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::output::message;
use crate::policy::{PolicyContext, choose};

/// One step of `viv sessions apply`.
pub(super) enum ApplyStep {
    /// Apply a change set.
    Apply(ApplyRequest),
    /// Move the host's current branch to the session's commits.
    Commits(ApplyRequest),
    /// Complete an apply that stopped halfway.
    Finish,
    /// Take the last apply back.
    Undo,
}

/// The changes to apply.
pub(super) struct ApplyRequest {
    /// The choice of changes.
    pub(super) options: ApplyOptions,
    /// Policy whose `fs.deny_write` is enforced.
    pub(super) policy: Option<String>,
    /// Number of an earlier change set.
    pub(super) set: Option<u64>,
    /// How the user agrees.
    pub(super) consent: Consent,
}

/// Runs one step and returns the changes on the host.
pub(super) async fn carry_out(
    config: &Config,
    session: &SessionInfo,
    step: ApplyStep,
    json: bool,
) -> Result<String, Failure> {
    let directory = host::data_dir(config)?.change_set(&session.session_id);
    let applied = match step {
        ApplyStep::Finish => finish(&directory).map_err(|error| not_applied(&error, session, None))?,
        ApplyStep::Undo => undo(&directory).map_err(|error| not_applied(&error, session, None))?,
        ApplyStep::Commits(request) => return commits::land(config, session, request, json).await,
        ApplyStep::Apply(request) => match request.carry_out(config, session, json).await? {
            Some(applied) => applied,
            None => return Ok(String::new()),
        },
    };
    if json {
        let text = serde_json::to_string_pretty(&applied)
            .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        return Ok(text + "\n");
    }
    Ok(render(&applied))
}

impl ApplyRequest {
    /// Shows the set and applies exactly that set, if the user agrees; returns `None` if not.
    async fn carry_out(
        self,
        config: &Config,
        session: &SessionInfo,
        json: bool,
    ) -> Result<Option<ApplyReport>, Failure> {
        let mut saved = diff::open(config, &session.session_id, self.set)?;
        let workspace = saved.workspace().to_owned();
        let setting = PolicyContext::of(config, json).in_project(Some(&workspace));
        let policy = choose(&setting, self.policy.as_deref(), &[])?;
        let shown = ShownSet { saved: &saved, session, paths: &self.options.paths, part: ShownPart::Files };
        if !self.consent.is_given_for(&shown).await? {
            message!("nothing was applied");
            return Ok(None);
        }
        apply_with(&mut saved, session, self.options, &policy, self.policy.as_deref()).map(Some)
    }
}

/// Applies the set that was shown, as far as `policy` allows it, and returns the changes as text.
pub(crate) fn shown(
    saved: &mut SavedChanges,
    session: &SessionInfo,
    policy: &EffectivePolicy,
) -> Result<String, Failure> {
    Ok(render(&apply_with(saved, session, ApplyOptions::default(), policy, None)?))
}

fn apply_with(
    saved: &mut SavedChanges,
    session: &SessionInfo,
    options: ApplyOptions,
    policy: &EffectivePolicy,
    chosen: Option<&str>,
) -> Result<ApplyReport, Failure> {
    let workspace = saved.workspace().to_owned();
    let options = ApplyOptions { denials: policy.file_denials(), ..options };
    let applied = apply(saved, &workspace, &options, &|path| denying_rule(policy, path));
    applied.map_err(|error| not_applied(&error, session, Some((&options, chosen))))
}

/// Returns the failure, with the command that helps. `attempt` is the choice of a refused apply, with its policy.
fn not_applied(error: &ApplyError, session: &SessionInfo, attempt: Option<(&ApplyOptions, Option<&str>)>) -> Failure {
    let name = session.name.as_deref().unwrap_or(session.session_id.as_str());
    let help = match (error, attempt) {
        (ApplyError::Unfinished, _) => format!("viv sessions apply {name} --finish"),
        (ApplyError::Undoing | ApplyError::HalfApplied { .. }, _) => format!("viv sessions apply {name} --undo"),
        (ApplyError::Refused(refusals), Some((options, policy))) => {
            retry::command(name, refusals, options, policy).unwrap_or_else(|| format!("viv sessions diff {name}"))
        }
        _ => format!("viv sessions diff {name}"),
    };
    Failure::from_error(error.code(), error).help(help)
}

/// Renders one line per path. The agent chose the names, so control characters are quoted.
fn render(applied: &ApplyReport) -> String {
    let mut text = String::new();
    for change in &applied.changes {
        let _ = writeln!(text, "{} {}", diff::letter(change.kind), quoted(&change.path));
    }
    text + &visible(&applied.left_out.to_string())
}

#[cfg(test)]
mod tests {
    use sandbox::{ChangeKind, SavedChange};

    use super::*;

    #[test]
    fn control_characters_in_names_are_quoted() {
        let (path, kind) = ("a\x1b]52;c;x\x07b".into(), ChangeKind::Added);
        let change = SavedChange { path, kind, entry: None, base: None, conflict: false };
        let text = render(&ApplyReport { changes: vec![change], ..ApplyReport::default() });
        assert_eq!(text, "A \"a\\033]52;c;x\\007b\"\n");
    }
}
