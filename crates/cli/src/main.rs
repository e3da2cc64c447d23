//! The `viv` binary: arguments in, exit code out.
//!
//! The sandbox spawner is forked here, before anything has started a thread.

mod agent;
mod agents;
mod api;
mod args;
mod backend;
mod client;
mod config;
mod credentials;
mod demo;
mod doctor;
mod equipment;
mod exec;
mod failure;
mod front;
mod gateway;
mod host;
mod keys;
mod log;
mod models;
mod money;
mod name;
mod origins;
mod outlet;
mod perms;
mod person;
mod policy;
mod reachable;
mod replay;
mod run;
mod serve;
mod sessions;
mod signals;
mod table;
mod task;
mod timeline;
mod tokens;
mod typed;
mod upstream;
mod usage;
mod world;

use std::process::ExitCode;

use jail::Spawner;

fn main() -> ExitCode {
    log::start();
    let typed: Vec<_> = std::env::args_os().collect();
    // A sandbox for a single command is begun while the rest of its line is read.
    let early = typed::is_exec(&typed).then(Spawner::for_one_command);
    let arguments = match typed::parse(typed) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let json = arguments.common.json;
    match host::dispatch(arguments, early) {
        Ok(code) => code,
        Err(failure) => failure.tell(json),
    }
}
