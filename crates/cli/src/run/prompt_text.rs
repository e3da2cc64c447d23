//! The prompt of a run: an argument, or stdin.

use std::io::Read;

use protocol::ProblemCode;

use crate::failure::Failure;

/// Returns the prompt; `-` reads stdin.
pub(super) fn read(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, "cannot read the prompt from stdin").because(&error)
    })?;
    Ok(text)
}
