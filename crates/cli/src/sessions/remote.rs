//! Commands that call the process that runs a session: `viv sessions attach`, `send`, `queue` and `fork`, `viv policy
//! narrow` and `grant`.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use hyper::Method;
use jail::Spawner;
use protocol::{Event, EventBody, ProblemCode, SessionId, TurnId};
use serde_json::{Value, json};
use store::{DataDir, SessionIndex, SessionRecord, SystemClock};

use super::watch::show;
use crate::client::ApiClient;
use crate::config::Config;
use crate::event_reader::{EventReader, OpenRequest};
use crate::failure::Failure;
use crate::host;
use crate::output::message;
use crate::policy::{GrantArguments, NarrowArguments};
use crate::prompter::{self, InputEnded};
use crate::run::{self, is_answered, is_open};
use crate::session_access::EventSource;
use crate::session_id::new_session_id;
use crate::signals::StopSignals;
use crate::table::{TextTable, print, print_json};
use crate::timeline::Timeline;

/// Runs `viv sessions send`. A process that runs the session, or else the server, takes the message; without one, this
/// process continues the session in the foreground.
pub(super) async fn send(
    config: &Config,
    record: SessionRecord,
    message: &str,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let message = read_message(message)?;
    let directory = host::data_dir(config)?;
    let id = &record.info.session_id;
    let owner = if record.info.ended { None } else { ApiClient::of_owner(&directory, &record.owner).await };
    let client = match owner {
        Some(owner) => Some(owner),
        None => ApiClient::connect(&directory).await,
    };
    match client {
        None => return run::send_here(config, record, &message, spawner, json).await,
        Some(client) if record.info.ended => {
            let continued = client.fork(id, &new_session_id()?).await?;
            client.send(&continued.session_id, &message).await?;
            let name = continued.name.as_deref().unwrap_or(continued.session_id.as_str());
            message!("session {} has ended; {name} continues it", record.info.name.as_deref().unwrap_or(id.as_str()));
            message!("viv sessions attach {name}");
        }
        Some(client) => client.send(id, &message).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read_message(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut read = String::new();
    let stdin = std::io::stdin().read_to_string(&mut read);
    stdin.map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error))?;
    Ok(read.trim_end().to_owned())
}

/// Runs `viv sessions queue`.
pub(super) async fn queue(directory: &DataDir, record: &SessionRecord, json: bool) -> Result<(), Failure> {
    let client = ApiClient::of_session(directory, record).await?;
    let told = client.json(Method::GET, &format!("/v1/sessions/{}/queue", record.info.session_id), None).await?;
    if json {
        return print_json(&told["messages"]);
    }
    let row = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        [text("turnId"), text("queuedAt"), text("message")].map(str::to_owned)
    };
    let rows = told["messages"].as_array().into_iter().flatten().map(row).collect();
    print(&TextTable { head: ["TURN", "SINCE", "MESSAGE"], rows }.text())
}

/// Runs `viv sessions queue --rm`.
pub(super) async fn unqueue(directory: &DataDir, record: &SessionRecord, turn: &TurnId) -> Result<(), Failure> {
    let client = ApiClient::of_session(directory, record).await?;
    let path = format!("/v1/sessions/{}/queue/{turn}", record.info.session_id);
    client.call(Method::DELETE, &path, None).await.map(drop)
}

/// Runs `viv policy narrow`.
pub(crate) async fn narrow(arguments: &NarrowArguments, config: &Config) -> Result<ExitCode, Failure> {
    change(&arguments.session, "narrow", json!({"rules": arguments.rules}), config).await
}

/// Runs `viv policy grant`.
pub(crate) async fn grant(arguments: &GrantArguments, config: &Config) -> Result<ExitCode, Failure> {
    let GrantArguments { session, rules, seconds } = arguments;
    change(session, "grant", json!({"rules": rules, "seconds": seconds}), config).await
}

async fn change(reference: &str, how: &str, body: Value, config: &Config) -> Result<ExitCode, Failure> {
    let directory = host::data_dir(config)?;
    let record = SessionIndex::open(&directory, Arc::new(SystemClock))?.find(reference)?;
    let client = ApiClient::of_session(&directory, &record).await?;
    let path = format!("/v1/sessions/{}/policy/{how}", record.info.session_id);
    client.call(Method::POST, &path, Some(body)).await?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `viv sessions fork`.
pub(super) async fn fork(
    directory: &DataDir,
    record: &SessionRecord,
    title: Option<String>,
    json: bool,
) -> Result<(), Failure> {
    // The fork must go on after this command, so a server is required.
    let client = ApiClient::required(directory).await?;
    let path = format!("/v1/sessions/{}/fork", record.info.session_id);
    let made = client.json(Method::POST, &path, Some(json!({"title": title}))).await?;
    if json {
        return print_json(&made);
    }
    print(&format!("{}\n", made["sessionId"].as_str().unwrap_or_default()))
}

/// Runs `viv sessions attach`: shows new events and asks the person for answers, until the session ends or Ctrl-C.
pub(super) async fn attach(directory: &DataDir, record: &SessionRecord, json: bool) -> Result<ExitCode, Failure> {
    let id = &record.info.session_id;
    let client = ApiClient::of_session(directory, record).await?;
    let mut signals = StopSignals::listen()?;
    let told = client.json(Method::GET, &format!("/v1/sessions/{id}"), None).await?;
    let pending = client.json(Method::GET, &format!("/v1/sessions/{id}/pending"), None).await?;
    let waiting = pending["pending"].as_array().and_then(|all| all.first()?["sequence"].as_u64());
    let after = waiting.map_or(told["eventCount"].as_u64().unwrap_or(0), |sequence| sequence.saturating_sub(1));
    tokio::select! {
        shown = follow(&client, id, after, json) => shown.map(|()| ExitCode::SUCCESS),
        stop = signals.received() => Ok(stop.exit_code()),
    }
}

async fn follow(client: &ApiClient, id: &SessionId, after: u64, json: bool) -> Result<(), Failure> {
    let mut events = EventReader::new(EventSource::Remote(client.events_after(id, after).await?));
    let mut timeline = Timeline::default();
    while let Some(event) = events.next().await? {
        // The prompt shows an open permission request itself.
        let is_prompted = matches!(&event.draft.body, EventBody::PermissionRequested(asked) if is_open(asked));
        if (json || !is_prompted) && !show(&event, json, &mut timeline)? {
            return Ok(());
        }
        answer(client, id, &event, &mut events).await?;
    }
    Ok(())
}

async fn answer(client: &ApiClient, id: &SessionId, event: &Event, events: &mut EventReader) -> Result<(), Failure> {
    // Without input, requests are left for somebody else to answer.
    let told = match &event.draft.body {
        EventBody::PermissionRequested(asked) if is_open(asked) => {
            let request = OpenRequest::Permission(&asked.permission_id);
            match events.unless_resolved(request, prompter::ask_permission(asked)).await? {
                Some(Ok(reply)) => client.reply(id, &asked.permission_id, reply).await,
                Some(Err(InputEnded)) | None => Ok(()),
            }
        }
        EventBody::QuestionRequested(asked) => {
            let request = OpenRequest::Question(&asked.question_id);
            match events.unless_resolved(request, prompter::ask_questions(asked)).await? {
                Some(Ok(answers)) => client.answer(id, &asked.question_id, answers).await,
                Some(Err(InputEnded)) | None => Ok(()),
            }
        }
        _ => Ok(()),
    };
    // Somebody else answered in the same moment; the next events say how.
    match told {
        Err(failure) if is_answered(&failure) => Ok(()),
        told => told,
    }
}
