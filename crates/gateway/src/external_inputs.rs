//! Inputs that a request refers to without containing them: files, URLs, earlier responses, tools of the vendor.
//!
//! A prompt token is at least one byte of the request, so the length of the request bounds the cost of its prompt.
//! This bound does not hold if the vendor adds content to the prompt. The request is parsed as JSON instead of being
//! searched as text, because a name can be escaped in many ways.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::request_fields::ServerTools;

/// Fields whose value refers to content outside the request.
const REFERENCE_FIELDS: [&str; 12] = [
    "previous_response_id",
    "conversation",
    "cachedContent",
    "cached_content",
    "file_id",
    "file_uri",
    "fileUri",
    "file_url",
    "mcp_servers",
    "googleSearch",
    "google_search",
    "urlContext",
];
/// Prefixes of content types and tool types for which the vendor supplies the content.
const VENDOR_CONTENT_TYPES: [&str; 8] =
    ["url", "web_search", "web_fetch", "file_search", "mcp", "code_interpreter", "code_execution", "container"];

/// The inputs outside a request that can raise its cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExternalInputs {
    /// Whether the prompt may be longer than the request.
    pub(crate) extend_prompt: bool,
    /// Whether the request may write to the one-hour cache.
    pub(crate) hour_cache: bool,
    /// The tools that the vendor runs.
    pub(crate) tools: ServerTools,
}

impl ExternalInputs {
    /// Returns the worst case, for a request that could not be read completely.
    pub(crate) fn unknown() -> Self {
        let tools = ServerTools { unpriced: Some("nested too deeply to be read".to_owned()), ..ServerTools::default() };
        Self { extend_prompt: true, hour_cache: true, tools }
    }

    /// Returns a seed that reads the value of `field` and notes the external inputs in it.
    pub(crate) fn value_seed(&mut self, field: InputField) -> impl for<'de> DeserializeSeed<'de, Value = ()> {
        ValueWalker { inputs: self, field }
    }
}

/// The kind of field that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputField {
    Type,
    Ttl,
    /// An image: a `data:` URL or a reference. Also the field `url` of an image object.
    Image,
    Reference,
    /// The request's list of tools, or one of them.
    Tools,
    /// A list of tools inside a message.
    QuotedTools,
    ToolType,
    QuotedToolType,
    MaxUses,
    Other,
}

impl InputField {
    /// Returns the kind of the top-level field `name`.
    pub(crate) fn of_request(name: &str) -> Self {
        match name {
            "tools" => Self::Tools,
            // A prompt that is stored at the vendor.
            "prompt" => Self::Reference,
            _ => Self::of_name(name, Self::Other),
        }
    }

    fn of_name(name: &str, parent: Self) -> Self {
        match name {
            "type" if parent == Self::Tools => Self::ToolType,
            "type" if parent == Self::QuotedTools => Self::QuotedToolType,
            "max_uses" if parent == Self::Tools => Self::MaxUses,
            "tools" => Self::QuotedTools,
            "type" => Self::Type,
            "ttl" => Self::Ttl,
            "image_url" => Self::Image,
            "url" if parent == Self::Image => Self::Image,
            name if REFERENCE_FIELDS.contains(&name) => Self::Reference,
            _ => Self::Other,
        }
    }
}

/// Reads one value and everything nested in it.
struct ValueWalker<'r> {
    inputs: &'r mut ExternalInputs,
    field: InputField,
}

impl<'de> DeserializeSeed<'de> for ValueWalker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueWalker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let is_vendor_content = || VENDOR_CONTENT_TYPES.iter().any(|kind| text.starts_with(kind)) || text == "file";
        match self.field {
            InputField::Type => {
                self.inputs.extend_prompt |= is_vendor_content();
                // An edit that runs a second model, whose tokens are counted elsewhere.
                if text.starts_with("compact_2") {
                    self.inputs.tools.add_type(text, true);
                }
            }
            InputField::ToolType | InputField::QuotedToolType => {
                self.inputs.extend_prompt |= is_vendor_content();
                self.inputs.tools.add_type(text, self.field == InputField::ToolType);
            }
            InputField::Ttl => self.inputs.hour_cache |= text == "1h",
            InputField::Image => self.inputs.extend_prompt |= !text.starts_with("data:"),
            InputField::Reference => self.inputs.extend_prompt |= !text.is_empty(),
            InputField::Tools | InputField::QuotedTools | InputField::MaxUses | InputField::Other => {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.inputs.extend_prompt |= self.field == InputField::Reference;
        while let Some(field) = map.next_key_seed(FieldNameSeed { inputs: self.inputs, parent: self.field })? {
            map.next_value_seed(ValueWalker { inputs: self.inputs, field })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(ValueWalker { inputs: self.inputs, field: self.field })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "a limit of searches is small")]
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "a limit of searches is small")]
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        if self.field == InputField::MaxUses {
            self.inputs.tools.add_max_uses(number);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads the name of a field as an [`InputField`], without copying it.
struct FieldNameSeed<'r> {
    inputs: &'r mut ExternalInputs,
    parent: InputField,
}

impl<'de> DeserializeSeed<'de> for FieldNameSeed<'_> {
    type Value = InputField;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<InputField, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed<'_> {
    type Value = InputField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<InputField, E> {
        if self.parent == InputField::Tools {
            self.inputs.tools.add_field(name);
        }
        Ok(InputField::of_name(name, self.parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs_of(body: &str) -> ExternalInputs {
        let (mut inputs, mut json) = (ExternalInputs::default(), serde_json::Deserializer::from_str(body));
        match inputs.value_seed(InputField::Other).deserialize(&mut json) {
            Ok(()) => inputs,
            Err(_) => ExternalInputs::unknown(),
        }
    }

    #[track_caller]
    fn check(body: &str, extend_prompt: bool) {
        assert_eq!(inputs_of(body).extend_prompt, extend_prompt, "{body}");
    }

    #[test]
    fn references_outside_the_request_are_found() {
        check(r#"{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}"#, true);
        check(r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"https://x"}}]}]}"#, true);
        check(r#"{"input":[{"content":[{"type":"input_image","image_url":"https://x"}]}]}"#, true);
        check(r#"{"previous_response_id":"resp_1"}"#, true);
        check(r#"{"previous_response_\u0069d":"resp_1"}"#, true);
        check(r#"{"conversation":{"id":"c"}}"#, true);
        check(r#"{"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#, true);
        check(r#"{"contents":[{"parts":[{"fileData":{"fileUri":"gs://x"}}]}]}"#, true);
        check(&format!("{}{}", "[".repeat(200), "]".repeat(200)), true);
    }

    #[test]
    fn content_inside_the_request_is_not_a_reference() {
        check(
            r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}"#,
            false,
        );
        check(r#"{"tools":[{"name":"fetch","input_schema":{"properties":{"url":{"type":"string"}}}}]}"#, false);
        check(r#"{"content":[{"type":"tool_use","input":{"url":"https://x","file":"a"}}]}"#, false);
        check(r#"{"content":"{\"previous_response_id\":\"x\"}","previous_response_id":null,"mcp_servers":[]}"#, false);
    }

    #[test]
    fn one_hour_cache_is_found() {
        let hour = |ttl: &str| format!(r#"{{"system":[{{"cache_control":{{"type":"ephemeral","ttl":"{ttl}"}}}}]}}"#);
        assert!(inputs_of(&hour("1h")).hour_cache);
        assert!(!inputs_of(&hour("5m")).hour_cache);
    }
}
