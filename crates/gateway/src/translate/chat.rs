//! The words of `OpenAI` chat completions, as far as they can be translated.

use serde::Deserialize;
use serde_json::Value;

/// A request.
#[derive(Deserialize)]
pub(super) struct Request {
    pub(super) model: String,
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    pub(super) tools: Vec<Tool>,
    pub(super) tool_choice: Option<Value>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) max_completion_tokens: Option<u64>,
    pub(super) max_tokens: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) stop: Option<Stop>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Stop {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    pub(super) role: String,
    pub(super) content: Option<Content>,
    reasoning_content: Option<String>,
    /// The same under another name; some servers send both.
    reasoning: Option<Value>,
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<ToolCall>>,
    pub(super) tool_call_id: Option<String>,
}

impl Message {
    /// What the model thought, under whichever name.
    pub(super) fn thoughts(&self) -> Option<&str> {
        let told = self.reasoning_content.as_deref().or_else(|| self.reasoning.as_ref().and_then(Value::as_str));
        told.filter(|text| !text.is_empty())
    }
}

/// A text, or a list of parts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

impl Content {
    /// The content as parts.
    pub(super) fn into_parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::Text { text }],
            Self::Parts(parts) => parts,
        }
    }

    /// The words of the content.
    pub(super) fn into_text(self) -> String {
        let parts = self.into_parts().into_iter();
        parts.filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None }).collect()
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    Text {
        text: String,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
    /// What has no counterpart elsewhere.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct ImageUrl {
    pub(super) url: String,
}

#[derive(Deserialize)]
pub(super) struct Tool {
    pub(super) function: Option<Function>,
}

#[derive(Deserialize)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
}

/// A call, or in a stream a piece of one.
#[derive(Deserialize)]
pub(super) struct ToolCall {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) function: Option<Called>,
}

#[derive(Deserialize)]
pub(super) struct Called {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
}

/// A whole answer, or one chunk of a stream.
#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) choices: Vec<Choice>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    message: Option<Message>,
    delta: Option<Message>,
    pub(super) finish_reason: Option<String>,
}

impl Choice {
    /// What was said: all of it, or one more piece.
    pub(super) fn said(self) -> Option<Message> {
        self.delta.or(self.message)
    }
}

#[derive(Deserialize, Clone, Default)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    pub(super) prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize, Clone)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: Option<u64>,
}

impl Usage {
    /// Tokens of the prompt that a cache served.
    pub(super) fn cached(&self) -> u64 {
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        details.or(self.prompt_cache_hit_tokens).unwrap_or(0)
    }
}

/// What an error says, in whichever of its shapes.
pub(super) fn error_message(error: &Value) -> String {
    let told = error.get("message").unwrap_or(error);
    told.as_str().map_or_else(|| told.to_string(), str::to_owned)
}
