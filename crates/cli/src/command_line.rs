//! Parsing of the command line, with its errors in the form of every other error.

use std::ffi::OsString;
use std::process::ExitCode;

use ::policy::closest;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use protocol::ProblemCode;

use crate::args::Arguments;
use crate::exec::VIV_FAILED;
use crate::failure::Failure;
use crate::shell_word::shell_word;

/// Parses the command line. Help and version texts are printed here; the error is the exit code that goes with them.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Arguments, ExitCode> {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    Arguments::try_parse_from(&words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A reader that closed the pipe, as in `viv --help | head`, is not an error.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
        }
        _ => {
            let command = command(&words);
            let failure = failure(&error, &command);
            let unknown = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(word)) if command == "viv" => suggestion(word),
                _ => None,
            };
            let corrected = with_separator(&words).filter(|_| command == "viv exec").or(unknown);
            corrected.into_iter().fold(failure, Failure::help).report(json)
        }
    })
}

fn failure(error: &clap::Error, command: &str) -> Failure {
    let text = error.render().to_string();
    // clap's own tips for commands know only the names at the top.
    let is_tip = |line: &str| error.kind() == ErrorKind::InvalidSubcommand && line.trim_start().starts_with("tip:");
    let mut lines =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with("For more information") && !is_tip(line));
    let what = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let detail = lines.collect::<Vec<_>>().join("\n");
    let failure = Failure::new(ProblemCode::InvalidRequest, what).detail(detail).help(format!("{command} --help"));
    // For `viv exec`, the exit codes below 125 belong to the command that it runs.
    if command == "viv exec" { failure.exit(VIV_FAILED) } else { failure }
}

/// Returns the command that was probably meant by an unknown one: a subcommand without its group, or an agent.
fn suggestion(word: &str) -> Option<String> {
    if word == "version" {
        return Some("viv --version".to_owned());
    }
    let root = Arguments::command();
    let groups = || root.get_subcommands();
    let exact =
        groups().find_map(|group| group.find_subcommand(word).map(|found| (group.get_name(), found.get_name())));
    if let Some((group, name)) = exact {
        return Some(format!("viv {group} {name} --help"));
    }
    let agents: Vec<&str> = ::agents::all().map(::agents::Agent::id).collect();
    if let Some(agent) = closest(word, agents) {
        return Some(format!("viv run {agent}"));
    }
    let nested = groups().flat_map(|group| group.get_subcommands().map(move |command| (group, command)));
    let nested: Vec<(&str, &str)> = nested.map(|(group, command)| (group.get_name(), command.get_name())).collect();
    let name = closest(word, groups().map(Command::get_name).chain(nested.iter().map(|(_, name)| *name)))?;
    match nested.iter().find(|(_, nested)| *nested == name) {
        Some((group, name)) if root.find_subcommand(name).is_none() => Some(format!("viv {group} {name} --help")),
        _ => Some(format!("viv {name} --help")),
    }
}

/// Returns `viv exec -- ls` for `viv exec ls`: the command without the `--` before it. `None` if the words are not
/// accepted with a `--` either.
fn with_separator(words: &[OsString]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    if words.contains(&"--") {
        return None;
    }
    let exec = words.iter().position(|word| *word == "exec")?;
    let is_accepted = |at: &usize| {
        let typed = [&words[..*at], &["--"], &words[*at..]].concat();
        !words[*at].starts_with('-') && Arguments::try_parse_from(typed).is_ok()
    };
    // The first place at which everything before is an option.
    let at = (exec + 1..words.len()).find(is_accepted)?;
    let quoted = |words: &[&str]| words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    let options = [quoted(&words[1..at])].into_iter().filter(|words| !words.is_empty());
    Some(
        ["viv".to_owned()]
            .into_iter()
            .chain(options)
            .chain([format!("-- {}", quoted(&words[at..]))])
            .collect::<Vec<_>>()
            .join(" "),
    )
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
    fn an_unknown_command_is_corrected() {
        assert_eq!(suggestion("cluade").as_deref(), Some("viv run claude"));
        assert_eq!(suggestion("apply").as_deref(), Some("viv sessions apply --help"));
        assert_eq!(suggestion("aply").as_deref(), Some("viv sessions apply --help"));
        assert_eq!(suggestion("docter").as_deref(), Some("viv doctor --help"));
        assert_eq!(suggestion("version").as_deref(), Some("viv --version"));
        assert_eq!(suggestion("nonsense"), None);
    }

    #[test]
    fn a_command_without_its_separator_is_corrected() {
        let corrected = |typed: &str| with_separator(&typed.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(corrected("viv exec ls").as_deref(), Some("viv exec -- ls"));
        assert_eq!(corrected("viv exec --timeout 5s ls -l /").as_deref(), Some("viv exec --timeout 5s -- ls -l /"));
        assert_eq!(corrected("viv exec"), None);
        assert_eq!(corrected("viv exec --timeout"), None);
    }

    #[test]
    fn the_command_name_is_found_among_options() {
        check("viv --json exec --timeout soon -- demo", "viv exec");
        check("viv sessions show", "viv sessions show");
        check("viv --data-dir exec demo --nonsense", "viv demo");
        check("viv nonsense", "viv");
    }
}
