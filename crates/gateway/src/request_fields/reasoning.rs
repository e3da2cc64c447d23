//! Reasoning that a request asks for. Its tokens are billed, and not all of them are shown.

use serde::Deserialize;

use crate::price::HiddenReasoning;

/// The reasoning that a request asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ReasoningRequest {
    /// The request says nothing: the model decides.
    #[default]
    Unspecified,
    /// No reasoning.
    Off,
    /// At most this many tokens for each answer.
    AtMost(u64),
    /// As much as the answer may have tokens.
    Unlimited,
}

impl ReasoningRequest {
    /// Returns the most hidden tokens of one answer; `None` means the longest answer.
    pub(crate) fn hidden_tokens(self, model: HiddenReasoning) -> Option<u64> {
        match (self, model) {
            (Self::Off, _) | (_, HiddenReasoning::Never) | (Self::Unspecified, HiddenReasoning::Asked) => Some(0),
            (Self::AtMost(tokens), _) => Some(tokens),
            (Self::Unspecified | Self::Unlimited, _) => None,
        }
    }

    /// Returns the larger of two requests: upstreams differ in which field they obey.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unspecified, request) | (request, Self::Unspecified) => request,
            (Self::Unlimited, _) | (_, Self::Unlimited) => Self::Unlimited,
            (Self::AtMost(one), Self::AtMost(other)) => Self::AtMost(one.max(other)),
            (Self::AtMost(tokens), Self::Off) | (Self::Off, Self::AtMost(tokens)) => Self::AtMost(tokens),
            (Self::Off, Self::Off) => Self::Off,
        }
    }

    fn of_effort(effort: &str) -> Self {
        if effort == "none" { Self::Off } else { Self::Unlimited }
    }

    fn of_budget(tokens: f64) -> Self {
        match super::count(tokens) {
            _ if tokens == 0.0 => Self::Off,
            Some(tokens) => Self::AtMost(tokens),
            // Gemini takes -1 as a budget that the model chooses.
            None => Self::Unlimited,
        }
    }
}

/// `thinking` of Anthropic's API, and `reasoning` of OpenAI's API and of routers.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReasoningOptions {
    #[serde(rename = "type")]
    kind: Option<String>,
    budget_tokens: Option<f64>,
    max_tokens: Option<f64>,
    effort: Option<String>,
    enabled: Option<bool>,
}

impl ReasoningOptions {
    pub(super) fn request(&self) -> ReasoningRequest {
        if self.kind.as_deref() == Some("disabled") || self.enabled == Some(false) {
            return ReasoningRequest::Off;
        }
        let budget = self.budget_tokens.or(self.max_tokens);
        match (budget, self.effort.as_deref()) {
            (Some(tokens), _) => ReasoningRequest::of_budget(tokens),
            (None, Some(effort)) => ReasoningRequest::of_effort(effort),
            (None, None) if self.kind.is_some() || self.enabled == Some(true) => ReasoningRequest::Unlimited,
            (None, None) => ReasoningRequest::Unspecified,
        }
    }
}

/// Returns the reasoning that `reasoning_effort` asks for.
pub(super) fn of_effort(effort: Option<&str>) -> ReasoningRequest {
    effort.map(ReasoningRequest::of_effort).unwrap_or_default()
}

/// `thinkingConfig` of the Gemini API.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ThinkingConfig {
    #[serde(rename = "thinkingBudget", alias = "thinking_budget")]
    budget: Option<f64>,
    #[serde(rename = "thinkingLevel", alias = "thinking_level")]
    level: Option<String>,
}

impl ThinkingConfig {
    pub(super) fn request(&self) -> ReasoningRequest {
        let level = if self.level.is_some() { ReasoningRequest::Unlimited } else { ReasoningRequest::Unspecified };
        self.budget.map(ReasoningRequest::of_budget).unwrap_or_default().or(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinking(json: &str) -> ReasoningRequest {
        serde_json::from_str::<ReasoningOptions>(json).unwrap().request()
    }

    #[test]
    fn reasoning_is_read_from_the_options_of_each_api() {
        use ReasoningRequest::{AtMost, Off, Unlimited, Unspecified};
        assert_eq!(thinking(r#"{"type":"enabled","budget_tokens":2000}"#), AtMost(2_000));
        assert_eq!(thinking(r#"{"type":"adaptive"}"#), Unlimited);
        assert_eq!(thinking(r#"{"type":"enabled","budget_tokens":-5}"#), Unlimited);
        assert_eq!(thinking(r#"{"type":"disabled"}"#), Off);
        assert_eq!(thinking(r#"{"effort":"minimal"}"#), Unlimited);
        assert_eq!(thinking(r#"{"effort":"none"}"#), Off);
        assert_eq!(thinking(r#"{"summary":"auto"}"#), Unspecified);
        let config = |json| serde_json::from_str::<ThinkingConfig>(json).unwrap().request();
        assert_eq!(config(r#"{"thinkingBudget":0}"#), Off);
        assert_eq!(config(r#"{"thinkingBudget":-1}"#), Unlimited);
        assert_eq!(config(r#"{"thinkingBudget":100,"includeThoughts":true}"#), AtMost(100));
    }

    #[test]
    fn hidden_tokens_follow_from_request_and_model() {
        use ReasoningRequest::{AtMost, Off, Unlimited, Unspecified};
        let hidden = |request: ReasoningRequest| {
            [HiddenReasoning::Never, HiddenReasoning::Asked, HiddenReasoning::Always]
                .map(|model| request.hidden_tokens(model))
        };
        assert_eq!(hidden(Unspecified), [Some(0), Some(0), None]);
        assert_eq!(hidden(Unlimited), [Some(0), None, None]);
        assert_eq!(hidden(AtMost(7)), [Some(0), Some(7), Some(7)]);
        assert_eq!(hidden(Off), [Some(0); 3]);
    }
}
