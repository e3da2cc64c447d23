//! The two changes we make to a request: another model's name, and the wish to be told the usage.
//!
//! Everything else keeps its bytes: vendors' prompt caches compare them.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The fields that may be changed, as they stand in the body.
#[derive(Deserialize)]
struct Spans<'a> {
    #[serde(borrow, default, deserialize_with = "raw")]
    model: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    stream_options: Option<&'a RawValue>,
}

/// The text of a field, also where it is `null`.
fn raw<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// `body` with `model` in the place of the model it names.
pub(crate) fn replace_model(body: &Bytes, model: &str) -> Result<Bytes, serde_json::Error> {
    let spans: Spans<'_> = serde_json::from_slice(body)?;
    let Some(old) = spans.model else { return Ok(body.clone()) };
    let name = serde_json::to_string(model)?;
    Ok(replace(body, old, &name))
}

/// `body` with the wish to be told the usage of a stream; none: it has that wish.
pub(crate) fn ask_for_usage(body: &Bytes) -> Result<Option<Bytes>, serde_json::Error> {
    const WISH: &str = "\"include_usage\":true";
    let spans: Spans<'_> = serde_json::from_slice(body)?;
    let options = match spans.stream_options {
        None => return Ok(Some(append_field(body, &format!("\"stream_options\":{{{WISH}}}")))),
        Some(null) if null.get() == "null" => return Ok(Some(replace(body, null, &format!("{{{WISH}}}")))),
        Some(options) => options,
    };
    if serde_json::from_str::<StreamOptions>(options.get())?.include_usage {
        return Ok(None);
    }
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(options.get())?;
    fields.insert("include_usage".to_owned(), true.into());
    Ok(Some(replace(body, options, &serde_json::Value::Object(fields).to_string())))
}

/// `body` with `new` in the place of `old`, which is a part of it.
fn replace(body: &Bytes, old: &RawValue, new: &str) -> Bytes {
    let start = old.get().as_ptr() as usize - body.as_ptr() as usize;
    let mut spliced = BytesMut::with_capacity(body.len() + new.len());
    spliced.extend_from_slice(&body[..start]);
    spliced.extend_from_slice(new.as_bytes());
    spliced.extend_from_slice(&body[start + old.get().len()..]);
    spliced.freeze()
}

/// `body`, an object that is not empty, with one more field at its end.
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
    fn the_wish_for_usage_is_added_once() {
        let check = |body: &str, expected: Option<&str>| {
            let asked = ask_for_usage(&Bytes::copy_from_slice(body.as_bytes())).unwrap();
            assert_eq!(asked.as_deref(), expected.map(str::as_bytes));
        };
        check(r#"{"model":"m"} "#, Some(r#"{"model":"m","stream_options":{"include_usage":true}} "#));
        check(r#"{"stream_options":null,"a":1}"#, Some(r#"{"stream_options":{"include_usage":true},"a":1}"#));
        check(r#"{"stream_options":{"x":1}}"#, Some(r#"{"stream_options":{"include_usage":true,"x":1}}"#));
        check(r#"{"stream_options":{"include_usage":true}}"#, None);
    }
}
