//! The upstream of the gateway, built from the configuration.
//!
//! Order of precedence: command line, environment, `viv.toml`, scripted model.

mod notice;

use std::path::Path;
use std::sync::Arc;

use gateway::{
    ModelScript, ReplayUpstream, RequestNormalizer, ScriptedUpstream, Upstream, UpstreamTimeouts, VendorConfig,
    VendorKind, VendorUpstream,
};
use protocol::ProblemCode;
use session::{AgentDefault, AgentDefaults, UpstreamRegistry};
use store::{SessionIndex, SystemClock};

use crate::config::{Config, ContentWord, EnvUpstream, UpstreamKind, UpstreamSection};
use crate::failure::Failure;
use crate::host;
use crate::shell_word::shell_word;

pub(crate) use notice::ModelNotice;

/// Returns the upstream of sessions: that of the env file or environment, else the configured one, else the scripted model.
pub(crate) fn default_upstream(config: &Config) -> Result<Arc<dyn Upstream>, Failure> {
    if let Some(EnvUpstream { name, section }) = &config.env_upstream {
        return of_section(config, name, section);
    }
    match &config.file.model.upstream {
        Some(name) => find_upstream(config, name),
        None => Ok(Arc::new(scripted(config, config.file.model.script.as_deref())?)),
    }
}

/// Returns the configured upstreams, which a session can name.
pub(crate) fn upstream_registry(config: &Config) -> UpstreamRegistry {
    let known = config.clone();
    let names = config.file.upstreams.keys().cloned().collect();
    UpstreamRegistry::new(names, move |name| find_upstream(&known, name).map_err(|failure| failure.to_string()))
}

/// Returns the upstream and the model that `[agents.NAME]` sets. A model server of the environment comes first.
pub(crate) fn agent_defaults(config: &Config) -> AgentDefaults {
    let sections = config.file.agents.by_name.iter().filter(|_| config.env_upstream.is_none());
    AgentDefaults::new(sections.map(|(agent, section)| {
        (agent.clone(), AgentDefault { upstream: section.upstream.clone(), model: section.model.clone() })
    }))
}

/// Returns the configured upstream `name`.
pub(crate) fn find_upstream(config: &Config, name: &str) -> Result<Arc<dyn Upstream>, Failure> {
    let section = config.file.upstreams.get(name).ok_or_else(|| {
        let known = config.file.upstreams.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        config.invalid_value("model.upstream", &format!("unknown upstream `{name}`; configured: {known}"))
    })?;
    of_section(config, name, section)
}

fn of_section(config: &Config, name: &str, section: &UpstreamSection) -> Result<Arc<dyn Upstream>, Failure> {
    if section.kind == UpstreamKind::Replay {
        return Ok(Arc::new(recorded(config, name, section)?));
    }
    if section.session.is_some() {
        return Err(config.invalid_value(&format!("upstreams.{name}.session"), "only kind `replay` takes a session"));
    }
    let Some((kind, address)) = vendor(section.kind) else {
        return Ok(Arc::new(scripted(config, section.script.as_deref())?));
    };
    if section.script.is_some() {
        return Err(config.invalid_value(&format!("upstreams.{name}.script"), "only kind `scripted` takes a script"));
    }
    let base_url = section.base_url.as_deref().or(address);
    let base_url = base_url
        .ok_or_else(|| config.invalid_value(&format!("upstreams.{name}.base_url"), "this kind needs a base URL"))?;
    let default = UpstreamTimeouts::default();
    let vendor = VendorConfig {
        key: config.key(name, section)?,
        aliases: section.aliases.clone(),
        model: section.model.clone(),
        timeouts: UpstreamTimeouts {
            connect: section.connect_timeout.unwrap_or(default.connect),
            first_byte: section.first_byte_timeout.unwrap_or(default.first_byte),
            idle: section.idle_timeout.unwrap_or(default.idle),
            ..default
        },
        ..VendorConfig::new(name, kind, base_url)
    };
    let retries = section.retries.unwrap_or(vendor.retries);
    let mut vendor = VendorConfig { retries, ..vendor };
    if let Some(roots) = &section.roots {
        trust(config, name, roots, &mut vendor)?;
    }
    let vendor = VendorUpstream::new(vendor);
    Ok(Arc::new(vendor.map_err(|error| {
        Failure::from_error(ProblemCode::ConfigInvalid, &error)
            .help(format!("${{EDITOR:-vi}} {}", shell_word(&config.data_dir.join("viv.toml").to_string_lossy())))
    })?))
}

fn trust(config: &Config, name: &str, roots: &Path, vendor: &mut VendorConfig) -> Result<(), Failure> {
    let wrong = |why: &str| config.invalid_value(&format!("upstreams.{name}.roots"), why);
    let pem = std::fs::read(config.path(roots))
        .map_err(|error| wrong(&format!("cannot read `{}`", roots.display())).because(&error))?;
    vendor.trust_certificates(&pem).map_err(|error| wrong(&error.to_string()))
}

/// Returns the API of an upstream and the vendor's own address, if there is one.
pub(crate) fn vendor(kind: UpstreamKind) -> Option<(VendorKind, Option<&'static str>)> {
    Some(match kind {
        UpstreamKind::Anthropic => (VendorKind::Anthropic, Some("https://api.anthropic.com")),
        UpstreamKind::Openai => (VendorKind::Openai, Some("https://api.openai.com/v1")),
        UpstreamKind::Gemini => (VendorKind::Gemini, Some("https://generativelanguage.googleapis.com")),
        UpstreamKind::OpenaiCompatible => (VendorKind::OpenaiCompatible, None),
        UpstreamKind::Litellm => (VendorKind::Litellm, None),
        UpstreamKind::Scripted | UpstreamKind::Replay => return None,
    })
}

/// Returns a recorded session as an upstream, which gives each answer once.
fn recorded(config: &Config, name: &str, section: &UpstreamSection) -> Result<ReplayUpstream, Failure> {
    let key = format!("upstreams.{name}.session");
    let reference =
        section.session.as_deref().ok_or_else(|| config.invalid_value(&key, "kind `replay` needs a session"))?;
    let directory = host::data_dir(config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let session = index.find(reference)?.info.session_id;
    ReplayUpstream::open(&directory, &session, request_normalizer(config)?)
        .map_err(|error| Failure::from_error(ProblemCode::ReplayImpossible, &error))
}

/// Returns the normalizer for requests that are looked up in a recording.
pub(crate) fn request_normalizer(config: &Config) -> Result<RequestNormalizer, Failure> {
    let normal = RequestNormalizer::new(&config.file.replay.ignore);
    let normal =
        normal.map_err(|error| config.invalid_value("replay.ignore", &error.to_string()).because(&error.source))?;
    Ok(match config.file.record.content {
        ContentWord::Redacted => normal.with_redaction(host::redaction(config)?),
        ContentWord::Full | ContentWord::None => normal,
    })
}

fn scripted(config: &Config, script: Option<&Path>) -> Result<ScriptedUpstream, Failure> {
    let invalid =
        |error: &gateway::ModelScriptError| Failure::from_error(ProblemCode::ConfigInvalid, error).help("viv demo");
    let Some(path) = script else { return ScriptedUpstream::demo().map_err(|error| invalid(&error)) };
    let path = config.path(path);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::new(ProblemCode::ConfigInvalid, format!("cannot read the script `{}`", path.display()))
            .because(&error)
            .help(format!("ls -l {}", shell_word(&path.to_string_lossy())))
    })?;
    ModelScript::parse(&text).map(ScriptedUpstream::new).map_err(|error| invalid(&error))
}
