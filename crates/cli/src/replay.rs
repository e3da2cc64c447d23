//! `viv replay SESSION`: the recorded session once more, offline, with the real agent and no model.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use gateway::{ReplayUpstream, RequestNormalizer};
use jail::Spawner;
use protocol::{Event, ProblemCode, TurnOutcome};
use session::{ReplaySessionError, ReplaySetup, SessionRecording};
use store::{DataDir, SessionIndex, SystemClock};

use crate::agents::{self, Wanted};
use crate::backend::PlaceArguments;
use crate::config::Config;
use crate::failure::Failure;
use crate::name::new_session_id;
use crate::policy::{Setting, choose};
use crate::reachable::Reachable;
use crate::signals::Signals;
use crate::timeline::Timeline;
use crate::{host, upstream};

#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    pub(crate) place: PlaceArguments,
    /// Id, name, the beginning of an id, or @last
    session: String,
    /// Compare the two records, and end with 9 where they differ
    #[arg(long)]
    diff: bool,
    /// Another directory that is as the recorded one was when its session began
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The policy it was recorded under; what `viv policy explain` says when not given
    #[arg(long, value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// What it was narrowed by: KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    narrow: Vec<String>,
}

/// Carries out `viv replay`.
pub(crate) async fn carry_out(
    arguments: ReplayArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let directory = host::data_dir(&config)?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
    let info = index.find(&arguments.session)?.info;
    let name = info.name.clone().unwrap_or_else(|| info.session_id.to_string());
    let refused = |error: ReplaySessionError| refused(&name, error);
    let recording = SessionRecording::read(&directory, &info).map_err(refused)?;
    let normal = upstream::normal(&config)?;
    let tape = Arc::new(load(&directory, &recording, &normal)?);
    install(&config, &recording)?;
    let workspace = arguments.workspace.as_deref().or(recording.directory.as_deref());
    let setting = Setting::of(&config, json);
    // One that had no directory belonged to no project, wherever it is played again.
    let setting = if workspace.is_some() { setting.in_project(workspace) } else { setting };
    let policy = choose(&setting, arguments.policy.as_deref(), &arguments.narrow)?;
    let stage = ReplaySetup {
        upstream: tape.clone(),
        policy: Arc::new(policy),
        directory: arguments.workspace.map(std::path::absolute).transpose().map_err(|error| Failure::output(&error))?,
        options: host::options(&config),
    };
    if recording.directory.is_some() && recording.origin.is_none() {
        anstream::eprintln!("\x1b[33mnote\x1b[0m  nobody noted how the workspace began; it is taken as it is");
    }
    let sessions = host::open_sessions_behind(&config, stage.policy.clone(), spawner, tape.clone()).await?;
    let reachable = Reachable::open(sessions, &directory);
    let mut audience = Audience { json, ..Audience::default() };
    let id = new_session_id()?;
    let played = tokio::select! {
        played = reachable.sessions.replay_and_compare(id, &recording, &tape, stage, &normal, |event| audience.hear(event)) => {
            played.map_err(refused)
        }
        stop = signals.received() => {
            reachable.close().await;
            return Ok(stop.exit_code());
        }
    };
    reachable.close().await;
    let played = played?;
    audience.farewell(&name, played.unused_calls);
    if let Some(miss) = played.unrecorded_request {
        return Err(Failure::new(ProblemCode::ReplayMiss, "the agent asked for something that was not recorded")
            .detail(miss)
            .help(format!("viv sessions events {name}")));
    }
    if arguments.diff {
        return show_difference(&played.differences, &name, json);
    }
    Ok(match played.outcome {
        Some(TurnOutcome::Failed) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    })
}

/// The recorded answers.
fn load(
    directory: &DataDir,
    recording: &SessionRecording,
    normal: &RequestNormalizer,
) -> Result<ReplayUpstream, Failure> {
    ReplayUpstream::of(directory, &recording.id, normal.clone()).map_err(|error| impossible(&error))
}

fn install(config: &Config, recording: &SessionRecording) -> Result<(), Failure> {
    let wanted = match &recording.agent_version {
        Some(version) => format!("{}@{version}", recording.agent),
        None => recording.agent.clone(),
    };
    agents::install_on_first_use(config, &Wanted::parse(&wanted)?)
}

fn impossible(error: &dyn std::error::Error) -> Failure {
    Failure::of(ProblemCode::ReplayImpossible, error).help("viv sessions ls")
}

fn refused(name: &str, error: ReplaySessionError) -> Failure {
    match error {
        ReplaySessionError::Session(error) => error.into(),
        ReplaySessionError::Policy(_) => impossible(&error).help(format!("viv replay {name} --policy=balanced")),
        ReplaySessionError::Workspace { ref differences, .. } => {
            let detail = differences.join("\n");
            impossible(&error).detail(detail).help(format!("viv replay {name} --workspace=DIR"))
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
    let what = format!("the replay differs from what was recorded in {} lines", lines.len());
    Err(Failure::new(ProblemCode::ReplayDiffers, what).help(format!("viv sessions events {name}")))
}

/// Whoever watches a replay.
#[derive(Default)]
struct Audience {
    json: bool,
    timeline: Timeline,
}

impl Audience {
    fn hear(&mut self, event: &Event) {
        // A reader that is gone is no reason to end in the middle.
        if !self.json {
            let _ = self.timeline.show(event, &mut anstream::stderr().lock());
        }
    }

    fn farewell(&self, name: &str, left: usize) {
        if self.json {
            return;
        }
        let asked = if left == 0 { String::new() } else { format!(" · {left} recorded calls were not asked for") };
        let _ = writeln!(anstream::stderr().lock(), "replay of {name} · {}{asked}", self.timeline.bill());
    }
}
