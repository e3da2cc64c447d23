//! What is wrong with a policy, pointed at.
//!
//! A policy may come from a repository nobody trusts, so its text is shown with every control and
//! direction character blotted out: it cannot steer the terminal it is complained about on.

use std::sync::Arc;

use miette::{Diagnostic, NamedSource, SourceSpan};
use protocol::ProblemCode;

use crate::source::{PolicySource, SourcePosition};

/// A policy that cannot be used, with everything that is wrong in it.
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
        Self { name: blot(source.name()), findings }
    }

    /// Everything that is wrong, in the order of the text.
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.findings
    }

    /// Stable identifier for clients.
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

/// One thing that is wrong.
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
    /// A finding about the whole text.
    pub(crate) fn new(source: &PolicySource, message: impl Into<String>) -> Self {
        Self {
            message: blot(&message.into()),
            text: NamedSource::new(blot(source.name()), blot(source.text()).into()),
            span: None,
            label: "here".to_owned(),
            line: None,
            help: None,
        }
    }

    /// Points at a place; an unknown place is left out.
    pub(crate) fn at(mut self, place: Option<SourcePosition>) -> Self {
        if let Some(place) = place.filter(|place| place.line > 0) {
            self.span = Some((place.offset, place.length).into());
            self.line = Some(place.line);
        }
        self
    }

    pub(crate) fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = blot(&label.into());
        self
    }

    pub(crate) fn with_help(mut self, help: Option<String>) -> Self {
        self.help = help.map(|help| blot(&help));
        self
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line it stands on, when it stands on one.
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// What to write instead.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// Replaces what could steer a terminal, byte for byte, so that offsets keep pointing where they did.
pub(crate) fn blot(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            shown.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character could do something to who reads it: command a terminal, or turn text around.
pub(crate) fn is_harmful(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::blot;

    #[test]
    fn control_and_direction_characters_are_blotted_and_lengths_kept() {
        let text = "a\u{1b}[31m\u{202e}b\u{9b}\n\tc";
        let shown = blot(text);
        assert_eq!(shown, "a?[31m???b??\n\tc");
        assert_eq!(shown.len(), text.len());
    }
}
