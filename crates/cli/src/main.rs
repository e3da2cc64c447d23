//! The `viv` binary: arguments in, exit code out.
//!
//! The sandbox spawner is forked here, before anything has started a thread.

mod agent;
mod agents;
mod args;
mod client;
mod config;
mod demo;
mod doctor;
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
mod outlet;
mod policy;
mod replay;
mod run;
mod serve;
mod sessions;
mod signals;
mod table;
mod timeline;
mod typed;
mod upstream;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    log::start();
    let arguments = match typed::parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let json = arguments.json;
    match host::dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.tell(json),
    }
}
