//! `viv run --continue [SESSION] PROMPT`: send one more prompt to a session.
//!
//! A session that has ended is continued by a new session, which has its agent's conversation and its changes. A session
//! that has not ended gets the prompt itself, in the process that runs it, and stays open.

use std::process::ExitCode;
use std::sync::Arc;

use ::policy::EffectivePolicy;
use jail::Spawner;
use protocol::{ProblemCode, SessionInfo};
use store::{SessionIndex, SessionRecord, SystemClock};

use super::{AnswerMode, Conversation, RunOutput, finish, prompt_text};
use crate::agents::{self, AgentSpec};
use crate::args::{OnFinish, RunArguments};
use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::network_arguments::NetworkArguments;
use crate::output::message;
use crate::policy::{PolicyContext, choose};
use crate::session_access::SessionAccess;
use crate::session_id::new_session_id;
use crate::shell_word::shell_word;
use crate::signals::StopSignals;

/// Runs `viv run --continue`.
pub(super) async fn carry_out(
    arguments: RunArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (reference, text) = match &arguments.prompt {
        Some(text) => (arguments.agent.as_str(), text.as_str()),
        None => ("@last", arguments.agent.as_str()),
    };
    let request = Continuation {
        config: &config,
        record: find(&config, reference)?,
        policy: arguments.policy.as_deref(),
        narrow: &arguments.narrow,
        network: &arguments.network,
        answers: AnswerMode::choose(arguments.perms),
        on_finish: arguments.on_finish.unwrap_or(OnFinish::Keep),
        json,
    };
    request.carry_out(&prompt_text::read(text)?, spawner).await
}

/// Sends `text` to a session that no process runs, in this process, as `viv run --continue` does.
pub(crate) async fn send_here(
    config: &Config,
    record: SessionRecord,
    text: &str,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let (answers, on_finish) = (AnswerMode::choose(None), OnFinish::Keep);
    let none = NetworkArguments::default();
    let request = Continuation { config, record, policy: None, narrow: &[], network: &none, answers, on_finish, json };
    request.carry_out(text, spawner).await
}

fn find(config: &Config, reference: &str) -> Result<SessionRecord, Failure> {
    let index = SessionIndex::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    Ok(index.find(reference)?)
}

/// One more prompt for a session.
struct Continuation<'a> {
    config: &'a Config,
    record: SessionRecord,
    policy: Option<&'a str>,
    narrow: &'a [String],
    network: &'a NetworkArguments,
    answers: AnswerMode,
    on_finish: OnFinish,
    json: bool,
}

impl Continuation<'_> {
    async fn carry_out(&self, text: &str, spawner: Spawner) -> Result<ExitCode, Failure> {
        let mut signals = StopSignals::listen()?;
        self.install()?;
        let policy = Arc::new(self.policy()?);
        let access = self.access(&policy, spawner).await?;
        let outcome = self.talk(&access, text, &policy, &mut signals).await;
        access.close().await;
        outcome
    }

    fn install(&self) -> Result<(), Failure> {
        agents::install_on_first_use(self.config, &AgentSpec::parse(&self.record.info.agent)?)
    }

    fn policy(&self) -> Result<EffectivePolicy, Failure> {
        let directory = self.record.info.directory.as_ref().map(std::path::Path::new);
        let context = PolicyContext::of(self.config, self.json).with_network(self.network);
        let context = if directory.is_some() { context.in_project(directory) } else { context };
        Ok(choose(&context, self.policy, self.narrow)?)
    }

    /// Returns access to the process that runs the session, else to the server, else to this process.
    async fn access(&self, policy: &Arc<EffectivePolicy>, spawner: Spawner) -> Result<SessionAccess, Failure> {
        if !self.record.info.ended
            && let Some(owner) = ApiClient::of_owner(&host::data_dir(self.config)?, &self.record.owner).await
        {
            return Ok(SessionAccess::Remote(owner));
        }
        if self.policy.is_some() || !self.narrow.is_empty() {
            return SessionAccess::local(self.config, policy.clone(), spawner).await;
        }
        SessionAccess::open(self.config, policy.clone(), spawner).await
    }

    async fn talk(
        &self,
        access: &SessionAccess,
        text: &str,
        policy: &EffectivePolicy,
        signals: &mut StopSignals,
    ) -> Result<ExitCode, Failure> {
        let output = if self.json { RunOutput::Json } else { RunOutput::Text };
        let (session, seen) = self.open(access).await?;
        let mut conversation = Conversation::of(access, session, seen, self.answers, output).await?;
        self.announce(&conversation);
        let outcome = conversation.turn(text, signals).await;
        // A session that was open before stays open.
        if self.record.info.ended {
            conversation.end(&outcome).await?;
        }
        let outcome = outcome?;
        message!("{}", conversation.timeline.full_bill());
        let changes = finish::RunChanges { config: self.config, session: &conversation.session, policy };
        let on_finish = if self.record.info.ended { self.on_finish } else { OnFinish::Keep };
        let settled = changes.settle(on_finish, outcome).await?;
        if settled != finish::ChangesOutcome::Done {
            conversation.show_next_commands(settled);
        }
        match conversation.failure(outcome, &format!("--continue {}", conversation.name()), text) {
            Some(failure) => Err(failure),
            None => Ok(outcome.exit_code()),
        }
    }

    /// Returns the session that gets the prompt, and the number of its last event that was shown before.
    async fn open(&self, access: &SessionAccess) -> Result<(SessionInfo, u64), Failure> {
        let info = &self.record.info;
        if !info.ended {
            return Ok((info.clone(), access.last_event(&info.session_id).await?));
        }
        let continued = access.continue_ended(&info.session_id, &new_session_id()?).await;
        Ok((continued.map_err(|failure| self.explain(failure))?, 0))
    }

    /// Adds the remedy to a refusal: the session ran under another policy.
    fn explain(&self, failure: Failure) -> Failure {
        if failure.code() != ProblemCode::PolicyWideningDenied {
            return failure;
        }
        let name = self.name();
        failure.help(format!("viv policy explain --session {}", shell_word(name)))
    }

    fn name(&self) -> &str {
        self.record.info.name.as_deref().unwrap_or(self.record.info.session_id.as_str())
    }

    fn announce(&self, conversation: &Conversation<'_>) {
        let (name, agent) = (conversation.name(), &conversation.session.agent);
        let origin = if self.record.info.ended { format!(" · continues {}", self.name()) } else { String::new() };
        message!("\x1b[1msession\x1b[0m {name} · agent {agent}{origin}");
    }
}
