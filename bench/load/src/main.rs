//! Load generator for the benches of the gateway and of the egress proxy.
//!
//! `load vendor` (a model vendor that answers at once) and `load host` (a host that sends bytes on request) print their
//! address and serve until standard input ends. `load drive` (callers) and `load tunnel` (tunnels) read a plan from
//! standard input, run it, and print the measurements. All of them use as little HTTP as possible, so that the proxy in
//! the middle dominates the time.
#![expect(clippy::print_stdout, reason = "the bench reads standard output")]

mod caller;
mod plan;
mod serial;
mod tunnel;
mod vendor;

use std::io::Read;
use std::process::ExitCode;

use serde::Serialize;
use serde::de::DeserializeOwned;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["vendor"] => run(vendor::serve()),
        ["host"] => run(tunnel::serve()),
        ["drive"] => drive(async |plan: plan::Plan| plan.run_plan().await),
        ["tunnel"] => drive(async |plan: tunnel::Plan| plan.run_plan().await),
        _ => Err("usage: load vendor | load host | load drive < PLAN | load tunnel < PLAN".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn drive<P: DeserializeOwned, M: Serialize>(run_plan: impl AsyncFnOnce(P) -> Result<M, String>) -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let plan: P = serde_json::from_str(&text).map_err(|error| format!("cannot parse the plan: {error}"))?;
    let measured = run(run_plan(plan))?;
    println!("{}", serde_json::to_string(&measured).map_err(|error| error.to_string())?);
    Ok(())
}

/// Runs on one thread, to leave the other cores to the measured program.
fn run<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(tokio::task::LocalSet::new().run_until(work))
}
