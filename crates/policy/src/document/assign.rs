//! Setting one key of a document from text: `--narrow key=value`.

use super::{Degrade, Document, Env, Fs, Means, Models, NameService, Net, Proc, Texts, Tools, WorkspaceMode};
use crate::key::Key;
use crate::source::{Place, Written};
use crate::value::BadValue;

impl Document {
    /// A document that sets one key, its value being `text` at `place`.
    ///
    /// Lists are separated by commas; an empty text is the empty list.
    pub(crate) fn with(key: Key, text: &str, place: Place) -> Result<Self, BadValue> {
        let one = || Some(Written::at(text.to_owned(), place));
        let list = || Some(split(text, place));
        let mut document = Self::default();
        match key {
            Key::FsWorkspace => document.fs = Some(Fs { workspace: Some(mode(text, place)?), ..Fs::default() }),
            Key::FsRead => document.fs = Some(Fs { read: list(), ..Fs::default() }),
            Key::FsWrite => document.fs = Some(Fs { write: list(), ..Fs::default() }),
            Key::FsDenyRead => document.fs = Some(Fs { deny_read: list(), ..Fs::default() }),
            Key::FsDenyWrite => document.fs = Some(Fs { deny_write: list(), ..Fs::default() }),
            Key::NetEnabled => document.net = Some(Net { enabled: Some(boolean(text, place)?), ..Net::default() }),
            Key::NetAllowlist => document.net = Some(Net { allowlist: list(), ..Net::default() }),
            Key::NetDenylist => document.net = Some(Net { denylist: list(), ..Net::default() }),
            Key::NetIntercept => document.net = Some(Net { intercept: list(), ..Net::default() }),
            Key::NetInject => document.net = Some(Net { inject: list(), ..Net::default() }),
            Key::NetDns => document.net = Some(Net { dns: Some(names(text, place)?), ..Net::default() }),
            Key::ProcCpus => document.proc = Some(Proc { cpus: one(), ..Proc::default() }),
            Key::ProcMemory => document.proc = Some(Proc { memory: one(), ..Proc::default() }),
            Key::ProcPids => document.proc = Some(Proc { pids: one(), ..Proc::default() }),
            Key::ProcTimeout => document.proc = Some(Proc { timeout: one(), ..Proc::default() }),
            Key::ProcOutput => document.proc = Some(Proc { output: one(), ..Proc::default() }),
            Key::ProcDisk => document.proc = Some(Proc { disk: one(), ..Proc::default() }),
            Key::ProcNofile => document.proc = Some(Proc { nofile: one(), ..Proc::default() }),
            Key::DegradeCpus => document.degrade = Some(Degrade { cpus: means(text, place)?, ..Degrade::default() }),
            Key::DegradeMemory => {
                document.degrade = Some(Degrade { memory: means(text, place)?, ..Degrade::default() });
            }
            Key::DegradePids => document.degrade = Some(Degrade { pids: means(text, place)?, ..Degrade::default() }),
            Key::DegradeDisk => document.degrade = Some(Degrade { disk: means(text, place)?, ..Degrade::default() }),
            Key::DegradeLandlock => {
                document.degrade = Some(Degrade { landlock: means(text, place)?, ..Degrade::default() });
            }
            Key::EnvPass => document.env = Some(Env { pass: list() }),
            Key::ModelsAllow => document.models = Some(Models { allow: list(), ..Models::default() }),
            Key::ModelsBudgetUsd => document.models = Some(Models { budget_usd: one(), ..Models::default() }),
            Key::ModelsMaxRequests => document.models = Some(Models { max_requests: one(), ..Models::default() }),
            Key::ToolsAllow => document.tools = Some(Tools { allow: list(), ..Tools::default() }),
            Key::ToolsAsk => document.tools = Some(Tools { ask: list(), ..Tools::default() }),
            Key::ToolsDeny => document.tools = Some(Tools { deny: list(), ..Tools::default() }),
        }
        Ok(document)
    }
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

fn boolean(text: &str, place: Place) -> Result<Written<bool>, BadValue> {
    let value = text
        .parse()
        .map_err(|_| BadValue::new(format!("`{text}` is not a boolean")).with_help("write `true` or `false`"))?;
    Ok(Written::at(value, place))
}

fn mode(text: &str, place: Place) -> Result<Written<WorkspaceMode>, BadValue> {
    let modes = [WorkspaceMode::Readonly, WorkspaceMode::Overlay, WorkspaceMode::Bind];
    let found = modes.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a workspace mode")).with_help("modes: readonly, overlay, bind")
    })?;
    Ok(Written::at(found, place))
}

fn names(text: &str, place: Place) -> Result<Written<NameService>, BadValue> {
    let found = [NameService::None, NameService::Stub].into_iter().find(|service| service.as_str() == text);
    let found = found.ok_or_else(|| {
        BadValue::new(format!("`{text}` says not whether names are answered")).with_help("one of: none, stub")
    })?;
    Ok(Written::at(found, place))
}

fn means(text: &str, place: Place) -> Result<Option<Written<Means>>, BadValue> {
    let found = [Means::Enforced, Means::Rlimit, Means::None].into_iter().find(|means| means.as_str() == text);
    let found = found.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a means of enforcement")).with_help("means: enforced, rlimit, none")
    })?;
    Ok(Some(Written::at(found, place)))
}
