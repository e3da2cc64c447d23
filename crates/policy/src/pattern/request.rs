//! Requests: the methods and paths of a host that a rule names, and the path of a request, read strictly.
//!
//! A server may decode, merge and resolve a path before it looks at it. So a rule about paths is held only
//! against a path that every server reads in the same way; any other is matched by no such rule.

use std::collections::BTreeSet;
use std::fmt;

use crate::value::BadValue;

/// Everything below a path, at the end of a rule.
const BELOW: &str = "/**";

/// What a request asks of a host, as far as rules speak of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: Result<RequestPath, PathError>,
}

/// A path that can be read in one way only, percent-encoding undone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestPath(Vec<u8>);

/// Why a path could be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    /// Not from the root.
    #[error("a path begins with `/`")]
    NotAbsolute,
    /// `//`, which some servers take for one slash.
    #[error("an empty name in a path is read by some servers as none")]
    Empty,
    /// `.` or `..`, also with a parameter behind it.
    #[error("`.` and `..` in a path are resolved by some servers")]
    Dots,
    /// A percent sign that begins nothing.
    #[error("a `%` in a path is followed by two hexadecimal digits")]
    Percent,
    /// An encoded character that means something else once it is decoded.
    #[error("an encoded slash, backslash, percent sign or control character in a path is decoded by some servers")]
    Encoded,
    /// A character that stands in no path.
    #[error("a path has no backslash and no character that cannot be printed")]
    Character,
}

impl RequestPath {
    /// Reads a path; its query, if there is one, is no part of it.
    pub(crate) fn read(text: &str) -> Result<Self, PathError> {
        let text = text.split(['?', '#']).next().unwrap_or(text);
        let Some(names) = text.strip_prefix('/') else { return Err(PathError::NotAbsolute) };
        let mut path = Vec::with_capacity(text.len());
        let last = names.split('/').count() - 1;
        for (number, name) in names.split('/').enumerate() {
            let name = decode(name)?;
            // What stands behind a `;` is a parameter to some servers, and part of the name to others.
            let bare = name.split(|byte| *byte == b';').next().unwrap_or(&name);
            if bare == b"." || bare == b".." {
                return Err(PathError::Dots);
            }
            if bare.is_empty() && (number < last || !name.is_empty()) {
                return Err(PathError::Empty);
            }
            path.push(b'/');
            path.extend(name);
        }
        Ok(Self(path))
    }
}

fn decode(name: &str) -> Result<Vec<u8>, PathError> {
    let mut bytes = name.bytes();
    let mut decoded = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
                match value.and_then(|value| u8::try_from(value).ok()).ok_or(PathError::Percent)? {
                    b'/' | b'\\' | b'%' | 0..=31 | 127 => return Err(PathError::Encoded),
                    byte => decoded.push(byte),
                }
            }
            b'\\' => return Err(PathError::Character),
            _ if !byte.is_ascii_graphic() => return Err(PathError::Character),
            _ => decoded.push(byte),
        }
    }
    Ok(decoded)
}

/// Which requests to a host a rule is about; with neither methods nor path, everything that goes there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RequestPattern {
    methods: Option<BTreeSet<String>>,
    path: Option<PathPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathPattern {
    /// This path, and everything below it.
    Below(String),
    Exactly(String),
}

impl RequestPattern {
    /// Reads the methods before a host, as `GET|HEAD`, and the path after it, as `/files/**`.
    pub(crate) fn parse(methods: Option<&str>, path: Option<&str>) -> Result<Self, BadValue> {
        Ok(Self { methods: methods.map(parse_methods).transpose()?, path: path.map(PathPattern::parse).transpose()? })
    }

    /// Whether it is about everything, also about what nobody looks into.
    pub(crate) fn is_everything(&self) -> bool {
        self.methods.is_none() && self.path.is_none()
    }

    /// Whether `request` is one of them; none: what goes there is not looked into.
    pub(crate) fn matches(&self, request: Option<&Request>) -> bool {
        let Some(request) = request else { return self.is_everything() };
        let path = |pattern: &PathPattern| request.path.as_ref().is_ok_and(|path| pattern.matches(path));
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

    /// What both are about; none where that is nothing.
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

    /// What stands before the host.
    pub(crate) fn prefix(&self) -> String {
        let methods = self.methods.iter().flatten().map(String::as_str).collect::<Vec<_>>();
        if methods.is_empty() { String::new() } else { methods.join("|") + " " }
    }

    /// What stands after the port.
    pub(crate) fn suffix(&self) -> String {
        self.path.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

fn parse_methods(text: &str) -> Result<BTreeSet<String>, BadValue> {
    let is_method = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !text.split('|').all(is_method) {
        return Err(BadValue::new(format!("`{text}` is no method"))
            .with_help("write methods in capital letters before the host, as in `GET|HEAD files.example.com:80`"));
    }
    if text.split('|').any(|word| word == "CONNECT") {
        return Err(BadValue::new("`CONNECT` opens a tunnel, and nobody looks into one".to_owned())
            .with_help("name the host and its port alone"));
    }
    Ok(text.split('|').map(str::to_owned).collect())
}

impl PathPattern {
    fn parse(text: &str) -> Result<Self, BadValue> {
        let bad = |why: String| {
            BadValue::new(format!("`{text}` is no path"))
                .with_help(format!("{why}; as in `/files/index.html`, or `/files/**` for everything below"))
        };
        let (plain, below) = match text.strip_suffix(BELOW) {
            Some(directory) => (directory, true),
            None => (text, false),
        };
        if plain.contains('%') {
            return Err(bad("in a rule a path is written without `%`".to_owned()));
        }
        if plain.contains(['*', '?', '#', '{', '[']) {
            return Err(bad("the only pattern is `/**` at the end".to_owned()));
        }
        if below && plain.ends_with('/') {
            return Err(bad(PathError::Empty.to_string()));
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

/// Whether `path` is `directory` or lies in it, name by name.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl fmt::Display for PathPattern {
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
