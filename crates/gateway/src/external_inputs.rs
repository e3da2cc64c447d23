//! What a request draws on beyond its own bytes: files, addresses, earlier answers, tools of the vendor.
//!
//! A token of a prompt is at least one byte of the request, so the bytes bound what the prompt can cost. That
//! ends where the vendor adds something of its own to the prompt; such requests are found here. The request
//! is read as JSON, not searched as text: a name can be escaped in many ways.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Fields whose value stands for content that is elsewhere.
const ELSEWHERE: [&str; 12] = [
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
/// Kinds of content, and the beginnings of kinds of tools, that the vendor fills.
const FILLED: [&str; 8] =
    ["url", "web_search", "web_fetch", "file_search", "mcp", "code_interpreter", "code_execution", "container"];

/// What a request draws on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExternalInputs {
    /// Its prompt may be longer than the request.
    pub(crate) beyond: bool,
    /// It may write to the one-hour cache.
    pub(crate) hour_cache: bool,
}

impl ExternalInputs {
    /// Of a request nobody could read all of: nothing can be said about it.
    pub(crate) const UNKNOWN: Self = Self { beyond: true, hour_cache: true };

    /// Reads the value of a field of a request.
    pub(crate) fn value(&mut self, field: Field) -> impl for<'de> DeserializeSeed<'de, Value = ()> {
        Walk { reach: self, field }
    }
}

/// What the value about to be read is the value of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Type,
    Ttl,
    /// An image: inline as a `data:` address, else elsewhere. Also the `url` in such an object.
    Image,
    Elsewhere,
    Other,
}

impl Field {
    /// The field `name` of a request itself.
    pub(crate) fn of_request(name: &str) -> Self {
        Self::named(name, Self::Other)
    }

    fn named(name: &str, around: Self) -> Self {
        match name {
            "type" => Self::Type,
            "ttl" => Self::Ttl,
            "image_url" => Self::Image,
            "url" if around == Self::Image => Self::Image,
            name if ELSEWHERE.contains(&name) => Self::Elsewhere,
            _ => Self::Other,
        }
    }
}

/// Reads one value and all that is in it.
struct Walk<'r> {
    reach: &'r mut ExternalInputs,
    field: Field,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        match self.field {
            Field::Type => self.reach.beyond |= FILLED.iter().any(|kind| text.starts_with(kind)) || text == "file",
            Field::Ttl => self.reach.hour_cache |= text == "1h",
            Field::Image => self.reach.beyond |= !text.starts_with("data:"),
            Field::Elsewhere => self.reach.beyond |= !text.is_empty(),
            Field::Other => {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.reach.beyond |= self.field == Field::Elsewhere;
        while let Some(field) = map.next_key_seed(Name { around: self.field })? {
            map.next_value_seed(Walk { reach: self.reach, field })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Walk { reach: self.reach, field: self.field })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads the name of a field, without keeping it.
struct Name {
    around: Field,
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Field, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field, E> {
        Ok(Field::named(name, self.around))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(body: &str) -> ExternalInputs {
        let (mut reach, mut json) = (ExternalInputs::default(), serde_json::Deserializer::from_str(body));
        match reach.value(Field::Other).deserialize(&mut json) {
            Ok(()) => reach,
            Err(_) => ExternalInputs::UNKNOWN,
        }
    }

    #[track_caller]
    fn check(body: &str, beyond: bool) {
        assert_eq!(reach(body).beyond, beyond, "{body}");
    }

    #[test]
    fn what_is_not_in_the_request_is_found() {
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
    fn what_is_in_the_request_is_not() {
        check(
            r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}"#,
            false,
        );
        check(r#"{"tools":[{"name":"fetch","input_schema":{"properties":{"url":{"type":"string"}}}}]}"#, false);
        check(r#"{"content":[{"type":"tool_use","input":{"url":"https://x","file":"a"}}]}"#, false);
        check(r#"{"content":"{\"previous_response_id\":\"x\"}","previous_response_id":null,"mcp_servers":[]}"#, false);
    }

    #[test]
    fn a_cache_of_an_hour_is_found() {
        let hour = |ttl: &str| format!(r#"{{"system":[{{"cache_control":{{"type":"ephemeral","ttl":"{ttl}"}}}}]}}"#);
        assert!(reach(&hour("1h")).hour_cache);
        assert!(!reach(&hour("5m")).hour_cache);
    }
}
