//! Sessions, wherever they run: in the server of this data directory if one answers, else in this process.
//!
//! Both ways are the same to the caller, and both keep the session in the same store.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use ::policy::EffectivePolicy;
use hyper::Method;
use jail::Spawner;
use protocol::{CreateSession, Event, PermissionId, PermissionReply, ProblemCode, QuestionId, SessionId, SessionInfo};
use session::{SessionOptions, UserMessage};
use store::JournalTail;

use crate::client::{ApiClient, EventStream};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::served_sessions::ServedSessions;

/// Where sessions are run.
pub(crate) enum SessionAccess {
    /// In this process.
    Local(LocalSessions),
    /// In the server.
    Remote(ApiClient),
}

/// Sessions that this process runs.
pub(crate) struct LocalSessions {
    reachable: ServedSessions,
    /// Who pays.
    options: SessionOptions,
}

impl SessionAccess {
    /// The server if one answers, else this process.
    pub(crate) async fn open(config: &Config, policy: Arc<EffectivePolicy>, spawner: Spawner) -> Result<Self, Failure> {
        // A server knows nothing of this person's `--env-file`, and has its own sandbox.
        if config.env_upstream.is_none()
            && config.backend.is_none()
            && let Some(client) = ApiClient::connect(&host::data_dir(config)?).await
        {
            return Ok(Self::Remote(client));
        }
        Self::here(config, policy, spawner).await
    }

    /// This process, also where a server answers: its sessions are under its own policy, not under `policy`.
    pub(crate) async fn here(config: &Config, policy: Arc<EffectivePolicy>, spawner: Spawner) -> Result<Self, Failure> {
        let directory = host::data_dir(config)?;
        let options = SessionOptions { policy: Some(policy.clone()), ..host::options(config) };
        let sessions = host::open_sessions(config, policy, spawner).await?;
        Ok(Self::Local(LocalSessions { reachable: ServedSessions::open(sessions, &directory), options }))
    }

    /// Makes a session.
    pub(crate) async fn create(&self, id: &SessionId, request: CreateSession) -> Result<SessionInfo, Failure> {
        match self {
            Self::Local(here) => Ok(here.reachable.sessions.create(id.clone(), request, here.options.clone()).await?),
            Self::Remote(client) => client.create(id, &request).await,
        }
    }

    /// Hands it a prompt.
    pub(crate) async fn send(&self, id: &SessionId, text: &str) -> Result<(), Failure> {
        match self {
            Self::Local(here) => {
                here.reachable.sessions.send(id, UserMessage::text(text)).await?;
                Ok(())
            }
            Self::Remote(client) => client.send(id, text).await,
        }
    }

    /// Its events, from the first.
    pub(crate) async fn follow(&self, id: &SessionId) -> Result<EventSource, Failure> {
        Ok(match self {
            Self::Local(here) => {
                EventSource::Local(JournalTail::new(Arc::clone(&here.reachable.sessions.journal(id)?), 0))
            }
            Self::Remote(client) => EventSource::Remote(client.events(id).await?),
        })
    }

    /// Answers a permission.
    pub(crate) async fn reply(
        &self,
        id: &SessionId,
        permission: &PermissionId,
        reply: PermissionReply,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(here) => Ok(here.reachable.sessions.reply_permission(id, permission, reply).await?),
            Self::Remote(client) => client.reply(id, permission, reply).await,
        }
    }

    /// Answers a question, or refuses to.
    pub(crate) async fn answer(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Failure> {
        match (self, answers) {
            (Self::Local(here), Some(answers)) => {
                Ok(here.reachable.sessions.reply_question(id, question, answers).await?)
            }
            (Self::Local(here), None) => Ok(here.reachable.sessions.reject_question(id, question).await?),
            (Self::Remote(client), answers) => client.answer(id, question, answers).await,
        }
    }

    /// Ends it.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), Failure> {
        match self {
            Self::Local(here) => Ok(here.reachable.sessions.terminate(id).await?),
            Self::Remote(client) => client.terminate(id).await,
        }
    }

    /// Ends it if it runs, and forgets it.
    pub(crate) async fn delete(&self, id: &SessionId) -> Result<(), Failure> {
        match self {
            Self::Local(here) => Ok(here.reachable.sessions.delete(id).await?),
            Self::Remote(client) => client.call(Method::DELETE, &format!("/v1/sessions/{id}"), None).await.map(drop),
        }
    }

    /// Writes everything about it to `to`.
    pub(crate) async fn export(&self, id: &SessionId, to: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Local(here) => {
                let mut bundle = here.reachable.sessions.export(id).await?;
                std::io::copy(&mut bundle, to).map(drop).map_err(|error| Failure::output_failed(&error))
            }
            Self::Remote(client) => client.copy(&format!("/v1/sessions/{id}/export"), to).await,
        }
    }

    /// Takes a session in from a bundle, under its own id or under `new_id`.
    pub(crate) async fn import(&self, file: File, new_id: Option<SessionId>) -> Result<SessionInfo, Failure> {
        match self {
            Self::Local(here) => Ok(here.reachable.sessions.import(file, new_id).await?),
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

    /// Lets go of everything this process runs.
    pub(crate) async fn close(&self) {
        if let Self::Local(here) = self {
            here.reachable.close().await;
        }
    }
}

/// Events as they come.
pub(crate) enum EventSource {
    /// From the journal.
    Local(JournalTail),
    /// From the server.
    Remote(EventStream),
}

impl EventSource {
    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self {
            Self::Local(tail) => Ok(tail.next(1).await?.pop()),
            Self::Remote(stream) => stream.next().await,
        }
    }
}
