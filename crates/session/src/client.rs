//! A client for programs that run agents: configured once, then given goals.
//!
//! It uses the same sessions, sandboxes, gateway and journals as `viv run` and `viv serve`, so `viv sessions` lists the
//! sessions of a client in the same data directory.

mod builder;
mod conversation;
mod failure;
mod goal;
mod response;
mod run_options;
mod turn_reader;

use std::sync::Arc;

use protocol::{CreateSession, SessionId};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{SessionError, SessionOptions, Sessions};

pub use builder::{AgentClientBuilder, BuildError, SandboxChoice};
pub use conversation::{Conversation, ConversationBuilder};
pub use failure::{GoalError, TurnFailure};
pub use goal::Goal;
pub use response::AgentResponse;
pub use run_options::PermissionResponder;
pub use turn_reader::TurnReader;

use run_options::RunOptions;

/// Runs goals with one agent, one policy and one upstream. Clones share the same sessions.
///
/// The default sandbox is the first that works of the jail, Podman and Docker. If none works, goals fail and say what is
/// missing. Success is the outcome that the agent itself reports.
///
/// # Examples
///
/// One goal with the agent `mock` and the scripted model. Only the mock agent needs the first line, because it is part
/// of the program; other agents are installed with `viv agents install`.
///
/// ```standalone_crate
/// use session::AgentClient;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if std::env::args().nth(1).as_deref() == Some("__agent") { return run_mock_agent(); }
///     let data = tempfile::tempdir()?;
///     // Built before the first thread, because this forks the sandbox's spawner.
///     let client = AgentClient::builder()
///         .agent("mock")
///         .data_dir(data.path())
///         .mock_program(std::env::current_exe()?)
///         .build()?;
///     tokio::runtime::Runtime::new()?.block_on(async {
///         let response = client.goal("say hello").run().await?;
///         println!("{} · {} events · ${}", response.text, response.events.len(), response.cost_usd());
///         assert!(response.is_success());
///         client.close().await;
///         Ok(())
///     })
/// }
/// # fn run_mock_agent() -> Result<(), Box<dyn std::error::Error>> {
/// #     let settings = mock::MockSettings::parse(std::env::args().skip(3), |name| std::env::var(name).ok())?;
/// #     mock::main(settings, std::io::stdin(), std::io::stdout());
/// #     Ok(())
/// # }
/// ```
///
/// Claude on a repository, with a callback for events and an OpenAI-compatible upstream:
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use gateway::{VendorConfig, VendorKind, VendorUpstream};
/// use secret::Secret;
/// use session::{AgentClient, GoalError, PermissionResponder, TurnFailure};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let mut vendor = VendorConfig::new("mine", VendorKind::OpenaiCompatible, "https://models.example.com/v1");
///     vendor.key = Some(Secret::new("the key stays outside the sandbox".to_owned()));
///     // Built before the runtime, whose threads would keep the spawner from being forked.
///     let client = AgentClient::builder()
///         .agent("claude")
///         .data_dir("/home/you/.local/share/viv")
///         .upstream(Arc::new(VendorUpstream::new(vendor)?))
///         .build()?;
///     tokio::runtime::Runtime::new()?.block_on(fix(client))
/// }
///
/// async fn fix(client: AgentClient) -> Result<(), Box<dyn std::error::Error>> {
///     let outcome = client
///         .goal("Make the tests pass.")
///         .workspace("/home/you/project")
///         .model("claude-sonnet-4-5")
///         .permissions(PermissionResponder::Allow)
///         .timeout(Duration::from_secs(600))
///         .retries(2)
///         .on_event(|event| println!("{}", event.draft.body.kind()))
///         .run()
///         .await;
///     match outcome {
///         Ok(response) => println!("{} · changed {:?}", response.text, response.changes.modified),
///         Err(GoalError::Failed { failure: TurnFailure::TimedOut(limit), .. }) => eprintln!("not done in {limit:?}"),
///         Err(error) => return Err(error.into()),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct AgentClient {
    inner: Arc<ClientState>,
}

struct ClientState {
    sessions: Sessions,
    agent: String,
    options: SessionOptions,
    /// Set when sessions of dead hosts were recovered, before the first session.
    recovered: OnceCell<()>,
}

impl AgentClient {
    /// Returns a builder.
    pub fn builder() -> AgentClientBuilder {
        AgentClientBuilder::default()
    }

    /// Returns a client of sessions that the caller has opened and recovered.
    pub fn from_sessions(sessions: Sessions, agent: impl Into<String>, options: SessionOptions) -> Self {
        let recovered = OnceCell::new_with(Some(()));
        Self { inner: Arc::new(ClientState { sessions, agent: agent.into(), options, recovered }) }
    }

    /// Returns a goal: one prompt in a session of its own, which ends with the turn.
    pub fn goal(&self, text: impl Into<String>) -> Goal {
        Goal::new(self.clone(), text.into())
    }

    /// Returns a builder of a session of several turns.
    pub fn conversation(&self) -> ConversationBuilder {
        ConversationBuilder::new(self.clone())
    }

    /// Returns the sessions of this client.
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// Kills every agent of this client. The journals stay.
    pub async fn close(&self) {
        self.inner.sessions.close_all().await;
    }

    async fn open(&self, options: RunOptions) -> Result<Conversation, SessionError> {
        let sessions = &self.inner.sessions;
        self.inner.recovered.get_or_try_init(|| async { sessions.recover().await.map(drop) }).await?;
        let id = options.id.clone().map_or_else(new_id, Ok)?;
        let request = CreateSession {
            agent: self.inner.agent.clone(),
            agent_version: options.agent_version.clone(),
            model: options.model.clone(),
            upstream: options.upstream.clone(),
            permission_mode: options.permission_mode.clone(),
            mcp: options.mcp.clone(),
            skills: options.skills.clone(),
            directory: options.workspace.as_ref().map(|path| path.to_string_lossy().into_owned()),
            ..CreateSession::default()
        };
        let session_options = SessionOptions { task_name: options.task_name.clone(), ..self.inner.options.clone() };
        sessions.create(id.clone(), request, session_options).await?;
        Ok(Conversation::new(self.inner.sessions.clone(), id, options))
    }
}

fn new_id() -> Result<SessionId, SessionError> {
    // A generated id is always valid.
    SessionId::new(format!("ses_{}", Uuid::now_v7().simple())).map_err(|_| SessionError::ShuttingDown)
}
