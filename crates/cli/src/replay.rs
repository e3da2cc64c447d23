//! `viv replay SESSION`: replay a recorded session offline, with the real agent and no model.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gateway::{ReplayUpstream, RequestNormalizer};
use jail::Spawner;
use protocol::{Event, ProblemCode, TurnOutcome};
use session::{ReplayOutcome, ReplaySessionError, ReplaySetup, SessionRecording};
use store::{DataDir, SessionIndex, SystemClock};

use crate::agents::{self, AgentSpec};
use crate::backend::SandboxArguments;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, message};
use crate::policy::{PolicyContext, choose};
use crate::served_sessions::ServedSessions;
use crate::session_id::new_session_id;
use crate::signals::StopSignals;
use crate::timeline::Timeline;
use crate::{host, upstream};

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Session: id, name, prefix of an id, or @last
    session: String,
    /// Compare both journals and exit with code 9 if they differ
    #[arg(long)]
    diff: bool,
    /// Directory with the same content as the recorded workspace at the start of its session
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Policy file or preset of the recorded session (default: see `viv policy explain`)
    #[arg(long, value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// Narrowing of the recorded session: KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    narrow: Vec<String>,
}

/// Runs `viv replay`.
pub(crate) async fn carry_out(
    arguments: ReplayArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    let directory = host::data_dir(&config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let info = index.find(&arguments.session)?.info;
    let name = info.name.clone().unwrap_or_else(|| info.session_id.to_string());
    let refused = |error: ReplaySessionError| refused(&name, error);
    let recording = SessionRecording::read(&directory, &info).map_err(refused)?;
    let normal = upstream::request_normalizer(&config)?;
    let recorded = Arc::new(load(&directory, &recording, &normal)?);
    install(&config, &recording)?;
    let workspace = arguments.workspace.as_deref().or(recording.directory.as_deref());
    let setting = PolicyContext::of(&config, json);
    // A session without a workspace belongs to no project.
    let setting = if workspace.is_some() { setting.in_project(workspace) } else { setting };
    let policy = choose(&setting, arguments.policy.as_deref(), &arguments.narrow)?;
    let setup = ReplaySetup {
        upstream: recorded.clone(),
        policy: Arc::new(policy),
        directory: arguments
            .workspace
            .map(std::path::absolute)
            .transpose()
            .map_err(|error| Failure::output_failed(&error))?,
        options: host::options(&config),
    };
    if recording.directory.is_some() && recording.origin.is_none() {
        message!("\x1b[33mnote\x1b[0m  the original state of the workspace was not recorded; using its current state");
    }
    let sessions = host::open_sessions_behind(&config, setup.policy.clone(), spawner, recorded.clone()).await?;
    let served = ServedSessions::open(sessions, &directory);
    let mut printer = ReplayPrinter { json, ..ReplayPrinter::default() };
    let id = new_session_id()?;
    let played = tokio::select! {
        played = served.sessions.replay_and_compare(id, &recording, &recorded, setup, &normal, |event| printer.show(event)) => {
            played.map_err(refused)
        }
        stop = signals.received() => {
            served.close().await;
            return Ok(stop.exit_code());
        }
    };
    served.close().await;
    let played = played?;
    printer.show_summary(&name, played.unused_calls);
    exit_code(played, &name, arguments.diff, json)
}

/// Returns the exit code of a replay; fails when the agent made a call that was not recorded.
fn exit_code(played: ReplayOutcome, name: &str, diff: bool, json: bool) -> Result<ExitCode, Failure> {
    if let Some(miss) = played.unrecorded_request {
        return Err(Failure::new(ProblemCode::ReplayMiss, "the agent made a model call that was not recorded")
            .detail(miss)
            .help(format!("viv sessions events {name}")));
    }
    if diff {
        return show_difference(&played.differences, name, json);
    }
    Ok(match played.outcome {
        Some(TurnOutcome::Failed) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    })
}

/// Loads the recorded answers.
fn load(
    directory: &DataDir,
    recording: &SessionRecording,
    normal: &RequestNormalizer,
) -> Result<ReplayUpstream, Failure> {
    ReplayUpstream::open(directory, &recording.id, normal.clone()).map_err(|error| impossible(&error))
}

fn install(config: &Config, recording: &SessionRecording) -> Result<(), Failure> {
    let wanted = match &recording.agent_version {
        Some(version) => format!("{}@{version}", recording.agent),
        None => recording.agent.clone(),
    };
    agents::install_on_first_use(config, &AgentSpec::parse(&wanted)?)
}

fn impossible(error: &dyn std::error::Error) -> Failure {
    Failure::from_error(ProblemCode::ReplayImpossible, error).help("viv sessions ls")
}

fn refused(name: &str, error: ReplaySessionError) -> Failure {
    match error {
        ReplaySessionError::Session(error) => error.into(),
        ReplaySessionError::Policy(_) => impossible(&error).help(format!("viv replay {name} --policy=balanced")),
        ReplaySessionError::Workspace { ref differences, .. } => {
            let detail = differences.join("\n");
            impossible(&error).detail(detail).help(format!("viv replay {name} --workspace=."))
        }
        ReplaySessionError::NeverStarted(_)
        | ReplaySessionError::Recording(_)
        | ReplaySessionError::NormalizerRules(_) => impossible(&error),
    }
}

fn show_difference(lines: &[String], name: &str, json: bool) -> Result<ExitCode, Failure> {
    if json {
        crate::table::print_json(&serde_json::json!({"differences": lines}))?;
    }
    if lines.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if !json {
        crate::table::print(&(lines.join("\n") + "\n"))?;
    }
    let what = format!("the replay differs from the recording in {} lines", lines.len());
    Err(Failure::new(ProblemCode::ReplayDiffers, what).help(format!("viv sessions events {name}")))
}

/// Shows the progress of a replay on stderr.
#[derive(Default)]
struct ReplayPrinter {
    json: bool,
    timeline: Timeline,
}

impl ReplayPrinter {
    fn show(&mut self, event: &Event) {
        if !self.json {
            output::print_message_part(&self.timeline.render(event));
        }
    }

    fn show_summary(&self, name: &str, left: usize) {
        if self.json {
            return;
        }
        let unused = if left == 0 { String::new() } else { format!(" · {left} recorded calls were not made") };
        message!("replay of {name} · {}{unused}", self.timeline.bill());
    }
}
