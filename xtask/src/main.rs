//! Tasks for developers: `cargo xtask test`, `tidy`, `bench`, `install`.
//!
//! This crate has few dependencies, because it is compiled first on a fresh machine.

mod bench;
mod checks;
mod command;
mod family;
mod fuzz;
mod gvisor;
mod identity;
mod install;
mod load;
mod markdown;
mod session_api;
mod source;
mod step;
mod syscalls;
mod tidy;
mod transcript;
mod tree;
mod venv;
mod viv;
mod web;
mod workspace;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command::run(&arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
