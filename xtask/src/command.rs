//! The table of `cargo xtask` commands.

use anyhow::{Result, bail};

use crate::{bench, checks, fuzz, install, load, syscalls, tidy};

/// A command of `cargo xtask`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

/// All commands. Documents may name no others.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        usage: "test [--fast|--agents]",
        about: "install what the checks need, and run every check",
        run: test,
    },
    Command { name: "tidy", usage: "tidy", about: "the rules of the repository", run: tidy },
    Command { name: "api", usage: "api", about: "the session API of a real server, as its document says", run: api },
    Command { name: "bench", usage: "bench [NAME]", about: "measures and records; lists without a name", run: bench },
    Command {
        name: "fuzz",
        usage: "fuzz [TARGET] [--runs=N] [--steady]",
        about: "fuzz every parser of foreign input with a million inputs",
        run: fuzz::run,
    },
    Command {
        name: "load",
        usage: "load [--minutes=N] [--debug]",
        about: "64 clients against a real `viv serve`, for ten minutes",
        run: load::run,
    },
    Command {
        name: "syscalls",
        usage: "syscalls NAME -- COMMAND…",
        about: "measure the system calls of a program for the allow-list of the sandbox",
        run: syscalls::run,
    },
    Command { name: "install", usage: "install", about: "install what `test` needs on this machine", run: install },
];

/// Runs the command that `arguments` name.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", help());
        return Ok(());
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", help());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => bail!("unknown command `cargo xtask {name}`\n\n{}", help()),
    }
}

fn help() -> String {
    let rows = COMMANDS.iter().map(|command| format!("  cargo xtask {:14} {}\n", command.usage, command.about));
    format!("Usage:\n{}", rows.collect::<String>())
}

fn test(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => checks::run_all(),
        [flag] if flag == "--fast" => checks::run_fast(),
        [flag] if flag == "--agents" => checks::run_agents(),
        _ => bail!("usage: cargo xtask test [--fast|--agents]"),
    }
}

fn tidy(arguments: &[String]) -> Result<()> {
    nothing_more("tidy", arguments)?;
    tidy::run()
}

fn api(arguments: &[String]) -> Result<()> {
    nothing_more("api", arguments)?;
    checks::run_api()
}

fn bench(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            print!("{}", bench::list());
            Ok(())
        }
        [name] => bench::run(name),
        _ => bail!("usage: cargo xtask bench [NAME]"),
    }
}

fn install(arguments: &[String]) -> Result<()> {
    nothing_more("install", arguments)?;
    install::run_all()
}

fn nothing_more(name: &str, arguments: &[String]) -> Result<()> {
    match arguments.first() {
        None => Ok(()),
        Some(extra) => bail!("`cargo xtask {name}` takes no `{extra}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_command_is_refused_with_the_list_of_commands() {
        let error = run(&["tset".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("unknown command `cargo xtask tset`"), "{error}");
        assert!(error.contains("cargo xtask test [--fast|--agents]"), "{error}");
    }

    #[test]
    fn unknown_flag_is_refused() {
        assert!(test(&["--quick".to_owned()]).is_err());
        assert!(tidy(&["--fix".to_owned()]).is_err());
    }
}
