//! Setting one key of a document from text: `--narrow key=value`, or a line of a text that comes with the program.

use super::{DnsMode, EnforcementMeans, PolicyDocument, Texts, WorkspaceMode};
use crate::key::PolicyKey;
use crate::source::{SourcePosition, Spanned};
use crate::value::BadValue;

/// What a key is set to, as it was written.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// One word or number.
    One(Spanned<String>),
    /// Entries of a list.
    List(Texts),
}

impl Value {
    fn one(self) -> Result<Spanned<String>, BadValue> {
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

impl PolicyDocument {
    /// A document that sets one key, its value being `text` at `place`.
    ///
    /// Lists are separated by commas; an empty text is the empty list.
    pub(crate) fn with(key: PolicyKey, text: &str, place: SourcePosition) -> Result<Self, BadValue> {
        let mut document = Self::default();
        let one = || Value::One(Spanned::at(text.to_owned(), place));
        document.set(key, if is_list(key) { Value::List(split(text, place)) } else { one() })?;
        Ok(document)
    }

    /// Sets one key.
    pub(crate) fn set(&mut self, key: PolicyKey, value: Value) -> Result<(), BadValue> {
        match key {
            PolicyKey::FsWorkspace => self.fs.get_or_insert_default().workspace = Some(mode(value)?),
            PolicyKey::FsRead => self.fs.get_or_insert_default().read = Some(value.list()?),
            PolicyKey::FsWrite => self.fs.get_or_insert_default().write = Some(value.list()?),
            PolicyKey::FsDenyRead => self.fs.get_or_insert_default().deny_read = Some(value.list()?),
            PolicyKey::FsDenyWrite => self.fs.get_or_insert_default().deny_write = Some(value.list()?),
            PolicyKey::NetEnabled => self.net.get_or_insert_default().enabled = Some(boolean(value)?),
            PolicyKey::NetAllowlist => self.net.get_or_insert_default().allowlist = Some(value.list()?),
            PolicyKey::NetDenylist => self.net.get_or_insert_default().denylist = Some(value.list()?),
            PolicyKey::NetIntercept => self.net.get_or_insert_default().intercept = Some(value.list()?),
            PolicyKey::NetInject => self.net.get_or_insert_default().inject = Some(value.list()?),
            PolicyKey::NetDns => self.net.get_or_insert_default().dns = Some(names(value)?),
            PolicyKey::ProcCpus => self.proc.get_or_insert_default().cpus = Some(value.one()?),
            PolicyKey::ProcMemory => self.proc.get_or_insert_default().memory = Some(value.one()?),
            PolicyKey::ProcPids => self.proc.get_or_insert_default().pids = Some(value.one()?),
            PolicyKey::ProcTimeout => self.proc.get_or_insert_default().timeout = Some(value.one()?),
            PolicyKey::ProcOutput => self.proc.get_or_insert_default().output = Some(value.one()?),
            PolicyKey::ProcDisk => self.proc.get_or_insert_default().disk = Some(value.one()?),
            PolicyKey::ProcNofile => self.proc.get_or_insert_default().nofile = Some(value.one()?),
            PolicyKey::DegradeCpus => self.degrade.get_or_insert_default().cpus = Some(means(value)?),
            PolicyKey::DegradeMemory => self.degrade.get_or_insert_default().memory = Some(means(value)?),
            PolicyKey::DegradePids => self.degrade.get_or_insert_default().pids = Some(means(value)?),
            PolicyKey::DegradeDisk => self.degrade.get_or_insert_default().disk = Some(means(value)?),
            PolicyKey::DegradeLandlock => self.degrade.get_or_insert_default().landlock = Some(means(value)?),
            PolicyKey::EnvPass => self.env.get_or_insert_default().pass = Some(value.list()?),
            PolicyKey::ModelsAllow => self.models.get_or_insert_default().allow = Some(value.list()?),
            PolicyKey::ModelsBudgetUsd => self.models.get_or_insert_default().budget_usd = Some(value.one()?),
            PolicyKey::ModelsMaxRequests => self.models.get_or_insert_default().max_requests = Some(value.one()?),
            PolicyKey::ToolsAllow => self.tools.get_or_insert_default().allow = Some(value.list()?),
            PolicyKey::ToolsAsk => self.tools.get_or_insert_default().ask = Some(value.list()?),
            PolicyKey::ToolsDeny => self.tools.get_or_insert_default().deny = Some(value.list()?),
        }
        Ok(())
    }
}

/// Whether what a key holds is a list.
fn is_list(key: PolicyKey) -> bool {
    matches!(
        key,
        PolicyKey::FsRead
            | PolicyKey::FsWrite
            | PolicyKey::FsDenyRead
            | PolicyKey::FsDenyWrite
            | PolicyKey::NetAllowlist
            | PolicyKey::NetDenylist
            | PolicyKey::NetIntercept
            | PolicyKey::NetInject
            | PolicyKey::EnvPass
            | PolicyKey::ModelsAllow
            | PolicyKey::ToolsAllow
            | PolicyKey::ToolsAsk
            | PolicyKey::ToolsDeny
    )
}

fn split(text: &str, place: SourcePosition) -> Texts {
    let mut offset = place.offset;
    let mut items = Vec::new();
    for item in text.split(',') {
        let trimmed = item.trim();
        let lead = item.len() - item.trim_start().len();
        if !trimmed.is_empty() {
            let place = SourcePosition { line: place.line, offset: offset + lead, length: trimmed.len() };
            items.push(Spanned::at(trimmed.to_owned(), place));
        }
        offset += item.len() + 1;
    }
    Spanned::at(items, place)
}

fn boolean(value: Value) -> Result<Spanned<bool>, BadValue> {
    word(
        value,
        |text| text.parse().ok(),
        |text| BadValue::new(format!("`{text}` is not a boolean")).with_help("write `true` or `false`"),
    )
}

fn mode(value: Value) -> Result<Spanned<WorkspaceMode>, BadValue> {
    let modes = [WorkspaceMode::Readonly, WorkspaceMode::Overlay, WorkspaceMode::Bind];
    word(
        value,
        |text| modes.into_iter().find(|mode| mode.as_str() == text),
        |text| BadValue::new(format!("`{text}` is not a workspace mode")).with_help("modes: readonly, overlay, bind"),
    )
}

fn names(value: Value) -> Result<Spanned<DnsMode>, BadValue> {
    let services = [DnsMode::None, DnsMode::Stub];
    word(
        value,
        |text| services.into_iter().find(|service| service.as_str() == text),
        |text| BadValue::new(format!("`{text}` says not whether names are answered")).with_help("one of: none, stub"),
    )
}

fn means(value: Value) -> Result<Spanned<EnforcementMeans>, BadValue> {
    let all = [EnforcementMeans::Enforced, EnforcementMeans::Rlimit, EnforcementMeans::None];
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
) -> Result<Spanned<T>, BadValue> {
    let Spanned { value: text, position: place } = value.one()?;
    Ok(Spanned::at(find(&text).ok_or_else(|| wrong(&text))?, place))
}
