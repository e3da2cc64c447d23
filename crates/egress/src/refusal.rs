//! Why something did not leave, and how its client is told.

use policy::{Decision, LayerName, RuleRef};
use protocol::{Problem, ProblemCode};

/// Characters of the words after a status.
const REASON_CHARS: usize = 200;

/// Why a request got no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A rule says no.
    Denied { rule: RuleRef, remedy: String },
    /// What came is no request to a proxy, or could be read in two ways.
    Malformed(String),
    /// The head is larger than is read.
    TooLarge,
    /// The client took too long to say what it wants.
    TooSlow,
    /// It may be reached, and cannot be.
    Unreachable(String),
    /// It may be reached, and did not answer in time.
    NoAnswer(String),
}

impl Refusal {
    /// What a decision of the policy means for a client.
    pub(crate) fn of(decision: Decision) -> Self {
        let remedy = decision.help.unwrap_or_else(|| match decision.rule.layer {
            LayerName::Ceiling => "this rule holds whatever a policy says; do it another way".to_owned(),
            _ => format!("remove the rule from {}", decision.rule.location()),
        });
        Self::Denied { rule: decision.rule, remedy }
    }

    /// A rule of the proxy itself.
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

    /// What is wrong with a request, as far as it is the request's fault.
    pub(crate) fn what(&self) -> &str {
        match self {
            Self::Denied { rule, .. } => &rule.text,
            Self::Malformed(what) | Self::Unreachable(what) | Self::NoAnswer(what) => what,
            Self::TooLarge => "the head of the request is too large",
            Self::TooSlow => "the head of the request took too long",
        }
    }

    /// What happened, in one sentence; `to` is what was asked for, where that is known.
    fn sentence(&self, to: Option<(&str, u16)>) -> String {
        let to = to.map_or_else(|| "the request".to_owned(), |(host, port)| format!("`{host}` port {port}"));
        match self {
            Self::Denied { .. } => format!("{to} is not allowed by the policy of this sandbox"),
            Self::Malformed(what) => format!("{to} was not understood: {what}"),
            Self::TooLarge | Self::TooSlow => self.what().to_owned(),
            Self::Unreachable(why) | Self::NoAnswer(why) => format!("{to} is allowed but cannot be reached: {why}"),
        }
    }

    /// The whole answer: text for a person, or a problem document where the client asked for JSON.
    pub(crate) fn respond(&self, to: Option<(&str, u16)>, json: bool) -> Vec<u8> {
        let (kind, body) = if json {
            ("application/problem+json", self.problem(to))
        } else {
            ("text/plain; charset=utf-8", self.text(to))
        };
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\
             x-viv-error: {}\r\n\r\n",
            self.status(),
            self.reason(),
            body.len(),
            self.code().as_str(),
        );
        (head + &body).into_bytes()
    }

    /// The words after the status: all that many clients show of a refused CONNECT.
    fn reason(&self) -> String {
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
        let (text, place) = (&rule.text, rule.location());
        format!("viv: {sentence}\n\n  rule:       {text}\n  where:      {place}\n  what to do: {remedy}\n")
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
        // A document of texts and numbers always has a JSON form.
        serde_json::to_string(&problem).unwrap_or_default()
    }
}
