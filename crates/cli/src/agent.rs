//! `viv __agent NAME`: this binary as the process of a built-in agent, inside the sandbox.

use std::process::ExitCode;

use protocol::ProblemCode;

use crate::config;
use crate::failure::Failure;

/// Runs the built-in agent `name`; fails for every name but `mock`.
pub(crate) fn run(name: &str, arguments: &[String]) -> Result<ExitCode, Failure> {
    if name != "mock" {
        return Err(Failure::new(
            ProblemCode::UnsupportedAgent,
            format!("agent `{name}` is not built in; the only built-in agent is `mock`"),
        ));
    }
    let settings = mock::MockSettings::parse(arguments.iter().cloned(), config::agent_variable)
        .map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error).help("viv run mock hello"))?;
    Ok(mock::main(settings, std::io::stdin(), std::io::stdout().lock()))
}
