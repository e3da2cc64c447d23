//! The parser for the fields of a request body that the gateway needs.
//!
//! The upstream must read the same values. So the body must be a JSON object, a field may occur only once, and a name
//! that differs from a known field only in its case is an error.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
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
    pub(super) generation: Option<GenerationConfig>,
    /// Content outside the body that the request refers to.
    pub(super) external_inputs: ExternalInputs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct GenerationConfig {
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
    Generation,
    /// Read and changed in `splice.rs`. Here only its spelling is checked.
    StreamOptions,
    Other,
}

/// The spelling of each known field.
const SPELLINGS: [(&str, FieldName); 9] = [
    ("model", FieldName::Model),
    ("stream", FieldName::Stream),
    ("max_tokens", FieldName::MaxTokens),
    ("max_completion_tokens", FieldName::MaxCompletionTokens),
    ("max_output_tokens", FieldName::MaxOutputTokens),
    ("n", FieldName::N),
    ("generationConfig", FieldName::Generation),
    ("generation_config", FieldName::Generation),
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
                match SPELLINGS.iter().find(|(spelling, _)| is_variant(text, spelling)) {
                    Some((spelling, _)) => {
                        Err(E::custom(format_args!("unknown field `{text}`, did you mean `{spelling}`?")))
                    }
                    None => Ok(FieldKey { name: FieldName::Other, field }),
                }
            }
        }

        deserializer.deserialize_identifier(KeyVisitor)
    }
}

/// Returns whether a parser that ignores case takes `text` for `spelling`. Some parsers also fold non-ASCII letters,
/// such as the long s and the kelvin sign.
fn is_variant(text: &str, spelling: &str) -> bool {
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
            if name != FieldName::Other && std::mem::replace(&mut seen[name as usize], true) {
                return Err(A::Error::custom(format_args!("duplicate field `{}`", spelling(name))));
            }
            match name {
                FieldName::Model => fields.model = map.next_value()?,
                FieldName::Stream => fields.stream = map.next_value()?,
                FieldName::MaxTokens => fields.max_tokens = map.next_value()?,
                FieldName::MaxCompletionTokens => fields.max_completion_tokens = map.next_value()?,
                FieldName::MaxOutputTokens => fields.max_output_tokens = map.next_value()?,
                FieldName::N => fields.n = map.next_value()?,
                FieldName::Generation => fields.generation = map.next_value()?,
                FieldName::StreamOptions | FieldName::Other if self.search => {
                    map.next_value_seed(fields.external_inputs.value_seed(field))?;
                }
                FieldName::StreamOptions | FieldName::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !self.search {
            fields.external_inputs = ExternalInputs::UNKNOWN;
        }
        Ok(fields)
    }
}

fn spelling(name: FieldName) -> &'static str {
    SPELLINGS.iter().find(|(_, other)| *other == name).map_or("", |(spelling, _)| spelling)
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
        assert!(ParsedBody::read(br#"{"models":[],"metadata":{"Model":"x"}}"#).is_ok());
    }
}
