//! What a session is to be, checked before anything is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::{Agent, LaunchContext, McpServers, PlacedFile, ReadOnlyMount};
use base::DEPENDENCIES;
use policy::EffectivePolicy;
use protocol::{CreateSession, PolicyEffective, PolicySentence, SessionId, SessionStarted};
use sandbox::{MODEL_URL, Sandbox, SandboxSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{NewSession, OwnerId, SessionRecord};
use uuid::Uuid;

use crate::change::Change;
use crate::host::Host;
use crate::roster::{AgentRegistry, RegisteredAgent};
use crate::skills::Skills;
use crate::workspaces::refuse_own;
use crate::{SessionError, SessionOptions, WorkspaceAccess};

/// What stands in the list of sessions where there is no agent.
pub(crate) const NO_AGENT: &str = "none";

/// What a session is to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) id: SessionId,
    pub(crate) agent: String,
    /// The version it was made with; the same one resumes it.
    pub(crate) agent_version: Option<String>,
    pub(crate) agent_mode: Option<String>,
    pub(crate) permission_mode: Option<String>,
    pub(crate) model: Option<String>,
    /// The upstream it named; the host's usual one when there is none.
    pub(crate) upstream: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) options: SessionOptions,
    /// Which start of this session it is, from 1.
    pub(crate) epoch: u32,
    pub(crate) native_session_id: Option<String>,
    pub(crate) mcp: McpServers,
    pub(crate) skills: Skills,
    /// The session it goes on from, and how far that was.
    pub(crate) forked_from: Option<ForkedFrom>,
    /// What it may do now.
    pub(crate) policy: Arc<EffectivePolicy>,
    /// How what it may reach was changed while it ran, oldest first.
    pub(crate) changes: Vec<Change>,
    /// Digest of the policy it was made under.
    pub(crate) policy_digest: String,
    /// It was a replay: what its model had to say is gone, and another one must not speak in its place.
    pub(crate) replay_is_over: bool,
}

/// Where a fork begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForkedFrom {
    /// The session.
    pub(crate) session_id: SessionId,
    /// Number of its last event then.
    pub(crate) sequence: u64,
}

/// The metadata of `session.started`: what a resumed session must know again.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_version: Option<String>,
    pub(crate) agent_mode: Option<String>,
    pub(crate) permission_mode: Option<String>,
    pub(crate) model: Option<String>,
    /// The upstream it named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upstream: Option<String>,
    /// Digest of the policy it was made under: it never goes on under another.
    pub(crate) policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dependencies: Option<PathBuf>,
    /// The recorded session it plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_of: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<ForkedFrom>,
}

impl Plan {
    /// Checks a request; nothing is started and nothing is kept.
    pub(crate) fn check(
        host: &Host,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let mut plan = Self::read(host, id, request, options)?;
        let enlisted = plan.enlisted(&host.roster)?;
        plan.refuse_what_agent_lacks(host, enlisted.agent)?;
        // Modes the agent cannot keep are told here, before there is a sandbox.
        enlisted.agent.plan(&plan.context(&enlisted, String::new()))?;
        plan.agent_version = enlisted.version;
        Ok(plan)
    }

    /// The same for a session of commands, which needs no agent.
    pub(crate) fn check_commands(
        host: &Host,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        if request.mcp.as_ref().is_some_and(|servers| !servers.is_empty()) {
            let why = "commands start agents with arguments of their own";
            return Err(SessionError::NotSupported { field: "mcp", why });
        }
        if !request.agent.is_empty() {
            return Self::check(host, id, request, options);
        }
        if request.skills.as_ref().is_some_and(|skills| !skills.is_null()) {
            return Err(SessionError::NotSupported { field: "skills", why: "there is no agent that could use them" });
        }
        Self::read(host, id, CreateSession { agent: NO_AGENT.to_owned(), ..request }, options)
    }

    fn refuse_what_agent_lacks(&self, host: &Host, agent: &dyn Agent) -> Result<(), SessionError> {
        let refuse = |field, why| Err(SessionError::NotSupported { field, why });
        if !self.mcp.is_empty() && !agent.takes_mcp() {
            return refuse("mcp", "this agent takes no MCP servers for one session");
        }
        if !self.skills.is_empty() && agent.skill_root().is_none() {
            return refuse("skills", "this agent has no place for skills of one session");
        }
        // Without a wall the agent's home is nobody's, and what is put there would stay.
        if !self.skills.is_empty() && host.backend.name() == "unconfined" {
            return refuse("skills", "without a sandbox there is no place for skills of one session");
        }
        Ok(())
    }

    fn read(host: &Host, id: SessionId, request: CreateSession, options: SessionOptions) -> Result<Self, SessionError> {
        refuse_unkept(&request)?;
        let permission_mode = permission_mode(&request)?;
        let data = host.shelf.directory();
        let workspace = |path: &str| options.workspaces.resolve(Path::new(path), data);
        let directory = request.directory.as_deref().map(workspace).transpose()?;
        let skills = Skills::read(request.skills)?;
        skills.here()?.iter().try_for_each(|place| options.workspaces.resolve(place, data).map(drop))?;
        let policy = match &options.policy {
            Some(policy) => host.hide_data(policy.clone(), directory.as_deref())?,
            None => host.policy_in(directory.as_deref())?,
        };
        if let Some(name) = &request.upstream {
            host.upstreams.find(name)?;
        }
        Ok(Self {
            policy_digest: policy.digest().to_owned(),
            policy,
            id,
            agent: request.agent,
            agent_version: request.agent_version,
            agent_mode: request.agent_mode,
            permission_mode,
            model: request.model,
            upstream: request.upstream,
            title: request.title,
            directory,
            options,
            epoch: 1,
            native_session_id: None,
            replay_is_over: false,
            mcp: McpServers::read(&request.mcp.unwrap_or_default())?,
            skills,
            forked_from: None,
            changes: Vec::new(),
        })
    }

    /// Refuses a workspace that no session has, also where it was named before that was a rule.
    pub(crate) fn refuse_own(&self, data_dir: &Path) -> Result<(), SessionError> {
        let Some(path) = &self.directory else { return Ok(()) };
        let there = path.canonicalize().map_err(|source| SessionError::Directory { path: path.clone(), source })?;
        let forbidden = |why| SessionError::DirectoryNotAllowed { path: path.clone(), why };
        refuse_own(&there, data_dir).map_err(forbidden)
    }

    /// A new sandbox for this plan, with what an agent needs in it.
    pub(crate) fn sandbox(&self, mounts: Vec<ReadOnlyMount>, files: Vec<PlacedFile>) -> SandboxSpec {
        SandboxSpec {
            id: format!("sbx_{}", Uuid::now_v7().simple()),
            workspace: self.directory.clone(),
            mounts: mounts
                .into_iter()
                .map(|mount| (mount.source, PathBuf::from(mount.target)))
                .chain(self.options.dependencies.clone().map(|source| (source, PathBuf::from(DEPENDENCIES))))
                .collect(),
            files: files.into_iter().map(|file| (PathBuf::from(file.path), file.content.into_bytes())).collect(),
            policy: self.policy.clone(),
        }
    }

    /// What `sandbox` keeps of the policy, and what that lets the session do.
    pub(crate) fn effective(&self, host: &Host, sandbox: &dyn Sandbox) -> PolicyEffective {
        self.effective_at(host.shelf.now_unix_secs(), host.backend.name(), sandbox.effective())
    }

    /// Returns the `policy.effective` event for a sandbox of `backend` that enforces `keys`.
    pub(crate) fn effective_at(&self, unix_secs: u64, backend: &str, mut keys: Value) -> PolicyEffective {
        let changed = (!self.changes.is_empty()).then(|| self.policy_at(unix_secs));
        let now = changed.as_ref().unwrap_or(&self.policy);
        let sentences = policy::explain(now).iter().map(|sentence| PolicySentence {
            text: sentence.text.clone(),
            layer: sentence.layer.to_string(),
            rule: sentence.rule.location(),
        });
        if let Some(net) = keys.get_mut("net").and_then(Value::as_object_mut) {
            let policy::NetPolicy { enabled, allowlist, intercept, .. } = now.net();
            net.insert("value".to_owned(), json!({"enabled": enabled, "allowlist": allowlist, "intercept": intercept}));
        }
        if let Some(keys) = keys.as_object_mut() {
            // Agents ask about calls by rules of their own: what they do not ask about is not seen.
            let by = "the session refuses what an agent asks about; what it does unasked is not judged";
            keys.insert("tools".to_owned(), json!({"state": "weaker", "by": by}));
        }
        PolicyEffective { backend: backend.to_owned(), keys, sentences: sentences.collect() }
    }

    /// What it may do at a time: the policy it was made under, with every change since.
    pub(crate) fn policy_at(&self, unix_secs: u64) -> EffectivePolicy {
        let policy = (*self.policy).clone();
        self.changes.iter().filter(|change| change.holds_at(unix_secs)).fold(policy, |policy, change| change.on(policy))
    }

    /// A session that ran before, from what is on record.
    pub(crate) fn resume(host: &Host, record: &SessionRecord, started: &SessionStarted) -> Self {
        let info = &record.info;
        let metadata = started.metadata.clone().unwrap_or_default();
        let metadata: Metadata = serde_json::from_value(metadata).unwrap_or_default();
        let directory = info.directory.clone().map(PathBuf::from);
        // Where the directory says what cannot be used, that is not what the session was made under.
        let (policy, policy_digest) = match host.policy_in(directory.as_deref()) {
            Ok(policy) => (policy, metadata.policy),
            Err(_) => (host.policy.clone(), String::new()),
        };
        Self {
            id: info.session_id.clone(),
            agent: info.agent.clone(),
            agent_version: metadata.agent_version,
            agent_mode: metadata.agent_mode,
            permission_mode: metadata.permission_mode,
            model: info.model.clone(),
            upstream: metadata.upstream,
            title: info.title.clone(),
            policy,
            directory,
            policy_digest,
            options: SessionOptions {
                policy: None,
                account: metadata.account,
                user: metadata.user,
                task_name: metadata.task_name,
                dependencies: metadata.dependencies,
                replay: None,
                normal: None,
                workspaces: WorkspaceAccess::Any,
            },
            replay_is_over: metadata.replay_of.is_some(),
            epoch: epoch(record),
            native_session_id: info.native_session_id.clone(),
            // They were read when the session was made.
            mcp: McpServers::read(&info.mcp.clone().unwrap_or_default()).unwrap_or_default(),
            skills: Skills::read(info.skills.clone()).unwrap_or_default(),
            forked_from: None,
            changes: Vec::new(),
        }
    }

    /// A new session that goes on where this one stands.
    pub(crate) fn fork(&self, id: SessionId, title: Option<String>, sequence: u64) -> Self {
        let forked_from = Some(ForkedFrom { session_id: self.id.clone(), sequence });
        Self { id, title: title.or_else(|| self.title.clone()), epoch: 1, forked_from, ..self.clone() }
    }

    pub(crate) fn enlisted(&self, roster: &AgentRegistry) -> Result<RegisteredAgent, SessionError> {
        let version = self.agent_version.as_deref();
        roster.find(&self.agent, version).ok_or_else(|| match agents::by_name(&self.agent) {
            None => SessionError::UnknownAgent(self.agent.clone()),
            Some(agent) => SessionError::NotInstalled {
                agent: agent.id(),
                version: self.agent_version.clone().or_else(|| Some(agent.package()?.version.to_owned())),
            },
        })
    }

    /// What the agent is told.
    pub(crate) fn context(&self, enlisted: &RegisteredAgent, token: String) -> LaunchContext {
        LaunchContext {
            epoch: self.epoch,
            gateway_url: MODEL_URL.to_owned(),
            token,
            model: self.model.clone(),
            agent_mode: self.agent_mode.clone(),
            permission_mode: self.permission_mode.clone(),
            native_session_id: self.native_session_id.clone(),
            program: enlisted.program.clone(),
            mcp: self.mcp.clone(),
            node: enlisted.node.clone(),
        }
    }

    /// What the index keeps.
    pub(crate) fn entry(&self, owner: OwnerId) -> NewSession {
        let or_default = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "default".to_owned());
        NewSession {
            agent_mode: or_default(&self.agent_mode),
            permission_mode: or_default(&self.permission_mode),
            model: self.model.clone(),
            directory: self.directory.as_ref().map(|path| path.to_string_lossy().into_owned()),
            title: self.title.clone(),
            mcp: (!self.mcp.is_empty()).then(|| serde_json::to_value(&self.mcp).ok()).flatten().and_then(as_map),
            skills: self.skills.written(),
            ..NewSession::new(self.id.clone(), self.agent.clone(), owner)
        }
    }

    /// What `session.started` says.
    pub(crate) fn started(&self) -> SessionStarted {
        let metadata = Metadata {
            agent: self.agent.clone(),
            agent_version: self.agent_version.clone(),
            agent_mode: self.agent_mode.clone(),
            permission_mode: self.permission_mode.clone(),
            model: self.model.clone(),
            upstream: self.upstream.clone(),
            policy: self.policy_digest.clone(),
            account: self.options.account.clone(),
            user: self.options.user.clone(),
            task_name: self.options.task_name.clone(),
            dependencies: self.options.dependencies.clone(),
            replay_of: self.options.replay.as_ref().map(|rerun| rerun.of.clone()),
            forked_from: self.forked_from.clone(),
        };
        SessionStarted { metadata: serde_json::to_value(metadata).ok() }
    }
}

/// The epoch of a record, as agents count it.
pub(crate) fn epoch(record: &SessionRecord) -> u32 {
    u32::try_from(record.epoch).unwrap_or(u32::MAX)
}

/// What nothing here would keep is refused: a session that silently lacks a tool is worse than none.
fn refuse_unkept(request: &CreateSession) -> Result<(), SessionError> {
    if request.variant.is_some() {
        let why = "no agent here has variants of a model";
        return Err(SessionError::NotSupported { field: "variant", why });
    }
    Ok(())
}

fn as_map(value: Value) -> Option<BTreeMap<String, Value>> {
    serde_json::from_value(value).ok()
}

/// The agent's own mode is a permission mode under another name: `plan` changes nothing.
fn permission_mode(request: &CreateSession) -> Result<Option<String>, SessionError> {
    match (request.agent_mode.as_deref(), &request.permission_mode) {
        (None | Some("default"), mode) => Ok(mode.clone()),
        (Some("plan"), None) => Ok(Some("plan".to_owned())),
        (Some("plan"), Some(mode)) if mode == "plan" => Ok(Some("plan".to_owned())),
        _ => Err(SessionError::NotSupported { field: "agentMode", why: "an agent's modes are `default` and `plan`" }),
    }
}
