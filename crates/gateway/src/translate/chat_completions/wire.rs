//! JSON types of chat completions responses, with the fields that can be translated.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct ChatMessage {
    pub(super) content: Option<ChatContent>,
    reasoning_content: Option<String>,
    /// The same text under another name; some servers send both.
    reasoning: Option<Value>,
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<ChatToolCall>>,
}

impl ChatMessage {
    /// Returns the reasoning text under either name, if it is not empty.
    pub(super) fn reasoning_text(&self) -> Option<&str> {
        let text = self.reasoning_content.as_deref().or_else(|| self.reasoning.as_ref().and_then(Value::as_str));
        text.filter(|text| !text.is_empty())
    }
}

/// Message content: a string or a list of parts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

impl ChatContent {
    /// Returns the content as parts.
    pub(super) fn into_parts(self) -> Vec<ChatPart> {
        match self {
            Self::Text(text) => vec![ChatPart::Text { text }],
            Self::Parts(parts) => parts,
        }
    }

    /// Returns the text parts joined.
    pub(super) fn into_text(self) -> String {
        let parts = self.into_parts().into_iter();
        parts.filter_map(|part| if let ChatPart::Text { text } = part { Some(text) } else { None }).collect()
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPart {
    Text {
        text: String,
    },
    /// Any part without an equivalent in the other APIs.
    #[serde(other)]
    Other,
}

/// A tool call; in a stream, a piece of one.
#[derive(Deserialize)]
pub(super) struct ChatToolCall {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) function: Option<ChatCalledFunction>,
}

#[derive(Deserialize)]
pub(super) struct ChatCalledFunction {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
}

/// A complete response, or one chunk of a stream.
#[derive(Deserialize)]
pub(super) struct ChatCompletion {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<ChatChoice>,
    pub(super) usage: Option<ChatUsage>,
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ChatChoice {
    message: Option<ChatMessage>,
    delta: Option<ChatMessage>,
    pub(super) finish_reason: Option<String>,
}

impl ChatChoice {
    /// Returns the message, or in a stream the next piece of it.
    pub(super) fn into_message(self) -> Option<ChatMessage> {
        self.delta.or(self.message)
    }
}

#[derive(Deserialize, Clone, Default)]
pub(super) struct ChatUsage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
    pub(super) prompt_tokens_details: Option<ChatPromptDetails>,
    pub(super) prompt_cache_hit_tokens: Option<u64>,
    completion_tokens_details: Option<ChatCompletionDetails>,
}

#[derive(Deserialize, Clone)]
struct ChatCompletionDetails {
    reasoning_tokens: Option<u64>,
}

#[derive(Deserialize, Clone)]
pub(super) struct ChatPromptDetails {
    pub(super) cached_tokens: Option<u64>,
}

impl ChatUsage {
    /// Returns the prompt tokens that were read from a cache.
    pub(super) fn cached_tokens(&self) -> u64 {
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        details.or(self.prompt_cache_hit_tokens).unwrap_or(0)
    }

    /// Returns the tokens of reasoning, which are part of the completion.
    pub(super) fn reasoning_tokens(&self) -> u64 {
        self.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens).unwrap_or(0)
    }
}
