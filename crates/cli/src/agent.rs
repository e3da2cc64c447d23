//! `viv __agent NAME`: this binary as an agent's process, inside the sandbox.

use std::process::ExitCode;

use protocol::ProblemCode;

use crate::config;
use crate::failure::Failure;

/// Lives as the agent `name`.
pub(crate) fn live(name: &str, arguments: &[String]) -> Result<ExitCode, Failure> {
    if name != "mock" {
        return Err(Failure::new(
            ProblemCode::UnsupportedAgent,
            format!("`{name}` is not an agent that lives in this binary"),
        ));
    }
    let settings = mock::MockSettings::parse(arguments.iter().cloned(), config::agent_variable)
        .map_err(|error| Failure::of(ProblemCode::InvalidRequest, &error).help("viv run mock hello"))?;
    Ok(mock::main(settings, std::io::stdin(), std::io::stdout().lock()))
}
