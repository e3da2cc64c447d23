//! The only place that reads the environment and the configuration files.
//!
//! Read once, passed down by value. Keys that are not known are errors, so a typo can never widen
//! anything.

mod credentials;
mod env_file;
mod file;

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::ProblemCode;
use secret::Secret;

use crate::backend::BackendName;
use crate::failure::Failure;

pub(crate) use credentials::{CredentialForm, CredentialProvider, FoundCredential};
pub(crate) use env_file::EnvUpstream;
pub(crate) use file::{
    BudgetsSection, ConfigFile, ContentWord, CredentialSection, DurabilityWord, PriceSection, SandboxSection,
    UpstreamKind, UpstreamSection,
};

/// What the environment and the configuration file say.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where everything is kept.
    pub(crate) data_dir: PathBuf,
    /// The organisation's rules, if the file exists.
    pub(crate) organisation_policy: PathBuf,
    /// What the file says.
    pub(crate) file: ConfigFile,
    /// The upstream of an `--env-file` or of the environment: in place of the configured one, for this process alone.
    pub(crate) env_upstream: Option<EnvUpstream>,
    /// The sandbox that was asked for on the command line.
    pub(crate) backend: Option<BackendName>,
    /// Where sockets of this user's own services are.
    pub(crate) runtime_dir: Option<PathBuf>,
}

impl Config {
    /// Reads the environment, then the file.
    pub(crate) fn read(data_dir: Option<PathBuf>) -> Result<Self, Failure> {
        let data_dir = match data_dir.or_else(|| variable("VIV_DATA_DIR").map(PathBuf::from)) {
            Some(directory) => directory,
            None => data_home()?.join("viv"),
        };
        let data_dir = std::path::absolute(&data_dir).map_err(|error| {
            Failure::new(ProblemCode::ConfigInvalid, "the data directory has no absolute path").because(&error)
        })?;
        let file = read_file(&data_dir.join("viv.toml"))?;
        let organisation_policy = PathBuf::from("/etc/viv/policy.yaml");
        let runtime_dir = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        Ok(Self { data_dir, organisation_policy, file, env_upstream: None, backend: None, runtime_dir })
    }

    /// The same in a sandbox that was asked for.
    pub(crate) fn with_backend(mut self, backend: Option<BackendName>) -> Self {
        self.backend = backend;
        self
    }

    /// The same with the upstream of a `.env` file, else with that of the environment, where it names one.
    pub(crate) fn with_env_file(mut self, path: Option<&Path>) -> Result<Self, Failure> {
        self.env_upstream = match path {
            Some(path) => Some(env_file::read(path)?),
            None => env_file::of_environment(|name| std::env::var(name).ok()),
        };
        Ok(self)
    }

    /// A configuration error at a key of `viv.toml`.
    pub(crate) fn wrong(&self, key: &str, why: &str) -> Failure {
        let path = self.data_dir.join("viv.toml");
        Failure::new(ProblemCode::ConfigInvalid, format!("`{key}` in `{}`: {why}", path.display()))
            .help(format!("edit {}", path.display()))
    }

    /// A path in `viv.toml`, which may be relative to it.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.data_dir.join(path)
    }

    /// The key of an upstream, wherever it is; none: it needs none.
    pub(crate) fn key(&self, name: &str, section: &UpstreamSection) -> Result<Option<Secret>, Failure> {
        let UpstreamSection { key, key_file, key_command, key_env, .. } = section.clone();
        let written = CredentialSection { key, key_file, key_command, key_env, variable: None };
        let at = format!("upstreams.{name}");
        let found = self.credential(&at, &written)?;
        match (found, section.key_found) {
            (Some(_), true) => Err(self.wrong(&format!("{at}.key_found"), "a key stands here already")),
            (None, true) => found_key(section.kind).map(Some).ok_or_else(|| {
                self.wrong(&format!("{at}.key_found"), "this host has no key of this kind").help("viv credentials")
            }),
            (found, false) => Ok(found),
        }
    }

    /// What the four keys below `at` say; none: none of them is there.
    pub(crate) fn credential(&self, at: &str, section: &CredentialSection) -> Result<Option<Secret>, Failure> {
        let CredentialSection { key, key_file, key_command, key_env, .. } = section;
        let at = |which: &str| format!("{at}.{which}");
        match (key, key_file, key_command, key_env) {
            (None, None, None, None) => Ok(None),
            (Some(key), None, None, None) => Ok(Some(key.clone())),
            (None, Some(file), None, None) => {
                let read = std::fs::read_to_string(self.path(file));
                read.map(|text| Some(Secret::new(text))).map_err(|error| {
                    self.wrong(&at("key_file"), &format!("`{}` cannot be read", file.display())).because(&error)
                })
            }
            (None, None, Some(command), None) => {
                printed(command).map(Some).map_err(|why| self.wrong(&at("key_command"), &why))
            }
            (None, None, None, Some(variable)) => match std::env::var(variable) {
                Ok(text) => Ok(Some(Secret::new(text))),
                Err(_) => Err(self.wrong(&at("key_env"), &format!("the variable `{variable}` is not set"))),
            },
            _ => Err(self.wrong(&at("key"), "one of key, key_file, key_command and key_env is enough")),
        }
    }
}

/// The variable that keeps the environment from naming an upstream, where it names half of one.
pub(crate) fn missing_variable() -> Option<&'static str> {
    env_file::missing_variable(|name| std::env::var(name).ok())
}

/// What is to be logged.
pub(crate) fn log_filter() -> Option<String> {
    std::env::var("VIV_LOG").ok().filter(|filter| !filter.is_empty())
}

/// Every credential this host has.
pub(crate) fn credentials() -> Vec<FoundCredential> {
    credentials::find(|name| std::env::var(name).ok(), variable("HOME").map(PathBuf::from).as_deref())
}

/// The key this host has for an upstream of this kind.
fn found_key(kind: UpstreamKind) -> Option<Secret> {
    let provider = match kind {
        UpstreamKind::Anthropic => CredentialProvider::Anthropic,
        UpstreamKind::Openai => CredentialProvider::Openai,
        UpstreamKind::Gemini => CredentialProvider::Gemini,
        UpstreamKind::OpenaiCompatible | UpstreamKind::Litellm | UpstreamKind::Scripted | UpstreamKind::Replay => {
            return None;
        }
    };
    let mut keys = credentials().into_iter().filter(|found| found.form == CredentialForm::Key);
    keys.find(|found| found.provider == provider).map(|found| found.secret)
}

/// A variable of this process that a policy passes by name; one that is no text is not passed.
pub(crate) fn host_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A variable that an agent's process inside the sandbox was given.
pub(crate) fn agent_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What `command` prints. What it says on the way is for the person; it is not repeated here.
fn printed(command: &str) -> Result<Secret, String> {
    let output = Command::new("sh").args(["-c", command]).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("the command could not be started: {error}"))?;
    match String::from_utf8(output.stdout) {
        Ok(text) if output.status.success() && !text.trim().is_empty() => Ok(Secret::new(text)),
        _ => Err(format!("the command printed no key ({})", output.status)),
    }
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn data_home() -> Result<PathBuf, Failure> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .and_then(absolute)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share")))
        .ok_or_else(|| {
            Failure::new(ProblemCode::ConfigInvalid, "there is no place to keep data: HOME is not set")
                .help("viv --data-dir ./viv-data demo")
        })
}

fn read_file(path: &Path) -> Result<ConfigFile, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => {
            let what = format!("cannot read `{}`", path.display());
            return Err(Failure::new(ProblemCode::ConfigInvalid, what).because(&error));
        }
    };
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let what = format!("`{}` line {line} is not a configuration", path.display());
        // The message alone: the error would also repeat the line, and a key may stand on it.
        Failure::new(ProblemCode::ConfigInvalid, what).detail(error.message()).help(format!("edit {}", path.display()))
    })
}
