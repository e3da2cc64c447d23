//! Why a policy command could not answer.

use std::io::{self, Write};
use std::path::PathBuf;

use ::policy::{PolicyError, UnknownPreset, WideningDenied};
use miette::{GraphicalReportHandler, GraphicalTheme};
use protocol::ProblemCode;

/// Why a policy command could not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyCommandError {
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A name that is neither a file nor a preset.
    #[error("`{name}` is neither a file nor a preset")]
    NoPolicy { name: String, source: UnknownPreset },
    /// A policy is wrong.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
    /// A project file asks for more than it can get.
    #[error(transparent)]
    Widening(#[from] WideningDenied),
    /// The command line asks for more than the policy allows.
    #[error(transparent)]
    Asked(WideningDenied),
    /// A question makes no sense.
    #[error("`{text}` is neither `HOST:PORT` nor `http://HOST[:PORT]/PATH`")]
    Endpoint { text: String, source: ::policy::HostError },
    /// The list of trusted files cannot be kept.
    #[error("cannot keep the list of trusted files in `{}`", path.display())]
    Trust { path: PathBuf, source: io::Error },
    /// Standard output is closed or full.
    #[error("cannot write the answer")]
    Output(#[source] io::Error),
}

impl PolicyCommandError {
    /// Stable identifier.
    pub(crate) fn code(&self) -> ProblemCode {
        match self {
            Self::Read { .. } => ProblemCode::ArtifactReadError,
            Self::NoPolicy { .. } | Self::Endpoint { .. } => ProblemCode::InvalidRequest,
            Self::Invalid(error) => error.code(),
            Self::Widening(error) | Self::Asked(error) => error.code(),
            Self::Trust { .. } | Self::Output(_) => ProblemCode::RuntimeError,
        }
    }

    /// A line that can be pasted.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::NoPolicy { .. } => "viv policy presets",
            Self::Invalid(_) => "viv policy schema",
            Self::Widening(_) => "viv policy trust sandbox.policy.yaml",
            // No file is at fault that could be trusted: `--narrow` and `DIR:bind` only take away.
            Self::Asked(_) => "name a policy that allows it with `--policy FILE`",
            Self::Endpoint { .. } => "viv policy test balanced net packages.example.com:443",
            Self::Trust { .. } | Self::Output(_) => "viv doctor",
        }
    }

    /// Every mistake of an invalid policy with its place.
    pub(crate) fn findings(&self) -> Option<String> {
        let Self::Invalid(error) = self else { return None };
        let mut shown = Vec::new();
        // Writing to memory cannot fail.
        show_findings(error, &mut shown).ok()?;
        String::from_utf8(shown).ok()
    }
}

/// Every mistake with its place, as it stands in the file.
pub(super) fn show_findings(error: &PolicyError, people: &mut dyn Write) -> io::Result<()> {
    // Colours are stripped by the writer where there is no terminal.
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_links(false);
    for finding in error.findings() {
        let mut shown = String::new();
        if handler.render_report(&mut shown, finding).is_err() {
            shown = format!("{finding}\n");
        }
        people.write_all(shown.as_bytes())?;
    }
    Ok(())
}
