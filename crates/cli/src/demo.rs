//! `viv demo`: a tour of the product with built-in defaults.

use std::process::ExitCode;
use std::sync::Arc;

use jail::Spawner;
use protocol::{CreateSession, ProblemCode, TurnOutcome};

use crate::config::{Config, ConfigFile};
use crate::failure::Failure;
use crate::policy::{PolicyContext, choose};
use crate::run::{AnswerMode, Conversation, RunEnding, RunOutput};
use crate::session_access::SessionAccess;
use crate::signals::StopSignals;
use crate::{host, output, sessions};

/// Prompt that the built-in script answers.
const PROMPT: &str = "Write a small script, run it, and try to phone home.";
const README: &str =
    "# A project\n\nThe agent works on a copy of this directory; the directory itself does not change.\n";

/// Runs `viv demo`.
pub(crate) async fn carry_out(mut config: Config, spawner: Spawner, json: bool) -> Result<ExitCode, Failure> {
    // The tour uses the built-in model, whatever is configured.
    config.file = ConfigFile::default();
    let mut signals = StopSignals::listen()?;
    let directory = host::data_dir(&config)?;
    let workspace = directory.root().join("demo");
    prepare(&workspace)?;
    let interactive = output::stdin_is_terminal() && output::stdout_is_terminal() && !json;
    let permissions = if interactive { AnswerMode::Ask } else { AnswerMode::Allow };
    let request = CreateSession {
        agent: "mock".to_owned(),
        directory: Some(workspace.to_string_lossy().into_owned()),
        title: Some("demo".to_owned()),
        ..CreateSession::default()
    };
    let policy = Arc::new(choose(&PolicyContext::of(&config, json), Some("balanced"), &[])?);
    let access = SessionAccess::open(&config, policy, spawner).await?;
    let output = if json { RunOutput::Json } else { RunOutput::Tour };
    let mut conversation = Conversation::begin(&access, request, permissions, output).await?;
    let name = conversation.name().to_owned();
    if !json {
        say(&format!("\x1b[1msession\x1b[0m    {name} · agent mock · no network except the model gateway"))?;
        say(&format!("\x1b[1mworkspace\x1b[0m  {} (changes go to an overlay)", workspace.display()))?;
        say(&format!("\x1b[1mprompt\x1b[0m     {PROMPT}\n"))?;
    }
    let outcome = conversation.turn(PROMPT, &mut signals).await;
    let ended = conversation.end(&outcome).await;
    access.close().await;
    let outcome = outcome?;
    ended?;
    if let (RunEnding::Turn(outcome), false) = (outcome, json) {
        finish(&conversation, &config, &name, outcome)?;
    }
    Ok(outcome.exit_code())
}

fn prepare(workspace: &std::path::Path) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(workspace).and_then(|()| std::fs::write(workspace.join("README.md"), README));
    made.map_err(|error| {
        Failure::new(
            ProblemCode::Internal,
            format!("cannot create the workspace of the demo `{}`", workspace.display()),
        )
        .because(&error)
    })
}

fn finish(conversation: &Conversation<'_>, config: &Config, name: &str, outcome: TurnOutcome) -> Result<(), Failure> {
    let done =
        if outcome == TurnOutcome::Completed { "\x1b[32m✔ done\x1b[0m" } else { "\x1b[31m✖ not done\x1b[0m" };
    say(&format!("\n{done} · {}\n", conversation.timeline.bill()))?;
    say("\x1b[1mChanges\x1b[0m (in the overlay; the directory itself is unchanged)\n")?;
    let session = &conversation.session.session_id;
    say(&sessions::diff::render(&sessions::diff::open_changes(config, session, None)?, session)?)?;
    say("\x1b[1mLook closer\x1b[0m")?;
    let next = [
        (format!("viv sessions events {name}"), "all events, including model calls"),
        (format!("viv sessions diff {name}"), "its changes"),
        ("viv exec -- sh -c 'id; ls /'".to_owned(), "a command in the sandbox"),
    ];
    let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    next.iter().try_for_each(|(command, shows)| say(&format!("  {command:width$}     {shows}")))
}

fn say(text: &str) -> Result<(), Failure> {
    output::write_text(&format!("{text}\n")).map_err(|error| Failure::output_failed(&error))
}
