//! What was typed and cannot be read, told like every other error.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use protocol::ProblemCode;

use crate::args::{Arguments, Command, CommonArguments, ExecArguments};
use crate::exec::VIV_FAILED;
use crate::failure::Failure;

/// A line with `exec` in it. To describe all commands to the parser takes longer than to read the line, and the
/// sandbox of this one waits for it.
#[derive(Debug, Parser)]
#[command(name = "viv", disable_help_flag = true, disable_help_subcommand = true)]
struct ExecLine {
    #[command(flatten)]
    common: CommonArguments,
    #[command(subcommand)]
    command: ExecCommand,
}

#[derive(Debug, Subcommand)]
enum ExecCommand {
    Exec(ExecArguments),
}

impl From<ExecLine> for Arguments {
    fn from(line: ExecLine) -> Self {
        let ExecLine { common, command: ExecCommand::Exec(exec) } = line;
        Self { common, command: Command::Exec(exec) }
    }
}

/// Reads the command line; what was asked for in it instead, like `--help`, is printed here.
pub(crate) fn parse(typed: Vec<OsString>) -> Result<Arguments, ExitCode> {
    // Whatever is wrong with the line is told by the parser that knows all of them.
    if is_exec(&typed)
        && let Ok(line) = ExecLine::try_parse_from(&typed)
    {
        return Ok(line.into());
    }
    let json = typed.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Arguments::try_parse_from(&typed).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A reader that has gone away knows enough.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
        }
        _ => failure(&error, &command(&typed)).tell(json),
    })
}

/// Whether the first word is `exec`: looked at before anything else is read.
pub(crate) fn is_exec(typed: &[OsString]) -> bool {
    let mut words = typed.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            // What follows is a directory, whatever it is called.
            Some("--data-dir") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            first => return first == Some("exec"),
        }
    }
    false
}

fn failure(error: &clap::Error, command: &str) -> Failure {
    let text = error.render().to_string();
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let detail = lines.collect::<Vec<_>>().join("\n");
    let failure = Failure::new(ProblemCode::InvalidRequest, what).detail(detail).help(format!("{command} --help"));
    // The exit codes below 125 are those of what it runs.
    if command == "viv exec" { failure.exit(VIV_FAILED) } else { failure }
}

/// The command that was meant, as far as it can be told: `viv exec` of `viv --json exec --timeout soon -- ls`.
fn command(typed: &[OsString]) -> String {
    let (mut command, mut name) = (Arguments::command(), "viv".to_owned());
    let mut words = typed.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        // What follows is a directory, whatever it is called.
        if word == "--data-dir" {
            words.next();
        } else if let Some(found) = command.find_subcommand(word) {
            name = format!("{name} {}", found.get_name());
            command = found.clone();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: &str) {
        let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        assert_eq!(command(&typed), expected);
    }

    #[test]
    fn the_command_that_was_meant_is_found() {
        check("viv --json exec --timeout soon -- demo", "viv exec");
        check("viv sessions show", "viv sessions show");
        check("viv --data-dir exec demo --nonsense", "viv demo");
        check("viv nonsense", "viv");
    }
}
