//! Load generator for the bench of sessions.
//!
//! `sessions-load serve DIRECTORY` is the session API of `viv serve` with one difference: its mock agents are tasks of
//! the server process, so that the bench measures sessions without sandboxes. The other subcommands are clients. Each
//! one runs one kind of load, checks every answer, and prints its measurements as JSON.
#![expect(clippy::print_stdout, reason = "the bench reads standard output")]

mod agent;
mod append;
mod crowd;
mod events;
mod fill;
mod http;
mod in_process;
mod measure;
mod rate;
mod readers;
mod serve;

use std::process::ExitCode;

use serde_json::Value;

const USAGE: &str = "usage: sessions-load serve DIRECTORY | append DIRECTORY EVENTS\n       \
    sessions-load fill DIRECTORY COUNT | filter ADDRESS ROUNDS\n       \
    sessions-load create|first-event|list ADDRESS COUNT | page ADDRESS EVENTS COUNT\n       \
    sessions-load readers ADDRESS READERS EVENTS | rate ADDRESS SESSIONS EVENTS_A_SECOND SECONDS\n       \
    sessions-load crowd ADDRESS CLIENTS SECONDS";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run_command(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(Some(measured)) => {
            println!("{measured}");
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("sessions-load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(words: &[&str]) -> Result<Option<Value>, String> {
    let client = match words {
        ["serve", directory] => return serve::run(directory.as_ref()).map(|()| None),
        ["append", directory, events] => return append::run(directory.as_ref(), number(events)?).map(Some),
        ["fill", directory, count] => return fill::run(directory.as_ref(), number(count)?).map(Some),
        ["filter", address, rounds] => run(fill::filter(address, number(rounds)?)),
        ["create", address, count] => run(measure::create(address, number(count)?)),
        ["first-event", address, count] => run(measure::first_event(address, number(count)?)),
        ["list", address, limit] => run(measure::list(address, number(limit)?)),
        ["page", address, events, count] => run(measure::page(address, number(events)?, number(count)?)),
        ["readers", address, readers, events] => run(readers::run(address, number(readers)?, number(events)?)),
        ["rate", address, sessions, hertz, seconds] => {
            run(rate::run(address, number(sessions)?, number(hertz)?, number(seconds)?))
        }
        ["crowd", address, clients, seconds] => run(crowd::run(address, number(clients)?, number(seconds)?)),
        _ => return Err(USAGE.to_owned()),
    };
    client.map(Some)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("invalid number `{word}`\n{USAGE}"))
}

/// Runs on one thread, to leave the other cores to the server.
fn run<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(tokio::task::LocalSet::new().run_until(work))
}
