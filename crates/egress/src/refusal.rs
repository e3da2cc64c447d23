//! Refusals: the reason why a request got no connection, and the response to the client.

use policy::{Decision, LayerName, RuleRef};
use protocol::{Problem, ProblemCode};

/// Longest reason phrase after a status, in characters.
const REASON_CHARS: usize = 200;

/// The reason why a request got no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A rule denies it.
    Denied { rule: RuleRef, remedy: String },
    /// The request is invalid or ambiguous.
    Malformed(String),
    /// The head exceeds its size limit.
    TooLarge,
    /// The head did not arrive in time.
    TooSlow,
    /// The host is allowed but unreachable.
    Unreachable(String),
    /// The host is allowed but did not answer in time.
    NoAnswer(String),
}

impl Refusal {
    /// Returns the refusal for a decision that denies.
    pub(crate) fn from_decision(decision: Decision) -> Self {
        let remedy = decision.help.unwrap_or_else(|| match decision.rule.layer {
            LayerName::Ceiling => "no policy can override this rule".to_owned(),
            _ => format!("remove the rule from {}", decision.rule.location()),
        });
        Self::Denied { rule: decision.rule, remedy }
    }

    /// Returns a denial by a rule of the proxy itself.
    pub(crate) fn built_in(rule: impl Into<String>, remedy: impl Into<String>) -> Self {
        let rule = RuleRef { file: "built-in".to_owned(), line: None, text: rule.into(), layer: LayerName::Ceiling };
        Self::Denied { rule, remedy: remedy.into() }
    }

    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Denied { .. } => 403,
            Self::Malformed(_) => 400,
            Self::TooLarge => 431,
            Self::TooSlow => 408,
            Self::Unreachable(_) => 502,
            Self::NoAnswer(_) => 504,
        }
    }

    fn code(&self) -> ProblemCode {
        match self {
            Self::Denied { .. } => ProblemCode::PolicyDenied,
            Self::Malformed(_) | Self::TooLarge => ProblemCode::InvalidRequest,
            Self::Unreachable(_) => ProblemCode::UpstreamError,
            Self::TooSlow | Self::NoAnswer(_) => ProblemCode::Timeout,
        }
    }

    /// Returns the reason as text.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Denied { rule, .. } => &rule.text,
            Self::Malformed(reason) | Self::Unreachable(reason) | Self::NoAnswer(reason) => reason,
            Self::TooLarge => "the request head is too large",
            Self::TooSlow => "the request head did not arrive in time",
        }
    }

    /// Returns one sentence for the client; `to` is the destination, if it is known.
    fn sentence(&self, to: Option<(&str, u16)>) -> String {
        let to = to.map_or_else(|| "the request".to_owned(), |(host, port)| format!("`{host}` port {port}"));
        match self {
            Self::Denied { .. } => format!("{to} is not allowed by the policy of this sandbox"),
            Self::Malformed(reason) => format!("invalid request for {to}: {reason}"),
            Self::TooLarge | Self::TooSlow => self.reason().to_owned(),
            Self::Unreachable(reason) | Self::NoAnswer(reason) => {
                format!("{to} is allowed but cannot be reached: {reason}")
            }
        }
    }

    /// Encodes the HTTP response: text, or a problem document if the client accepts JSON.
    pub(crate) fn response(&self, to: Option<(&str, u16)>, json: bool) -> Vec<u8> {
        let (kind, body) = if json {
            ("application/problem+json", self.problem(to))
        } else {
            ("text/plain; charset=utf-8", self.text(to))
        };
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\
             x-viv-error: {}\r\n\r\n",
            self.status(),
            self.status_reason(),
            body.len(),
            self.code().as_str(),
        );
        (head + &body).into_bytes()
    }

    /// Returns the reason phrase. Many clients show nothing else of a refused CONNECT.
    fn status_reason(&self) -> String {
        let words = match self {
            Self::Denied { rule, .. } => format!("Forbidden by sandbox policy: {rule}"),
            Self::Malformed(_) => "Bad Request".to_owned(),
            Self::TooLarge => "Request Header Fields Too Large".to_owned(),
            Self::TooSlow => "Request Timeout".to_owned(),
            Self::Unreachable(_) => "Bad Gateway".to_owned(),
            Self::NoAnswer(_) => "Gateway Timeout".to_owned(),
        };
        words.chars().filter(|letter| letter.is_ascii_graphic() || *letter == ' ').take(REASON_CHARS).collect()
    }

    fn text(&self, to: Option<(&str, u16)>) -> String {
        let sentence = self.sentence(to);
        let Self::Denied { rule, remedy } = self else { return format!("viv: {sentence}\n") };
        let (text, location) = (&rule.text, rule.location());
        format!("viv: {sentence}\n\n  rule:       {text}\n  where:      {location}\n  what to do: {remedy}\n")
    }

    fn problem(&self, to: Option<(&str, u16)>) -> String {
        let mut problem = Problem::new(self.code(), self.sentence(to));
        problem.status = self.status();
        if let Some((host, port)) = to {
            problem.extensions.insert("host".to_owned(), host.into());
            problem.extensions.insert("port".to_owned(), port.into());
        }
        if let Self::Denied { rule, remedy } = self {
            problem.extensions.insert("rule".to_owned(), rule.text.as_str().into());
            problem.extensions.insert("file".to_owned(), rule.file.as_str().into());
            problem.extensions.insert("line".to_owned(), rule.line.into());
            problem = problem.with_hint(remedy);
        }
        // Texts and numbers always serialize.
        serde_json::to_string(&problem).unwrap_or_default()
    }
}
