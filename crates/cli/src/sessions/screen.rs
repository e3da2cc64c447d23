//! The screen of an interactive session: `viv sessions attach` and `viv sessions play`.

use std::process::ExitCode;
use std::time::Duration;

use protocol::{INTERACTIVE, ProblemCode, SessionInfo};
use session::{RESTORE_TERMINAL, RecordingReader};
use store::{DataDir, SessionRecord};

use crate::client::ApiClient;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, message};
use crate::signals::{StopSignal, StopSignals};
use crate::terminal::{self, KeyReader, ScreenEnd, ScreenKeys, TerminalLink};

/// Returns whether the agent of a session shows its own terminal UI.
pub(super) fn is_interactive(session: &SessionInfo) -> bool {
    session.agent_mode == INTERACTIVE
}

/// Shows the screen of a running interactive session until it ends or the person detaches.
pub(super) async fn attach(config: &Config, directory: &DataDir, record: &SessionRecord) -> Result<ExitCode, Failure> {
    let (id, name) = (&record.info.session_id, name(&record.info));
    if !output::stdin_is_terminal() || !output::stdout_is_terminal() {
        let what = format!("session `{name}` is interactive: its screen needs a terminal on stdin and stdout");
        return Err(Failure::new(ProblemCode::NoTerminal, what).help(format!("viv sessions events {name}")));
    }
    if record.outcome.is_some() {
        let what = format!("session `{name}` has ended, so it has no open terminal");
        return Err(Failure::new(ProblemCode::TerminalNotFound, what).help(format!("viv sessions play {name}")));
    }
    let prefix = config.detach_prefix()?;
    let mut signals = StopSignals::listen()?;
    let client = ApiClient::of_session(directory, record).await?;
    let mut link = TerminalLink::connect(&client, id).await?;
    link.resize(terminal::window_size()).await?;
    let suspend = !::agents::undoes_with_ctrl_z(&record.info.agent);
    let keys = ScreenKeys { reader: KeyReader::new(prefix, true, suspend), types: true };
    match terminal::show(&mut link, keys, &mut signals).await? {
        ScreenEnd::AgentEnded => message!("session {name} has ended · viv sessions diff {name}"),
        ScreenEnd::Detached => message!("detached: session {name} goes on · viv sessions attach {name}"),
        ScreenEnd::Stopped(stop) => return Ok(stop.exit_code()),
    }
    Ok(ExitCode::SUCCESS)
}

/// How a recording is played.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaySettings {
    /// Times faster than it was recorded.
    pub(super) speed: f64,
    /// The longest pause.
    pub(super) longest_pause: Duration,
}

/// Plays the recordings of a session's screen, in the order of the starts of its agent.
pub(super) async fn play(
    directory: &DataDir,
    session: &SessionInfo,
    settings: PlaySettings,
) -> Result<ExitCode, Failure> {
    if !settings.speed.is_finite() || settings.speed <= 0.0 {
        let what = format!("invalid speed `{}`: must be more than 0", settings.speed);
        return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv sessions play @last --speed 2"));
    }
    let name = name(session);
    let recordings: Vec<_> = (1..=u32::MAX)
        .map(|epoch| directory.screen_recording(&session.session_id, epoch))
        .take_while(|path| path.exists())
        .collect();
    if recordings.is_empty() {
        let what = format!("session `{name}` has no recording of its screen");
        return Err(Failure::new(ProblemCode::TerminalNotFound, what).help(format!("viv sessions events {name}")));
    }
    let mut signals = StopSignals::listen()?;
    let played = tokio::select! {
        played = play_all(&recordings, settings) => played.map(|()| None),
        stop = signals.received() => Ok(Some(stop)),
    };
    if output::stdout_is_terminal() {
        output::write_screen(RESTORE_TERMINAL.as_bytes()).map_err(|error| Failure::output_failed(&error))?;
    }
    Ok(played?.map_or(ExitCode::SUCCESS, StopSignal::exit_code))
}

async fn play_all(recordings: &[std::path::PathBuf], settings: PlaySettings) -> Result<(), Failure> {
    let unreadable = |error: session::RecordingError| Failure::from_error(ProblemCode::Internal, &error);
    for path in recordings {
        let mut reader = RecordingReader::open(path).map_err(unreadable)?;
        // The file may come from another build, so its text is filtered again. Nobody is there to answer queries.
        let mut filter = base::TerminalFilter::new(false);
        let mut before = Duration::ZERO;
        while let Some(frame) = reader.next_frame().map_err(unreadable)? {
            let pause = frame.at.saturating_sub(before).div_f64(settings.speed).min(settings.longest_pause);
            before = frame.at;
            tokio::time::sleep(pause).await;
            let text = frame.text.unwrap_or_default();
            let shown = filter.pass(text.as_bytes()).drawing;
            output::write_screen(&shown).map_err(|error| Failure::output_failed(&error))?;
        }
    }
    Ok(())
}

fn name(session: &SessionInfo) -> &str {
    session.name.as_deref().unwrap_or(session.session_id.as_str())
}
