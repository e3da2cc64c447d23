//! End-to-end tests of the `viv` binary: output, exit codes, files and processes.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

mod fixture;
mod http;
mod journal;
mod names;
mod opened_tls;
mod processes;
mod server;
mod terminal;

mod approval;
mod attach;
mod changes;
mod commands;
mod commits;
mod continuing;
mod crash;
mod damaged;
mod demo;
mod exec;
mod exit_codes;
mod forbidden;
mod help;
mod help_lines;
mod hostile_text;
mod lasting;
mod machine;
mod packages;
mod policies;
mod reconnect;
mod refusals;
mod replay;
mod run;
mod setup;
mod stopping;
mod streaming;
mod tasks;
mod tls;
mod toolchains;
mod traffic;
mod tty;
mod upstreams;
mod users;
