//! Sessions, wherever they run: in the server of this data directory if one answers, else in this process.
//!
//! Both ways are the same to the caller, and both keep the session in the same store.

use std::sync::Arc;

use ::policy::Effective;
use jail::Spawner;
use protocol::{CreateSession, Event, PermissionId, PermissionReply, QuestionId, SessionId, SessionInfo};
use session::{Message, Options, Sessions};
use store::Tail;

use crate::client::{Client, EventStream};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;

/// Where sessions are run.
pub(crate) enum Front {
    /// In this process, and who pays.
    Here(Sessions, Options),
    /// In the server.
    There(Client),
}

impl Front {
    /// The server if one answers, else this process.
    pub(crate) async fn open(config: &Config, policy: Arc<Effective>, spawner: Spawner) -> Result<Self, Failure> {
        let directory = host::data_dir(config)?;
        // A server knows nothing of this person's `--env-file`.
        let client = if config.env_upstream.is_some() { None } else { Client::connect(&directory).await };
        match client {
            Some(client) => Ok(Self::There(client)),
            None => Ok(Self::Here(host::open_sessions(config, policy, spawner).await?, host::options(config))),
        }
    }

    /// Makes a session.
    pub(crate) async fn create(&self, id: &SessionId, request: CreateSession) -> Result<SessionInfo, Failure> {
        match self {
            Self::Here(sessions, options) => Ok(sessions.create(id.clone(), request, options.clone()).await?),
            Self::There(client) => client.create(id, &request).await,
        }
    }

    /// Hands it a prompt.
    pub(crate) async fn send(&self, id: &SessionId, text: &str) -> Result<(), Failure> {
        match self {
            Self::Here(sessions, _) => {
                sessions.send(id, Message::text(text)).await?;
                Ok(())
            }
            Self::There(client) => client.send(id, text).await,
        }
    }

    /// Its events, from the first.
    pub(crate) async fn follow(&self, id: &SessionId) -> Result<Follow, Failure> {
        Ok(match self {
            Self::Here(sessions, _) => Follow::Here(Tail::new(Arc::clone(&sessions.journal(id)?), 0)),
            Self::There(client) => Follow::There(client.events(id).await?),
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
            Self::Here(sessions, _) => Ok(sessions.reply_permission(id, permission, reply).await?),
            Self::There(client) => client.reply(id, permission, reply).await,
        }
    }

    /// Answers a question, or refuses to.
    pub(crate) async fn answer(
        &self,
        id: &SessionId,
        question: &QuestionId,
        answer: Option<String>,
    ) -> Result<(), Failure> {
        match (self, answer) {
            (Self::Here(sessions, _), Some(answer)) => {
                Ok(sessions.reply_question(id, question, vec![vec![answer]]).await?)
            }
            (Self::Here(sessions, _), None) => Ok(sessions.reject_question(id, question).await?),
            (Self::There(client), answer) => client.answer(id, question, answer).await,
        }
    }

    /// Ends it.
    pub(crate) async fn terminate(&self, id: &SessionId) -> Result<(), Failure> {
        match self {
            Self::Here(sessions, _) => Ok(sessions.terminate(id).await?),
            Self::There(client) => client.terminate(id).await,
        }
    }

    /// Lets go of everything this process runs.
    pub(crate) async fn close(&self) {
        if let Self::Here(sessions, _) = self {
            sessions.close_all().await;
        }
    }
}

/// Events as they come.
pub(crate) enum Follow {
    /// From the journal.
    Here(Tail),
    /// From the server.
    There(EventStream),
}

impl Follow {
    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        match self {
            Self::Here(tail) => Ok(tail.next(1).await?.pop()),
            Self::There(stream) => stream.next().await,
        }
    }
}
