//! What an engine said, as an error of ours.

use std::io;

use bollard::errors::Error;

use crate::SandboxError;

/// A step that the engine refused, with its own words.
pub(super) fn in_its_words(step: &str) -> impl Fn(Error) -> SandboxError + '_ {
    move |error| SandboxError::Create { step: step.to_owned(), source: io::Error::other(said(&error)) }
}

/// What is missing, and what mends it.
pub(super) fn unavailable(missing: impl Into<String>, fix: impl Into<String>) -> SandboxError {
    SandboxError::Unavailable { missing: missing.into(), fix: fix.into() }
}

/// Its own words alone: what the library puts around them says nothing.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } | Error::DockerContainerWaitError { error, .. } => error.trim().to_owned(),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(next) = cause {
                text = format!("{text}: {next}");
                cause = next.source();
            }
            text
        }
    }
}
