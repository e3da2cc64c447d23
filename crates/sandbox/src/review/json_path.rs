//! Paths in JSON: a text if the path is UTF-8, otherwise its bytes.
//!
//! A file name can be any bytes except `/` and NUL. It must be the same when read back, so no byte is replaced.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base::is_plain;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JsonPath<'a> {
    Text(std::borrow::Cow<'a, str>),
    Bytes { bytes: std::borrow::Cow<'a, [u8]> },
}

/// For `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => JsonPath::Text(text.into()),
        None => JsonPath::Bytes { bytes: path.as_os_str().as_bytes().into() },
    }
    .serialize(serializer)
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(match JsonPath::deserialize(deserializer)? {
        JsonPath::Text(text) => text.into_owned().into(),
        JsonPath::Bytes { bytes } => OsString::from_vec(bytes.into_owned()).into(),
    })
}

/// Returns the path for display. It is quoted as in git when it contains bytes that could affect a terminal.
pub fn quoted(path: &Path) -> String {
    let plain = |text: &&str| text.chars().all(|sign| is_plain(sign) && !matches!(sign, '"' | '\\'));
    if let Some(text) = path.to_str().filter(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for sign in chunk.valid().chars() {
            match sign {
                '"' | '\\' => quoted.extend(['\\', sign]),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                sign if is_plain(sign) => quoted.push(sign),
                sign => octal(&mut quoted, sign.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        octal(&mut quoted, chunk.invalid());
    }
    quoted.push('"');
    quoted
}

fn octal(text: &mut String, bytes: &[u8]) {
    text.extend(bytes.iter().map(|byte| format!("\\{byte:03o}")));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use super::quoted;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct JsonHolder(#[serde(with = "super")] PathBuf);

    #[track_caller]
    fn check(name: &[u8], json: &str, shown: &str) {
        let path = Path::new(OsStr::from_bytes(name));
        let written = serde_json::to_string(&JsonHolder(path.to_owned())).unwrap();
        assert_eq!((written.as_str(), quoted(path).as_str()), (json, shown));
        assert_eq!(serde_json::from_str::<JsonHolder>(&written).unwrap().0, path);
    }

    #[test]
    fn every_name_survives_json_and_is_displayed_safely() {
        check(b"src/a b.rs", r#""src/a b.rs""#, "src/a b.rs");
        check("ü/é".as_bytes(), r#""ü/é""#, "ü/é");
        check(b"a\xffb", r#"{"bytes":[97,255,98]}"#, r#""a\377b""#);
        check(b"\x1b[2Jx\n", r#""\u001b[2Jx\n""#, r#""\033[2Jx\n""#);
        check("a\u{202e}b".as_bytes(), "\"a\u{202e}b\"", r#""a\342\200\256b""#);
        check(b"say \"\\\"", r#""say \"\\\"""#, r#""say \"\\\"""#);
    }
}
