//! A task's file, key by key. Unknown keys are errors: a misspelt expectation would never fail.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::ProblemCode;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::backend::BackendName;
use crate::failure::Failure;

/// Where the gateway is inside a sandbox, and where it is bound without one.
const GATEWAY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);

/// A task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFile {
    version: u32,
    /// What it is called in records and reports.
    pub(super) name: String,
    /// The test it is, for reports.
    #[serde(default)]
    pub(super) test_id: Option<String>,
    /// NAME or NAME@VERSION; without one the commands find the gateway and no agent.
    #[serde(default)]
    pub(super) agent: Option<String>,
    /// Which model; the `MODEL_NAME` of the env file when absent.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// One of the configured upstreams.
    #[serde(default)]
    pub(super) upstream: Option<String>,
    /// The permission mode of the agent, for `prompts`.
    #[serde(default)]
    pub(super) permission_mode: Option<String>,
    /// A file with BASE_URL, API_KEY and MODEL_NAME, relative to this one.
    #[serde(default)]
    pub(super) env_file: Option<PathBuf>,
    /// The directory at /workspace, relative to this file; an empty one when absent.
    #[serde(default)]
    pub(super) workspace: Option<PathBuf>,
    #[serde(default)]
    pub(super) sandbox: SandboxSection,
    /// Where the gateway listens.
    #[serde(default = "gateway")]
    pub(super) gateway: SocketAddr,
    /// Variables inside, beside those by which the gateway is found.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// The longest the whole task may take.
    #[serde(default, deserialize_with = "duration")]
    pub(super) timeout: Option<Duration>,
    /// MCP servers of the task's session, by name.
    #[serde(default)]
    pub(super) mcp: Option<BTreeMap<String, Value>>,
    /// Skills of the task's session.
    #[serde(default)]
    pub(super) skills: Option<Value>,
    /// What is run, in order.
    #[serde(default)]
    pub(super) commands: Vec<CommandSection>,
    /// What the agent is told, in order, in one session.
    #[serde(default)]
    pub(super) prompts: Vec<PromptSection>,
    /// What is read from the sandbox at the end.
    #[serde(default)]
    pub(super) artifacts: Vec<ArtifactSection>,
    /// Where the trajectory and the artifacts are copied to, relative to the current directory.
    #[serde(default)]
    pub(super) logs: Option<PathBuf>,
}

/// Where it runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SandboxSection {
    pub(super) backend: BackendWord,
    /// A policy file, relative to the task's, or a preset.
    pub(super) policy: Option<String>,
    /// An image, for backends that have images.
    pub(super) image: Option<String>,
    /// A command that runs beside the others until the end.
    pub(super) entrypoint: Vec<String>,
}

/// Which sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BackendWord {
    #[default]
    Jail,
    Podman,
    Docker,
    Unconfined,
}

impl BackendWord {
    /// Its name among backends with walls; none has none.
    pub(super) fn walled(self) -> Option<BackendName> {
        match self {
            Self::Jail => Some(BackendName::Jail),
            Self::Podman => Some(BackendName::Podman),
            Self::Docker => Some(BackendName::Docker),
            Self::Unconfined => None,
        }
    }
}

/// One command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandSection {
    /// Program and arguments.
    pub(super) run: Vec<String>,
    /// A file inside that takes what it prints.
    #[serde(default)]
    pub(super) stdout: Option<String>,
    /// The longest it may take.
    #[serde(default, deserialize_with = "duration")]
    pub(super) timeout: Option<Duration>,
    #[serde(default)]
    pub(super) expect: CommandExpectation,
}

/// How a command should end.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CommandExpectation {
    pub(super) exit_code: i32,
    /// A part of what it prints.
    pub(super) contains: Option<String>,
}

/// One thing the agent is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptSection {
    pub(super) text: String,
    #[serde(default)]
    pub(super) expect: TextExpectation,
}

/// One file that is read at the end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArtifactSection {
    /// Its path inside.
    pub(super) path: String,
    #[serde(default)]
    pub(super) expect: TextExpectation,
}

/// What a text should be.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TextExpectation {
    /// A part of it.
    pub(super) contains: Option<String>,
    /// All of it, but for space around it.
    pub(super) equals: Option<String>,
}

impl TextExpectation {
    /// What is wrong with `text`.
    pub(super) fn missed(&self, text: &str) -> Option<String> {
        let equals = self.equals.as_deref().filter(|expected| expected.trim() != text.trim());
        let contains = self.contains.as_deref().filter(|expected| !text.contains(expected));
        equals.map(|expected| format!("it is not `{expected}`")).or_else(|| missing(contains))
    }
}

fn missing(part: Option<&str>) -> Option<String> {
    part.map(|part| format!("`{part}` is not in it"))
}

impl CommandExpectation {
    /// What is wrong with what a command printed.
    pub(super) fn missed(&self, printed: &str) -> Option<String> {
        missing(self.contains.as_deref().filter(|expected| !printed.contains(expected)))
    }
}

/// Reads a task's file, with `KEY=VALUE` in place of what stands there.
pub(super) fn read(path: &Path, sets: &[String]) -> Result<TaskFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot read the task `{}`", path.display())).because(&error))?;
    let name = path.display().to_string();
    let mut value: Value = serde_saphyr::from_str(&text).map_err(|error| not_a_task(&name, error.to_string()))?;
    for set in sets {
        assign(&mut value, set).map_err(wrong)?;
    }
    of(value, &name)
}

/// The task that `value` is; `name` says where it comes from.
pub(super) fn of(value: Value, name: &str) -> Result<TaskFile, Failure> {
    let file: TaskFile = serde_json::from_value(value).map_err(|error| not_a_task(name, error.to_string()))?;
    check(&file).map_err(|why| not_a_task(name, why))?;
    Ok(file)
}

fn wrong(what: String) -> Failure {
    Failure::new(ProblemCode::ConfigInvalid, what).help("see docs/tasks.md for what a task can say")
}

fn not_a_task(name: &str, why: String) -> Failure {
    wrong(format!("`{name}` is not a task")).detail(why)
}

/// Puts the value of `KEY=VALUE` at its place; `sandbox.backend` is a key in a section.
fn assign(document: &mut Value, set: &str) -> Result<(), String> {
    let (key, text) = set.split_once('=').ok_or_else(|| format!("`--set {set}` is not KEY=VALUE"))?;
    let value: Value = serde_saphyr::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let mut place = document;
    for part in key.split('.') {
        if place.is_null() {
            *place = Value::Object(serde_json::Map::new());
        }
        let section = place.as_object_mut().ok_or_else(|| format!("`{key}` is no key of a section"))?;
        place = section.entry(part).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}

fn check(file: &TaskFile) -> Result<(), String> {
    if file.version != 1 {
        return Err(format!("version {} is not known; there is 1", file.version));
    }
    if file.commands.is_empty() == file.prompts.is_empty() {
        return Err("a task has either `commands` or `prompts`".to_owned());
    }
    if !file.prompts.is_empty() && file.agent.is_none() {
        return Err("`prompts` need an `agent`".to_owned());
    }
    if file.upstream.is_some() && file.env_file.is_some() {
        return Err("a task has either an `upstream` or an `env_file`".to_owned());
    }
    if file.permission_mode.is_some() && file.prompts.is_empty() {
        return Err("`permission_mode` is for `prompts`: commands start agents with arguments of their own".to_owned());
    }
    if file.commands.iter().any(|command| command.run.is_empty()) {
        return Err("a command without a word cannot be run".to_owned());
    }
    if let (Some(image), BackendWord::Jail | BackendWord::Unconfined) = (&file.sandbox.image, file.sandbox.backend) {
        return Err(format!("`sandbox.image: {image}` needs a backend with images: podman or docker"));
    }
    if file.sandbox.backend != BackendWord::Unconfined && file.gateway != GATEWAY {
        return Err(format!("inside a sandbox the gateway is always at {GATEWAY}"));
    }
    if !file.prompts.is_empty() && file.artifacts.iter().any(|artifact| !artifact.path.starts_with("/workspace/")) {
        return Err("artifacts of `prompts` are files below `/workspace/`".to_owned());
    }
    Ok(())
}

fn gateway() -> SocketAddr {
    GATEWAY
}

fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(value)?;
    crate::args::parse_duration(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, sets: &[&str]) -> Result<TaskFile, String> {
        let mut value: Value = serde_saphyr::from_str(text).unwrap();
        sets.iter().try_for_each(|set| assign(&mut value, set))?;
        let file: TaskFile = serde_json::from_value(value).map_err(|error| error.to_string())?;
        check(&file).map(|()| file)
    }

    const SMALL: &str = "{version: 1, name: t, commands: [{run: [echo, hi]}]}";

    #[test]
    fn what_is_set_takes_the_place_of_what_stands_there() {
        let file = parse(SMALL, &["model=m-1", "sandbox.backend=unconfined", "gateway=127.0.0.1:9", "timeout=2m"]);
        let file = file.unwrap();
        assert_eq!(file.model.as_deref(), Some("m-1"));
        assert_eq!(file.sandbox.backend, BackendWord::Unconfined);
        assert_eq!((file.gateway.port(), file.timeout), (9, Some(Duration::from_secs(120))));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |text: &str, sets: &[&str], part: &str| {
            let error = parse(text, sets).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused(SMALL, &["expext=1"], "unknown field");
        refused(SMALL, &["version=2"], "version 2");
        refused(SMALL, &["name.first=x"], "no key of a section");
        refused(SMALL, &["gateway=127.0.0.1:9"], "inside a sandbox");
        refused(SMALL, &["sandbox.image=python"], "images");
        refused(SMALL, &["commands=[]"], "either");
        refused(SMALL, &["commands=[{run: []}]"], "without a word");
        refused(SMALL, &["commands=[]", "prompts=[{text: hi}]"], "need an `agent`");
        refused(SMALL, &["upstream=a", "env_file=.env"], "either an `upstream`");
        refused(SMALL, &["permission_mode=plan"], "is for `prompts`");
        refused(SMALL, &["no-value"], "KEY=VALUE");
    }

    #[test]
    fn expectations_say_what_they_miss() {
        let expect = TextExpectation { contains: Some("b".into()), equals: Some("abc".into()) };
        assert_eq!(expect.missed(" abc\n"), None);
        assert_eq!(expect.missed("abd").unwrap(), "it is not `abc`");
        let expect = TextExpectation { contains: Some("z".into()), equals: None };
        assert_eq!(expect.missed("abc").unwrap(), "`z` is not in it");
    }
}
