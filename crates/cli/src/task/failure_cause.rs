//! What a failure of a task is called, and whose fault it was.

use protocol::{EventBody, ProblemCode};
use store::Journal;

use crate::failure::Failure;

/// What is shown of a long stderr.
const LAST_LINES: usize = 12;

/// Something ended otherwise than the task expects.
pub(super) fn unmet(what: String) -> Failure {
    Failure::new(ProblemCode::RuntimeError, what).help("viv sessions events @last")
}

/// The end of what a command said.
pub(super) fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// A command that failed because the last model call did is the upstream's failure.
pub(super) fn blame(failure: Failure, journal: &dyn Journal) -> Failure {
    if failure.code() != ProblemCode::RuntimeError {
        return failure;
    }
    let events = journal.after(0, usize::MAX).unwrap_or_default();
    let mut told = None;
    for event in events {
        match event.draft.body {
            EventBody::UpstreamError(error) => told = Some((ProblemCode::UpstreamError, error.message)),
            EventBody::BudgetExceeded(exceeded) => told = Some((ProblemCode::BudgetExceeded, exceeded.message)),
            EventBody::LlmCall(call) if call.status < 400 => told = None,
            EventBody::LlmCall(call) if told.is_none() => {
                told = Some((ProblemCode::UpstreamError, format!("the model's side answered {}", call.status)));
            }
            _ => {}
        }
    }
    match told {
        Some((code, why)) => failure.recoded(code, &why),
        None => failure,
    }
}
