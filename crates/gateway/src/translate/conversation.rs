//! The request of any API in one neutral form.
//!
//! Each API has one decoder that makes a [`Conversation`] and one encoder that writes it. A part of a request without
//! a place here is refused by its decoder, and a part that an API cannot hold by the encoder of that API.
//!
//! Not here: responses (`stream_encoder`).

use serde_json::{Map, Value, json};

/// A model request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Conversation {
    pub(super) model: String,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<Tool>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) max_tokens: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) top_k: Option<u64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    pub(super) seed: Option<i64>,
    pub(super) stop: Vec<String>,
    pub(super) effort: Option<Effort>,
    pub(super) format: Option<AnswerFormat>,
    pub(super) stream: bool,
    /// Whether a chat client requested usage in its stream.
    pub(super) wants_usage: bool,
}

/// One message. Consecutive messages may have the same speaker.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) speaker: Speaker,
    pub(super) parts: Vec<Part>,
}

/// The author of a message. Tool results belong to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text(String),
    Image(Image),
    /// Reasoning of the model, with the vendor's signature as [`Signature`] writes it.
    Reasoning {
        text: String,
        signature: Option<String>,
    },
    ToolCall(ToolCall),
    ToolResult(ToolResult),
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Image {
    Base64 { media_type: String, data: String },
    Url(String),
}

/// A call of a tool by the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON text, or free text if `custom`.
    pub(super) arguments: String,
    /// Whether the tool takes free text.
    pub(super) custom: bool,
    /// The signature of the call.
    pub(super) signature: Option<String>,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolResult {
    pub(super) id: String,
    /// The name of the tool, if the API repeats it.
    pub(super) name: Option<String>,
    /// Texts and images only.
    pub(super) content: Vec<Part>,
    pub(super) is_error: bool,
}

/// A tool that the client runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// The JSON schema of the input.
    pub(super) schema: Value,
    pub(super) strict: Option<bool>,
    /// The name that a responses client knows, if it differs in name, namespace or input.
    pub(super) alias: Option<ToolAlias>,
}

/// A tool of a responses client whose call looks different there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolAlias {
    /// The name at the upstream.
    pub(super) upstream_name: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// Whether the tool takes free text.
    pub(super) custom: bool,
}

/// Which tools the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolChoice {
    Auto,
    Required,
    None,
    Tool(String),
}

/// How long the model reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}

/// The format of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnswerFormat {
    JsonObject,
    JsonSchema { name: Option<String>, schema: Value, strict: Option<bool> },
}

/// Vendors that sign reasoning. A signature is kept with its vendor's name, because no vendor accepts another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    Anthropic,
    /// Reasoning that Anthropic shows only encrypted.
    AnthropicRedacted,
    Gemini,
}

impl Signature {
    fn prefix(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic.",
            Self::AnthropicRedacted => "anthropic-redacted.",
            Self::Gemini => "gemini.",
        }
    }

    /// Returns the signature as clients keep it.
    pub(super) fn write(self, value: &str) -> String {
        format!("{}{value}", self.prefix())
    }

    /// Returns the vendor's own signature; `None` if another vendor signed.
    pub(super) fn read(self, signature: &str) -> Option<&str> {
        signature.strip_prefix(self.prefix()).filter(|value| !value.is_empty())
    }
}

impl Effort {
    /// Returns the effort that a name means in any API.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "none" => Self::None,
            "minimal" => Self::Minimal,
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "xhigh" | "max" => Self::Highest,
            _ => return None,
        })
    }

    /// Returns the effort that is nearest to a number of reasoning tokens; negative if the model decides.
    pub(super) fn from_tokens(tokens: i64) -> Self {
        match tokens {
            0 => Self::None,
            1..=4_095 => Self::Low,
            16_384.. => Self::High,
            _ => Self::Medium,
        }
    }

    /// Returns the number of reasoning tokens for models that take a number.
    pub(super) fn tokens(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Minimal | Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High | Self::Highest => 24_576,
        }
    }
}

impl ToolCall {
    /// Returns the arguments as JSON text; free text becomes the field `input`.
    pub(super) fn json_arguments(&self) -> String {
        if self.custom { json!({"input": self.arguments}).to_string() } else { self.arguments.clone() }
    }

    /// Returns the arguments as an object. Text that is not one, which a model can write, becomes the field `input`.
    pub(super) fn object_arguments(&self) -> Map<String, Value> {
        if !self.custom && self.arguments.trim().is_empty() {
            return Map::new();
        }
        let parsed = (!self.custom).then(|| serde_json::from_str(&self.arguments).ok()).flatten();
        parsed.unwrap_or_else(|| Map::from_iter([("input".to_owned(), self.arguments.clone().into())]))
    }
}

impl Image {
    /// Returns the image that a URL names; a `data:` URL contains it.
    pub(super) fn from_url(url: String) -> Self {
        match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((media_type, data)) => Self::Base64 { media_type: media_type.to_owned(), data: data.to_owned() },
            None => Self::Url(url),
        }
    }

    /// Returns the image as a URL.
    pub(super) fn to_url(&self) -> String {
        match self {
            Self::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
            Self::Url(url) => url.clone(),
        }
    }
}

impl Conversation {
    /// Adds a message, or its parts to the last message of the same speaker.
    pub(super) fn add(&mut self, speaker: Speaker, parts: Vec<Part>) {
        match self.messages.last_mut().filter(|last| last.speaker == speaker) {
            Some(last) => last.parts.extend(parts),
            None if parts.is_empty() => {}
            None => self.messages.push(Message { speaker, parts }),
        }
    }

    /// Takes the system messages at the start and returns their text.
    ///
    /// Later system messages become text of the user: only some upstreams accept system messages after the start.
    pub(super) fn take_system(&mut self, keep_later: bool) -> Option<String> {
        let leading = self.messages.iter().take_while(|message| message.speaker == Speaker::System).count();
        let rest = self.messages.split_off(leading);
        let system = std::mem::take(&mut self.messages);
        for Message { speaker, parts } in rest {
            if speaker == Speaker::System && !keep_later {
                let text = format!("<system-reminder>\n{}\n</system-reminder>", join_text(&parts, "\n\n"));
                self.add(Speaker::User, vec![Part::Text(text)]);
            } else if keep_later && speaker == Speaker::System {
                self.messages.push(Message { speaker, parts });
            } else {
                self.add(speaker, parts);
            }
        }
        let texts = system.iter().map(|message| join_text(&message.parts, "\n\n"));
        let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        (!text.is_empty()).then_some(text)
    }

    /// Returns the names of the tools that look different to a responses client.
    pub(super) fn aliases(&self) -> Vec<ToolAlias> {
        self.tools.iter().filter_map(|tool| tool.alias.clone()).collect()
    }
}

/// Returns the texts of `parts` joined by `separator`.
pub(super) fn join_text(parts: &[Part], separator: &str) -> String {
    let texts = parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None });
    texts.collect::<Vec<_>>().join(separator)
}
