//! Conversion of engine errors into sandbox errors.

use std::io;

use bollard::errors::Error;

use crate::SandboxError;

/// Returns a conversion for a request that the engine refused, with the engine's own message.
pub(super) fn request_failed(step: &str) -> impl Fn(Error) -> SandboxError + '_ {
    move |error| SandboxError::Create { step: step.to_owned(), source: io::Error::other(engine_message(&error)) }
}

/// Returns an error with what is missing and how to fix it.
pub(super) fn unavailable(missing: impl Into<String>, fix: impl Into<String>) -> SandboxError {
    SandboxError::Unavailable { missing: missing.into(), fix: fix.into() }
}

/// Returns the engine's own message, without the text that the client library adds.
pub(super) fn engine_message(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } | Error::DockerContainerWaitError { error, .. } => error.trim().to_owned(),
        other => base::error_chain(other),
    }
}
