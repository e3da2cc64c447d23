//! `viv top`: the sessions that have not ended, in a table that updates itself.
//!
//! Every journal is read once and then followed, so that the table stays cheap with long sessions. `q` and Ctrl-C end it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use base::PrintableText;
use clap::Args;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionId};
use tokio::io::AsyncReadExt as _;

use crate::config::Config;
use crate::failure::Failure;
use crate::sessions::summary::SessionSummary;
use crate::sessions::{ListedSession, SessionCatalog, list};
use crate::signals::StopSignals;
use crate::table::TextTable;
use crate::terminal::RawTerminal;
use crate::{notification, output};

/// The alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

#[derive(Debug, Args)]
#[command(after_help = "Keys: q or Ctrl-C quits.\n\nExamples:\n  viv top\n  viv top --interval 5s")]
pub(crate) struct TopArguments {
    /// Time between two updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::args::parse_duration)]
    interval: Duration,
}

/// Runs `viv top` until a key or a signal ends it.
pub(crate) async fn carry_out(arguments: TopArguments, config: Config) -> Result<ExitCode, Failure> {
    if !output::stdin_is_terminal() || !output::stdout_is_terminal() {
        let what = "`viv top` needs a terminal on stdin and stdout";
        return Err(Failure::new(ProblemCode::NoTerminal, what).help("viv sessions ls"));
    }
    let catalog = SessionCatalog::open(&config, false)?;
    let mut signals = StopSignals::listen()?;
    let raw = RawTerminal::enter()?;
    write(ENTER)?;
    let shown = show(&catalog, &arguments, &raw, &mut signals).await;
    write(LEAVE)?;
    drop(raw);
    shown
}

async fn show(
    catalog: &SessionCatalog<'_>,
    arguments: &TopArguments,
    raw: &RawTerminal,
    signals: &mut StopSignals,
) -> Result<ExitCode, Failure> {
    let (mut table, mut window) = (TopTable::default(), raw.window());
    let mut ticks = tokio::time::interval(arguments.interval.max(Duration::from_millis(100)));
    let (mut stdin, mut keys) = (tokio::io::stdin(), [0; 16]);
    loop {
        tokio::select! {
            _ = ticks.tick() => table.update(catalog)?,
            // A redraw with the new size.
            changed = window.changed() => if changed.is_err() { return Ok(ExitCode::SUCCESS) },
            read = stdin.read(&mut keys) => {
                let read = read.unwrap_or(0);
                // Ctrl-C arrives as a byte: the terminal is raw.
                if read == 0 || keys[..read].iter().any(|key| matches!(key, b'q' | b'Q' | 3)) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            stop = signals.received() => return Ok(stop.exit_code()),
        }
        write(&table.screen(output::terminal_columns(), output::terminal_rows()))?;
    }
}

/// The followed sessions.
#[derive(Default)]
struct TopTable {
    followed: HashMap<SessionId, (SessionSummary, u64)>,
    sessions: Vec<ListedSession>,
}

impl TopTable {
    /// Reads the new events. Rings if a session began to wait for a person.
    fn update(&mut self, catalog: &SessionCatalog<'_>) -> Result<(), Failure> {
        let waited: Vec<SessionId> = self.waiting().cloned().collect();
        let mut followed = HashMap::new();
        self.sessions.clear();
        for info in catalog.open_sessions()? {
            let (mut summary, seen) = self.followed.remove(&info.session_id).unwrap_or_default();
            let seen = summary.update(catalog.directory(), &info, seen)?;
            followed.insert(info.session_id.clone(), (summary.clone(), seen));
            self.sessions.push(ListedSession { info, summary });
        }
        self.followed = followed;
        if self.waiting().any(|id| !waited.contains(id)) {
            notification::agent_waits();
        }
        Ok(())
    }

    fn waiting(&self) -> impl Iterator<Item = &SessionId> {
        let waiting = self.sessions.iter().filter(|session| session.summary.state == "waiting");
        waiting.map(|session| &session.info.session_id)
    }

    /// Returns the whole screen.
    fn screen(&self, columns: usize, rows: usize) -> String {
        let count = |state: &str| self.sessions.iter().filter(|session| session.summary.state == state).count();
        let (running, waiting, idle) = (count("running"), count("waiting"), count("idle"));
        let mut lines = vec![format!("viv top · {running} running · {waiting} waiting · {idle} idle · q quits")];
        let now = Timestamp::now();
        let mut cells: Vec<_> = self.sessions.iter().map(|session| session.cells(now, columns)).collect();
        list::fit(&mut cells, columns);
        lines.extend(TextTable { head: list::HEAD, rows: cells }.text().lines().map(str::to_owned));
        let mut screen = String::from("\x1b[H");
        for line in lines.iter().take(rows.saturating_sub(1)) {
            // The heading of the table is bold. Rows have no styles, because their cells are printable text.
            let heading = line.strip_prefix(BOLD).and_then(|line| line.strip_suffix(RESET));
            let shown = PrintableText::exact_line(heading.unwrap_or(line));
            let shown: String = shown.as_str().chars().take(columns).collect();
            let (on, off) = if heading.is_some() { (BOLD, RESET) } else { ("", "") };
            // Writing to a string cannot fail.
            let _ = write!(screen, "{on}{shown}{off}\x1b[K\r\n");
        }
        screen + "\x1b[J"
    }
}

fn write(text: &str) -> Result<(), Failure> {
    output::write_screen(text.as_bytes()).map_err(|error| Failure::output_failed(&error))
}
