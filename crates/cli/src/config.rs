//! The only place that reads the environment and the configuration file.
//!
//! Read once, passed down by value. Keys that are not known are errors, so a typo can never widen
//! anything.

use std::path::{Path, PathBuf};

use protocol::Code;
use serde::Deserialize;

use crate::failure::Failure;

/// What the environment and the configuration file say.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where everything is kept.
    pub(crate) data_dir: PathBuf,
    /// The organisation's rules, if the file exists.
    pub(crate) organisation_policy: PathBuf,
    /// What the file says.
    pub(crate) file: ConfigFile,
}

/// `viv.toml` in the data directory.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The model behind the gateway.
    pub(crate) model: ModelSection,
    /// Where agents come from.
    pub(crate) agents: AgentsSection,
}

/// How agents are installed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentsSection {
    /// Where npm keeps what it downloaded; its own place when absent.
    pub(crate) npm_cache: Option<PathBuf>,
}

/// Which script the built-in model plays.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelSection {
    /// A script of your own; the built-in one when absent.
    pub(crate) script: Option<PathBuf>,
}

impl Config {
    /// Reads the environment, then the file.
    pub(crate) fn read(data_dir: Option<PathBuf>) -> Result<Self, Failure> {
        let data_dir = match data_dir.or_else(|| variable("VIV_DATA_DIR").map(PathBuf::from)) {
            Some(directory) => directory,
            None => data_home()?.join("viv"),
        };
        let data_dir = std::path::absolute(&data_dir).map_err(|error| {
            Failure::new(Code::ConfigInvalid, "the data directory has no absolute path").because(&error)
        })?;
        let file = read_file(&data_dir.join("viv.toml"))?;
        Ok(Self { data_dir, organisation_policy: PathBuf::from("/etc/viv/policy.yaml"), file })
    }
}

/// A variable that an agent's process inside the sandbox was given.
pub(crate) fn agent_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
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
            Failure::new(Code::ConfigInvalid, "there is no place to keep data: HOME is not set")
                .help("viv --data-dir ./viv-data demo")
        })
}

fn read_file(path: &Path) -> Result<ConfigFile, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => {
            let what = format!("cannot read `{}`", path.display());
            return Err(Failure::new(Code::ConfigInvalid, what).because(&error));
        }
    };
    toml::from_str(&text).map_err(|error| {
        let what = format!("`{}` is not a configuration", path.display());
        Failure::new(Code::ConfigInvalid, what).detail(error.to_string()).help(format!("edit {}", path.display()))
    })
}
