//! A program's own way to agents: configured once, then given goals.
//!
//! The same sessions, sandboxes, gateway and records as `viv run` and `viv serve`: what a client starts is seen by
//! `viv sessions` of the same data directory.
//!
//! Not here: what an agent is told (`agents`), where it runs (`sandbox`), what it may do (`policy`).

mod builder;
mod conversation;
mod failure;
mod goal;
mod reading;
mod response;
mod terms;

use std::sync::Arc;

use protocol::{CreateSession, SessionId};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{SessionError, SessionOptions, Sessions};

pub use builder::{AgentClientBuilder, BuildError, SandboxChoice};
pub use conversation::{Conversation, ConversationBuilder};
pub use failure::{GoalError, TurnFailure};
pub use goal::Goal;
pub use reading::TurnReader;
pub use response::AgentResponse;
pub use terms::PermissionResponder;

use terms::Terms;

/// Runs goals with one agent, one policy and one model behind the gateway. Cheap to clone: all clones are the same.
///
/// Unless another sandbox was named it is the first that works of the jail, Podman and Docker; where none works, goals
/// fail and say what is missing. Success is what the agent itself says of its turn.
///
/// # Examples
///
/// One goal, with the agent `mock` and the built-in model. The first line is only needed for the mock, which lives in
/// the program that uses it; every other agent is installed with `viv agents install`.
///
/// ```standalone_crate
/// use session::AgentClient;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if std::env::args().nth(1).as_deref() == Some("__agent") { return live_as_mock(); }
///     let data = tempfile::tempdir()?;
///     // Before anything starts a thread: the sandbox's spawner is forked here.
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
/// # fn live_as_mock() -> Result<(), Box<dyn std::error::Error>> {
/// #     let settings = mock::Settings::parse(std::env::args().skip(3), |name| std::env::var(name).ok())?;
/// #     mock::main(settings, std::io::stdin(), std::io::stdout());
/// #     Ok(())
/// # }
/// ```
///
/// Claude on a repository, heard while it works, against a server of one's own:
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use gateway::{Vendor, VendorConfig, VendorKind};
/// use secret::Secret;
/// use session::{AgentClient, Failure, GoalError, Permissions};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let mut vendor = VendorConfig::new("mine", VendorKind::OpenaiCompatible, "https://models.example.com/v1");
///     vendor.key = Some(Secret::new("the key stays outside the sandbox".to_owned()));
///     // Before there is a runtime, whose threads would keep the sandbox's spawner from being forked.
///     let client = AgentClient::builder()
///         .agent("claude")
///         .data_dir("/home/you/.local/share/viv")
///         .upstream(Arc::new(Vendor::new(vendor)?))
///         .build()?;
///     tokio::runtime::Runtime::new()?.block_on(fix(client))
/// }
///
/// async fn fix(client: AgentClient) -> Result<(), Box<dyn std::error::Error>> {
///     let outcome = client
///         .goal("Make the tests pass.")
///         .workspace("/home/you/project")
///         .model("claude-sonnet-4-5")
///         .permissions(Permissions::Allow)
///         .timeout(Duration::from_secs(600))
///         .retries(2)
///         .on_event(|event| println!("{}", event.draft.body.kind()))
///         .run()
///         .await;
///     match outcome {
///         Ok(response) => println!("{} · changed {:?}", response.text, response.changes.modified),
///         Err(GoalError::Failed { failure: Failure::TimedOut(limit), .. }) => eprintln!("not done in {limit:?}"),
///         Err(error) => return Err(error.into()),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct AgentClient {
    inner: Arc<Inner>,
}

struct Inner {
    sessions: Sessions,
    agent: String,
    options: SessionOptions,
    /// What a host that was killed left behind is put in order once, before the first session.
    recovered: OnceCell<()>,
}

impl AgentClient {
    /// Begins to configure a client.
    pub fn builder() -> AgentClientBuilder {
        AgentClientBuilder::default()
    }

    /// A client over sessions that a host has opened, and put in order, before.
    pub fn from_sessions(sessions: Sessions, agent: impl Into<String>, options: SessionOptions) -> Self {
        let recovered = OnceCell::new_with(Some(()));
        Self { inner: Arc::new(Inner { sessions, agent: agent.into(), options, recovered }) }
    }

    /// One prompt in a session of its own, which ends with its turn.
    pub fn goal(&self, text: impl Into<String>) -> Goal {
        Goal::new(self.clone(), text.into())
    }

    /// A session of several turns.
    pub fn conversation(&self) -> ConversationBuilder {
        ConversationBuilder::new(self.clone())
    }

    /// The sessions behind it, with everything the session API can do.
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// Ends every agent this client started. The records stay.
    pub async fn close(&self) {
        self.inner.sessions.close_all().await;
    }

    async fn open(&self, terms: Terms) -> Result<Conversation, SessionError> {
        let sessions = &self.inner.sessions;
        self.inner.recovered.get_or_try_init(|| async { sessions.recover().await.map(drop) }).await?;
        let id = terms.id.clone().map_or_else(new_id, Ok)?;
        let request = CreateSession {
            agent: self.inner.agent.clone(),
            agent_version: terms.agent_version.clone(),
            model: terms.model.clone(),
            upstream: terms.upstream.clone(),
            permission_mode: terms.permission_mode.clone(),
            mcp: terms.mcp.clone(),
            skills: terms.skills.clone(),
            directory: terms.workspace.as_ref().map(|path| path.to_string_lossy().into_owned()),
            ..CreateSession::default()
        };
        let options = SessionOptions { task_name: terms.task_name.clone(), ..self.inner.options.clone() };
        sessions.create(id.clone(), request, options).await?;
        Ok(Conversation::new(self.inner.sessions.clone(), id, terms))
    }
}

fn new_id() -> Result<SessionId, SessionError> {
    // An id of ours is always one; were it not, nothing could be started.
    SessionId::new(format!("ses_{}", Uuid::now_v7().simple())).map_err(|_| SessionError::ShuttingDown)
}
