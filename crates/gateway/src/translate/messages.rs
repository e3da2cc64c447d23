//! JSON types of the Anthropic Messages API, with the fields that can be translated.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A Messages request.
#[derive(Deserialize)]
pub(super) struct AnthropicRequest {
    pub(super) model: String,
    pub(super) max_tokens: Option<u64>,
    pub(super) system: Option<AnthropicContent>,
    pub(super) messages: Vec<AnthropicMessage>,
    #[serde(default)]
    pub(super) tools: Vec<AnthropicTool>,
    pub(super) tool_choice: Option<AnthropicToolChoice>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) stop_sequences: Vec<String>,
    #[serde(default)]
    pub(super) stream: bool,
}

#[derive(Deserialize)]
pub(super) struct AnthropicMessage {
    pub(super) role: String,
    pub(super) content: AnthropicContent,
}

/// Message content: a string or a list of blocks.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AnthropicContent {
    Text(String),
    Blocks(Vec<AnthropicBlock>),
}

impl AnthropicContent {
    /// Returns the content as blocks.
    pub(super) fn into_blocks(self) -> Vec<AnthropicBlock> {
        match self {
            Self::Text(text) => vec![AnthropicBlock::Text { text }],
            Self::Blocks(blocks) => blocks,
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicBlock {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    Image {
        source: AnthropicImageSource,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<AnthropicContent>,
        #[serde(default)]
        is_error: bool,
    },
    /// Any block without an equivalent in the other APIs.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicImageSource {
    Base64 {
        media_type: String,
        data: String,
    },
    Url {
        url: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct AnthropicTool {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// Absent for tools that the vendor runs itself.
    pub(super) input_schema: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct AnthropicToolChoice {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) disable_parallel_tool_use: bool,
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
