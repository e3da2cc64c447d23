//! Mistakes in a policy, with their positions in the text.
//!
//! A policy may come from an untrusted repository. Control and direction characters are therefore masked before its
//! text is shown on a terminal.

use std::sync::Arc;

use miette::{Diagnostic, NamedSource, SourceSpan};
use protocol::ProblemCode;

use crate::source::{PolicySource, SourcePosition};

/// A policy that cannot be used, with all of its mistakes.
#[derive(Debug, Clone, thiserror::Error, Diagnostic)]
#[error("{} in policy `{name}`", count(findings))]
#[diagnostic(code(policy_invalid))]
pub struct PolicyError {
    name: String,
    #[related]
    findings: Vec<PolicyFinding>,
}

impl PolicyError {
    pub(crate) fn new(source: &PolicySource, mut findings: Vec<PolicyFinding>) -> Self {
        findings.sort_by_key(|finding| finding.span.map(|span| span.offset()));
        Self { name: mask_control_characters(source.name()), findings }
    }

    /// Returns all mistakes, in the order of the text.
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.findings
    }

    /// Returns the stable identifier for clients.
    pub fn code(&self) -> ProblemCode {
        ProblemCode::PolicyInvalid
    }
}

fn count(findings: &[PolicyFinding]) -> String {
    match findings.len() {
        1 => "1 mistake".to_owned(),
        many => format!("{many} mistakes"),
    }
}

/// One mistake in a policy.
#[derive(Debug, Clone, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct PolicyFinding {
    message: String,
    #[source_code]
    text: NamedSource<Arc<str>>,
    #[label("{label}")]
    span: Option<SourceSpan>,
    label: String,
    line: Option<u32>,
    #[help]
    help: Option<String>,
}

impl PolicyFinding {
    /// Returns a finding about the whole text.
    pub(crate) fn new(source: &PolicySource, message: impl Into<String>) -> Self {
        Self {
            message: mask_control_characters(&message.into()),
            text: NamedSource::new(
                mask_control_characters(source.name()),
                mask_control_characters(source.text()).into(),
            ),
            span: None,
            label: "here".to_owned(),
            line: None,
            help: None,
        }
    }

    /// Sets the position; an unknown position is left out.
    pub(crate) fn at(mut self, position: Option<SourcePosition>) -> Self {
        if let Some(position) = position.filter(|position| position.line > 0) {
            self.span = Some((position.offset, position.length).into());
            self.line = Some(position.line);
        }
        self
    }

    pub(crate) fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = mask_control_characters(&label.into());
        self
    }

    pub(crate) fn with_help(mut self, help: Option<String>) -> Self {
        self.help = help.map(|help| mask_control_characters(&help));
        self
    }

    /// Returns the mistake in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the line of the mistake, if it has a position.
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// Returns the advice how to correct the mistake.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// Replaces control characters byte for byte, so that offsets stay valid.
pub(crate) fn mask_control_characters(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_terminal_control(c) {
            shown.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns whether a character can control a terminal or change the direction of text.
pub(crate) fn is_terminal_control(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::mask_control_characters;

    #[test]
    fn control_characters_are_masked_and_lengths_are_kept() {
        let text = "a\u{1b}[31m\u{202e}b\u{9b}\n\tc";
        let shown = mask_control_characters(text);
        assert_eq!(shown, "a?[31m???b??\n\tc");
        assert_eq!(shown.len(), text.len());
    }
}
