//! The configuration file of an MCP client, with one entry that is ours.
//!
//! Only our entry changes: the order, comments and values of everything else stay. A file that cannot be parsed is not
//! touched. The new content replaces the file in one step, with the same permissions.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use protocol::ProblemCode;
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::json_text;
use crate::failure::Failure;

/// The largest file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// The format of a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFormat {
    Json,
    Toml,
}

/// A client's file, and the place of our entry in it.
pub(super) struct ClientFile {
    pub(super) path: PathBuf,
    pub(super) format: FileFormat,
    /// The key of the object that contains the servers.
    pub(super) section: &'static str,
    /// The key of our entry.
    pub(super) name: &'static str,
}

/// A change of our entry.
pub(super) enum Edit {
    Set(Value),
    Remove,
}

/// The content of a file after a change.
pub(super) struct NewContent {
    pub(super) text: String,
    pub(super) is_changed: bool,
}

impl ClientFile {
    /// Returns the content after `edit`.
    pub(super) fn edited(&self, edit: &Edit) -> Result<NewContent, Failure> {
        let old = self.read()?;
        let new = match self.format {
            FileFormat::Json => json_text::edited(&old, self.section, self.name, edit),
            FileFormat::Toml => self.edited_toml(&old, edit),
        };
        let text = new.map_err(|why| {
            let what = format!("cannot change `{}`: {why}; the file was not touched", self.path.display());
            Failure::new(ProblemCode::ConfigInvalid, what).help("viv mcp install claude --print")
        })?;
        let is_changed = text != old;
        Ok(NewContent { text, is_changed })
    }

    fn read(&self) -> Result<String, Failure> {
        let too_large =
            fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file() || metadata.len() > MAX_BYTES);
        if too_large {
            return Err(self.failed("read", &io::Error::other("it is not a regular file, or it is too large")));
        }
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(self.failed("read", &error)),
        }
    }

    fn edited_toml(&self, old: &str, edit: &Edit) -> Result<String, String> {
        let mut document: DocumentMut = old.parse().map_err(|error| format!("it is not valid TOML: {error}"))?;
        match edit {
            Edit::Remove => {
                if let Some(servers) = document.get_mut(self.section).and_then(Item::as_table_like_mut) {
                    servers.remove(self.name);
                    if servers.is_empty() {
                        document.remove(self.section);
                    }
                }
            }
            Edit::Set(entry) => {
                let entry = toml_edit::ser::to_document(entry).map_err(|error| error.to_string())?;
                let servers = document.entry(self.section).or_insert_with(|| {
                    let mut servers = Table::new();
                    servers.set_implicit(true);
                    Item::Table(servers)
                });
                let servers =
                    servers.as_table_like_mut().ok_or_else(|| format!("`{}` is not a table", self.section))?;
                let is_same = |old: &Item| old.as_table().is_some_and(|old| same(old, entry.as_table()));
                if !servers.get(self.name).is_some_and(is_same) {
                    servers.insert(self.name, Item::Table(entry.as_table().clone()));
                }
            }
        }
        Ok(document.to_string())
    }

    /// Replaces the file.
    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        self.replace(text).map_err(|error| self.failed("write", &error))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        // A linked file stays a link: people keep their configuration in repositories.
        let path = match self.path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.path.is_symlink() => return Err(error),
            Err(_) => self.path.clone(),
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let temporary = folder.join(format!(".{}.viv-{}", self.name, std::process::id()));
        let written = fs::OpenOptions::new().write(true).create_new(true).open(&temporary).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            if let Ok(metadata) = fs::metadata(&path) {
                file.set_permissions(metadata.permissions())?;
            }
            file.sync_all()?;
            fs::rename(&temporary, &path)
        });
        written.inspect_err(|_| {
            // The error of the write is more useful than one of this removal.
            let _ = fs::remove_file(&temporary);
        })
    }

    fn failed(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(ProblemCode::ConfigInvalid, format!("cannot {doing} `{}`", self.path.display()))
            .because(error)
            .help(format!("ls -l {}", crate::shell_word::shell_word(&self.path.to_string_lossy())))
    }
}

fn same(old: &Table, new: &Table) -> bool {
    let text = |table: &Table| {
        table.iter().map(|(key, value)| (key.to_owned(), value.to_string().trim().to_owned())).collect()
    };
    let (old, new): (std::collections::BTreeMap<_, _>, std::collections::BTreeMap<String, String>) =
        (text(old), text(new));
    old == new
}
