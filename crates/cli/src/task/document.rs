//! The keys of a task file. Unknown keys are errors, because a misspelt expectation would never fail.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::ProblemCode;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::backend::BackendName;
use crate::failure::Failure;

/// Address of the gateway in a sandbox, and the default without a sandbox.
const GATEWAY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18080);

/// A task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFile {
    version: u32,
    /// Name in journals and reports.
    pub(super) name: String,
    /// Id of the test in reports.
    #[serde(default)]
    pub(super) test_id: Option<String>,
    /// Agent: NAME or NAME@VERSION; optional for commands.
    #[serde(default)]
    pub(super) agent: Option<String>,
    /// Model; default: `MODEL_NAME` of the env file.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// Name of a configured upstream.
    #[serde(default)]
    pub(super) upstream: Option<String>,
    /// Permission mode of the agent, for `prompts`.
    #[serde(default)]
    pub(super) permission_mode: Option<String>,
    /// File with BASE_URL, API_KEY and MODEL_NAME, relative to the task file.
    #[serde(default)]
    pub(super) env_file: Option<PathBuf>,
    /// Directory at /workspace, relative to the task file; default: an empty directory.
    #[serde(default)]
    pub(super) workspace: Option<PathBuf>,
    #[serde(default)]
    pub(super) sandbox: SandboxSection,
    /// Whether the command line, and not the task file, names the policy.
    #[serde(skip)]
    pub(super) policy_is_chosen: bool,
    /// Address of the gateway.
    #[serde(default = "gateway")]
    pub(super) gateway: SocketAddr,
    /// Additional environment variables in the sandbox.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Time limit for the whole task.
    #[serde(default, deserialize_with = "duration")]
    pub(super) timeout: Option<Duration>,
    /// MCP servers of the session, by name.
    #[serde(default)]
    pub(super) mcp: Option<BTreeMap<String, Value>>,
    /// Skills of the session.
    #[serde(default)]
    pub(super) skills: Option<Value>,
    /// Commands to run, in order.
    #[serde(default)]
    pub(super) commands: Vec<CommandSection>,
    /// Prompts for the agent, in order, in one session.
    #[serde(default)]
    pub(super) prompts: Vec<PromptSection>,
    /// Files to read from the sandbox at the end.
    #[serde(default)]
    pub(super) artifacts: Vec<ArtifactSection>,
    /// Directory for copies of the journal and the artifacts, relative to the current directory.
    #[serde(default)]
    pub(super) logs: Option<PathBuf>,
}

/// Sandbox of the task.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SandboxSection {
    pub(super) backend: BackendWord,
    /// Policy file, relative to the task file, or preset.
    pub(super) policy: Option<String>,
    /// Image, for container backends.
    pub(super) image: Option<String>,
    /// Command that runs in the background until the end.
    pub(super) entrypoint: Vec<String>,
}

/// Backend of the task.
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
    /// Returns the backend; `None` for `unconfined`.
    pub(super) fn confined(self) -> Option<BackendName> {
        match self {
            Self::Jail => Some(BackendName::Jail),
            Self::Podman => Some(BackendName::Podman),
            Self::Docker => Some(BackendName::Docker),
            Self::Unconfined => None,
        }
    }
}

/// One command of a task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandSection {
    /// Program and arguments.
    pub(super) run: Vec<String>,
    /// File in the sandbox that receives its standard output.
    #[serde(default)]
    pub(super) stdout: Option<String>,
    /// Time limit.
    #[serde(default, deserialize_with = "duration")]
    pub(super) timeout: Option<Duration>,
    #[serde(default)]
    pub(super) expect: CommandExpectation,
}

/// Expected result of a command.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CommandExpectation {
    pub(super) exit_code: i32,
    /// Expected part of its output.
    pub(super) contains: Option<String>,
}

/// One prompt of a task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PromptSection {
    pub(super) text: String,
    #[serde(default)]
    pub(super) expect: TextExpectation,
}

/// One file to read at the end.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArtifactSection {
    /// Path in the sandbox.
    pub(super) path: String,
    #[serde(default)]
    pub(super) expect: TextExpectation,
}

/// Expected text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TextExpectation {
    /// Expected part of the text.
    pub(super) contains: Option<String>,
    /// Expected text without surrounding white space.
    pub(super) equals: Option<String>,
}

impl TextExpectation {
    /// Returns why `text` does not meet the expectation; `None` if it does.
    pub(super) fn missed(&self, text: &str) -> Option<String> {
        let equals = self.equals.as_deref().filter(|expected| expected.trim() != text.trim());
        let contains = self.contains.as_deref().filter(|expected| !text.contains(expected));
        equals.map(|expected| format!("expected `{expected}`")).or_else(|| missing(contains))
    }
}

fn missing(part: Option<&str>) -> Option<String> {
    part.map(|part| format!("does not contain `{part}`"))
}

impl CommandExpectation {
    /// Returns why the output does not meet the expectation; `None` if it does.
    pub(super) fn missed(&self, printed: &str) -> Option<String> {
        missing(self.contains.as_deref().filter(|expected| !printed.contains(expected)))
    }
}

/// Reads a task file and applies the `KEY=VALUE` overrides.
pub(super) fn read(path: &Path, sets: &[String]) -> Result<TaskFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot read the task file `{}`", path.display())).because(&error))?;
    let name = path.display().to_string();
    let mut value: Value = serde_saphyr::from_str(&text).map_err(|error| not_a_task(&name, error.to_string()))?;
    for set in sets {
        assign(&mut value, set).map_err(wrong)?;
    }
    let mut file = from_value(value, &name)?;
    let is_set =
        |key: &str| sets.iter().filter_map(|set| set.split_once('=')).any(|(set, _)| ["sandbox", key].contains(&set));
    if file.sandbox.backend == BackendWord::Unconfined && !is_set("sandbox.backend") {
        return Err(without_sandbox(&name));
    }
    file.policy_is_chosen = is_set("sandbox.policy");
    Ok(file)
}

/// Returns the error for a task file that switches the sandbox off. Only the person at the command line may do that.
fn without_sandbox(name: &str) -> Failure {
    let what = format!("task `{name}` sets `sandbox.backend: unconfined`: a task file cannot run without a sandbox");
    Failure::new(ProblemCode::PolicyDenied, what).help(format!("viv task {name} --set sandbox.backend=unconfined"))
}

/// Parses and checks a task; `name` is its source for errors.
pub(super) fn from_value(value: Value, name: &str) -> Result<TaskFile, Failure> {
    let file: TaskFile = serde_json::from_value(value).map_err(|error| not_a_task(name, error.to_string()))?;
    check(&file).map_err(|why| not_a_task(name, why))?;
    Ok(file)
}

fn wrong(what: String) -> Failure {
    Failure::new(ProblemCode::ConfigInvalid, what).help("viv task --help")
}

fn not_a_task(name: &str, why: String) -> Failure {
    wrong(format!("invalid task `{name}`")).detail(why)
}

/// Applies one `KEY=VALUE`; a key such as `sandbox.backend` is in a section.
fn assign(document: &mut Value, set: &str) -> Result<(), String> {
    let (key, text) = set.split_once('=').ok_or_else(|| format!("`--set {set}` is not KEY=VALUE"))?;
    let value: Value = serde_saphyr::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let mut place = document;
    for part in key.split('.') {
        if place.is_null() {
            *place = Value::Object(serde_json::Map::new());
        }
        let section = place
            .as_object_mut()
            .ok_or_else(|| format!("invalid key `{key}` of `--set`: its parent is not a section"))?;
        place = section.entry(part).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}

fn check(file: &TaskFile) -> Result<(), String> {
    if file.version != 1 {
        return Err(format!("unknown version {}: this viv supports version 1", file.version));
    }
    if file.commands.is_empty() == file.prompts.is_empty() {
        return Err("a task has either `commands` or `prompts`".to_owned());
    }
    if !file.prompts.is_empty() && file.agent.is_none() {
        return Err("`prompts` needs an `agent`".to_owned());
    }
    if file.upstream.is_some() && file.env_file.is_some() {
        return Err("a task has either an `upstream` or an `env_file`".to_owned());
    }
    if file.permission_mode.is_some() && file.prompts.is_empty() {
        return Err("`permission_mode` is for `prompts`: commands pass their own arguments to agents".to_owned());
    }
    if file.commands.iter().any(|command| command.run.is_empty()) {
        return Err("`run` of a command is empty".to_owned());
    }
    if let (Some(image), BackendWord::Jail | BackendWord::Unconfined) = (&file.sandbox.image, file.sandbox.backend) {
        return Err(format!("`sandbox.image: {image}` needs a backend with images: podman or docker"));
    }
    if file.sandbox.backend != BackendWord::Unconfined && file.gateway != GATEWAY {
        return Err(format!("`gateway` must be {GATEWAY} in a sandbox"));
    }
    if !file.prompts.is_empty() && file.artifacts.iter().any(|artifact| !artifact.path.starts_with("/workspace/")) {
        return Err("artifacts of `prompts` must be below `/workspace/`".to_owned());
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
    fn overrides_replace_values_of_the_file() {
        let file = parse(SMALL, &["model=m-1", "sandbox.backend=unconfined", "gateway=127.0.0.1:9", "timeout=2m"]);
        let file = file.unwrap();
        assert_eq!(file.model.as_deref(), Some("m-1"));
        assert_eq!(file.sandbox.backend, BackendWord::Unconfined);
        assert_eq!((file.gateway.port(), file.timeout), (9, Some(Duration::from_secs(120))));
    }

    #[test]
    fn invalid_tasks_are_rejected() {
        let refused = |text: &str, sets: &[&str], part: &str| {
            let error = parse(text, sets).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused(SMALL, &["expext=1"], "unknown field");
        refused(SMALL, &["version=2"], "version 2");
        refused(SMALL, &["name.first=x"], "not a section");
        refused(SMALL, &["gateway=127.0.0.1:9"], "in a sandbox");
        refused(SMALL, &["sandbox.image=python"], "images");
        refused(SMALL, &["commands=[]"], "either");
        refused(SMALL, &["commands=[{run: []}]"], "is empty");
        refused(SMALL, &["commands=[]", "prompts=[{text: hi}]"], "needs an `agent`");
        refused(SMALL, &["upstream=a", "env_file=.env"], "either an `upstream`");
        refused(SMALL, &["permission_mode=plan"], "is for `prompts`");
        refused(SMALL, &["no-value"], "KEY=VALUE");
    }

    #[test]
    fn unmet_expectations_say_why() {
        let expect = TextExpectation { contains: Some("b".into()), equals: Some("abc".into()) };
        assert_eq!(expect.missed(" abc\n"), None);
        assert_eq!(expect.missed("abd").unwrap(), "expected `abc`");
        let expect = TextExpectation { contains: Some("z".into()), equals: None };
        assert_eq!(expect.missed("abc").unwrap(), "does not contain `z`");
    }
}
