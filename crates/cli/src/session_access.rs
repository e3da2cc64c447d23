//! Access to sessions: in the server of this data directory if one answers, else in this process.
//!
//! Both store sessions in the same place and behave the same for the caller.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use ::policy::EffectivePolicy;
use hyper::Method;
use jail::Spawner;
use protocol::{CreateSession, Event, PermissionId, PermissionReply, ProblemCode, QuestionId, SessionId, SessionInfo};
use session::{SessionOptions, UserMessage, ViewerAccess};
use store::JournalTail;

use crate::client::{ApiClient, EventStream};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::served_sessions::ServedSessions;
use crate::terminal::TerminalLink;

/// The caller that answers requests of a session in this process, as other terminals read it.
const STARTER: &str = "the program that started the session";

/// Access to sessions in this process or in a server.
pub(crate) enum SessionAccess {
    /// Sessions in this process.
    Local(Box<LocalSessions>),
    /// Sessions in the server.
    Remote(ApiClient),
}

/// Sessions of this process.
pub(crate) struct LocalSessions {
    served: ServedSessions,
    /// Account, user and policy of new sessions.
    options: SessionOptions,
}

impl SessionAccess {
    /// Returns access to the server if one answers, else to this process.
    pub(crate) async fn open(config: &Config, policy: Arc<EffectivePolicy>, spawner: Spawner) -> Result<Self, Failure> {
        // A server has its own upstream and sandbox backend.
        if config.env_upstream.is_none()
            && config.backend.is_none()
            && let Some(client) = ApiClient::connect(&host::data_dir(config)?).await
        {
            return Ok(Self::Remote(client));
        }
        Self::local(config, policy, spawner).await
    }

    /// Returns access to this process even if a server answers, because the server's sessions have its policy, not `policy`.
    pub(crate) async fn local(
        config: &Config,
        policy: Arc<EffectivePolicy>,
        spawner: Spawner,
    ) -> Result<Self, Failure> {
        let directory = host::data_dir(config)?;
        let options = SessionOptions { policy: Some(policy.clone()), ..host::options(config) };
        let sessions = host::open_sessions(config, policy, spawner).await?;
        let served = ServedSessions::open(sessions, &directory);
        Ok(Self::Local(Box::new(LocalSessions { served, options })))
    }

    /// Creates a session.
    pub(crate) async fn create(&self, id: &SessionId, request: CreateSession) -> Result<SessionInfo, Failure> {
        match self {
            Self::Local(local) => Ok(local.served.sessions.create(id.clone(), request, local.options.clone()).await?),
            Self::Remote(client) => client.create(id, &request).await,
        }
    }

    /// Sends a prompt to a session.
    pub(crate) async fn send(&self, id: &SessionId, text: &str) -> Result<(), Failure> {
        match self {
            Self::Local(local) => {
                local.served.sessions.send(id, UserMessage::text(text)).await?;
                Ok(())
            }
            Self::Remote(client) => client.send(id, text).await,
        }
    }

    /// Returns the events of a session after the sequence number `after`.
    pub(crate) async fn follow(&self, id: &SessionId, after: u64) -> Result<EventSource, Failure> {
        Ok(match self {
            Self::Local(local) => {
                EventSource::Local(JournalTail::new(Arc::clone(&local.served.sessions.journal(id)?), after))
            }
            Self::Remote(client) => EventSource::Remote(client.events_after(id, after).await?),
        })
    }

    /// Opens the terminal of an interactive session.
    pub(crate) async fn terminal(&self, id: &SessionId, access: ViewerAccess) -> Result<TerminalLink, Failure> {
        match self {
            Self::Local(local) => Ok(TerminalLink::Local(local.served.sessions.view_terminal(id, access)?)),
            Self::Remote(client) => TerminalLink::connect(client, id).await,
        }
    }

    /// Returns the sequence number of the last event of a session.
    pub(crate) async fn last_event(&self, id: &SessionId) -> Result<u64, Failure> {
        match self {
            Self::Local(local) => Ok(local.served.sessions.get(id)?.event_count),
            Self::Remote(client) => {
                let info = client.json(Method::GET, &format!("/v1/sessions/{id}"), None).await?;
                Ok(info["eventCount"].as_u64().unwrap_or(0))
            }
        }
    }

    /// Creates the session `new`, which continues the session `id` that has ended.
    pub(crate) async fn continue_ended(&self, id: &SessionId, new: &SessionId) -> Result<SessionInfo, Failure> {
        match self {
            Self::Local(local) => {
                let policy = local.options.policy.clone();
                Ok(local.served.sessions.continue_ended(id, new.clone(), policy).await?)
            }
            Self::Remote(client) => client.fork(id, new).await,
        }
    }

    /// Answers a permission request.
    pub(crate) async fn reply(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        reply: PermissionReply,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(local) => {
                let caller = Some(STARTER.to_owned());
                Ok(local.served.sessions.reply_permission_as(id, permission, reply, caller).await?)
            }
            Self::Remote(client) => client.reply(id, permission, reply).await,
        }
    }

    /// Answers a question, or rejects it without answers.
    pub(crate) async fn answer(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Failure> {
        match (self, answers) {
            (Self::Local(local), answers) => {
                let caller = Some(STARTER.to_owned());
                Ok(local.served.sessions.resolve_question_as(id, question, answers, caller).await?)
            }
            (Self::Remote(client), answers) => client.answer(id, question, answers).await,
        }
    }

    /// Ends a session.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), Failure> {
        match self {
            Self::Local(local) => Ok(local.served.sessions.terminate(id).await?),
            Self::Remote(client) => client.terminate(id).await,
        }
    }

    /// Ends a session if it runs, and deletes it.
    pub(crate) async fn delete(&self, id: &SessionId) -> Result<(), Failure> {
        match self {
            Self::Local(local) => Ok(local.served.sessions.delete(id).await?),
            Self::Remote(client) => client.call(Method::DELETE, &format!("/v1/sessions/{id}"), None).await.map(drop),
        }
    }

    /// Writes the bundle of a session to `to`.
    pub(crate) async fn export(&self, id: &SessionId, to: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Local(local) => {
                let mut bundle = local.served.sessions.export(id).await?;
                std::io::copy(&mut bundle, to).map(drop).map_err(|error| Failure::output_failed(&error))
            }
            Self::Remote(client) => client.copy(&format!("/v1/sessions/{id}/export"), to).await,
        }
    }

    /// Imports a session from a bundle, with its own id or `new_id`.
    pub(crate) async fn import(&self, file: File, new_id: Option<SessionId>) -> Result<SessionInfo, Failure> {
        match self {
            Self::Local(local) => Ok(local.served.sessions.import(file, new_id).await?),
            Self::Remote(client) => {
                let mut bytes = Vec::new();
                let mut file = file;
                file.read_to_end(&mut bytes)
                    .map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error))?;
                let query = new_id.map(|id| format!("?as={id}")).unwrap_or_default();
                let info = client.upload(&format!("/v1/import{query}"), bytes.into()).await?;
                serde_json::from_value(info).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))
            }
        }
    }

    /// Ends the sessions of this process; a server goes on.
    pub(crate) async fn close(&self) {
        if let Self::Local(local) = self {
            local.served.close().await;
        }
    }
}

/// The events of a session as they arrive.
pub(crate) enum EventSource {
    /// Read from the journal.
    Local(JournalTail),
    /// Streamed by the server.
    Remote(EventStream),
}

impl EventSource {
    /// Returns the next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self {
            Self::Local(tail) => Ok(tail.next(1).await?.pop()),
            Self::Remote(stream) => stream.next().await,
        }
    }
}
