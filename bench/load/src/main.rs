//! Load for the benches of the gateway and of the egress proxy: a vendor that answers at once and callers that ask
//! again as soon as they were answered; a host that sends what it is asked for, and tunnels to it.
//!
//! `load vendor` and `load host` print their address and answer until standard input ends. `load drive` and `load
//! tunnel` read a plan from standard input, carry it out and print what they measured. All speak as little HTTP as they
//! must, so that what is measured is what stands between them.
#![expect(clippy::print_stdout, reason = "the bench reads what this prints")]

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
        ["drive"] => drive(async |plan: plan::Plan| plan.carry_out().await),
        ["tunnel"] => drive(async |plan: tunnel::Plan| plan.carry_out().await),
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

fn drive<P: DeserializeOwned, M: Serialize>(carry_out: impl AsyncFnOnce(P) -> Result<M, String>) -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let plan: P = serde_json::from_str(&text).map_err(|error| format!("the plan is no plan: {error}"))?;
    let measured = run(carry_out(plan))?;
    println!("{}", serde_json::to_string(&measured).map_err(|error| error.to_string())?);
    Ok(())
}

/// One thread: the vendor and the callers must leave the other cores to what is measured.
fn run<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(tokio::task::LocalSet::new().run_until(work))
}
