//! The `viv` binary: reads the command line, runs one command, returns its exit code.

mod agent;
mod agents;
mod api;
mod approval;
mod args;
mod backend;
mod client;
mod command_line;
mod config;
mod config_command;
mod credentials;
mod demo;
mod diff_colour;
mod doctor;
mod egress_settings;
mod event_reader;
mod exec;
mod failure;
mod gateway;
mod host;
mod host_names;
mod human_time;
mod init;
mod issued_secret;
mod keys;
mod log;
mod mcp;
mod model_failure;
mod models;
mod money;
mod network_arguments;
mod notification;
mod output;
mod packages;
mod pager;
mod perms;
mod policy;
mod prompter;
mod replay;
mod run;
mod run_limits;
mod serve;
mod served_sessions;
mod session_access;
mod session_id;
mod sessions;
mod setup;
mod shell_files;
mod shell_word;
mod signals;
mod skills_and_mcp;
mod table;
mod task;
mod terminal;
mod timeline;
mod tokens;
mod top;
mod ui;
mod upstream;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    log::start();
    let arguments = match command_line::parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let json = arguments.common.json;
    match host::dispatch(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
