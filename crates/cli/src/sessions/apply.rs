//! `viv sessions apply`: apply the changes of a session to the workspace on the host.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::policy::EffectivePolicy;
use protocol::{ProblemCode, SessionInfo};
use sandbox::{ApplyError, ApplyReport, ChangeKind, apply, denying_rule, finish, quoted, undo};

use super::diff;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::policy::{PolicyContext, choose};

/// One step of `viv sessions apply`.
pub(super) enum ApplyStep {
    /// Apply the changes at or below `paths`, or all changes.
    Apply {
        /// Relative to the workspace.
        paths: Vec<PathBuf>,
        /// Policy whose `fs.deny_write` is enforced.
        policy: Option<String>,
    },
    /// Complete an apply that stopped halfway.
    Finish,
    /// Take the last apply back.
    Undo,
}

/// Runs one step and returns the changes on the host.
pub(super) fn carry_out(
    config: &Config,
    session: &SessionInfo,
    step: ApplyStep,
    json: bool,
) -> Result<String, Failure> {
    let directory = host::data_dir(config)?.change_set(&session.session_id);
    let applied = match step {
        ApplyStep::Finish => finish(&directory),
        ApplyStep::Undo => undo(&directory),
        ApplyStep::Apply { paths, policy } => {
            let mut saved = diff::open(config, &session.session_id)?;
            let workspace = saved.workspace().to_owned();
            let setting = PolicyContext::of(config, json).in_project(Some(&workspace));
            let policy = choose(&setting, policy.as_deref(), &[])?;
            let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
            let chosen = (!paths.is_empty()).then_some(&paths[..]);
            apply(&mut saved, &workspace, chosen, &|path| denying_rule(&policy, path))
        }
    };
    let applied = applied.map_err(|error| not_applied(&error, session))?;
    if json {
        let text = serde_json::to_string_pretty(&applied)
            .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        return Ok(text + "\n");
    }
    Ok(render(&applied))
}

/// Applies all changes of a session that `policy` allows, and returns them as text.
pub(crate) fn all(config: &Config, session: &SessionInfo, policy: &EffectivePolicy) -> Result<String, Failure> {
    let mut saved = diff::open(config, &session.session_id)?;
    let workspace = saved.workspace().to_owned();
    let applied = apply(&mut saved, &workspace, None, &|path| denying_rule(policy, path));
    Ok(render(&applied.map_err(|error| not_applied(&error, session))?))
}

fn not_applied(error: &ApplyError, session: &SessionInfo) -> Failure {
    let name = session.name.as_deref().unwrap_or(session.session_id.as_str());
    let help = match error {
        ApplyError::Unfinished => format!("viv sessions apply {name} --finish"),
        ApplyError::Undoing | ApplyError::HalfApplied { .. } => format!("viv sessions apply {name} --undo"),
        _ => format!("viv sessions diff {name}"),
    };
    Failure::from_error(error.code(), error).help(help)
}

/// Renders one line per path. The agent chose the names, so control characters are quoted.
fn render(applied: &ApplyReport) -> String {
    let mut text = String::new();
    for change in &applied.changes {
        let mark = match change.kind {
            ChangeKind::Deleted => 'D',
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
        };
        let _ = writeln!(text, "{mark} {}", quoted(&change.path));
    }
    text
}

#[cfg(test)]
mod tests {
    use sandbox::SavedChange;

    use super::*;

    #[test]
    fn control_characters_in_names_are_quoted() {
        let (path, kind) = ("a\x1b]52;c;x\x07b".into(), ChangeKind::Added);
        let change = SavedChange { path, kind, entry: None, base: None, conflict: false };
        let text = render(&ApplyReport { changes: vec![change] });
        assert_eq!(text, "A \"a\\033]52;c;x\\007b\"\n");
    }
}
