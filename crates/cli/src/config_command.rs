//! `viv config`: show and change `viv.toml`.
//!
//! The command works on a file that the other commands reject, so that a mistake can be found and removed with it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use protocol::ProblemCode;
use serde_json::json;

use crate::config::{self, ConfigEditor, ConfigKey, ValueType};
use crate::failure::Failure;
use crate::output;
use crate::shell_word::shell_word;
use crate::table::TextTable;

/// Text in the place of a secret.
const REDACTED: &str = "(hidden)";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the keys that viv.toml sets
    Show {
        /// Show all keys, with the place or default that each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Show the value of one key
    Get {
        /// Dotted key, e.g. model.upstream
        key: String,
    },
    /// Set a key: viv config set model.upstream anthropic
    Set {
        /// Dotted key, e.g. model.upstream
        key: String,
        /// Value; `-` reads stdin
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a key
    Unset {
        /// Dotted key, e.g. model.upstream
        key: String,
    },
    /// List all keys with type, default and meaning
    Keys,
    /// Print the path of viv.toml
    Path,
}

/// Runs `viv config …`.
pub(crate) fn carry_out(command: ConfigCommand, data_dir: Option<PathBuf>, json: bool) -> Result<ExitCode, Failure> {
    let directory = config::data_directory(data_dir)?;
    let path = directory.join("viv.toml");
    match command {
        ConfigCommand::Path => output::print(&format!("{}\n", path.display()))?,
        ConfigCommand::Keys => keys(json)?,
        ConfigCommand::Show { origin } => show(&ConfigEditor::open(path)?, origin, json)?,
        ConfigCommand::Get { key } => return get(&ConfigEditor::open(path)?, &key, json),
        ConfigCommand::Set { key, value } => {
            store::DataDir::open(&directory)?;
            let key = config::parse_key(&key)?;
            let value = read_value(&key.key, &key.segments.join("."), value)?;
            let mut editor = ConfigEditor::open(path)?;
            editor.set(&key, &value)?;
            editor.save()?;
        }
        ConfigCommand::Unset { key } => {
            let mut editor = ConfigEditor::open(path)?;
            // A key that nobody knows can be removed: it makes the file invalid.
            let segments = config::key_segments(&key)?;
            let named = config::parse_key(&key).map(|named| named.segments);
            if !editor.unset(named.as_ref().unwrap_or(&segments)) {
                return named.and(Ok(ExitCode::SUCCESS));
            }
            editor.save()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the value to write. A secret is taken from stdin only: a command line stays in the shell's history.
fn read_value(key: &ConfigKey, path: &str, typed: String) -> Result<String, Failure> {
    if typed != "-" && key.value == ValueType::Secret {
        let what = format!("`{path}` is a secret: it is read from stdin, so that it is not in the shell's history");
        return Err(
            Failure::new(ProblemCode::InvalidRequest, what).help(format!("viv config set {} -", shell_word(path)))
        );
    }
    if typed != "-" {
        return Ok(typed);
    }
    let mut read = String::new();
    let stdin = std::io::stdin().read_to_string(&mut read);
    stdin.map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, "cannot read the value from stdin").because(&error)
    })?;
    Ok(read.trim_end_matches(['\r', '\n']).to_owned())
}

fn get(editor: &ConfigEditor, typed: &str, json: bool) -> Result<ExitCode, Failure> {
    let key = config::parse_key(typed)?;
    let path = key.segments.join(".");
    let Some(item) = editor.get(&key.segments) else {
        let default = if key.key.default.is_empty() { "not set" } else { key.key.default };
        let what = format!("`{path}` is not set in viv.toml; default: {default}");
        return Err(Failure::new(ProblemCode::ConfigKeyUnset, what).help("viv config show --origin"));
    };
    let text = match item.as_str() {
        _ if key.key.value == ValueType::Secret => REDACTED.to_owned(),
        _ if key.key.value == ValueType::Table => "(section)".to_owned(),
        Some(text) => text.to_owned(),
        None => item.to_string().trim().to_owned(),
    };
    if json {
        output::print_json(&json!({"key": path, "value": text}))?;
    } else {
        output::print(&format!("{text}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn keys(json: bool) -> Result<(), Failure> {
    if json {
        let row = |key: &ConfigKey| json!({"key": key.path, "type": key.value.words(), "default": key.default, "meaning": key.meaning});
        return output::print_json(&config::KEYS.iter().map(row).collect());
    }
    let plain = |text: &str| text.replace('`', "");
    let row =
        |key: &ConfigKey| [key.path.to_owned(), plain(&key.value.words()), plain(key.default), plain(key.meaning)];
    let rows = config::KEYS.iter().map(row).collect();
    output::print(&TextTable { head: ["KEY", "TYPE", "DEFAULT", "MEANING"], rows }.text())
}

/// One line of `viv config show`.
struct ShownKey {
    path: String,
    value: String,
    origin: String,
}

fn show(editor: &ConfigEditor, origin: bool, json: bool) -> Result<(), Failure> {
    let mut rows: Vec<ShownKey> = editor.leaves().into_iter().map(written).collect();
    if origin {
        let unset = config::KEYS.iter().filter(|key| !key.path.contains("NAME"));
        let unset = unset.filter(|key| !rows.iter().any(|row| row.path == key.path)).map(default).collect::<Vec<_>>();
        rows.extend(unset);
    }
    if json {
        let rows = rows.iter().map(|row| json!({"key": row.path, "value": row.value, "origin": row.origin}));
        return output::print_json(&rows.collect());
    }
    if rows.is_empty() {
        output::print_message(
            "viv.toml sets no keys; `viv setup` configures a model, `viv config show --origin` lists all keys",
        );
        return Ok(());
    }
    if !origin {
        let lines = rows.iter().map(|row| format!("{} = {}\n", row.path, row.value));
        return output::print(&lines.collect::<String>());
    }
    let rows = rows.into_iter().map(|row| [row.path, row.value, row.origin]).collect();
    output::print(&TextTable { head: ["KEY", "VALUE", "FROM"], rows }.text())
}

fn written((segments, value, line): (Vec<String>, String, usize)) -> ShownKey {
    let key = config::find_key(&segments);
    let is_secret = key.as_ref().is_some_and(|key| key.key.value == ValueType::Secret);
    let value = if is_secret { REDACTED.to_owned() } else { value };
    let note = if key.is_none() { ", unknown key" } else { "" };
    let path = segments.iter().map(|segment| toml_edit::Key::new(segment).to_string()).collect::<Vec<_>>().join(".");
    ShownKey { path, value, origin: format!("viv.toml line {line}{note}") }
}

fn default(key: &ConfigKey) -> ShownKey {
    ShownKey { path: key.path.to_owned(), value: key.default.replace('`', ""), origin: "default".to_owned() }
}
