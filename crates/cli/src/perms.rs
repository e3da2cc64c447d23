//! `viv perms`: what agents ask for, in every process that runs sessions of this data directory, and the answers.

use std::process::ExitCode;

use clap::Subcommand;
use hyper::Method;
use protocol::ProblemCode;
use serde_json::{Value, json};

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::table::{TextTable, print, print_json};

#[derive(Debug, Subcommand)]
pub(crate) enum PermsCommand {
    /// What waits for an answer, oldest first
    Ls,
    /// Let the agent do it
    Allow {
        /// ID or SESSION/ID, as `viv perms ls` shows it
        id: String,
        /// And the same thing again for the rest of the session
        #[arg(long)]
        always: bool,
    },
    /// Refuse it
    Deny {
        /// ID or SESSION/ID, as `viv perms ls` shows it
        id: String,
    },
    /// Answer a question
    Answer {
        /// ID or SESSION/ID, as `viv perms ls` shows it
        id: String,
        /// The answer; one for each thing that is asked
        #[arg(required = true, value_name = "ANSWER")]
        answers: Vec<String>,
    },
}

/// Something that waits, and who can be told the answer.
struct PendingAnswer {
    client: ApiClient,
    asked: Value,
}

impl PendingAnswer {
    fn session(&self) -> &str {
        self.asked["sessionId"].as_str().unwrap_or_default()
    }

    fn is_permission(&self) -> bool {
        self.asked["type"] == "permission"
    }

    fn id(&self) -> &str {
        let name = if self.is_permission() { "permission_id" } else { "question_id" };
        self.asked["data"][name].as_str().unwrap_or_default()
    }

    fn words(&self) -> String {
        let data = &self.asked["data"];
        let input = &data["metadata"]["input"];
        let what = data["action"].as_str().or(data["prompt"].as_str()).unwrap_or_default();
        if input.is_null() { what.to_owned() } else { format!("{what} {input}") }
    }

    async fn tell(&self, how: &str, body: Option<Value>) -> Result<(), Failure> {
        let kind = if self.is_permission() { "permissions" } else { "questions" };
        let path = format!("/v1/sessions/{}/{kind}/{}/{how}", self.session(), self.id());
        self.client.call(Method::POST, &path, body).await.map(drop)
    }
}

/// Carries out `viv perms …`.
pub(crate) async fn carry_out(command: PermsCommand, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let all = waiting(&config).await?;
    match command {
        PermsCommand::Ls => list(&all, json)?,
        PermsCommand::Allow { id, always } => {
            let one = find(&all, &id)?;
            let reply = if always { "always" } else { "once" };
            only(one, true, &id)?.tell("reply", Some(json!({"reply": reply}))).await?;
        }
        PermsCommand::Deny { id } => match find(&all, &id)? {
            one if one.is_permission() => one.tell("reply", Some(json!({"reply": "reject"}))).await?,
            one => one.tell("reject", None).await?,
        },
        PermsCommand::Answer { id, answers } => {
            let one = find(&all, &id)?;
            let answers: Vec<[&String; 1]> = answers.iter().map(|answer| [answer]).collect();
            only(one, false, &id)?.tell("reply", Some(json!({"answers": answers}))).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn waiting(config: &Config) -> Result<Vec<PendingAnswer>, Failure> {
    let mut all: Vec<PendingAnswer> = Vec::new();
    for client in ApiClient::all_owners(&host::data_dir(config)?).await {
        let told = client.json(Method::GET, "/v1/pending", None).await?;
        let asked = told["pending"].as_array().into_iter().flatten().cloned();
        all.extend(asked.map(|asked| PendingAnswer { client: client.clone(), asked }));
    }
    all.sort_by(|one, other| one.asked["askedAt"].as_str().cmp(&other.asked["askedAt"].as_str()));
    Ok(all)
}

/// The one that is meant. Ids are counted in each session, so that a session may have to be named too.
fn find<'a>(all: &'a [PendingAnswer], reference: &str) -> Result<&'a PendingAnswer, Failure> {
    let fits = |one: &&PendingAnswer| match reference.split_once('/') {
        Some((session, id)) => one.id() == id && one.session().starts_with(session),
        None => one.id() == reference,
    };
    let mut found = all.iter().filter(fits);
    let failure = |what: String| Failure::new(ProblemCode::PermissionNotPending, what).help("viv perms ls");
    let one = found.next().ok_or_else(|| failure(format!("nothing called `{reference}` waits for an answer")))?;
    match found.next() {
        None => Ok(one),
        Some(_) => Err(failure(format!("more than one session asks `{reference}`: write SESSION/{reference}"))),
    }
}

fn only<'a>(one: &'a PendingAnswer, permission: bool, reference: &str) -> Result<&'a PendingAnswer, Failure> {
    if one.is_permission() == permission {
        return Ok(one);
    }
    let (is, verb) = if permission { ("a question", "answer") } else { ("a permission", "allow") };
    let what = format!("`{reference}` is {is}");
    Err(Failure::new(ProblemCode::InvalidRequest, what).help(format!("viv perms {verb} {reference}")))
}

fn list(all: &[PendingAnswer], json: bool) -> Result<(), Failure> {
    if json {
        let all: Vec<&Value> = all.iter().map(|one| &one.asked).collect();
        return print_json(&json!(all));
    }
    let cells = |one: &PendingAnswer| {
        let kind = one.asked["type"].as_str().unwrap_or_default();
        let at = one.asked["askedAt"].as_str().unwrap_or_default();
        [format!("{}/{}", one.session(), one.id()), kind.to_owned(), at.to_owned(), one.words()]
    };
    let head = ["ID", "KIND", "ASKED", "WHAT"];
    print(&TextTable { head, rows: all.iter().map(cells).collect() }.text())
}
