//! Sets one key of a document from `key=value`, the argument of `--narrow`.

use super::{DnsMode, EnforcementMeans, PolicyDocument, TextList, UnpricedModels, WordOrList, WorkspaceMode};
use crate::key::PolicyKey;
use crate::source::{SourcePosition, Spanned};
use crate::value::InvalidValue;

/// The value for a key, as text.
#[derive(Debug, Clone)]
pub(crate) enum AssignedValue {
    /// A single value.
    Scalar(Spanned<String>),
    /// Entries of a list.
    List(TextList),
}

impl AssignedValue {
    fn into_scalar(self) -> Result<Spanned<String>, InvalidValue> {
        match self {
            Self::Scalar(text) => Ok(text),
            Self::List(_) => Err(InvalidValue::new("expected a single value")),
        }
    }

    fn into_list(self) -> Result<TextList, InvalidValue> {
        match self {
            Self::List(texts) => Ok(texts),
            Self::Scalar(text) => Err(InvalidValue::new(format!("`{}` is not a list", text.value))),
        }
    }
}

impl PolicyDocument {
    /// Returns a document that sets `key` to the `text` at `position`.
    ///
    /// Commas separate list entries; an empty text is an empty list.
    pub(crate) fn with(key: PolicyKey, text: &str, position: SourcePosition) -> Result<Self, InvalidValue> {
        let mut document = Self::default();
        let scalar = || AssignedValue::Scalar(Spanned::at(text.to_owned(), position));
        document.set(key, if key.is_list() { AssignedValue::List(split_list(text, position)) } else { scalar() })?;
        Ok(document)
    }

    /// Sets one key.
    pub(crate) fn set(&mut self, key: PolicyKey, value: AssignedValue) -> Result<(), InvalidValue> {
        match key {
            PolicyKey::FsWorkspace => self.fs.get_or_insert_default().workspace = Some(parse_workspace_mode(value)?),
            PolicyKey::FsRead => self.fs.get_or_insert_default().read = Some(value.into_list()?),
            PolicyKey::FsWrite => self.fs.get_or_insert_default().write = Some(value.into_list()?),
            PolicyKey::FsDenyRead => self.fs.get_or_insert_default().deny_read = Some(value.into_list()?),
            PolicyKey::FsDenyWrite => self.fs.get_or_insert_default().deny_write = Some(value.into_list()?),
            PolicyKey::NetEnabled => self.net.get_or_insert_default().enabled = Some(parse_boolean(value)?),
            PolicyKey::NetAllowlist => self.net.get_or_insert_default().allowlist = Some(value.into_list()?),
            PolicyKey::NetDenylist => self.net.get_or_insert_default().denylist = Some(value.into_list()?),
            PolicyKey::NetIntercept => self.net.get_or_insert_default().intercept = Some(value.into_list()?),
            PolicyKey::NetInject => self.net.get_or_insert_default().inject = Some(value.into_list()?),
            PolicyKey::NetPackages => self.net.get_or_insert_default().packages = Some(parse_boolean(value)?),
            PolicyKey::NetDns => self.net.get_or_insert_default().dns = Some(parse_dns_mode(value)?),
            PolicyKey::ProcCpus => self.proc.get_or_insert_default().cpus = Some(value.into_scalar()?),
            PolicyKey::ProcMemory => self.proc.get_or_insert_default().memory = Some(value.into_scalar()?),
            PolicyKey::ProcPids => self.proc.get_or_insert_default().pids = Some(value.into_scalar()?),
            PolicyKey::ProcTimeout => self.proc.get_or_insert_default().timeout = Some(value.into_scalar()?),
            PolicyKey::ProcOutput => self.proc.get_or_insert_default().output = Some(value.into_scalar()?),
            PolicyKey::ProcDisk => self.proc.get_or_insert_default().disk = Some(value.into_scalar()?),
            PolicyKey::ProcNofile => self.proc.get_or_insert_default().nofile = Some(value.into_scalar()?),
            PolicyKey::ProcSockets => self.proc.get_or_insert_default().sockets = Some(value.into_scalar()?),
            PolicyKey::DegradeCpus => self.degrade.get_or_insert_default().cpus = Some(parse_means(value)?),
            PolicyKey::DegradeMemory => self.degrade.get_or_insert_default().memory = Some(parse_means(value)?),
            PolicyKey::DegradePids => self.degrade.get_or_insert_default().pids = Some(parse_means(value)?),
            PolicyKey::DegradeDisk => self.degrade.get_or_insert_default().disk = Some(parse_means(value)?),
            PolicyKey::DegradeLandlock => self.degrade.get_or_insert_default().landlock = Some(parse_means(value)?),
            PolicyKey::EnvSet => self.env.get_or_insert_default().set = Some(value.into_list()?),
            PolicyKey::PathPrepend => self.path.get_or_insert_default().prepend = Some(value.into_list()?),
            PolicyKey::Toolchains => {
                let Spanned { value: words, position } = value.into_list()?;
                self.toolchains = Some(Spanned::at(WordOrList(words), position));
            }
            PolicyKey::EnvPass => self.env.get_or_insert_default().pass = Some(value.into_list()?),
            PolicyKey::ModelsAllow => self.models.get_or_insert_default().allow = Some(value.into_list()?),
            PolicyKey::ModelsBudgetUsd => self.models.get_or_insert_default().budget_usd = Some(value.into_scalar()?),
            PolicyKey::ModelsMaxRequests => {
                self.models.get_or_insert_default().max_requests = Some(value.into_scalar()?);
            }
            PolicyKey::ModelsMaxTokens => self.models.get_or_insert_default().max_tokens = Some(value.into_scalar()?),
            PolicyKey::ModelsUnpriced => self.models.get_or_insert_default().unpriced = Some(parse_unpriced(value)?),
            PolicyKey::ToolsAllow => self.tools.get_or_insert_default().allow = Some(value.into_list()?),
            PolicyKey::ToolsAsk => self.tools.get_or_insert_default().ask = Some(value.into_list()?),
            PolicyKey::ToolsDeny => self.tools.get_or_insert_default().deny = Some(value.into_list()?),
        }
        Ok(())
    }
}

fn split_list(text: &str, position: SourcePosition) -> TextList {
    let mut offset = position.offset;
    let mut entries = Vec::new();
    for item in text.split(',') {
        let trimmed = item.trim();
        let lead = item.len() - item.trim_start().len();
        if !trimmed.is_empty() {
            let position = SourcePosition { line: position.line, offset: offset + lead, length: trimmed.len() };
            entries.push(Spanned::at(trimmed.to_owned(), position));
        }
        offset += item.len() + 1;
    }
    Spanned::at(entries, position)
}

fn parse_boolean(value: AssignedValue) -> Result<Spanned<bool>, InvalidValue> {
    parse_word(
        value,
        |text| text.parse().ok(),
        |text| InvalidValue::new(format!("`{text}` is not a boolean")).with_help("write `true` or `false`"),
    )
}

fn parse_workspace_mode(value: AssignedValue) -> Result<Spanned<WorkspaceMode>, InvalidValue> {
    let modes = [WorkspaceMode::Readonly, WorkspaceMode::Overlay, WorkspaceMode::Bind];
    parse_word(
        value,
        |text| modes.into_iter().find(|mode| mode.as_str() == text),
        |text| {
            InvalidValue::new(format!("`{text}` is not a workspace mode")).with_help("modes: readonly, overlay, bind")
        },
    )
}

fn parse_dns_mode(value: AssignedValue) -> Result<Spanned<DnsMode>, InvalidValue> {
    let modes = [DnsMode::None, DnsMode::Stub];
    parse_word(
        value,
        |text| modes.into_iter().find(|mode| mode.as_str() == text),
        |text| InvalidValue::new(format!("`{text}` is not a DNS mode")).with_help("modes: none, stub"),
    )
}

fn parse_unpriced(value: AssignedValue) -> Result<Spanned<UnpricedModels>, InvalidValue> {
    let words = [UnpricedModels::Deny, UnpricedModels::Allow];
    parse_word(
        value,
        |text| words.into_iter().find(|word| word.as_str() == text),
        |text| InvalidValue::new(format!("`{text}` is not `allow` or `deny`")).with_help("write `allow` or `deny`"),
    )
}

fn parse_means(value: AssignedValue) -> Result<Spanned<EnforcementMeans>, InvalidValue> {
    let all = [EnforcementMeans::Enforced, EnforcementMeans::Rlimit, EnforcementMeans::None];
    parse_word(
        value,
        |text| all.into_iter().find(|means| means.as_str() == text),
        |text| {
            InvalidValue::new(format!("`{text}` is not a means of enforcement"))
                .with_help("means: enforced, rlimit, none")
        },
    )
}

/// Parses a value that must be one of a few words.
fn parse_word<T>(
    value: AssignedValue,
    find: impl FnOnce(&str) -> Option<T>,
    invalid: impl FnOnce(&str) -> InvalidValue,
) -> Result<Spanned<T>, InvalidValue> {
    let Spanned { value: text, position } = value.into_scalar()?;
    Ok(Spanned::at(find(&text).ok_or_else(|| invalid(&text))?, position))
}
