//! The only module that reads the environment and the configuration files.
//!
//! Both are read once and passed down by value. Unknown keys are errors, so a typo never allows more.

mod credentials;
mod edit;
mod env_file;
mod file;
mod keys;
mod limits;

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::ProblemCode;
use secret::Secret;

use crate::backend::BackendName;
use crate::failure::Failure;
use crate::packages::PackageFinder;
use crate::shell_word::shell_word;
use crate::terminal::DetachPrefix;

pub(crate) use credentials::{CredentialForm, CredentialProvider, FoundCredential};
pub(crate) use edit::{ConfigEditor, parse_key, segments as key_segments};
pub(crate) use env_file::EnvUpstream;
pub(crate) use file::{
    BudgetsSection, ConfigFile, ContentWord, CredentialSection, DurabilityWord, PriceSection, SandboxSection,
    UpstreamKind, UpstreamSection,
};
pub(crate) use keys::{ConfigKey, KEYS, ValueType, find as find_key};

/// Configuration from the environment, the command line and `viv.toml`.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Data directory.
    pub(crate) data_dir: PathBuf,
    /// Path of the organisation's policy; the file may not exist.
    pub(crate) organisation_policy: PathBuf,
    /// Contents of `viv.toml`.
    pub(crate) file: ConfigFile,
    /// Upstream of `--env-file` or of the environment; it replaces the configured one in this process.
    pub(crate) env_upstream: Option<EnvUpstream>,
    /// Sandbox backend of `--backend`.
    pub(crate) backend: Option<BackendName>,
    /// The package registries of this host, found when a policy needs them.
    pub(crate) packages: PackageFinder,
    /// Directory of the user's service sockets.
    pub(crate) runtime_dir: Option<PathBuf>,
}

impl Config {
    /// Reads the environment, then `viv.toml` in the data directory.
    pub(crate) fn read(data_dir: Option<PathBuf>) -> Result<Self, Failure> {
        let data_dir = data_directory(data_dir)?;
        let file = read_file(&data_dir.join("viv.toml"))?;
        Ok(Self::with_file(data_dir, file))
    }

    /// Returns the configuration of a data directory with the given contents of `viv.toml`.
    fn with_file(data_dir: PathBuf, file: ConfigFile) -> Self {
        let organisation_policy = PathBuf::from("/etc/viv/policy.yaml");
        let runtime_dir = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let packages = PackageFinder::default();
        Self { data_dir, organisation_policy, file, env_upstream: None, backend: None, packages, runtime_dir }
    }

    /// Reads the configuration like [`Self::read`]; an invalid `viv.toml` counts as empty, and the failure is returned
    /// with it. Only for the command that explains the failure.
    pub(crate) fn read_or_defaults(data_dir: Option<PathBuf>) -> Result<(Self, Option<Failure>), Failure> {
        let data_dir = data_directory(data_dir)?;
        let (file, failure) = match read_file(&data_dir.join("viv.toml")) {
            Ok(file) => (file, None),
            Err(failure) => (ConfigFile::default(), Some(failure)),
        };
        Ok((Self::with_file(data_dir, file), failure))
    }

    /// Returns this configuration with the given sandbox backend.
    pub(crate) fn with_backend(mut self, backend: Option<BackendName>) -> Self {
        self.backend = backend;
        self
    }

    /// Returns this configuration with the upstream of an env file, or else of the environment.
    pub(crate) fn with_env_file(mut self, path: Option<&Path>) -> Result<Self, Failure> {
        self.env_upstream = match path {
            Some(path) => Some(env_file::read(path)?),
            None => env_file::of_environment(|name| std::env::var(name).ok()),
        };
        Ok(self)
    }

    /// Returns the error for a wrong value of `key` in `viv.toml`.
    pub(crate) fn invalid_value(&self, key: &str, why: &str) -> Failure {
        let path = self.data_dir.join("viv.toml");
        Failure::new(ProblemCode::ConfigInvalid, format!("`{key}` in `{}`: {why}", path.display()))
            .help(format!("${{EDITOR:-vi}} {}", shell_word(&path.to_string_lossy())))
    }

    /// Returns the key that begins a command to `viv` in a terminal UI.
    pub(crate) fn detach_prefix(&self) -> Result<DetachPrefix, Failure> {
        let Some(text) = &self.file.terminal.detach_prefix else { return Ok(DetachPrefix::default()) };
        let why = "must be `ctrl-` and one of a to z (not c, d, h, i, j, m), `\\`, `]`, `^` or `_`";
        DetachPrefix::parse(text).ok_or_else(|| self.invalid_value("terminal.detach_prefix", why))
    }

    /// Resolves a path of `viv.toml`, which may be relative to the data directory.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        self.data_dir.join(path)
    }

    /// Returns the API key of an upstream; `None` if none is configured.
    pub(crate) fn key(&self, name: &str, section: &UpstreamSection) -> Result<Option<Secret>, Failure> {
        let UpstreamSection { key, key_file, key_command, key_env, .. } = section.clone();
        let written = CredentialSection { key, key_file, key_command, key_env, variable: None };
        let at = format!("upstreams.{name}");
        let found = self.credential(&at, &written)?;
        match (found, section.key_found) {
            (Some(_), true) => Err(self.invalid_value(
                &format!("{at}.key_found"),
                "cannot be combined with key, key_file, key_command or key_env",
            )),
            (None, true) => found_key(section.kind).map(Some).ok_or_else(|| {
                self.invalid_value(&format!("{at}.key_found"), "no key for this kind was found on this host")
                    .help("viv credentials")
            }),
            (found, false) => Ok(found),
        }
    }

    /// Returns the secret that one of `key`, `key_file`, `key_command` and `key_env` names; `None` if none is set.
    pub(crate) fn credential(&self, at: &str, section: &CredentialSection) -> Result<Option<Secret>, Failure> {
        let CredentialSection { key, key_file, key_command, key_env, .. } = section;
        let at = |which: &str| format!("{at}.{which}");
        match (key, key_file, key_command, key_env) {
            (None, None, None, None) => Ok(None),
            (Some(key), None, None, None) => Ok(Some(key.clone())),
            (None, Some(file), None, None) => {
                let read = std::fs::read_to_string(self.path(file));
                read.map(|text| Some(Secret::new(text))).map_err(|error| {
                    self.invalid_value(&at("key_file"), &format!("cannot read `{}`", file.display())).because(&error)
                })
            }
            (None, None, Some(command), None) => {
                printed(command).map(Some).map_err(|why| self.invalid_value(&at("key_command"), &why))
            }
            (None, None, None, Some(variable)) => match std::env::var(variable) {
                Ok(text) => Ok(Some(Secret::new(text))),
                Err(_) => {
                    Err(self.invalid_value(&at("key_env"), &format!("environment variable `{variable}` is not set")))
                }
            },
            _ => Err(self.invalid_value(&at("key"), "only one of key, key_file, key_command and key_env can be set")),
        }
    }
}

/// Returns the variable that is missing if the environment describes an upstream incompletely.
pub(crate) fn missing_variable() -> Option<&'static str> {
    env_file::missing_variable(|name| std::env::var(name).ok())
}

/// Returns the log filter of `VIV_LOG`.
pub(crate) fn log_filter() -> Option<String> {
    std::env::var("VIV_LOG").ok().filter(|filter| !filter.is_empty())
}

/// Finds all model credentials on this host.
pub(crate) fn credentials() -> Vec<FoundCredential> {
    credentials::find(|name| std::env::var(name).ok(), variable("HOME").map(PathBuf::from).as_deref())
}

/// Returns the key of this host for an upstream of this kind.
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

/// Returns a variable for `env.pass` of a policy; `None` if it is unset or not UTF-8.
/// Returns the command of the pager; `None` if it is turned off.
pub(crate) fn pager_command() -> Option<String> {
    if std::env::var_os("NO_PAGER").is_some_and(|value| !value.is_empty()) {
        return None;
    }
    let command = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    Some(command).filter(|command| !matches!(command.trim(), "" | "cat"))
}

/// Returns a variable of the host's environment.
pub(crate) fn host_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns a variable of a built-in agent's process inside the sandbox.
pub(crate) fn agent_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs `command` and returns its output as a secret. Its stderr goes to the terminal and never into errors.
fn printed(command: &str) -> Result<Secret, String> {
    let output = Command::new("sh").args(["-c", command]).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start the command: {error}"))?;
    match String::from_utf8(output.stdout) {
        Ok(text) if output.status.success() && !text.trim().is_empty() => Ok(Secret::new(text)),
        _ => Err(format!("the command printed no key ({})", output.status)),
    }
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the data directory: `given`, else `VIV_DATA_DIR`, else the default.
pub(crate) fn data_directory(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let directory = match given.or_else(|| variable("VIV_DATA_DIR").map(PathBuf::from)) {
        Some(directory) => directory,
        None => data_home()?.join("viv"),
    };
    std::path::absolute(&directory).map_err(|error| {
        Failure::new(ProblemCode::ConfigInvalid, "cannot make the path of the data directory absolute").because(&error)
    })
}

/// Returns the user's home directory.
pub(crate) fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// Returns the directories of `PATH`.
pub(crate) fn search_path() -> Vec<PathBuf> {
    variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns the directory for temporary files.
pub(crate) fn temporary_directory() -> PathBuf {
    std::env::temp_dir()
}

fn data_home() -> Result<PathBuf, Failure> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .and_then(absolute)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share")))
        .ok_or_else(|| {
            Failure::new(ProblemCode::ConfigInvalid, "cannot choose a data directory: HOME is not set")
                .help("viv --data-dir ./viv-data demo")
        })
}

fn read_file(path: &Path) -> Result<ConfigFile, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => {
            let what = format!("cannot read `{}`", path.display());
            return Err(Failure::new(ProblemCode::ConfigInvalid, what)
                .because(&error)
                .help(format!("ls -l {}", shell_word(&path.to_string_lossy()))));
        }
    };
    let file: ConfigFile =
        toml::from_str(&text).map_err(|error| not_parsed(path, &text, error.span(), error.message()))?;
    match file.agents.by_name.keys().find(|name| ::agents::by_name(name).is_none()) {
        None => Ok(file),
        Some(name) => Err(unknown_agent(path, name)),
    }
}

/// Returns the failure for a section `[agents.NAME]` of an unknown agent.
fn unknown_agent(path: &Path, name: &str) -> Failure {
    let near = policy::closest(name, ::agents::all().map(::agents::Agent::id));
    let near = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
    let what = format!("unknown agent `{name}` in `agents.{name}` of `{}`{near}", path.display());
    Failure::new(ProblemCode::ConfigInvalid, what)
        .help(format!("viv config unset {}", shell_word(&format!("agents.{name}"))))
}

/// Returns the failure for a file that is not a valid configuration.
fn not_parsed(path: &Path, text: &str, span: Option<std::ops::Range<usize>>, message: &str) -> Failure {
    let line = span.map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let what = format!("invalid configuration in `{}`, line {line}", path.display());
    // The message alone: the full error repeats the line, which may contain a key.
    let help = match unknown_field(message) {
        Some(field) => suggestion(text, line, field),
        None => None,
    };
    let editor = || format!("${{EDITOR:-vi}} {}", shell_word(&path.to_string_lossy()));
    Failure::new(ProblemCode::ConfigInvalid, what).detail(message).help(help.unwrap_or_else(editor))
}

/// Returns the key that a message of the parser calls unknown.
fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Returns the command that removes the unknown `field`, which is in the section above `line`.
fn suggestion(text: &str, line: usize, field: &str) -> Option<String> {
    let above: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let header = above.iter().rev().find(|line| line.starts_with('['));
    let section = match header {
        Some(header) => format!("{}.", header.strip_prefix('[')?.split(']').next()?.trim()),
        None => String::new(),
    };
    Some(format!("viv config unset {}", shell_word(&format!("{section}{field}"))))
}
