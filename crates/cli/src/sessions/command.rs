//! What `viv sessions` can be told.

use std::path::PathBuf;

use clap::Subcommand;
use protocol::{SessionId, TurnId};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Which sessions there are, newest first
    Ls {
        /// At most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// What became of one
    Show {
        /// Id, name, the beginning of an id, or @last
        session: String,
    },
    /// Everything that happened in it
    Events {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// Only what came after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Wait for more until the session ends
        #[arg(long, short)]
        follow: bool,
    },
    /// What it changed in its workspace
    Diff {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// Only the counts
        #[arg(long)]
        stat: bool,
    },
    /// Bring its changes to the workspace: all of them or none
    Apply {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// Only these paths, relative to the workspace
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// The policy whose `fs.deny_write` holds; what `viv policy explain` says when not given
        #[arg(long, value_name = "FILE|PRESET")]
        policy: Option<String>,
        /// Complete an apply that stopped halfway
        #[arg(long, conflicts_with_all = ["paths", "undo"])]
        finish: bool,
        /// Take the last apply back
        #[arg(long, conflicts_with = "paths")]
        undo: bool,
    },
    /// Forget its changes
    Discard {
        /// Id, name, the beginning of an id, or @last
        session: String,
    },
    /// Watch it live, and answer what it asks; Ctrl-C leaves it running
    Attach {
        /// Id, name, the beginning of an id, or @last
        session: String,
    },
    /// Hand it a message; it waits its turn when one is running
    Send {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// What to tell it; `-` reads stdin
        message: String,
    },
    /// Which messages wait for their turn, the next one first
    Queue {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// Take the message of this turn out: it will not be answered
        #[arg(long = "rm", value_name = "TURN")]
        remove: Option<TurnId>,
    },
    /// A new session that goes on where it stands, in the server
    Fork {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// Title of the new session
        #[arg(long)]
        title: Option<String>,
    },
    /// Write everything about it to one file: record, bodies of model calls, diff, policy
    Export {
        /// Id, name, the beginning of an id, or @last
        session: String,
        /// The file; `-` is stdout
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Take in a session from such a file; it has ended and can be read
    Import {
        /// The file
        file: PathBuf,
        /// The id it gets here, where its own is taken or was
        #[arg(long = "as", value_name = "ID")]
        new_id: Option<SessionId>,
    },
    /// End it if it runs, and forget all of it but what it cost
    Rm {
        /// Id, name, the beginning of an id, or @last; may be given more than once
        #[arg(required = true)]
        sessions: Vec<String>,
    },
    /// End it, and every process of it
    Stop {
        /// Id, name, the beginning of an id, or @last
        session: String,
    },
}
