//! The arguments of the tools. Unknown arguments are errors, so that a typo never changes the meaning of a call.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use policy::{NarrowingLayer, PolicySource};
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::ToolFailure;

/// Most bytes of `code`: one argument of a program cannot be longer.
const MAX_CODE: usize = 100_000;
/// Most bytes of `stdin`.
const MAX_STDIN: usize = 1 << 20;
/// Bytes of each output stream that are returned by default.
const DEFAULT_OUTPUT: u64 = 64 << 10;

/// Parses the arguments of a tool.
pub(crate) fn parse<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(arguments.unwrap_or_default()))
        .map_err(|error| ToolFailure::invalid(format!("invalid arguments: {error}"), "see the inputSchema of the tool"))
}

/// The arguments of `run`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct RunArguments {
    pub(crate) language: Option<Language>,
    pub(crate) code: Option<String>,
    pub(crate) argv: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) stdin: String,
    pub(crate) cwd: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) files: Vec<FileArgument>,
    pub(crate) artifacts: Vec<String>,
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) output_bytes: Option<u64>,
    pub(crate) fresh: bool,
    pub(crate) session: Option<String>,
    pub(crate) policy: Option<PolicyArgument>,
    pub(crate) reason: Option<String>,
}

/// A language of `code`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Bash,
    Sh,
    Python,
    Node,
}

/// A file to write.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileArgument {
    pub(crate) path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
}

/// How file content is written in JSON.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

/// The rules of `policy`: a part of a policy document.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyArgument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    net: Option<NetArgument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fs: Option<FsArgument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proc: Option<ProcArgument>,
}

/// The keys of `net` that a call can narrow.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct NetArgument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allowlist: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    denylist: Option<Vec<String>>,
}

/// The keys of `fs` that a call can narrow.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FsArgument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deny_read: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deny_write: Option<Vec<String>>,
}

/// The keys of `proc` that a call can narrow.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProcArgument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nofile: Option<u64>,
}

impl PolicyArgument {
    /// Returns the rules as a layer that can only narrow.
    pub(crate) fn layer(&self) -> Result<NarrowingLayer, ToolFailure> {
        let mut document = serde_json::to_value(self).unwrap_or_default();
        document["version"] = 1.into();
        // JSON is YAML, so the text is a policy document with the checks of one.
        Ok(NarrowingLayer::read(&PolicySource::new("the policy of the call", document.to_string()))?)
    }
}

impl RunArguments {
    /// Returns the words of the command.
    pub(crate) fn command(&self) -> Result<Vec<String>, ToolFailure> {
        let text = |word: &str| word.to_owned();
        let words = match (self.language, &self.code, self.argv.is_empty()) {
            (None, None, false) if self.args.is_empty() => return check_words(self.argv.clone()),
            (Some(_), Some(code), true) if code.len() > MAX_CODE => {
                return Err(ToolFailure::invalid(
                    format!("`code` has {} bytes; the limit is {MAX_CODE}", code.len()),
                    "write the program with `files` and start it with `argv`",
                ));
            }
            (Some(Language::Bash), Some(code), true) => vec![text("bash"), text("-c"), code.clone(), text("bash")],
            (Some(Language::Sh), Some(code), true) => vec![text("sh"), text("-c"), code.clone(), text("sh")],
            (Some(Language::Python), Some(code), true) => vec![text("python3"), text("-c"), code.clone()],
            (Some(Language::Node), Some(code), true) => vec![text("node"), text("-e"), code.clone(), text("--")],
            _ => {
                return Err(ToolFailure::invalid(
                    "`run` needs either `language` and `code`, or `argv`",
                    r#"{"language": "python", "code": "print(1)"} or {"argv": ["ls", "-l"]}"#,
                ));
            }
        };
        check_words(words.into_iter().chain(self.args.iter().cloned()).collect())
    }

    /// Returns the standard input.
    pub(crate) fn input(&self) -> Result<Vec<u8>, ToolFailure> {
        if self.stdin.len() > MAX_STDIN {
            let what = format!("`stdin` has {} bytes; the limit is {MAX_STDIN}", self.stdin.len());
            return Err(ToolFailure::invalid(what, "write the data with `write_files` and read the file"));
        }
        Ok(self.stdin.clone().into_bytes())
    }

    /// Returns the environment; fails for a name that a program cannot have.
    pub(crate) fn environment(&self) -> Result<BTreeMap<String, String>, ToolFailure> {
        let is_bad =
            |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        match self.env.iter().find(is_bad) {
            Some((name, _)) => {
                Err(ToolFailure::invalid(format!("invalid variable {name:?} in `env`"), r#"{"env": {"LANG": "C"}}"#))
            }
            None => Ok(self.env.clone()),
        }
    }

    /// Returns the wall time of the call, at most `limit`.
    pub(crate) fn timeout(&self, limit: Duration) -> Result<Duration, ToolFailure> {
        let Some(seconds) = self.timeout_seconds else { return Ok(limit) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if !time.is_zero() => Ok(time.min(limit)),
            _ => Err(ToolFailure::invalid(format!("invalid `timeoutSeconds` {seconds}"), r#"{"timeoutSeconds": 30}"#)),
        }
    }

    /// Returns the bytes of each stream to return, at most `limit`.
    pub(crate) fn output_limit(&self, limit: u64) -> usize {
        output_limit(self.output_bytes, limit)
    }
}

/// Returns the requested number of bytes, or the default, at most `limit`.
pub(crate) fn output_limit(requested: Option<u64>, limit: u64) -> usize {
    usize::try_from(requested.unwrap_or(DEFAULT_OUTPUT).min(limit)).unwrap_or(usize::MAX)
}

/// Returns the start of `text` of at most `limit` bytes, cut between characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

fn check_words(words: Vec<String>) -> Result<Vec<String>, ToolFailure> {
    if words.iter().any(|word| word.contains('\0')) || words.first().is_some_and(String::is_empty) {
        return Err(ToolFailure::invalid(
            "an argument contains a NUL byte, or the program's name is empty",
            r#"{"argv": ["ls", "-l"]}"#,
        ));
    }
    Ok(words)
}

impl FileArgument {
    /// Returns the bytes of the file.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, ToolFailure> {
        match self.encoding {
            Encoding::Utf8 => Ok(self.content.clone().into_bytes()),
            Encoding::Base64 => BASE64.decode(&self.content).map_err(|error| {
                ToolFailure::invalid(
                    format!("the content of {:?} is not base64: {error}", self.path),
                    r#"{"path": "a.txt", "content": "aGVsbG8K", "encoding": "base64"}"#,
                )
            }),
        }
    }
}

/// Returns bytes as JSON text with its encoding: UTF-8 where possible.
pub(crate) fn encode(bytes: Vec<u8>) -> (Encoding, String) {
    match String::from_utf8(bytes) {
        Ok(text) => (Encoding::Utf8, text),
        Err(error) => (Encoding::Base64, BASE64.encode(error.into_bytes())),
    }
}

/// The arguments of `read_file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadArguments {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) session: Option<String>,
}

/// The arguments of `write_files`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteArguments {
    pub(crate) files: Vec<FileArgument>,
    pub(crate) session: Option<String>,
}

/// The arguments of `list_files`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListArguments {
    #[serde(default)]
    pub(crate) path: Option<String>,
    pub(crate) session: Option<String>,
}

/// The arguments of `changes`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesArguments {
    pub(crate) session: Option<String>,
}

/// The arguments of `approve`. Clients may add fields.
#[derive(Debug, Deserialize)]
pub(crate) struct ApproveArguments {
    pub(crate) tool_name: String,
    pub(crate) input: Value,
}
