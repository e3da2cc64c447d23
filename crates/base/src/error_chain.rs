//! An error and its causes as one line of text.

use std::error::Error;

/// Returns the messages of `error` and of every cause behind it, joined by `: `.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read `a`")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn every_cause_is_in_the_line() {
        let cause = std::fmt::Error.to_string();
        assert_eq!(error_chain(&Outer(std::fmt::Error)), format!("cannot read `a`: {cause}"));
    }
}
