//! The fields of a request that the gateway reads.
//!
//! Whoever answers must read the same ones. So a field may stand there once, the request is an object and nothing else,
//! and a name that some readers take for one of ours, because they do not tell capitals apart, is an error.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};

use crate::external_inputs::{ExternalInputs, Field};

/// What a request says, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct ParsedBody {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) max_tokens: Option<f64>,
    pub(super) max_completion_tokens: Option<f64>,
    pub(super) max_output_tokens: Option<f64>,
    pub(super) n: Option<f64>,
    pub(super) generation: Option<Generation>,
    /// What it draws on beyond its own bytes.
    pub(super) external_inputs: ExternalInputs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Generation {
    #[serde(default, rename = "maxOutputTokens", alias = "max_output_tokens")]
    pub(super) max_output_tokens: Option<f64>,
    #[serde(default, rename = "candidateCount", alias = "candidate_count")]
    pub(super) candidates: Option<f64>,
}

/// The name of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Model,
    Stream,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    N,
    Generation,
    /// Read elsewhere, and changed; here only its spelling is looked at.
    StreamOptions,
    Other,
}

/// How they are spelled.
const NAMES: [(&str, Name); 9] = [
    ("model", Name::Model),
    ("stream", Name::Stream),
    ("max_tokens", Name::MaxTokens),
    ("max_completion_tokens", Name::MaxCompletionTokens),
    ("max_output_tokens", Name::MaxOutputTokens),
    ("n", Name::N),
    ("generationConfig", Name::Generation),
    ("generation_config", Name::Generation),
    ("stream_options", Name::StreamOptions),
];

/// A name, as both readers of a request take it.
struct Key {
    name: Name,
    field: Field,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spelled;

        impl Visitor<'_> for Spelled {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
                let field = Field::of_request(text);
                if let Some((_, name)) = NAMES.iter().find(|(spelling, _)| *spelling == text) {
                    return Ok(Key { name: *name, field });
                }
                match NAMES.iter().find(|(spelling, _)| is_variant(text, spelling)) {
                    Some((spelling, _)) => {
                        Err(E::custom(format_args!("it has a field `{text}`, which is not `{spelling}`")))
                    }
                    None => Ok(Key { name: Name::Other, field }),
                }
            }
        }

        deserializer.deserialize_identifier(Spelled)
    }
}

/// Whether a reader that does not tell capitals apart takes `text` for `spelling`. Some of them fold letters that are not
/// of ASCII, too: the long s, the sign of the kelvin.
fn is_variant(text: &str, spelling: &str) -> bool {
    if text.is_ascii() {
        return text.eq_ignore_ascii_case(spelling);
    }
    let folded = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    folded.eq(spelling.chars().flat_map(char::to_lowercase))
}

impl ParsedBody {
    /// Reads a request once, for its fields and for what it draws on.
    pub(super) fn read(body: &[u8]) -> serde_json::Result<Self> {
        // What is nested too deeply to be looked at can still be read past.
        let read = |look| {
            let mut json = serde_json::Deserializer::from_slice(body);
            let fields = Object { look }.deserialize(&mut json)?;
            json.end().map(|()| fields)
        };
        read(true).or_else(|_| read(false))
    }
}

/// A request that is about to be read.
struct Object {
    /// Whether all that is in it is looked at.
    look: bool,
}

impl<'de> DeserializeSeed<'de> for Object {
    type Value = ParsedBody;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParsedBody, D::Error> {
        // Nothing but an object is visited: an array would else be read as its fields in their order.
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = ParsedBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedBody, A::Error> {
        let (mut fields, mut seen) = (ParsedBody::default(), [false; NAMES.len()]);
        while let Some(Key { name, field }) = map.next_key()? {
            if name != Name::Other && std::mem::replace(&mut seen[name as usize], true) {
                return Err(A::Error::custom(format_args!("it has `{}` twice", spelling(name))));
            }
            match name {
                Name::Model => fields.model = map.next_value()?,
                Name::Stream => fields.stream = map.next_value()?,
                Name::MaxTokens => fields.max_tokens = map.next_value()?,
                Name::MaxCompletionTokens => fields.max_completion_tokens = map.next_value()?,
                Name::MaxOutputTokens => fields.max_output_tokens = map.next_value()?,
                Name::N => fields.n = map.next_value()?,
                Name::Generation => fields.generation = map.next_value()?,
                Name::StreamOptions | Name::Other if self.look => {
                    map.next_value_seed(fields.external_inputs.value(field))?
                }
                Name::StreamOptions | Name::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !self.look {
            fields.external_inputs = ExternalInputs::UNKNOWN;
        }
        Ok(fields)
    }
}

fn spelling(name: Name) -> &'static str {
    NAMES.iter().find(|(_, other)| *other == name).map_or("", |(spelling, _)| spelling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(body: &str, told: &str) {
        let error = ParsedBody::read(body.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(told), "`{body}`: {error}");
    }

    #[test]
    fn only_an_object_is_a_request() {
        check_refused("null", "invalid type: null, expected a JSON object");
        check_refused(r#"["gpt-4o",true,5]"#, "invalid type: sequence, expected a JSON object");
        check_refused("\"model\"", "invalid type: string \"model\", expected a JSON object");
    }

    #[test]
    fn a_name_that_others_take_for_ours_is_refused() {
        check_refused(r#"{"model":"cheap","Model":"dear"}"#, "it has a field `Model`, which is not `model`");
        check_refused(r#"{"\u0053tream":true}"#, "it has a field `Stream`, which is not `stream`");
        check_refused("{\"max_to\u{212a}ens\":1}", "it has a field `max_to\u{212a}ens`, which is not `max_tokens`");
        check_refused("{\"\u{17f}tream\":true}", "it has a field `\u{17f}tream`, which is not `stream`");
        check_refused(r#"{"Generation_Config":{}}"#, "it has a field `Generation_Config`");
        check_refused(r#"{"stream_options":{},"stream_options":{}}"#, "it has `stream_options` twice");
        check_refused(r#"{"generationConfig":{},"generation_config":{}}"#, "it has `generationConfig` twice");
        assert!(ParsedBody::read(br#"{"models":[],"metadata":{"Model":"x"}}"#).is_ok());
    }
}
