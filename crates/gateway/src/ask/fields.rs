//! The fields of a request that the gateway reads.
//!
//! Whoever answers must read the same ones. So a field may stand there once, the request is an object and nothing else,
//! and a name that some readers take for one of ours, because they do not tell capitals apart, is an error.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

/// What a request says, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) max_tokens: Option<f64>,
    pub(super) max_completion_tokens: Option<f64>,
    pub(super) max_output_tokens: Option<f64>,
    pub(super) n: Option<f64>,
    pub(super) generation: Option<Generation>,
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

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spelled;

        impl Visitor<'_> for Spelled {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
                if let Some((_, name)) = NAMES.iter().find(|(spelling, _)| *spelling == text) {
                    return Ok(*name);
                }
                match NAMES.iter().find(|(spelling, _)| is_variant(text, spelling)) {
                    Some((spelling, _)) => {
                        Err(E::custom(format_args!("it has a field `{text}`, which is not `{spelling}`")))
                    }
                    None => Ok(Name::Other),
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

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let (mut fields, mut seen) = (Fields::default(), Vec::new());
                while let Some(name) = map.next_key()? {
                    if name != Name::Other {
                        if seen.contains(&name) {
                            return Err(A::Error::custom(format_args!("it has `{}` twice", spelling(name))));
                        }
                        seen.push(name);
                    }
                    match name {
                        Name::Model => fields.model = map.next_value()?,
                        Name::Stream => fields.stream = map.next_value()?,
                        Name::MaxTokens => fields.max_tokens = map.next_value()?,
                        Name::MaxCompletionTokens => fields.max_completion_tokens = map.next_value()?,
                        Name::MaxOutputTokens => fields.max_output_tokens = map.next_value()?,
                        Name::N => fields.n = map.next_value()?,
                        Name::Generation => fields.generation = map.next_value()?,
                        Name::StreamOptions | Name::Other => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(fields)
            }
        }

        // Nothing but an object is visited: an array would else be read as its fields in their order.
        deserializer.deserialize_map(Object)
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
        let error = serde_json::from_str::<Fields>(body).unwrap_err().to_string();
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
        assert!(serde_json::from_str::<Fields>(r#"{"models":[],"metadata":{"Model":"x"}}"#).is_ok());
    }
}
