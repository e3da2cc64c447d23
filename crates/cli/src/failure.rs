//! The error that ends `viv`, as text for a person or JSON for a program.
//!
//! It has a stable code, the failed action, its causes, and a command that can be pasted to fix it.

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;

use base::PrintableText;
use protocol::{Problem, ProblemCode};

use crate::output;

/// An error that ends `viv`.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ProblemCode,
    what: String,
    causes: Vec<String>,
    detail: Option<String>,
    help: Option<String>,
    exit: Option<u8>,
    quiet: bool,
}

/// Exit code of a program whose output pipe was closed: 128 and SIGPIPE.
const BROKEN_PIPE: u8 = 141;

impl Failure {
    /// Returns a failure with the sentence `what`.
    pub(crate) fn new(code: ProblemCode, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), causes: Vec::new(), detail: None, help: None, exit: None, quiet: false }
    }

    /// Returns the failure for output that cannot be written. A closed pipe, as in `viv … | head`, prints no message.
    pub(crate) fn output_failed(error: &std::io::Error) -> Self {
        let failure = Self::new(ProblemCode::StreamError, "cannot write the output").because(error);
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { quiet: true, ..failure.exit(BROKEN_PIPE) };
        }
        failure
    }

    /// Returns a failure with the message and the causes of `error`.
    pub(crate) fn from_error(code: ProblemCode, error: &dyn Error) -> Self {
        let mut failure = Self::new(code, error.to_string());
        if let Some(source) = error.source() {
            failure = failure.because(source);
        }
        failure
    }

    /// Adds `error` and its sources as causes.
    pub(crate) fn because(mut self, error: &dyn Error) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let text = error.to_string();
            if self.causes.last() != Some(&text) {
                self.causes.push(text);
            }
            cause = error.source();
        }
        self
    }

    /// Adds lines that show where the problem is.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the `help:` line, a command that can be pasted.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Replaces the code and adds the cause `why`.
    pub(crate) fn recoded(mut self, code: ProblemCode, why: &str) -> Self {
        self.code = code;
        self.causes.push(why.to_owned());
        self
    }

    /// Sets an exit code other than that of the error code.
    pub(crate) fn exit(mut self, exit: u8) -> Self {
        self.exit = Some(exit);
        self
    }

    /// Sets the exit code unless one was set before.
    pub(crate) fn or_exit(self, exit: u8) -> Self {
        match self.exit {
            Some(_) => self,
            None => self.exit(exit),
        }
    }

    /// Returns the stable code.
    pub(crate) fn code(&self) -> ProblemCode {
        self.code
    }

    /// Returns the failure as a problem document for a client of the API.
    pub(crate) fn problem(&self) -> Box<Problem> {
        Box::new(Problem { hint: self.help.clone(), ..Problem::new(self.code, self.whole_sentence()) })
    }

    /// Writes the failure to stderr and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.quiet {
            // The reader closed the pipe on purpose.
        } else if json {
            let mut problem = Problem::new(self.code, self.whole_sentence());
            problem.hint = Some(self.help_line());
            output::print_json_error(&serde_json::to_string(&problem).unwrap_or_default());
        } else {
            output::print_message_part(&self.render());
        }
        ExitCode::from(self.exit.unwrap_or_else(|| self.code.exit()))
    }

    fn sentence(&self) -> String {
        std::iter::once(&self.what).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Returns the sentence with the detail lines.
    fn whole_sentence(&self) -> String {
        let detail =
            self.detail.iter().flat_map(|detail| detail.lines()).map(str::trim).filter(|line| !line.is_empty());
        let detail: Vec<&str> = detail.collect();
        if detail.is_empty() { self.sentence() } else { format!("{}: {}", self.sentence(), detail.join(" ")) }
    }

    fn help_line(&self) -> String {
        self.help.clone().unwrap_or_else(|| usual_help(self.code).to_owned())
    }

    fn render(&self) -> String {
        let mut text = format!("\x1b[1;31merror\x1b[0m[{}]: {}\n", self.code.as_str(), indented(&self.what));
        for cause in &self.causes {
            let _ = writeln!(text, "  because: {}", indented(cause));
        }
        for line in self.detail.iter().flat_map(|detail| detail.lines()) {
            let _ = writeln!(text, "{}", format!("  {}", PrintableText::exact(line)).trim_end());
        }
        let _ = writeln!(text, "\x1b[1mhelp:\x1b[0m {}", PrintableText::exact_line(&self.help_line()));
        text
    }
}

/// Returns a text whose further lines are indented, so that none of them looks like a line of its own.
fn indented(text: &str) -> String {
    PrintableText::exact(text.trim_end()).as_str().replace('\n', "\n    ")
}

/// Returns the command that helps with most failures of a code.
fn usual_help(code: ProblemCode) -> &'static str {
    match code {
        ProblemCode::UnsupportedAgent | ProblemCode::AgentNotInstalled | ProblemCode::ModeNotSupported => {
            "viv agents ls"
        }
        ProblemCode::PermissionNotPending
        | ProblemCode::PermissionNotFound
        | ProblemCode::QuestionNotPending
        | ProblemCode::QuestionNotFound => "viv perms ls",
        ProblemCode::SessionNotFound
        | ProblemCode::SessionAlreadyExists
        | ProblemCode::SessionEnded
        | ProblemCode::SessionOpen
        | ProblemCode::TurnRunning
        | ProblemCode::JournalDamaged
        | ProblemCode::ReplayImpossible => "viv sessions ls",
        ProblemCode::BundleInvalid => "viv sessions export @last --output session.viv",
        ProblemCode::TokenInvalid | ProblemCode::TokenNotFound | ProblemCode::PermissionDenied => "viv tokens ls",
        ProblemCode::JournalUnavailable | ProblemCode::DiskFull | ProblemCode::WorkspaceFull => "df -h",
        ProblemCode::PolicyDenied | ProblemCode::PolicyInvalid | ProblemCode::PolicyWideningDenied => {
            "viv policy explain"
        }
        ProblemCode::UpstreamError => "viv credentials --check",
        ProblemCode::BudgetExceeded => "viv usage",
        ProblemCode::PriceUnknown => "viv models",
        ProblemCode::ServerNotRunning => "viv serve",
        ProblemCode::DataDirInUse => "viv api GET /v1/health",
        ProblemCode::ProxyBindError => "viv serve --listen 127.0.0.1:0",
        ProblemCode::RuntimeError
        | ProblemCode::Timeout
        | ProblemCode::AgentProcessExited
        | ProblemCode::ArtifactReadError => "viv logs @last",
        ProblemCode::RouteNotFound | ProblemCode::MethodNotAllowed => "viv api GET /openapi.json",
        ProblemCode::SandboxCreateError | ProblemCode::Internal => "viv doctor",
        _ => "viv --help",
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence())
    }
}

impl From<store::DataDirError> for Failure {
    fn from(error: store::DataDirError) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<store::SessionIndexError> for Failure {
    fn from(error: store::SessionIndexError) -> Self {
        Self::from_error(error.code(), &error).help("viv sessions ls")
    }
}

impl From<store::JournalError> for Failure {
    fn from(error: store::JournalError) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<store::LedgerError> for Failure {
    fn from(error: store::LedgerError) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<session::SessionError> for Failure {
    fn from(error: session::SessionError) -> Self {
        // The sandbox's own error says more than "the sandbox failed".
        if let session::SessionError::Sandbox(error) = error {
            return error.into();
        }
        let failure = Self::from_error(error.code(), &error);
        match error.hint() {
            Some(hint) => failure.help(hint),
            None => failure,
        }
    }
}

impl From<sandbox::SandboxError> for Failure {
    fn from(error: sandbox::SandboxError) -> Self {
        let failure = Self::from_error(error.code(), &error);
        match error {
            sandbox::SandboxError::Unavailable { fix, .. } => failure.help(fix),
            _ => failure,
        }
    }
}

impl From<jail::JailError> for Failure {
    fn from(error: jail::JailError) -> Self {
        Self::from_error(ProblemCode::SandboxCreateError, &error)
    }
}

impl From<crate::policy::PolicyCommandError> for Failure {
    fn from(error: crate::policy::PolicyCommandError) -> Self {
        if let crate::policy::PolicyCommandError::Output(error) = &error {
            return Self::output_failed(error);
        }
        let failure = Self::from_error(error.code(), &error).help(error.help());
        match error.findings() {
            Some(findings) => failure.detail(findings),
            None => failure,
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let code = ProblemCode::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == problem.code)
            .unwrap_or(ProblemCode::Internal);
        let failure = Self::new(code, problem.detail.unwrap_or(problem.title));
        match problem.hint {
            Some(hint) => failure.help(hint),
            None => failure,
        }
    }
}
