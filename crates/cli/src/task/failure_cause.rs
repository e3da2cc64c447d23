//! Failures of a task, and their cause in the journal.

use protocol::ProblemCode;
use store::Journal;

use crate::failure::Failure;
use crate::model_failure::ModelFailure;

/// Lines of stderr that are shown.
const LAST_LINES: usize = 12;

/// Returns the failure for an unmet expectation.
pub(super) fn unmet(what: String) -> Failure {
    Failure::new(ProblemCode::RuntimeError, what).help("viv sessions events @last")
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Changes a runtime error to an upstream or budget error if the last model call failed.
pub(super) fn with_model_failure(failure: Failure, journal: &dyn Journal) -> Failure {
    if failure.code() != ProblemCode::RuntimeError {
        return failure;
    }
    let mut cause = ModelFailure::default();
    for event in journal.after(0, usize::MAX).unwrap_or_default() {
        cause.note(&event.draft.body);
    }
    match cause.cause() {
        Some((code, why)) => failure.recoded(code, why),
        None => failure,
    }
}
