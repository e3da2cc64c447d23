//! The commits of a session in `viv sessions diff` and `viv sessions apply --commits`.

use std::fmt::Write as _;

use protocol::{ProblemCode, SessionId, SessionInfo};
use sandbox::{
    AppliedCommits, ApplyOptions, CommitsError, RefusalReason, RefusedPath, apply_commits, commit_tips, denying_rule,
    visible,
};
use session::SessionChanges;

use super::apply::{ApplyRequest, retry};
use super::consent::{ShownPart, ShownSet};
use super::diff;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::message;
use crate::policy::{PolicyContext, choose};

/// Returns the commits as text, and their patch where no changed file shows the same content; empty without commits.
pub(crate) fn render(changes: &SessionChanges, session: &SessionId) -> Result<String, Failure> {
    let review = changes.commits(session);
    let patch = changes.commit_patch(&review).map_err(|error| failed(&error, session.as_str()))?;
    // `git apply` skips lines that begin with `#`.
    let text: String = review.as_text().lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
    Ok(text + &patch)
}

/// Returns the commits as text without a patch; empty without commits.
pub(crate) fn stat(changes: &SessionChanges, session: &SessionId) -> String {
    changes.commits(session).as_text()
}

/// Returns the commits as JSON.
pub(crate) fn json(changes: &SessionChanges, session: &SessionId) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(&changes.commits(session))
        .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(text + "\n")
}

/// Shows the commits of a set and moves the host's current branch to exactly those commits, if the user agrees. Returns the
/// result.
pub(super) async fn land(
    config: &Config,
    session: &SessionInfo,
    request: ApplyRequest,
    json: bool,
) -> Result<String, Failure> {
    let saved = diff::open(config, &session.session_id, request.set)?;
    let ApplyRequest { options, policy: chosen, consent, .. } = request;
    let chosen = chosen.as_deref();
    let setting = PolicyContext::of(config, json).in_project(Some(saved.workspace()));
    let policy = choose(&setting, chosen, &[])?;
    let shown = ShownSet { saved: &saved, session, paths: &[], part: ShownPart::Commits };
    if !consent.is_given_for(&shown).await? {
        message!("nothing was applied");
        return Ok(String::new());
    }
    let options = ApplyOptions { denials: policy.file_denials(), ..options };
    let name = session.name.as_deref().unwrap_or(session.session_id.as_str());
    let rules = |path: &std::path::Path| denying_rule(&policy, path);
    let tips = commit_tips(&saved).map_err(|error| diff::unreadable(&session.session_id, &error))?;
    let landed = apply_commits(&saved, session.session_id.as_str(), Some(&tips), &options, &rules);
    let landed = landed.map_err(|error| match unconfirmed(&error, name, &options, chosen) {
        Some(help) => Failure::from_error(error.code(), &error).help(help),
        None => failed(&error, name),
    })?;
    if json {
        let text = serde_json::to_string_pretty(&landed)
            .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        return Ok(text + "\n");
    }
    Ok(landed_text(&landed))
}

fn landed_text(landed: &AppliedCommits) -> String {
    let commits = if landed.commit_count == 1 { "commit" } else { "commits" };
    let mut text =
        format!("branch {} is at {} now ({} {commits})\n", visible(&landed.branch), landed.to, landed.commit_count);
    for reference in &landed.left {
        let _ = writeln!(text, "further commits are at {}", visible(reference));
    }
    text
}

/// Returns the command that confirms the paths, when nothing else is against the commits.
fn unconfirmed(error: &CommitsError, session: &str, options: &ApplyOptions, policy: Option<&str>) -> Option<String> {
    let CommitsError::Denied { paths, .. } = error else { return None };
    let is_open = |refused: &RefusedPath| matches!(refused.reason, RefusalReason::NotConfirmed { .. });
    let command = paths.iter().all(is_open).then(|| retry::command(session, paths, options, policy)).flatten()?;
    Some(format!("{command} --commits"))
}

fn failed(error: &CommitsError, session: &str) -> Failure {
    let help = error.merge_command().unwrap_or_else(|| format!("viv sessions diff {session}"));
    Failure::from_error(error.code(), error).help(help)
}
