//! The words of the Anthropic Messages API, as far as they can be translated.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A request.
#[derive(Deserialize)]
pub(super) struct Request {
    pub(super) model: String,
    pub(super) max_tokens: Option<u64>,
    pub(super) system: Option<Content>,
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    pub(super) tools: Vec<Tool>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    #[serde(default)]
    pub(super) stop_sequences: Vec<String>,
    #[serde(default)]
    pub(super) stream: bool,
}

#[derive(Deserialize)]
pub(super) struct Message {
    pub(super) role: String,
    pub(super) content: Content,
}

/// A text, or a list of blocks.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

impl Content {
    /// The content as blocks.
    pub(super) fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => vec![Block::Text { text }],
            Self::Blocks(blocks) => blocks,
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    Image {
        source: Source,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Content>,
        #[serde(default)]
        is_error: bool,
    },
    /// What has no counterpart elsewhere.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source {
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
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// Absent for tools that run on the vendor's side.
    pub(super) input_schema: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ToolChoice {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) disable_parallel_tool_use: bool,
}

/// A whole answer.
#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) content: Vec<Block>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Usage,
}

/// Tokens; in a stream each count is a total so far.
#[derive(Deserialize, Clone, Default)]
pub(super) struct Usage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_creation: Option<Value>,
}

impl Usage {
    /// Takes over the counts that `later` tells.
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
pub(super) enum Event {
    MessageStart {
        message: Head,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: End,
        #[serde(default)]
        usage: Usage,
    },
    MessageStop,
    Error {
        error: Problem,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) model: String,
    #[serde(default)]
    pub(super) usage: Usage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the names are the vendor's")]
pub(super) enum Delta {
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
pub(super) struct End {
    pub(super) stop_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Problem {
    #[serde(default)]
    pub(super) message: String,
}
