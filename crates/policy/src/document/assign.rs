//! Setting one key of a document from text: `--narrow key=value`, or a line of a text that comes with the program.

use super::{Document, Means, NameService, Texts, WorkspaceMode};
use crate::key::Key;
use crate::source::{Place, Written};
use crate::value::BadValue;

/// What a key is set to, as it was written.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// One word or number.
    One(Written<String>),
    /// Entries of a list.
    List(Texts),
}

impl Value {
    fn one(self) -> Result<Written<String>, BadValue> {
        match self {
            Self::One(text) => Ok(text),
            Self::List(_) => Err(BadValue::new("a single value belongs here")),
        }
    }

    fn list(self) -> Result<Texts, BadValue> {
        match self {
            Self::List(texts) => Ok(texts),
            Self::One(text) => Err(BadValue::new(format!("`{}` is not a list", text.value))),
        }
    }
}

impl Document {
    /// A document that sets one key, its value being `text` at `place`.
    ///
    /// Lists are separated by commas; an empty text is the empty list.
    pub(crate) fn with(key: Key, text: &str, place: Place) -> Result<Self, BadValue> {
        let mut document = Self::default();
        let one = || Value::One(Written::at(text.to_owned(), place));
        document.set(key, if is_list(key) { Value::List(split(text, place)) } else { one() })?;
        Ok(document)
    }

    /// Sets one key.
    pub(crate) fn set(&mut self, key: Key, value: Value) -> Result<(), BadValue> {
        match key {
            Key::FsWorkspace => self.fs.get_or_insert_default().workspace = Some(mode(value)?),
            Key::FsRead => self.fs.get_or_insert_default().read = Some(value.list()?),
            Key::FsWrite => self.fs.get_or_insert_default().write = Some(value.list()?),
            Key::FsDenyRead => self.fs.get_or_insert_default().deny_read = Some(value.list()?),
            Key::FsDenyWrite => self.fs.get_or_insert_default().deny_write = Some(value.list()?),
            Key::NetEnabled => self.net.get_or_insert_default().enabled = Some(boolean(value)?),
            Key::NetAllowlist => self.net.get_or_insert_default().allowlist = Some(value.list()?),
            Key::NetDenylist => self.net.get_or_insert_default().denylist = Some(value.list()?),
            Key::NetIntercept => self.net.get_or_insert_default().intercept = Some(value.list()?),
            Key::NetInject => self.net.get_or_insert_default().inject = Some(value.list()?),
            Key::NetDns => self.net.get_or_insert_default().dns = Some(names(value)?),
            Key::ProcCpus => self.proc.get_or_insert_default().cpus = Some(value.one()?),
            Key::ProcMemory => self.proc.get_or_insert_default().memory = Some(value.one()?),
            Key::ProcPids => self.proc.get_or_insert_default().pids = Some(value.one()?),
            Key::ProcTimeout => self.proc.get_or_insert_default().timeout = Some(value.one()?),
            Key::ProcOutput => self.proc.get_or_insert_default().output = Some(value.one()?),
            Key::ProcDisk => self.proc.get_or_insert_default().disk = Some(value.one()?),
            Key::ProcNofile => self.proc.get_or_insert_default().nofile = Some(value.one()?),
            Key::DegradeCpus => self.degrade.get_or_insert_default().cpus = Some(means(value)?),
            Key::DegradeMemory => self.degrade.get_or_insert_default().memory = Some(means(value)?),
            Key::DegradePids => self.degrade.get_or_insert_default().pids = Some(means(value)?),
            Key::DegradeDisk => self.degrade.get_or_insert_default().disk = Some(means(value)?),
            Key::DegradeLandlock => self.degrade.get_or_insert_default().landlock = Some(means(value)?),
            Key::EnvPass => self.env.get_or_insert_default().pass = Some(value.list()?),
            Key::ModelsAllow => self.models.get_or_insert_default().allow = Some(value.list()?),
            Key::ModelsBudgetUsd => self.models.get_or_insert_default().budget_usd = Some(value.one()?),
            Key::ModelsMaxRequests => self.models.get_or_insert_default().max_requests = Some(value.one()?),
            Key::ToolsAllow => self.tools.get_or_insert_default().allow = Some(value.list()?),
            Key::ToolsAsk => self.tools.get_or_insert_default().ask = Some(value.list()?),
            Key::ToolsDeny => self.tools.get_or_insert_default().deny = Some(value.list()?),
        }
        Ok(())
    }
}

/// Whether what a key holds is a list.
fn is_list(key: Key) -> bool {
    matches!(
        key,
        Key::FsRead
            | Key::FsWrite
            | Key::FsDenyRead
            | Key::FsDenyWrite
            | Key::NetAllowlist
            | Key::NetDenylist
            | Key::NetIntercept
            | Key::NetInject
            | Key::EnvPass
            | Key::ModelsAllow
            | Key::ToolsAllow
            | Key::ToolsAsk
            | Key::ToolsDeny
    )
}

fn split(text: &str, place: Place) -> Texts {
    let mut offset = place.offset;
    let mut items = Vec::new();
    for item in text.split(',') {
        let trimmed = item.trim();
        let lead = item.len() - item.trim_start().len();
        if !trimmed.is_empty() {
            let place = Place { line: place.line, offset: offset + lead, length: trimmed.len() };
            items.push(Written::at(trimmed.to_owned(), place));
        }
        offset += item.len() + 1;
    }
    Written::at(items, place)
}

fn boolean(value: Value) -> Result<Written<bool>, BadValue> {
    word(
        value,
        |text| text.parse().ok(),
        |text| BadValue::new(format!("`{text}` is not a boolean")).with_help("write `true` or `false`"),
    )
}

fn mode(value: Value) -> Result<Written<WorkspaceMode>, BadValue> {
    let modes = [WorkspaceMode::Readonly, WorkspaceMode::Overlay, WorkspaceMode::Bind];
    word(
        value,
        |text| modes.into_iter().find(|mode| mode.as_str() == text),
        |text| BadValue::new(format!("`{text}` is not a workspace mode")).with_help("modes: readonly, overlay, bind"),
    )
}

fn names(value: Value) -> Result<Written<NameService>, BadValue> {
    let services = [NameService::None, NameService::Stub];
    word(
        value,
        |text| services.into_iter().find(|service| service.as_str() == text),
        |text| BadValue::new(format!("`{text}` says not whether names are answered")).with_help("one of: none, stub"),
    )
}

fn means(value: Value) -> Result<Written<Means>, BadValue> {
    let all = [Means::Enforced, Means::Rlimit, Means::None];
    word(
        value,
        |text| all.into_iter().find(|means| means.as_str() == text),
        |text| {
            BadValue::new(format!("`{text}` is not a means of enforcement")).with_help("means: enforced, rlimit, none")
        },
    )
}

/// One of the words a key knows.
fn word<T>(
    value: Value,
    find: impl FnOnce(&str) -> Option<T>,
    wrong: impl FnOnce(&str) -> BadValue,
) -> Result<Written<T>, BadValue> {
    let Written { value: text, place } = value.one()?;
    Ok(Written::at(find(&text).ok_or_else(|| wrong(&text))?, place))
}
