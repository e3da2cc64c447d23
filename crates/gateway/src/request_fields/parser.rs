//! The parser for the fields of a request body that the gateway needs.
//!
//! The upstream must read the same values. So the body must be a JSON object, a field may occur only once, and a name
//! that differs from a known field only in its case is an error.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};

use super::{
    reasoning::{self, ReasoningOptions, ReasoningRequest, ThinkingConfig},
    refused,
};
use crate::external_inputs::{ExternalInputs, InputField};

/// The fields of a request body that the gateway needs.
#[derive(Debug, Default)]
pub(super) struct ParsedBody {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) max_tokens: Option<f64>,
    pub(super) max_completion_tokens: Option<f64>,
    pub(super) max_output_tokens: Option<f64>,
    pub(super) n: Option<f64>,
    pub(super) best_of: Option<f64>,
    pub(super) max_tool_calls: Option<f64>,
    pub(super) service_tier: Option<String>,
    pub(super) reasoning: ReasoningRequest,
    /// The first refused field, with the reason.
    pub(super) refused: Option<(&'static str, &'static str)>,
    pub(super) generation: Option<GenerationConfig>,
    /// Content outside the body that the request refers to.
    pub(super) external_inputs: ExternalInputs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct GenerationConfig {
    #[serde(default, rename = "thinkingConfig", alias = "thinking_config")]
    pub(super) thinking: Option<ThinkingConfig>,
    #[serde(default, rename = "responseModalities", alias = "response_modalities")]
    pub(super) modalities: Option<Vec<String>>,
    #[serde(default, rename = "maxOutputTokens", alias = "max_output_tokens")]
    pub(super) max_output_tokens: Option<f64>,
    #[serde(default, rename = "candidateCount", alias = "candidate_count")]
    pub(super) candidates: Option<f64>,
}

/// A field that the parser knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldName {
    Model,
    Stream,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    N,
    BestOf,
    MaxToolCalls,
    Generation,
    ServiceTier,
    Thinking,
    Reasoning,
    ReasoningEffort,
    Modalities,
    Background,
    Speed,
    InferenceGeo,
    /// Read and changed in `splice.rs`. Here only its spelling is checked.
    StreamOptions,
    /// Refused for this reason, unless it is null.
    Refused(&'static str, &'static str),
    Other,
}

/// The spelling of each known field.
const SPELLINGS: [(&str, FieldName); 20] = [
    ("model", FieldName::Model),
    ("stream", FieldName::Stream),
    ("max_tokens", FieldName::MaxTokens),
    ("max_completion_tokens", FieldName::MaxCompletionTokens),
    ("max_output_tokens", FieldName::MaxOutputTokens),
    ("n", FieldName::N),
    ("best_of", FieldName::BestOf),
    ("max_tool_calls", FieldName::MaxToolCalls),
    ("generationConfig", FieldName::Generation),
    ("generation_config", FieldName::Generation),
    ("service_tier", FieldName::ServiceTier),
    ("serviceTier", FieldName::ServiceTier),
    ("thinking", FieldName::Thinking),
    ("reasoning", FieldName::Reasoning),
    ("reasoning_effort", FieldName::ReasoningEffort),
    ("modalities", FieldName::Modalities),
    ("background", FieldName::Background),
    ("speed", FieldName::Speed),
    ("inference_geo", FieldName::InferenceGeo),
    ("stream_options", FieldName::StreamOptions),
];

/// A field name, classified for this parser and for the search for external inputs.
struct FieldKey {
    name: FieldName,
    field: InputField,
}

impl<'de> Deserialize<'de> for FieldKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl Visitor<'_> for KeyVisitor {
            type Value = FieldKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FieldKey, E> {
                let field = InputField::of_request(text);
                if let Some((_, name)) = SPELLINGS.iter().find(|(spelling, _)| *spelling == text) {
                    return Ok(FieldKey { name: *name, field });
                }
                if let Some((spelling, _)) = SPELLINGS.iter().find(|(spelling, _)| is_variant(text, spelling)) {
                    return Err(E::custom(format_args!("unknown field `{text}`, did you mean `{spelling}`?")));
                }
                let refused = refused::reason(text);
                let name = refused.map_or(FieldName::Other, |(name, why)| FieldName::Refused(name, why));
                Ok(FieldKey { name, field })
            }
        }

        deserializer.deserialize_identifier(KeyVisitor)
    }
}

/// Returns whether a parser that ignores case takes `text` for `spelling`. Some parsers also fold non-ASCII letters,
/// such as the long s and the kelvin sign.
pub(super) fn is_variant(text: &str, spelling: &str) -> bool {
    if text.is_ascii() {
        return text.eq_ignore_ascii_case(spelling);
    }
    let folded = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    folded.eq(spelling.chars().flat_map(char::to_lowercase))
}

impl ParsedBody {
    /// Parses a request body in one pass, for its fields and its external inputs.
    pub(super) fn read(body: &[u8]) -> serde_json::Result<Self> {
        // Values that are nested too deeply to be searched can still be skipped.
        let read = |search| {
            let mut json = serde_json::Deserializer::from_slice(body);
            let fields = BodyVisitor { search }.deserialize(&mut json)?;
            json.end().map(|()| fields)
        };
        read(true).or_else(|_| read(false))
    }
}

/// Reads the JSON object of a request body.
struct BodyVisitor {
    /// Whether values are searched for external inputs.
    search: bool,
}

impl<'de> DeserializeSeed<'de> for BodyVisitor {
    type Value = ParsedBody;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParsedBody, D::Error> {
        // Derived code would also accept an array, as the fields in their order.
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = ParsedBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedBody, A::Error> {
        let (mut fields, mut seen) = (ParsedBody::default(), [false; SPELLINGS.len()]);
        while let Some(FieldKey { name, field }) = map.next_key()? {
            if let Some(at) = SPELLINGS.iter().position(|(_, known)| *known == name)
                && std::mem::replace(&mut seen[at], true)
            {
                return Err(A::Error::custom(format_args!("duplicate field `{}`", SPELLINGS[at].0)));
            }
            if name == FieldName::Other || name == FieldName::StreamOptions {
                if self.search {
                    map.next_value_seed(fields.external_inputs.value_seed(field))?;
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            } else {
                fields.read_field(name, &mut map)?;
            }
        }
        if !self.search {
            fields.external_inputs = ExternalInputs::unknown();
        }
        Ok(fields)
    }
}

impl ParsedBody {
    fn read_field<'de, A: MapAccess<'de>>(&mut self, name: FieldName, map: &mut A) -> Result<(), A::Error> {
        match name {
            FieldName::Model => self.model = map.next_value()?,
            FieldName::Stream => self.stream = map.next_value()?,
            FieldName::MaxTokens => self.max_tokens = map.next_value()?,
            FieldName::MaxCompletionTokens => self.max_completion_tokens = map.next_value()?,
            FieldName::MaxOutputTokens => self.max_output_tokens = map.next_value()?,
            FieldName::N => self.n = map.next_value()?,
            FieldName::BestOf => self.best_of = map.next_value()?,
            FieldName::MaxToolCalls => self.max_tool_calls = map.next_value()?,
            FieldName::Generation => self.read_generation(map.next_value()?),
            FieldName::ServiceTier => self.service_tier = map.next_value()?,
            FieldName::Thinking | FieldName::Reasoning => {
                let options: Option<ReasoningOptions> = map.next_value()?;
                self.reasoning = self.reasoning.or(options.unwrap_or_default().request());
            }
            FieldName::ReasoningEffort => {
                let effort: Option<String> = map.next_value()?;
                self.reasoning = self.reasoning.or(reasoning::of_effort(effort.as_deref()));
            }
            FieldName::Modalities => self.check_modalities("modalities", map.next_value()?),
            FieldName::Background => {
                if map.next_value::<Option<bool>>()? == Some(true) {
                    self.refuse("background", "its usage is not in the response");
                }
            }
            FieldName::Speed => self.check_value("speed", map.next_value()?),
            FieldName::InferenceGeo => self.check_value("inference_geo", map.next_value()?),
            FieldName::Refused(name, why) => {
                if map.next_value::<Option<IgnoredAny>>()?.is_some() {
                    self.refuse(name, why);
                }
            }
            FieldName::StreamOptions | FieldName::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn read_generation(&mut self, config: Option<GenerationConfig>) {
        if let Some(config) = &config {
            let thinking = config.thinking.as_ref().map(ThinkingConfig::request).unwrap_or_default();
            self.reasoning = self.reasoning.or(thinking);
            self.check_modalities("responseModalities", config.modalities.clone());
        }
        self.generation = config;
    }

    /// Refuses output other than text, whose price is not known.
    fn check_modalities(&mut self, field: &'static str, modalities: Option<Vec<String>>) {
        if modalities.iter().flatten().any(|modality| !modality.eq_ignore_ascii_case("text")) {
            self.refuse(field, "only text has a known price");
        }
    }

    fn check_value(&mut self, field: &'static str, value: Option<String>) {
        if let Some(why) = value.and_then(|value| refused::value_reason(field, &value)) {
            self.refuse(field, why);
        }
    }

    fn refuse(&mut self, field: &'static str, why: &'static str) {
        self.refused.get_or_insert((field, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(body: &str, expected: &str) {
        let error = ParsedBody::read(body.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "`{body}`: {error}");
    }

    #[test]
    fn only_an_object_is_accepted() {
        check_error("null", "invalid type: null, expected a JSON object");
        check_error(r#"["gpt-4o",true,5]"#, "invalid type: sequence, expected a JSON object");
        check_error("\"model\"", "invalid type: string \"model\", expected a JSON object");
    }

    #[test]
    fn field_that_a_lenient_parser_would_accept_is_rejected() {
        check_error(r#"{"model":"cheap","Model":"dear"}"#, "unknown field `Model`, did you mean `model`?");
        check_error(r#"{"\u0053tream":true}"#, "unknown field `Stream`, did you mean `stream`?");
        check_error("{\"max_to\u{212a}ens\":1}", "unknown field `max_to\u{212a}ens`, did you mean `max_tokens`?");
        check_error("{\"\u{17f}tream\":true}", "unknown field `\u{17f}tream`, did you mean `stream`?");
        check_error(r#"{"Generation_Config":{}}"#, "unknown field `Generation_Config`");
        check_error(r#"{"stream_options":{},"stream_options":{}}"#, "duplicate field `stream_options`");
        check_error(r#"{"generationConfig":{},"generation_config":{}}"#, "duplicate field `generationConfig`");
        check_error(r#"{"service_tier":"flex","serviceTier":"priority"}"#, "duplicate field `service_tier`");
        check_error(r#"{"Service_Tier":"priority"}"#, "unknown field `Service_Tier`, did you mean `service_tier`?");
        assert!(ParsedBody::read(br#"{"metadata":{"Model":"x","models":["y"]}}"#).unwrap().refused.is_none());
    }
}
