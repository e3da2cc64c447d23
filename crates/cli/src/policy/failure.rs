//! Errors of `viv policy` and of choosing a policy.

use std::io::{self, Write};
use std::path::PathBuf;

use ::policy::{PolicyError, UnknownPreset, WideningDenied};
use miette::{GraphicalReportHandler, GraphicalTheme};
use protocol::ProblemCode;

/// Error of a policy command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyCommandError {
    /// A file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The name is neither a file nor a preset.
    #[error("policy `{name}` is neither a file nor a preset")]
    NoPolicy { name: String, source: UnknownPreset },
    /// A policy is invalid.
    #[error(transparent)]
    Invalid(#[from] PolicyError),
    /// An untrusted project file asks for more than the policy allows.
    #[error(transparent)]
    Widening(#[from] WideningDenied),
    /// The command line asks for more than the policy allows.
    #[error(transparent)]
    Asked(WideningDenied),
    /// A host of `--allow` stays denied.
    #[error("`--allow {host}` has no effect: {rule} denies it")]
    StillDenied { host: String, rule: String },
    /// The policy that a task file names asks for more than the default policy allows.
    #[error(transparent)]
    Task(WideningDenied),
    /// The project's policy file is a link, a directory or a special file.
    #[error("`{}` is {}: a policy file must be a regular file", path.display(), if *is_link { "a symbolic link" } else { "not a file" })]
    NotAFile { path: PathBuf, is_link: bool },
    /// The endpoint of `viv policy test` is invalid.
    #[error("endpoint `{text}` is neither `HOST:PORT` nor `http://HOST[:PORT]/PATH`")]
    Endpoint { text: String, source: ::policy::HostError },
    /// The list of trusted files cannot be read or written.
    #[error("cannot read or write the list of trusted files `{}`", path.display())]
    Trust { path: PathBuf, source: io::Error },
    /// Standard output is closed or full.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}

impl PolicyCommandError {
    /// Returns the stable code.
    pub(crate) fn code(&self) -> ProblemCode {
        match self {
            Self::Read { .. } | Self::NotAFile { .. } => ProblemCode::ArtifactReadError,
            Self::NoPolicy { .. } | Self::Endpoint { .. } => ProblemCode::InvalidRequest,
            Self::StillDenied { .. } => ProblemCode::PolicyWideningDenied,
            Self::Invalid(error) => error.code(),
            Self::Widening(error) | Self::Asked(error) | Self::Task(error) => error.code(),
            Self::Trust { .. } | Self::Output(_) => ProblemCode::RuntimeError,
        }
    }

    /// Returns a command that can be pasted.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::NoPolicy { .. } => "viv policy presets",
            Self::NotAFile { .. } => "viv policy presets balanced > policy.yaml # then add --policy policy.yaml",
            Self::Task(_) => "viv policy trust policy.yaml # or choose it yourself: --set sandbox.policy=policy.yaml",
            Self::StillDenied { .. } => "viv policy explain",
            Self::Invalid(_) => "viv policy schema",
            Self::Widening(_) => "viv policy trust sandbox.policy.yaml",
            // `--narrow` and `DIR:bind` cannot allow more, and no project file can be trusted to change that.
            Self::Asked(_) => {
                "viv policy presets open > policy.yaml && ${EDITOR:-vi} policy.yaml # then add --policy policy.yaml"
            }
            Self::Endpoint { .. } => "viv policy test balanced net packages.example.com:443",
            Self::Trust { .. } => "viv policy trust --help",
            Self::Output(_) => "df -h",
        }
    }

    /// Renders every mistake of an invalid policy with its line; `None` for other errors.
    pub(crate) fn findings(&self) -> Option<String> {
        let Self::Invalid(error) = self else { return None };
        let mut shown = Vec::new();
        // Writing to memory cannot fail.
        show_findings(error, &mut shown).ok()?;
        String::from_utf8(shown).ok()
    }
}

/// Writes every mistake with a snippet of the file.
pub(super) fn show_findings(error: &PolicyError, people: &mut dyn Write) -> io::Result<()> {
    // Colours of the snippet are left out: only our own styles pass to the terminal.
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_links(false);
    for finding in error.findings() {
        let mut shown = String::new();
        if handler.render_report(&mut shown, finding).is_err() {
            shown = format!("{finding}\n");
        }
        people.write_all(shown.as_bytes())?;
    }
    Ok(())
}
