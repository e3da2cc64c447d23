//! Commits of a session as data. The sandbox chose all texts, so they are not safe to print.

use std::path::PathBuf;

use serde::Serialize;

use super::session_refs::{CommitTip, SkippedReference};
use crate::overlay::ChangeKind;
use crate::review::{ClassName, LineCount, json_path};

/// The commits of a session that the host's branches do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCommits {
    /// The branches that moved, by name.
    pub tips: Vec<ImportedTip>,
    /// The commits of all tips, newest first within each.
    pub commits: Vec<Commit>,
    /// Commits that are not listed, because there are too many.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// References that were not imported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedReference>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde needs")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A branch of the session in the host's repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedTip {
    /// The branch and its commit.
    #[serde(flatten)]
    pub tip: CommitTip,
    /// The full name of the reference in the host's repository.
    pub imported_as: String,
    /// The commit at which the branch was when the session began.
    pub start: Option<String>,
    /// How the branch relates to its start.
    pub relation: TipRelation,
    /// The number of its commits since the start.
    pub commit_count: usize,
    /// The paths that differ from the start.
    pub changes: Vec<CommitChange>,
    /// The commit or tree that the paths are compared with.
    #[serde(skip)]
    pub(crate) base: String,
}

/// How a branch of the session relates to the host's branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TipRelation {
    /// The branch has the start and further commits.
    Forward,
    /// Commits of the start are missing, as after an amend or a rebase.
    Rewritten,
    /// The host had no such branch.
    New,
    /// No branch has the commit.
    Detached,
    /// The host's branch has it already.
    Landed,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    /// The id.
    pub id: String,
    /// The branch of the session, or `HEAD`.
    pub branch: String,
    /// The author's name, as the commit has it.
    pub author: String,
    /// The author's e-mail.
    pub email: String,
    /// When the commit says that it was written, in RFC 3339.
    pub time: String,
    /// The committer's name.
    pub committer: String,
    /// The committer's e-mail.
    pub committer_email: String,
    /// Whether author or committer is not the identity that the session was given. Anybody can write any name.
    pub other_identity: bool,
    /// The first line of the message.
    pub subject: String,
    /// The whole message.
    pub message: String,
    /// The changed files against the first parent.
    pub files: Vec<CommitFile>,
}

/// A changed file of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitFile {
    /// Relative to the workspace.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// The number of changed lines.
    #[serde(flatten)]
    pub lines: LineCount,
}

/// A path that differs between the start and the tip of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommitChange {
    /// Relative to the workspace.
    #[serde(with = "json_path")]
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The mode as git has it; 0 when the path was deleted.
    pub mode: u32,
    /// The id of the new content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The class by which the path is applied.
    pub class: ClassName,
    /// The reason for the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl SessionCommits {
    /// Returns whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.tips.is_empty() && self.skipped.is_empty()
    }

    /// Returns every path that the commits change, once.
    pub fn commit_paths(&self) -> Vec<PathBuf> {
        let changes = self.tips.iter().flat_map(|tip| &tip.changes).map(|change| change.path.clone());
        let files = self.commits.iter().flat_map(|commit| &commit.files).map(|file| file.path.clone());
        let mut paths: Vec<PathBuf> = changes.chain(files).collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

/// The name, e-mail and time of an author or committer.
#[derive(Debug, Default)]
pub(super) struct CommitIdentity {
    pub(super) name: String,
    pub(super) email: String,
    pub(super) time: String,
}

impl CommitIdentity {
    /// Parses `name <email> seconds zone`.
    pub(super) fn parse(text: &str) -> Self {
        let (name, rest) = text.split_once('<').unwrap_or((text, ""));
        let (email, time) = rest.rsplit_once('>').unwrap_or((rest, ""));
        let seconds = time.split_whitespace().next().and_then(|seconds| seconds.parse::<i64>().ok());
        let time = seconds.and_then(rfc3339).unwrap_or_default();
        Self { name: name.trim().to_owned(), email: email.trim().to_owned(), time }
    }
}

/// Returns seconds since 1970 as a date and time in UTC; `None` beyond the year 9999.
fn rfc3339(seconds: i64) -> Option<String> {
    if !(0..253_402_300_800).contains(&seconds) {
        return None;
    }
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of year 0, so that a leap day ends its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_460_061, "2025-11-18T10:01:01Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds).as_deref(), Some(text));
        }
        assert_eq!((rfc3339(-1), rfc3339(i64::MAX)), (None, None));
    }

    #[test]
    fn odd_identities_do_not_fail() {
        let read = CommitIdentity::parse("A <B> <a@example.com> 0 +0000");
        assert_eq!(
            (read.name.as_str(), read.email.as_str(), read.time.as_str()),
            ("A", "B> <a@example.com", "1970-01-01T00:00:00Z")
        );
        assert_eq!(CommitIdentity::parse("").name, "");
        assert_eq!(CommitIdentity::parse("x <y> never").time, "");
    }
}
