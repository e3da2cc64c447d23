//! JSON types of responses of the Anthropic Messages API, with the fields that can be translated.

use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicBlock {
    Text {
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Map<String, Value>,
    },
    /// Any block without an equivalent in the other APIs.
    #[serde(other)]
    Other,
}

/// A complete response.
#[derive(Deserialize)]
pub(super) struct AnthropicResponse {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) content: Vec<AnthropicBlock>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: AnthropicUsage,
}

/// Token counts; in a stream each count is the total so far.
#[derive(Deserialize, Clone, Default)]
pub(super) struct AnthropicUsage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_creation: Option<Value>,
}

impl AnthropicUsage {
    /// Replaces the counts that `later` contains.
    pub(super) fn overwrite(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation.take());
    }
}

/// One event of a stream.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicEvent {
    MessageStart {
        message: AnthropicMessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: AnthropicBlock,
    },
    ContentBlockDelta {
        index: u64,
        delta: AnthropicDelta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: AnthropicMessageEnd,
        #[serde(default)]
        usage: AnthropicUsage,
    },
    MessageStop,
    Error {
        error: AnthropicError,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct AnthropicMessageStart {
    pub(super) id: String,
    pub(super) model: String,
    #[serde(default)]
    pub(super) usage: AnthropicUsage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicDelta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct AnthropicMessageEnd {
    pub(super) stop_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct AnthropicError {
    #[serde(default)]
    pub(super) message: String,
}
