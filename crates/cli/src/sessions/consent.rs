//! The consent of the user to an apply: the set is shown, and exactly that set is applied.
//!
//! On a terminal the user is asked. A script names the digest of the set that was reviewed, or says `--yes`.

use std::path::{Path, PathBuf};

use protocol::{ProblemCode, SessionInfo};
use sandbox::{ChangeStat, SavedChanges, SetSummary, render_diff, render_stat};
use session::{CommitReview, SessionChanges};

use super::diff;
use crate::failure::Failure;
use crate::output::{message, print_message_part, stderr_is_terminal, stdin_is_terminal};
use crate::prompter;

/// Maximum number of lines of a summary.
const SHOWN_LINES: usize = 60;

/// The answers to the question whether to apply the set.
const CHOICES: [&str; 6] = ["y", "yes", "n", "no", "d", "diff"];

/// How the user agrees to an apply.
pub(crate) enum Consent {
    /// The user is asked on the terminal.
    Asked,
    /// `--digest`: the set must have this digest.
    Digest(String),
    /// `--yes`: the current set is applied without a check of its digest.
    Yes,
}

/// A change set that is about to be applied.
pub(crate) struct ShownSet<'a> {
    pub(crate) saved: &'a SavedChanges,
    pub(crate) session: &'a SessionInfo,
    /// Only the changes at or below these paths; all if empty.
    pub(crate) paths: &'a [PathBuf],
    /// The part of the set that is applied.
    pub(crate) part: ShownPart,
}

/// A part of a change set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownPart {
    /// The changed files.
    Files,
    /// The commits.
    Commits,
}

impl Consent {
    /// Returns the consent that the arguments express.
    pub(crate) fn given(digest: Option<String>, yes: bool) -> Self {
        match digest {
            Some(digest) => Self::Digest(digest),
            None if yes => Self::Yes,
            None => Self::Asked,
        }
    }

    /// Shows the set, and returns whether the user agrees to apply it. Fails when the digest differs, or when
    /// there is no terminal to ask on.
    pub(crate) async fn is_given_for(&self, shown: &ShownSet<'_>) -> Result<bool, Failure> {
        let summary = shown.summary()?;
        if let Self::Digest(digest) = self
            && !summary.is_named(digest)
        {
            return Err(shown.other_digest(&summary, digest));
        }
        if shown.part == ShownPart::Files && summary.paths() == 0 {
            message!("change set {} has no changes", summary.number);
            return Ok(true);
        }
        if matches!(self, Self::Asked) && !is_terminal() {
            return Err(shown.nobody_asked(&summary));
        }
        print_message_part(&shown.text(&summary)?);
        match self {
            Self::Asked => shown.ask().await,
            Self::Digest(_) | Self::Yes => Ok(true),
        }
    }
}

impl ShownSet<'_> {
    fn name(&self) -> &str {
        self.session.name.as_deref().unwrap_or(self.session.session_id.as_str())
    }

    fn summary(&self) -> Result<SetSummary, Failure> {
        self.saved.summary().map_err(|error| diff::unreadable(&self.session.session_id, &error))
    }

    /// Returns the set in a few lines: its number and digest, and each path.
    pub(crate) fn text(&self, summary: &SetSummary) -> Result<String, Failure> {
        let rows = self.rows()?;
        let count = rows.lines().count();
        let mut text = format!("change set {} · digest {}\n", summary.number, summary.short_digest());
        for (number, row) in rows.lines().enumerate() {
            // The last line is the sum.
            if number < SHOWN_LINES || number + 1 == count {
                text.push_str(row);
                text.push('\n');
            } else if number == SHOWN_LINES {
                let more = count - 1 - SHOWN_LINES;
                text.push_str(&format!("… and {more} more: viv sessions diff {} --stat\n", self.name()));
            }
        }
        for process in &summary.left_processes {
            let command = super::sets::one_line(&process.command);
            text.push_str(&format!("still running when the set was saved: {} {command}\n", process.pid));
        }
        Ok(text)
    }

    /// Returns one line for each path and their sum, or the commits as text.
    fn rows(&self) -> Result<String, Failure> {
        if self.part == ShownPart::Commits {
            return Ok(self.commits().as_text());
        }
        let stats = self.saved.stat().map_err(|error| diff::unreadable(&self.session.session_id, &error))?;
        let stats: Vec<ChangeStat> = stats.into_iter().filter(|stat| self.is_chosen(&stat.path)).collect();
        Ok(render_stat(&stats))
    }

    fn commits(&self) -> CommitReview {
        SessionChanges::Saved(self.saved.clone()).commits(&self.session.session_id)
    }

    /// Returns the full diff of the part that is applied.
    fn full_diff(&self) -> Result<String, Failure> {
        if self.part == ShownPart::Commits {
            return super::commits::render(&SessionChanges::Saved(self.saved.clone()), &self.session.session_id);
        }
        let paths: Vec<&Path> = self.paths.iter().map(PathBuf::as_path).collect();
        let diff = render_diff(self.saved, Some(paths.as_slice()).filter(|paths| !paths.is_empty()));
        diff.map_err(|error| diff::unreadable(&self.session.session_id, &error))
    }

    fn is_chosen(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|chosen| path.starts_with(chosen))
    }

    /// Asks until the answer is yes or no. At the end of input, the answer is no.
    async fn ask(&self) -> Result<bool, Failure> {
        loop {
            match prompter::ask_choice("apply this set? [y]es · [n]o · [d]iff: ", &CHOICES).await.as_str() {
                "y" | "yes" => return Ok(true),
                "d" | "diff" => print_message_part(&self.full_diff()?),
                _ => return Ok(false),
            }
        }
    }

    fn other_digest(&self, summary: &SetSummary, digest: &str) -> Failure {
        let why = if digest.len() < SetSummary::SHORT_DIGITS {
            format!("the digest `{digest}` is too short: at least {} digits are needed", SetSummary::SHORT_DIGITS)
        } else {
            format!("change set {} has the digest {}, not `{digest}`", summary.number, summary.short_digest())
        };
        Failure::new(ProblemCode::ChangeSetChanged, why).help(format!("viv sessions sets {}", self.name()))
    }

    fn nobody_asked(&self, summary: &SetSummary) -> Failure {
        let what = "an apply without a terminal needs `--digest` of the reviewed change set, or `--yes`";
        let (name, digest) = (self.name(), summary.short_digest());
        Failure::new(ProblemCode::DigestRequired, what)
            .help(format!("viv sessions diff {name} && viv sessions apply {name} --digest={digest}"))
    }
}

fn is_terminal() -> bool {
    stdin_is_terminal() && stderr_is_terminal()
}
