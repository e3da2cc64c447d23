//! The two changes that the gateway makes to a request body: the model name and `include_usage`.
//!
//! All other bytes stay, because the prompt caches of vendors compare them.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The raw text of the fields that may be changed.
#[derive(Deserialize)]
struct RawFields<'a> {
    #[serde(borrow, default, deserialize_with = "raw")]
    model: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    stream_options: Option<&'a RawValue>,
}

/// Reads the raw text of a field, `null` included.
fn raw<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Returns `body` with its model replaced by `model`.
pub(crate) fn replace_model(body: &Bytes, model: &str) -> Result<Bytes, serde_json::Error> {
    let fields: RawFields<'_> = serde_json::from_slice(body)?;
    let Some(old) = fields.model else { return Ok(body.clone()) };
    let name = serde_json::to_string(model)?;
    Ok(replace(body, old, &name))
}

/// Returns `body` with `include_usage` set, or `None` if the client has set it. Fails if `body` is not a JSON object.
pub(crate) fn ask_for_usage(body: &Bytes) -> Result<Option<Bytes>, serde_json::Error> {
    const INCLUDE_USAGE: &str = "\"include_usage\":true";
    let fields: RawFields<'_> = serde_json::from_slice(body)?;
    let options = match fields.stream_options {
        None => return Ok(Some(append_field(body, &format!("\"stream_options\":{{{INCLUDE_USAGE}}}")))),
        Some(null) if null.get() == "null" => return Ok(Some(replace(body, null, &format!("{{{INCLUDE_USAGE}}}")))),
        Some(options) => options,
    };
    if serde_json::from_str::<StreamOptions>(options.get())?.include_usage {
        return Ok(None);
    }
    let mut changed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(options.get())?;
    changed.insert("include_usage".to_owned(), true.into());
    Ok(Some(replace(body, options, &serde_json::Value::Object(changed).to_string())))
}

/// Returns `body` with `old`, which is a slice of it, replaced by `new`.
fn replace(body: &Bytes, old: &RawValue, new: &str) -> Bytes {
    let start = old.get().as_ptr() as usize - body.as_ptr() as usize;
    let mut spliced = BytesMut::with_capacity(body.len() + new.len());
    spliced.extend_from_slice(&body[..start]);
    spliced.extend_from_slice(new.as_bytes());
    spliced.extend_from_slice(&body[start + old.get().len()..]);
    spliced.freeze()
}

/// Returns `body`, a non-empty JSON object, with `field` appended.
fn append_field(body: &Bytes, field: &str) -> Bytes {
    let end = body.iter().rposition(|byte| *byte == b'}').unwrap_or(body.len());
    let mut spliced = BytesMut::with_capacity(body.len() + field.len() + 1);
    spliced.extend_from_slice(&body[..end]);
    spliced.extend_from_slice(b",");
    spliced.extend_from_slice(field.as_bytes());
    spliced.extend_from_slice(&body[end..]);
    spliced.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_model_changes() {
        let body = Bytes::from(r#"{ "messages" : [{"model":"x"}],  "model" : "a\u0062" , "z":1.0 }"#);
        let spliced = replace_model(&body, "new \"one\"").unwrap();
        assert_eq!(spliced, r#"{ "messages" : [{"model":"x"}],  "model" : "new \"one\"" , "z":1.0 }"#);
    }

    #[test]
    fn include_usage_is_added_once() {
        let check = |body: &str, expected: Option<&str>| {
            let changed = ask_for_usage(&Bytes::copy_from_slice(body.as_bytes())).unwrap();
            assert_eq!(changed.as_deref(), expected.map(str::as_bytes));
        };
        check(r#"{"model":"m"} "#, Some(r#"{"model":"m","stream_options":{"include_usage":true}} "#));
        check(r#"{"stream_options":null,"a":1}"#, Some(r#"{"stream_options":{"include_usage":true},"a":1}"#));
        check(r#"{"stream_options":{"x":1}}"#, Some(r#"{"stream_options":{"include_usage":true,"x":1}}"#));
        check(r#"{"stream_options":{"include_usage":true}}"#, None);
    }
}
