//! The mock agent's process: real files, real commands, a scripted mind.
//!
//! It reads prompts and answers as JSON lines, asks the model gateway in every turn, does what the model
//! asks for, and prints items as JSON lines (`docs/mock-agent.md`). Text commands such as `/tool` or
//! `/crash` make every event, and every kind of trouble, without the help of a model.
//!
//! Not here: what its lines mean to the host (`agents`), reading the environment (`cli`).

mod process;
mod requests;
mod command_actions;
mod fetch;
mod files;
mod gateway;
mod inbox;
mod program;
mod settings;
mod sse;
mod turn_stop;
mod text_command;
mod tool;
mod turn;
mod line_printer;

use std::io::{Read, Write};
use std::process::ExitCode;

pub use settings::{MockSettings, SettingsError};
pub use turn_stop::ProcessEnd;

/// Lives as the mock agent until its input ends or a text command ends it.
pub fn main(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: impl Write) -> ExitCode {
    match run(settings, stdin, stdout) {
        ProcessEnd::Exit(code) => ExitCode::from(code),
        ProcessEnd::Abort => std::process::abort(),
        ProcessEnd::Hang => loop {
            std::thread::park();
        },
    }
}

/// The same, but tells how it would end instead of doing it.
pub fn run(settings: MockSettings, stdin: impl Read + Send + 'static, stdout: impl Write) -> ProcessEnd {
    process::MockProcess::new(settings, stdin, stdout).run()
}
