//! The process of the mock agent: real files, real commands, a scripted model.
//!
//! The agent reads prompts and answers as JSON lines, calls the model gateway in every turn, performs the requested
//! tool calls, and prints items as JSON lines (`docs/mock-agent.md`). Text commands such as `/tool` or `/crash` produce
//! every event and every kind of fault without a model.
//!
//! Not here: the host's side of the protocol (`agents`), and reading the environment (`cli`).

mod command_actions;
mod fetch;
mod files;
mod gateway;
mod inbox;
mod line_printer;
mod process;
mod program;
mod requests;
mod settings;
mod sse;
mod text_command;
mod tool;
mod turn;
mod turn_stop;

use std::io::{Read, Write};
use std::process::ExitCode;

pub use settings::{MockSettings, SettingsError};
pub use turn_stop::ProcessEnd;

/// Runs the mock agent until its input ends or a text command ends it, and ends the process accordingly.
pub fn main(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: impl Write) -> ExitCode {
    match run(settings, stdin, stdout) {
        ProcessEnd::Exit(code) => ExitCode::from(code),
        ProcessEnd::Abort => std::process::abort(),
        ProcessEnd::Hang => loop {
            std::thread::park();
        },
    }
}

/// Runs the mock agent and returns how the process should end.
pub fn run(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: impl Write) -> ProcessEnd {
    process::MockProcess::new(settings, stdin, stdout).run()
}
