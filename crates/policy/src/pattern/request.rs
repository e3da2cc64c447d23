//! Patterns of HTTP requests by method and path, and strict parsing of request paths.
//!
//! Servers may decode, merge and resolve a path in different ways. A path rule matches only paths that every server
//! interprets in the same way.

use std::collections::BTreeSet;
use std::fmt;

use crate::value::InvalidValue;

/// The suffix of a rule that matches a path and everything below it.
const BELOW: &str = "/**";

/// The parts of a request that rules can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) path: Result<RequestPath, RequestPathError>,
}

/// A decoded path with only one interpretation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestPath(Vec<u8>);

/// The reason why a path is ambiguous or invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestPathError {
    /// The path does not start with `/`.
    #[error("a path must start with `/`")]
    NotAbsolute,
    /// `//`, which some servers read as one slash.
    #[error("a path must not contain an empty segment, because some servers ignore it")]
    Empty,
    /// `.` or `..`, also with a parameter after it.
    #[error("a path must not contain `.` or `..`, because some servers resolve them")]
    Dots,
    /// A percent sign without two hexadecimal digits.
    #[error("a `%` in a path must be followed by two hexadecimal digits")]
    Percent,
    /// An encoded character that has a special meaning after decoding.
    #[error(
        "a path must not encode a slash, backslash, percent sign or control character, because some servers decode it"
    )]
    Encoded,
    /// A character that is not valid in a path.
    #[error("a path must not contain a backslash or a character that cannot be printed")]
    Character,
}

impl RequestPath {
    /// Parses a path without its query.
    pub(crate) fn read(text: &str) -> Result<Self, RequestPathError> {
        let text = text.split(['?', '#']).next().unwrap_or(text);
        let Some(names) = text.strip_prefix('/') else { return Err(RequestPathError::NotAbsolute) };
        let mut path = Vec::with_capacity(text.len());
        let last = names.split('/').count() - 1;
        for (number, name) in names.split('/').enumerate() {
            let name = decode(name)?;
            // Some servers read the text after `;` as a parameter, others as part of the name.
            let bare = name.split(|byte| *byte == b';').next().unwrap_or(&name);
            if bare == b"." || bare == b".." {
                return Err(RequestPathError::Dots);
            }
            if bare.is_empty() && (number < last || !name.is_empty()) {
                return Err(RequestPathError::Empty);
            }
            path.push(b'/');
            path.extend(name);
        }
        Ok(Self(path))
    }
}

fn decode(name: &str) -> Result<Vec<u8>, RequestPathError> {
    let mut bytes = name.bytes();
    let mut decoded = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
                match value.and_then(|value| u8::try_from(value).ok()).ok_or(RequestPathError::Percent)? {
                    b'/' | b'\\' | b'%' | 0..=31 | 127 => return Err(RequestPathError::Encoded),
                    byte => decoded.push(byte),
                }
            }
            b'\\' => return Err(RequestPathError::Character),
            _ if !byte.is_ascii_graphic() => return Err(RequestPathError::Character),
            _ => decoded.push(byte),
        }
    }
    Ok(decoded)
}

/// The requests that a rule matches. Without methods and path, it matches all traffic to the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RequestPattern {
    methods: Option<BTreeSet<String>>,
    path: Option<RequestPathPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RequestPathPattern {
    /// The path and everything below it.
    Below(String),
    Exactly(String),
}

impl RequestPattern {
    /// Parses the methods before a host, such as `GET|HEAD`, and the path after it, such as `/files/**`.
    pub(crate) fn parse(methods: Option<&str>, path: Option<&str>) -> Result<Self, InvalidValue> {
        Ok(Self {
            methods: methods.map(parse_methods).transpose()?,
            path: path.map(RequestPathPattern::parse).transpose()?,
        })
    }

    /// Returns whether the rule matches all traffic, including traffic that the proxy cannot read.
    pub(crate) fn is_everything(&self) -> bool {
        self.methods.is_none() && self.path.is_none()
    }

    /// Returns whether the rule matches `request`; `None` is traffic that the proxy cannot read.
    pub(crate) fn matches(&self, request: Option<&HttpRequest>) -> bool {
        let Some(request) = request else { return self.is_everything() };
        let path = |pattern: &RequestPathPattern| request.path.as_ref().is_ok_and(|path| pattern.matches(path));
        self.methods.as_ref().is_none_or(|methods| methods.contains(&request.method))
            && self.path.as_ref().is_none_or(path)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        let methods = match (&self.methods, &other.methods) {
            (None, _) => true,
            (Some(ours), Some(theirs)) => theirs.is_subset(ours),
            (Some(_), None) => false,
        };
        let path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(ours), Some(theirs)) => ours.covers(theirs),
            (Some(_), None) => false,
        };
        methods && path
    }

    /// Returns the requests that both match; `None` if there are none.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        let methods = match (&self.methods, &other.methods) {
            (Some(ours), Some(theirs)) => Some(ours & theirs),
            (ours, theirs) => ours.as_ref().or(theirs.as_ref()).cloned(),
        };
        let path = match (&self.path, &other.path) {
            (Some(ours), Some(theirs)) if ours.covers(theirs) => Some(theirs.clone()),
            (Some(ours), Some(theirs)) if theirs.covers(ours) => Some(ours.clone()),
            (Some(_), Some(_)) => return None,
            (ours, theirs) => ours.as_ref().or(theirs.as_ref()).cloned(),
        };
        (methods.as_ref().is_none_or(|methods| !methods.is_empty())).then_some(Self { methods, path })
    }

    /// Returns the text before the host.
    pub(crate) fn prefix(&self) -> String {
        let methods = self.methods.iter().flatten().map(String::as_str).collect::<Vec<_>>();
        if methods.is_empty() { String::new() } else { methods.join("|") + " " }
    }

    /// Returns the text after the port.
    pub(crate) fn suffix(&self) -> String {
        self.path.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

fn parse_methods(text: &str) -> Result<BTreeSet<String>, InvalidValue> {
    let is_method = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !text.split('|').all(is_method) {
        return Err(InvalidValue::new(format!("`{text}` is not a method"))
            .with_help("write methods in upper case before the host, as in `GET|HEAD files.example.com:80`"));
    }
    if text.split('|').any(|word| word == "CONNECT") {
        return Err(InvalidValue::new(
            "the method `CONNECT` opens a tunnel, whose requests are not visible".to_owned(),
        )
        .with_help("write the host and port without a method"));
    }
    Ok(text.split('|').map(str::to_owned).collect())
}

impl RequestPathPattern {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let bad = |why: String| {
            InvalidValue::new(format!("`{text}` is not a valid path"))
                .with_help(format!("{why}; as in `/files/index.html`, or `/files/**` for everything below"))
        };
        let (plain, below) = match text.strip_suffix(BELOW) {
            Some(directory) => (directory, true),
            None => (text, false),
        };
        if plain.contains('%') {
            return Err(bad("write the path without `%`".to_owned()));
        }
        if plain.contains(['*', '?', '#', '{', '[']) {
            return Err(bad("the only pattern is `/**` at the end".to_owned()));
        }
        if below && plain.ends_with('/') {
            return Err(bad(RequestPathError::Empty.to_string()));
        }
        if !(below && plain.is_empty()) {
            RequestPath::read(plain).map_err(|error| bad(error.to_string()))?;
        }
        Ok(if below { Self::Below(plain.to_owned()) } else { Self::Exactly(plain.to_owned()) })
    }

    fn matches(&self, path: &RequestPath) -> bool {
        match self {
            Self::Below(directory) => is_below(&path.0, directory.as_bytes()),
            Self::Exactly(exactly) => path.0 == exactly.as_bytes(),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(directory), Self::Below(path) | Self::Exactly(path)) => {
                is_below(path.as_bytes(), directory.as_bytes())
            }
            (Self::Exactly(path), Self::Exactly(other)) => path == other,
            (Self::Exactly(_), Self::Below(_)) => false,
        }
    }
}

/// Returns whether `path` is `directory` or below it.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl fmt::Display for RequestPathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(directory) => write!(f, "{directory}{BELOW}"),
            Self::Exactly(path) => f.write_str(path),
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
