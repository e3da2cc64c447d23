//! `viv perms`: list and answer the pending requests of all sessions of this data directory.

use std::process::ExitCode;

use base::PrintableText;
use clap::Subcommand;
use hyper::Method;
use protocol::{Permission, ProblemCode, Question};
use serde_json::{Value, json};

use crate::approval::{self, Approval};
use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::table::{TextTable, print, print_json};

#[derive(Debug, Subcommand)]
pub(crate) enum PermsCommand {
    /// List pending permission requests and questions, oldest first
    Ls,
    /// Show the whole request: command or diff, the rule that asks, and what `--always` would allow
    Show {
        /// Request: ID or SESSION/ID, as listed by `viv perms ls`
        id: String,
    },
    /// Allow a permission request
    Allow {
        /// Request: ID or SESSION/ID, as listed by `viv perms ls`
        id: String,
        /// Also allow the same request for the rest of the session
        #[arg(long)]
        always: bool,
    },
    /// Deny a permission request, or reject a question
    Deny {
        /// Request: ID or SESSION/ID, as listed by `viv perms ls`
        id: String,
    },
    /// Answer a question
    Answer {
        /// Request: ID or SESSION/ID, as listed by `viv perms ls`
        id: String,
        /// Answer; one for each part of the question
        #[arg(required = true, value_name = "ANSWER")]
        answers: Vec<String>,
    },
}

/// A pending request, and the process that takes the answer.
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

    /// Returns the whole request on one line.
    fn description(&self) -> String {
        match self.permission() {
            Some(permission) => approval::summary(&permission).into(),
            None => self.asked["data"]["prompt"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn permission(&self) -> Option<Permission> {
        if self.is_permission() { serde_json::from_value(self.asked["data"].clone()).ok() } else { None }
    }

    /// Returns the whole request with the rule that asks and the scope of `always`, or the question with its options.
    fn details(&self) -> String {
        let Some(permission) = self.permission() else {
            let question: Option<Question> = serde_json::from_value(self.asked["data"].clone()).ok();
            let prompts = question.iter().flat_map(Question::prompts);
            let lines = prompts.map(|asked| format!("{} ({})", asked.prompt, asked.options.join(" · ")));
            return lines.map(|line| format!("{}\n", PrintableText::exact_line(&line))).collect();
        };
        let Approval { action, lines, terms } = Approval::of(&permission);
        let styled = lines.iter().map(|line| format!("{}{}\x1b[0m\n", line.style, line.text));
        let terms = terms.iter().map(|term| format!("{term}\n"));
        format!("{action}\n{}{}", styled.collect::<String>(), terms.collect::<String>())
    }

    async fn send_answer(&self, how: &str, body: Option<Value>) -> Result<(), Failure> {
        let kind = if self.is_permission() { "permissions" } else { "questions" };
        let path = format!("/v1/sessions/{}/{kind}/{}/{how}", self.session(), self.id());
        self.client.call(Method::POST, &path, body).await.map(drop)
    }
}

/// Runs `viv perms …`.
pub(crate) async fn carry_out(command: PermsCommand, config: Config, json: bool) -> Result<ExitCode, Failure> {
    let all = waiting(&config).await?;
    match command {
        PermsCommand::Ls => list(&all, json)?,
        PermsCommand::Show { id } if json => print_json(&find(&all, &id)?.asked)?,
        PermsCommand::Show { id } => print(&find(&all, &id)?.details())?,
        PermsCommand::Allow { id, always } => {
            let one = find(&all, &id)?;
            let reply = if always { "always" } else { "once" };
            require_kind(one, true, &id)?.send_answer("reply", Some(json!({"reply": reply}))).await?;
        }
        PermsCommand::Deny { id } => match find(&all, &id)? {
            one if one.is_permission() => one.send_answer("reply", Some(json!({"reply": "reject"}))).await?,
            one => one.send_answer("reject", None).await?,
        },
        PermsCommand::Answer { id, answers } => {
            let one = find(&all, &id)?;
            let answers: Vec<[&String; 1]> = answers.iter().map(|answer| [answer]).collect();
            require_kind(one, false, &id)?.send_answer("reply", Some(json!({"answers": answers}))).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn waiting(config: &Config) -> Result<Vec<PendingAnswer>, Failure> {
    let mut all: Vec<PendingAnswer> = Vec::new();
    for client in ApiClient::all_owners(&host::data_dir(config)?).await {
        let answer = client.json(Method::GET, "/v1/pending", None).await?;
        let asked = answer["pending"].as_array().into_iter().flatten().cloned();
        all.extend(asked.map(|asked| PendingAnswer { client: client.clone(), asked }));
    }
    all.sort_by(|one, other| one.asked["askedAt"].as_str().cmp(&other.asked["askedAt"].as_str()));
    Ok(all)
}

/// Returns the request that `reference` names. Ids are unique within a session only, so the session may be needed too.
fn find<'a>(all: &'a [PendingAnswer], reference: &str) -> Result<&'a PendingAnswer, Failure> {
    let fits = |one: &&PendingAnswer| match reference.split_once('/') {
        Some((session, id)) => one.id() == id && one.session().starts_with(session),
        None => one.id() == reference,
    };
    let mut found = all.iter().filter(fits);
    let failure = |what: String| Failure::new(ProblemCode::PermissionNotPending, what).help("viv perms ls");
    let one = found.next().ok_or_else(|| failure(format!("no pending request `{reference}`")))?;
    match found.next() {
        None => Ok(one),
        Some(_) => Err(failure(format!(
            "request `{reference}` is pending in more than one session: write SESSION/{reference}"
        ))),
    }
}

fn require_kind<'a>(one: &'a PendingAnswer, permission: bool, reference: &str) -> Result<&'a PendingAnswer, Failure> {
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
        [format!("{}/{}", one.session(), one.id()), kind.to_owned(), at.to_owned(), one.description()]
    };
    let head = ["ID", "KIND", "ASKED", "WHAT"];
    print(&TextTable { head, rows: all.iter().map(cells).collect() }.text())
}
