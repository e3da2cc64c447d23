//! Arguments of `viv sessions`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use protocol::{SessionId, TurnId};
use store::SinceTime;

use super::ListedSession;
use super::apply_arguments::ApplyArguments;
use super::ports::ForwardedPort;

/// Sessions to list.
#[derive(Debug, Args)]
pub(crate) struct ListFilter {
    /// Maximum number of sessions
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: usize,
    /// Only sessions of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only sessions in this state
    #[arg(long, value_parser = ["idle", "running", "waiting", "ended", "damaged"])]
    pub(crate) state: Option<String>,
    /// Only sessions started since then: 7d, 24h or 2026-11-15
    #[arg(long, value_name = "TIME", value_parser = |text: &str| text.parse::<SinceTime>())]
    pub(crate) since: Option<SinceTime>,
    /// Only sessions with this text in name, title, prompts, result or workspace
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

impl ListFilter {
    /// Returns whether a session has the state and the text.
    pub(crate) fn selects(&self, session: &ListedSession) -> bool {
        let ListedSession { info, summary } = session;
        let has_text = |text: &String| {
            let named = [&info.name, &info.title, &info.directory];
            let text = text.to_lowercase();
            named.into_iter().flatten().any(|name| name.to_lowercase().contains(&text)) || summary.mentions(&text)
        };
        self.state.as_ref().is_none_or(|state| *state == summary.state) && self.text.as_ref().is_none_or(has_text)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, newest first
    Ls(ListFilter),
    /// Show a session's details
    Show {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
    /// Show all events of a session
    Events {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Show only events after this sequence number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Wait for new events until the session ends
        #[arg(long, short)]
        follow: bool,
    },
    /// Show the changes of a session's workspace
    Diff {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Show only the line counts
        #[arg(long)]
        stat: bool,
        /// Show only the commits
        #[arg(long, conflicts_with = "against")]
        commits: bool,
        /// Show an earlier change set (see `viv sessions sets`)
        #[arg(long, value_name = "NUMBER")]
        set: Option<u64>,
        /// List the paths that differ from this change set
        #[arg(long, value_name = "NUMBER", conflicts_with = "stat")]
        against: Option<u64>,
    },
    /// List the change sets of a session, oldest first
    Sets {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
    /// Apply a session's changes to the workspace, all or none
    Apply(Box<ApplyArguments>),
    /// Delete a session's changes
    Discard {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
    /// Watch a running session and answer its requests; Ctrl-C leaves it running. An interactive session shows its screen;
    /// Ctrl-\ d leaves it
    Attach {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
    /// Play the recorded screen of an interactive session
    Play {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Times faster than it was recorded
        #[arg(long, default_value_t = 1.0)]
        speed: f64,
        /// Longest pause, such as 500ms or 2s
        #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::args::parse_duration)]
        pause: Duration,
    },
    /// Send a message to a session. An ended session is continued; during a turn, the message is queued
    Send {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Message; `-` reads stdin
        message: String,
    },
    /// List the queued messages of a session, next one first
    Queue {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Remove the message of this turn from the queue
        #[arg(long = "rm", value_name = "TURN")]
        remove: Option<TurnId>,
    },
    /// List the ports on which something listens inside a session
    Ports {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
    /// Open ports of a session on 127.0.0.1 of this host, until Ctrl-C
    Forward {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Port inside, and the port of the host if it differs; repeatable
        #[arg(required = true, value_name = "PORT[:HOST_PORT]")]
        ports: Vec<ForwardedPort>,
    },
    /// Fork a session: start a new one from its conversation, in the server
    Fork {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// Title of the new session
        #[arg(long)]
        title: Option<String>,
    },
    /// Export a session to one file: journal, bodies of model calls, changes and policy
    Export {
        /// Session: id, name, prefix of an id, or @last
        session: String,
        /// File to write; `-` is stdout
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Import an exported session (read-only)
    Import {
        /// Exported file
        file: PathBuf,
        /// New id, if the session's own id is already used
        #[arg(long = "as", value_name = "ID")]
        new_id: Option<SessionId>,
    },
    /// Stop and delete sessions; billing records are kept
    Rm {
        /// Session: id, name, prefix of an id, or @last; repeatable
        #[arg(required = true)]
        sessions: Vec<String>,
        /// Delete without asking; required if there is no terminal to ask on
        #[arg(long, short)]
        yes: bool,
    },
    /// Stop a session and all its processes
    Stop {
        /// Session: id, name, prefix of an id, or @last
        session: String,
    },
}
