//! Parsing of the command line, with its errors in the form of every other error.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use protocol::ProblemCode;

use crate::args::Arguments;
use crate::exec::VIV_FAILED;
use crate::failure::Failure;

/// Parses the command line. Help and version texts are printed here; the error is the exit code that goes with them.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Arguments, ExitCode> {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Arguments::try_parse_from(&words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A reader that closed the pipe, as in `viv --help | head`, is not an error.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
        }
        _ => failure(&error, &command(&words)).report(json),
    })
}

fn failure(error: &clap::Error, command: &str) -> Failure {
    let text = error.render().to_string();
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let detail = lines.collect::<Vec<_>>().join("\n");
    let failure = Failure::new(ProblemCode::InvalidRequest, what).detail(detail).help(format!("{command} --help"));
    // For `viv exec`, the exit codes below 125 belong to the command that it runs.
    if command == "viv exec" { failure.exit(VIV_FAILED) } else { failure }
}

/// Returns the longest command name in `words`: `viv exec` for `viv --json exec --timeout soon -- ls`.
fn command(words: &[OsString]) -> String {
    let (mut command, mut name) = (Arguments::command(), "viv".to_owned());
    let mut rest = words.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    while let Some(word) = rest.next() {
        // The next word is a directory, even if it is named like a command.
        if word == "--data-dir" {
            rest.next();
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
    fn the_command_name_is_found_among_options() {
        check("viv --json exec --timeout soon -- demo", "viv exec");
        check("viv sessions show", "viv sessions show");
        check("viv --data-dir exec demo --nonsense", "viv demo");
        check("viv nonsense", "viv");
    }
}
