//! An upstream from `BASE_URL`, `API_KEY` and `MODEL_NAME`, in a `.env` file or in the environment.
//!
//! Other programs use the same file and environment, so unknown names are ignored. `BASE_URL` and `MODEL_NAME` must both
//! be set; otherwise the environment describes no upstream.

use std::path::{Path, PathBuf};

use protocol::ProblemCode;
use secret::Secret;

use super::file::{UpstreamKind, UpstreamSection};
use crate::failure::Failure;
use crate::shell_word::shell_word;

/// An upstream that is not in `viv.toml`.
#[derive(Debug, Clone)]
pub(crate) struct EnvUpstream {
    /// Name in events and records.
    pub(crate) name: &'static str,
    /// Settings of the upstream.
    pub(crate) section: UpstreamSection,
}

/// Reads the upstream from the env file `path`; fails if `BASE_URL` or `MODEL_NAME` is missing.
pub(super) fn read(path: &Path) -> Result<EnvUpstream, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let content = r"BASE_URL=http://127.0.0.1:8000/v1\nMODEL_NAME=my-model\nAPI_KEY=my-key\n";
        Failure::new(ProblemCode::ConfigInvalid, format!("cannot read the env file `{}`", path.display()))
            .because(&error)
            .help(format!("printf '{content}' > {}", shell_word(&path.to_string_lossy())))
    })?;
    let base_url = value(&text, "BASE_URL").ok_or_else(|| missing(path, "BASE_URL"))?;
    let model = value(&text, "MODEL_NAME").ok_or_else(|| missing(path, "MODEL_NAME"))?;
    let section = section(base_url, model, value(&text, "API_KEY"));
    Ok(EnvUpstream { name: "env-file", section })
}

/// Returns the upstream of the environment, if it is described completely.
pub(super) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<EnvUpstream> {
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    let section = section(set("BASE_URL")?, set("MODEL_NAME")?, set("API_KEY"));
    Some(EnvUpstream { name: "environment", section })
}

/// Returns the missing variable if exactly one of the two is set.
pub(super) fn missing_variable(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let set = |name| variable(name).is_some_and(|value| !value.trim().is_empty());
    match (set("BASE_URL"), set("MODEL_NAME")) {
        (true, false) => Some("MODEL_NAME"),
        (false, true) => Some("BASE_URL"),
        _ => None,
    }
}

fn section(base_url: String, model: String, key: Option<String>) -> UpstreamSection {
    UpstreamSection {
        kind: UpstreamKind::OpenaiCompatible,
        base_url: Some(base_url),
        key: key.map(Secret::new),
        key_file: None,
        key_command: None,
        key_env: None,
        key_found: false,
        aliases: std::collections::BTreeMap::new(),
        model: Some(model),
        session: None,
        script: None::<PathBuf>,
        roots: None,
        retries: None,
        connect_timeout: None,
        first_byte_timeout: None,
        idle_timeout: None,
    }
}

fn missing(path: &Path, name: &str) -> Failure {
    Failure::new(ProblemCode::ConfigInvalid, format!("`{}` does not set {name}", path.display()))
        .help(format!("echo '{name}=VALUE' >> {}", shell_word(&path.to_string_lossy())))
}

/// Returns the last value of `name` in an env file; `None` if it is empty.
pub(super) fn value(text: &str, name: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let line = line.trim();
        let (found, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        (found.trim() == name).then(|| unquoted(value.trim()))
    });
    values.next_back().filter(|value| !value.is_empty())
}

fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.0.to_owned();
        }
    }
    value.split(" #").next().unwrap_or(value).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_describes_an_upstream_or_names_the_missing_variable() {
        let environment =
            |names: &'static [&str]| move |name: &str| names.contains(&name).then(|| format!("of {name}"));
        let both = environment(&["BASE_URL", "MODEL_NAME"]);
        let found = of_environment(both).unwrap();
        assert_eq!((found.section.base_url.as_deref(), found.section.key.is_none()), (Some("of BASE_URL"), true));
        assert_eq!(missing_variable(both), None);
        for (names, missing) in [(&["BASE_URL", "API_KEY"][..], "MODEL_NAME"), (&["MODEL_NAME"], "BASE_URL")] {
            assert!(of_environment(environment(names)).is_none());
            assert_eq!(missing_variable(environment(names)), Some(missing));
        }
        assert_eq!(missing_variable(environment(&["API_KEY"])), None);
    }

    #[test]
    fn values_are_parsed_like_a_shell_does() {
        let text =
            "# BASE_URL=no\nexport BASE_URL = \"http://h/v1\" # here\nAPI_KEY='a b'\nMODEL_NAME=m # x\nOTHER=1\n";
        assert_eq!(value(text, "BASE_URL").unwrap(), "http://h/v1");
        assert_eq!(value(text, "API_KEY").unwrap(), "a b");
        assert_eq!(value(text, "MODEL_NAME").unwrap(), "m");
        assert_eq!(value("API_KEY=\n", "API_KEY"), None);
        assert_eq!(value("API_KEY=a\nAPI_KEY=b\n", "API_KEY").unwrap(), "b");
    }
}
