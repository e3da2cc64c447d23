//! Load for the bench of the gateway: a vendor that answers at once, and callers that ask again as soon as they
//! were answered.
//!
//! `load vendor` prints its address and answers until its standard input ends. `load drive` reads a plan from
//! standard input, carries it out and prints what it measured. Both speak as little HTTP as they must, so that
//! what is measured is what stands between them.
#![expect(clippy::print_stdout, reason = "the bench reads what this prints")]

mod caller;
mod plan;
mod serial;
mod vendor;

use std::io::Read;
use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["vendor"] => run(vendor::serve()),
        ["drive"] => drive(),
        _ => Err("usage: load vendor | load drive < PLAN".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn drive() -> Result<(), String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| error.to_string())?;
    let plan: Plan = serde_json::from_str(&text).map_err(|error| format!("the plan is no plan: {error}"))?;
    let measured = run(plan.carry_out())?;
    println!("{}", serde_json::to_string(&measured).map_err(|error| error.to_string())?);
    Ok(())
}

/// One thread: the vendor and the callers must leave the other cores to what is measured.
fn run<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(tokio::task::LocalSet::new().run_until(work))
}
