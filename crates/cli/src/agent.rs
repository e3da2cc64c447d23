//! `viv __agent NAME`: this binary as an agent's process, inside the sandbox.

use std::process::ExitCode;

use protocol::Code;

use crate::config;
use crate::failure::Failure;

/// Lives as the agent `name`.
pub(crate) fn live(name: &str, arguments: &[String]) -> Result<ExitCode, Failure> {
    if name != "mock" {
        return Err(Failure::new(
            Code::UnsupportedAgent,
            format!("`{name}` is not an agent that lives in this binary"),
        ));
    }
    let settings = mock::Settings::parse(arguments.iter().cloned(), config::agent_variable)
        .map_err(|error| Failure::of(Code::InvalidRequest, &error).help("viv run mock hello"))?;
    Ok(mock::main(settings, std::io::stdin(), std::io::stdout().lock()))
}
