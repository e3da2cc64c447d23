//! The arguments of `viv sessions apply`.

use std::path::PathBuf;

use clap::Args;
use sandbox::ApplyOptions;

use super::apply::{ApplyRequest, ApplyStep};
use super::consent::Consent;

/// The typed arguments.
#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(super) session: String,
    /// Apply only these paths, relative to the workspace
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Policy file or preset whose `fs.deny_write` is enforced (default: see `viv policy explain`)
    #[arg(long, value_name = "FILE|PRESET")]
    pub(super) policy: Option<String>,
    /// Also apply this file, which runs by itself, such as a CI workflow or a hook; can be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) confirm: Vec<PathBuf>,
    /// Leave refused and unconfirmed paths out, and apply the rest
    #[arg(long)]
    pub(super) skip_refused: bool,
    /// Also apply paths that `.gitignore` names
    #[arg(long)]
    pub(super) ignored: bool,
    /// Apply the commits instead: move the host's current branch forward, or print the command that merges them
    #[arg(long, conflicts_with_all = ["paths", "skip_refused", "ignored"])]
    pub(super) commits: bool,
    /// Apply an earlier change set (see `viv sessions sets`)
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["finish", "undo"])]
    pub(super) set: Option<u64>,
    /// Digest of the reviewed change set, or at least its first 12 digits; applies without a question
    #[arg(long, conflicts_with_all = ["finish", "undo", "yes"])]
    pub(super) digest: Option<String>,
    /// Apply the change set without a question
    #[arg(long, conflicts_with_all = ["finish", "undo"])]
    pub(super) yes: bool,
    /// Complete an apply that was interrupted
    #[arg(long, conflicts_with_all = ["paths", "undo", "confirm", "skip_refused", "ignored", "commits"])]
    pub(super) finish: bool,
    /// Undo the last apply
    #[arg(long, conflicts_with_all = ["paths", "confirm", "skip_refused", "ignored", "commits"])]
    pub(super) undo: bool,
}

impl ApplyArguments {
    /// Returns the step that the arguments name.
    pub(super) fn into_step(self) -> ApplyStep {
        let Self { paths, confirm, skip_refused, ignored, policy, set, .. } = self;
        let options = ApplyOptions { paths, confirm, skip_refused, ignored, ..ApplyOptions::default() };
        let request = ApplyRequest { options, policy, set, consent: Consent::given(self.digest, self.yes) };
        match (self.finish, self.undo) {
            (true, _) => ApplyStep::Finish,
            (_, true) => ApplyStep::Undo,
            _ if self.commits => ApplyStep::Commits(request),
            _ => ApplyStep::Apply(request),
        }
    }
}
