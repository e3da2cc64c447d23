//! The plan of a session: its checked settings, before anything is started.

mod effective_policy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::{Agent, LaunchContext, McpServers, PlacedFile, ReadOnlyMount};
use base::{DEPENDENCIES, WORKSPACE};
use policy::EffectivePolicy;
use protocol::{CreateSession, INTERACTIVE, SessionId, SessionStarted, TerminalStart};
use sandbox::{MODEL_URL, SandboxBackend, SandboxSpec};
use serde_json::{Map, Value};
use store::{NewSession, OwnerId, SessionOrigin, SessionRecord};
use uuid::Uuid;

use crate::config::{AgentRegistry, RegisteredAgent, refuse_reserved};
use crate::lifecycle::create_request::{permission_mode, refuse_unsupported};
use crate::lifecycle::policy_change::narrowed;
use crate::lifecycle::start_metadata::{ForkOrigin, StartMetadata};
use crate::lifecycle::{SessionHost, SessionPolicyChange};
use crate::skills::SkillSources;
use crate::{HostVariables, SessionError, SessionOptions, WorkspaceAccess};

/// The agent name in the index of a session without an agent.
pub(crate) const NO_AGENT: &str = "none";

/// The checked settings of a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionPlan {
    pub(crate) id: SessionId,
    pub(crate) agent: String,
    /// The agent version that created the session; the same version resumes it.
    pub(crate) agent_version: Option<String>,
    pub(crate) agent_mode: Option<String>,
    pub(crate) permission_mode: Option<String>,
    pub(crate) model: Option<String>,
    /// The name of the upstream; the host's default when absent.
    pub(crate) upstream: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) metadata: Option<Map<String, Value>>,
    pub(crate) directory: Option<PathBuf>,
    /// The path of the directory inside the sandbox, as the session was created with.
    pub(crate) workspace_at: PathBuf,
    pub(crate) options: SessionOptions,
    /// How many times the agent was started, this start included.
    pub(crate) epoch: u32,
    pub(crate) native_session_id: Option<String>,
    pub(crate) mcp: McpServers,
    pub(crate) skills: SkillSources,
    /// The session from whose state this one starts.
    pub(crate) forked_from: Option<ForkOrigin>,
    /// Whether the session continues one that has ended, with its changes, instead of forking it.
    pub(crate) continues: bool,
    /// The policy at the start, without later changes.
    pub(crate) policy: Arc<EffectivePolicy>,
    /// The rules by which the caller narrowed the policy.
    pub(crate) rules: Vec<String>,
    /// Additional variables of the agent.
    pub(crate) environment: BTreeMap<String, String>,
    /// Changes of the network policy, oldest first.
    pub(crate) policy_changes: Vec<SessionPolicyChange>,
    /// Digest of the policy under which the session was created.
    pub(crate) policy_digest: String,
    /// Whether the session is a finished replay, which has no model to continue with.
    pub(crate) was_replay: bool,
    /// The terminal of an interactive session.
    pub(crate) terminal: Option<TerminalStart>,
}

impl SessionPlan {
    /// Returns the plan for a request. Starts and stores nothing. Fails for a request that the agent or the host cannot
    /// fulfil.
    pub(crate) fn check(
        host: &SessionHost,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let mut plan = Self::read(host, id, request, options)?;
        let registered = plan.registered_agent(&host.config.agents)?;
        plan.check_agent_support(host, registered.agent)?;
        // Fails for unsupported modes before a sandbox is created.
        let launch = plan.launch_plan(&registered, String::new())?;
        if plan.environment.keys().any(|name| launch.env.contains_key(name)) {
            let why = "a variable has a name that viv sets for this agent";
            return Err(SessionError::NotSupported { field: "environment", why });
        }
        plan.agent_version = registered.version;
        Ok(plan)
    }

    /// Returns the plan for a command session, which needs no agent.
    pub(crate) fn check_commands(
        host: &SessionHost,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        if request.mcp.as_ref().is_some_and(|servers| !servers.is_empty()) {
            let why = "commands pass their own arguments to agents";
            return Err(SessionError::NotSupported { field: "mcp", why });
        }
        if !request.agent.is_empty() {
            return Self::check(host, id, request, options);
        }
        if request.skills.as_ref().is_some_and(|skills| !skills.is_null()) {
            return Err(SessionError::NotSupported {
                field: "skills",
                why: "the session has no agent that could use them",
            });
        }
        Self::read(host, id, CreateSession { agent: NO_AGENT.to_owned(), ..request }, options)
    }

    fn check_agent_support(&self, host: &SessionHost, agent: &dyn Agent) -> Result<(), SessionError> {
        let refuse = |field, why| Err(SessionError::NotSupported { field, why });
        if !self.mcp.is_empty() && !agent.takes_mcp() {
            return refuse("mcp", "this agent does not support MCP servers for one session");
        }
        if !self.skills.is_empty() && agent.skill_root().is_none() {
            return refuse("skills", "this agent does not support skills for one session");
        }
        // Without a sandbox, skills would stay in the user's home.
        if !self.skills.is_empty() && host.config.backend.name() == "unconfined" {
            return refuse("skills", "skills need a sandbox");
        }
        Ok(())
    }

    fn read(
        host: &SessionHost,
        id: SessionId,
        mut request: CreateSession,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        refuse_unsupported(&request)?;
        if options.replay.is_none() {
            host.config.agent_defaults.complete(&mut request);
        }
        let permission_mode = permission_mode(&request)?;
        let data = host.store.directory();
        let workspace = |path: &str| options.workspaces.resolve(Path::new(path), data);
        let directory = request.directory.as_deref().map(workspace).transpose()?;
        let skills = SkillSources::read(request.skills)?;
        skills
            .host_directories()?
            .iter()
            .try_for_each(|directory| options.workspaces.resolve(directory, data).map(drop))?;
        let policy = match &options.policy {
            Some(policy) => host.hide_data_dir(policy.clone(), directory.as_deref())?,
            None => host.policy_in(directory.as_deref())?,
        };
        let policy = narrowed(policy, &request.policy)?;
        if let Some(name) = &request.upstream {
            host.config.upstreams.find(name)?;
        }
        let recorded = options.replay.as_ref().map(|replay| replay.workspace_at.clone());
        let workspace_at =
            recorded.unwrap_or_else(|| workspace_at(&*host.config.backend, directory.as_deref(), &policy));
        Ok(Self {
            workspace_at,
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
            rules: request.policy,
            environment: request.environment,
            labels: request.labels,
            metadata: request.metadata,
            directory,
            options,
            epoch: 1,
            native_session_id: None,
            was_replay: false,
            mcp: McpServers::read(&request.mcp.unwrap_or_default())?,
            skills,
            forked_from: None,
            continues: false,
            policy_changes: Vec::new(),
            terminal: request.terminal,
        })
    }

    /// Fails for a workspace that no session may use. Resumed sessions are checked again.
    pub(crate) fn check_workspace(&self, data_dir: &Path) -> Result<(), SessionError> {
        let Some(path) = &self.directory else { return Ok(()) };
        let canonical = path.canonicalize().map_err(|source| SessionError::Directory { path: path.clone(), source })?;
        let forbidden = |why| SessionError::DirectoryNotAllowed { path: path.clone(), why };
        refuse_reserved(&canonical, data_dir).map_err(forbidden)
    }

    /// Returns the specification of a new sandbox with these mounts and files.
    pub(crate) fn sandbox_spec(
        &self,
        variables: &HostVariables,
        mounts: Vec<ReadOnlyMount>,
        files: Vec<PlacedFile>,
    ) -> SandboxSpec {
        SandboxSpec {
            toolchains: variables.toolchains(self.directory.as_deref(), &self.policy),
            id: format!("sbx_{}", Uuid::now_v7().simple()),
            workspace: self.directory.clone(),
            workspace_at: self.workspace_at.clone(),
            mounts: mounts
                .into_iter()
                .map(|mount| (mount.source, PathBuf::from(mount.target)))
                .chain(self.options.dependencies.clone().map(|source| (source, PathBuf::from(DEPENDENCIES))))
                .collect(),
            files: files.into_iter().map(|file| (PathBuf::from(file.path), file.content.into_bytes())).collect(),
            policy: self.policy.clone(),
        }
    }

    /// Returns the plan of a session that ran before, from its index record and its `session.started` event.
    pub(crate) fn resume(host: &SessionHost, record: &SessionRecord, started: &SessionStarted) -> Self {
        let info = &record.info;
        let metadata = started.metadata.clone().unwrap_or_default();
        let metadata: StartMetadata = serde_json::from_value(metadata).unwrap_or_default();
        let directory = info.directory.clone().map(PathBuf::from);
        // A project policy that cannot be read is not the policy under which the session was created.
        let policy = host.policy_in(directory.as_deref());
        let (policy, policy_digest) = match policy.and_then(|policy| narrowed(policy, &metadata.rules)) {
            Ok(policy) => (policy, metadata.policy),
            Err(_) => (host.config.policy.clone(), String::new()),
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
            labels: info.labels.clone(),
            metadata: info.metadata.clone(),
            rules: metadata.rules,
            environment: metadata.environment,
            policy,
            directory,
            workspace_at: metadata.workspace.unwrap_or_else(|| WORKSPACE.into()),
            policy_digest,
            options: SessionOptions {
                account: metadata.account,
                user: metadata.user,
                task_name: metadata.task_name,
                dependencies: metadata.dependencies,
                workspaces: WorkspaceAccess::Any,
                ..SessionOptions::default()
            },
            was_replay: metadata.replay_of.is_some(),
            terminal: metadata.terminal,
            epoch: epoch_number(record),
            native_session_id: info.native_session_id.clone(),
            // Both were checked when the session was created.
            mcp: McpServers::read(&info.mcp.clone().unwrap_or_default()).unwrap_or_default(),
            skills: SkillSources::read(info.skills.clone()).unwrap_or_default(),
            forked_from: None,
            continues: false,
            policy_changes: Vec::new(),
        }
    }

    /// Returns the plan of a fork of this session.
    pub(crate) fn fork(&self, id: SessionId, title: Option<String>, sequence: u64) -> Self {
        let forked_from = Some(ForkOrigin { session_id: self.id.clone(), sequence });
        Self { id, title: title.or_else(|| self.title.clone()), epoch: 1, forked_from, ..self.clone() }
    }

    /// Returns the plan of a session that continues this one, which has ended.
    pub(crate) fn continuation(&self, id: SessionId, sequence: u64) -> Self {
        Self { continues: true, ..self.fork(id, None, sequence) }
    }

    /// Returns the installed agent of this plan; fails when the agent is unknown or not installed.
    pub(crate) fn registered_agent(&self, registry: &AgentRegistry) -> Result<RegisteredAgent, SessionError> {
        let version = self.agent_version.as_deref();
        registry.find(&self.agent, version).ok_or_else(|| match agents::by_name(&self.agent) {
            None => SessionError::UnknownAgent(self.agent.clone()),
            Some(agent) => SessionError::NotInstalled {
                agent: agent.id(),
                version: self.agent_version.clone().or_else(|| Some(agent.package()?.version.to_owned())),
            },
        })
    }

    /// Returns the settings from which the agent derives its launch plan.
    pub(crate) fn launch_context(&self, registered: &RegisteredAgent, token: String) -> LaunchContext {
        LaunchContext {
            epoch: self.epoch,
            gateway_url: MODEL_URL.to_owned(),
            token,
            model: self.model.clone(),
            agent_mode: self.agent_mode.clone(),
            permission_mode: self.permission_mode.clone(),
            native_session_id: self.native_session_id.clone(),
            program: registered.program.clone(),
            mcp: self.mcp.clone(),
            node: registered.node.clone(),
            workspace: self.workspace_at.to_str().map(str::to_owned),
        }
    }

    /// Returns the index row of the session.
    pub(crate) fn index_row(&self, owner: OwnerId) -> NewSession {
        let or_default = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "default".to_owned());
        NewSession {
            agent_mode: match self.terminal {
                Some(_) => INTERACTIVE.to_owned(),
                None => or_default(&self.agent_mode),
            },
            permission_mode: or_default(&self.permission_mode),
            model: self.model.clone(),
            directory: self.directory.as_ref().map(|path| path.to_string_lossy().into_owned()),
            title: self.title.clone(),
            labels: self.labels.clone(),
            metadata: self.metadata.clone(),
            account: self.options.account.clone(),
            user: self.options.user.clone(),
            token: self.options.token.clone(),
            mcp: (!self.mcp.is_empty()).then(|| serde_json::to_value(&self.mcp).ok()).flatten().and_then(as_map),
            skills: self.skills.to_json(),
            origin: if self.options.replay.is_some() { SessionOrigin::Replay } else { SessionOrigin::Started },
            ..NewSession::new(self.id.clone(), self.agent.clone(), owner)
        }
    }

    /// Returns the data of `session.started`.
    pub(crate) fn started_event(&self) -> SessionStarted {
        let metadata = StartMetadata {
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
            workspace: Some(self.workspace_at.clone()).filter(|path| path != Path::new(WORKSPACE)),
            dependencies: self.options.dependencies.clone(),
            replay_of: self.options.replay.as_ref().map(|replay| replay.of.clone()),
            forked_from: self.forked_from.clone().filter(|_| !self.continues),
            continues: self.forked_from.clone().filter(|_| self.continues),
            terminal: self.terminal.clone(),
            title: self.title.clone(),
            labels: self.labels.clone(),
            metadata: self.metadata.clone(),
            rules: self.rules.clone(),
            environment: self.environment.clone(),
        };
        SessionStarted { metadata: serde_json::to_value(metadata).ok() }
    }
}

/// Returns the path inside for a workspace at `directory` on the host.
pub(crate) fn workspace_at(
    backend: &dyn SandboxBackend,
    directory: Option<&Path>,
    policy: &EffectivePolicy,
) -> PathBuf {
    directory.map_or_else(|| PathBuf::from(WORKSPACE), |directory| backend.workspace_path(directory, policy))
}

/// Returns the epoch of an index record.
pub(crate) fn epoch_number(record: &SessionRecord) -> u32 {
    u32::try_from(record.epoch).unwrap_or(u32::MAX)
}

fn as_map(value: Value) -> Option<BTreeMap<String, Value>> {
    serde_json::from_value(value).ok()
}
