//! The way in which a run answers permission requests and questions.

use protocol::ProblemCode;

use crate::args::Permissions;
use crate::failure::Failure;
use crate::output;
use crate::shell_word::shell_word;

/// The longest prompt that a `help:` line repeats.
const REPEATED_PROMPT: usize = 60;

/// The way in which a run answers requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerMode {
    /// Ask on the terminal.
    Ask,
    /// Allow every request.
    Allow,
    /// Deny every request, because the person said so.
    Deny,
    /// Deny every request, because there is no terminal to ask on.
    NoTerminal,
}

impl AnswerMode {
    /// Returns the mode of `--perms`; without it, a terminal decides.
    pub(super) fn choose(given: Option<Permissions>) -> Self {
        match given {
            Some(Permissions::Ask) => Self::Ask,
            Some(Permissions::Allow) => Self::Allow,
            Some(Permissions::Deny) => Self::Deny,
            None if on_terminal() => Self::Ask,
            None => Self::NoTerminal,
        }
    }
}

/// Whether a person can be asked.
pub(super) fn on_terminal() -> bool {
    output::stdin_is_terminal() && output::stderr_is_terminal()
}

/// Returns the failure of a run whose requests could not be asked.
pub(super) fn not_asked(count: u64, agent: &str, prompt: &str) -> Failure {
    let requests = if count == 1 { "1 request was".to_owned() } else { format!("{count} requests were") };
    let is_short = prompt.chars().count() <= REPEATED_PROMPT && !prompt.contains(char::is_control);
    let prompt = if is_short { shell_word(prompt) } else { "\"…\"".to_owned() };
    Failure::new(ProblemCode::NoTerminal, format!("{requests} denied: no terminal to ask on"))
        .help(format!("viv run {agent} {prompt} --perms=allow"))
}
