//! The failed model call that explains a failed turn or command.

use protocol::{EventBody, ProblemCode};

/// The last failure of a model call, if no call succeeded after it.
#[derive(Debug, Default)]
pub(crate) struct ModelFailure(Option<(ProblemCode, String)>);

impl ModelFailure {
    /// Notes the next event of the session.
    pub(crate) fn note(&mut self, body: &EventBody) {
        match body {
            EventBody::UpstreamError(error) => self.0 = Some((ProblemCode::UpstreamError, error.message.clone())),
            EventBody::BudgetExceeded(exceeded) => {
                self.0 = Some((ProblemCode::BudgetExceeded, exceeded.message.clone()));
            }
            EventBody::Error(error) => {
                let refusals = [ProblemCode::PriceUnknown, ProblemCode::PolicyDenied];
                let refusal = refusals.into_iter().find(|code| error.code.as_deref() == Some(code.as_str()));
                self.0 = refusal.map(|code| (code, error.message.clone())).or(self.0.take());
            }
            EventBody::LlmCall(call) if call.status < 400 => self.0 = None,
            EventBody::LlmCall(call) if self.0.is_none() => {
                let message = format!("the upstream answered with status {}", call.status);
                self.0 = Some((ProblemCode::UpstreamError, message));
            }
            _ => {}
        }
    }

    /// Returns the code and the message of the failure.
    pub(crate) fn cause(&self) -> Option<(ProblemCode, &str)> {
        self.0.as_ref().map(|(code, message)| (*code, message.as_str()))
    }
}

/// Returns the command that shows more about a failed model call.
pub(crate) fn help(code: ProblemCode, session: &str) -> String {
    match code {
        ProblemCode::BudgetExceeded => "viv usage".to_owned(),
        ProblemCode::PriceUnknown => "viv models".to_owned(),
        ProblemCode::PolicyDenied => format!("viv policy explain --session {session}"),
        _ => format!("viv logs {session} --kind upstream_error"),
    }
}
