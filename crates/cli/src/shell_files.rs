//! `viv completions` and `viv man`: files for shells and for `man`.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;
use protocol::ProblemCode;

use crate::args::Arguments;
use crate::failure::Failure;
use crate::output;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    // The generator panics when its output is a closed pipe, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "viv", &mut text);
    output::print_exact(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one manual page for each command into `directory`, which is created.
pub(crate) fn man(directory: &Path) -> Result<ExitCode, Failure> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), directory));
    written.map_err(|error| {
        let what = format!("cannot write the manual pages to `{}`", directory.display());
        Failure::new(ProblemCode::InvalidRequest, what).because(&error).help("viv man ./man")
    })?;
    Ok(ExitCode::SUCCESS)
}
