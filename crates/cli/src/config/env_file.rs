//! A `.env` file: `BASE_URL`, `API_KEY` and `MODEL_NAME` of a server that takes chat completions.
//!
//! Such a file is shared with other programs, so names that mean nothing here are left alone.

use std::path::{Path, PathBuf};

use protocol::Code;
use secret::Secret;

use super::file::{Kind, UpstreamSection};
use crate::failure::Failure;

/// Reads the upstream that `path` describes.
pub(crate) fn read(path: &Path) -> Result<UpstreamSection, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(Code::ConfigInvalid, format!("cannot read `{}`", path.display())).because(&error)
    })?;
    let base_url = value(&text, "BASE_URL").ok_or_else(|| missing(path, "BASE_URL"))?;
    let model = value(&text, "MODEL_NAME").ok_or_else(|| missing(path, "MODEL_NAME"))?;
    Ok(UpstreamSection {
        kind: Kind::OpenaiCompatible,
        base_url: Some(base_url),
        key: value(&text, "API_KEY").map(Secret::new),
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
    })
}

fn missing(path: &Path, name: &str) -> Failure {
    Failure::new(Code::ConfigInvalid, format!("`{}` does not set {name}", path.display()))
        .help(format!("add a line {name}=… to {}", path.display()))
}

/// The last value of `name`; an empty one counts as absent.
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
    fn values_are_read_as_shells_write_them() {
        let text =
            "# BASE_URL=no\nexport BASE_URL = \"http://h/v1\" # here\nAPI_KEY='a b'\nMODEL_NAME=m # x\nOTHER=1\n";
        assert_eq!(value(text, "BASE_URL").unwrap(), "http://h/v1");
        assert_eq!(value(text, "API_KEY").unwrap(), "a b");
        assert_eq!(value(text, "MODEL_NAME").unwrap(), "m");
        assert_eq!(value("API_KEY=\n", "API_KEY"), None);
        assert_eq!(value("API_KEY=a\nAPI_KEY=b\n", "API_KEY").unwrap(), "b");
    }
}
