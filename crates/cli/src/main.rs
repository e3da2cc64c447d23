//! The `viv` binary; for now, `viv policy` alone.

mod policy;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

/// Coding agents under glass.
#[derive(Debug, Parser)]
#[command(name = "viv", version)]
struct Arguments {
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
    /// Where all state lives
    #[arg(long, global = true, env = "VIV_DATA_DIR", default_value = ".viv")]
    data_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check, explain, test, compare and trust policy files
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
}

fn main() -> ExitCode {
    let Arguments { json, data_dir, command: Command::Policy(command) } = Arguments::parse();
    let now_unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let organisation_file = PathBuf::from("/etc/viv/policy.yaml");
    let setting = policy::Setting { json, data_dir, organisation_file, workspace: PathBuf::from("."), now_unix_secs };
    let mut people = anstream::stderr();
    match policy::run(command, &setting, &mut anstream::stdout(), &mut people) {
        Ok(code) => code,
        Err(failure) => {
            // Nobody is left to tell when standard error is closed too.
            let _ = failure.report(&mut people);
            ExitCode::from(failure.code().exit())
        }
    }
}
