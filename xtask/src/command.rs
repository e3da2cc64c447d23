//! The commands of `cargo xtask`, as a table that also answers what exists.

use anyhow::{Result, bail};

use crate::{bench, checks, fuzz, install, load, tidy};

/// One command of `cargo xtask`.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

/// Every command there is; documents may name no other.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        usage: "test [--fast|--agents]",
        about: "every check, after installing what they need",
        run: test,
    },
    Command { name: "tidy", usage: "tidy", about: "the rules of the repository", run: tidy },
    Command { name: "api", usage: "api", about: "the session API of a real server, as its document says", run: api },
    Command { name: "bench", usage: "bench [NAME]", about: "measures and records; lists without a name", run: bench },
    Command {
        name: "fuzz",
        usage: "fuzz [TARGET] [--runs=N] [--steady]",
        about: "a million inputs for everything that reads what others wrote",
        run: fuzz::run,
    },
    Command {
        name: "load",
        usage: "load [--minutes=N] [--debug]",
        about: "64 clients against a real `viv serve`, for ten minutes",
        run: load::run,
    },
    Command { name: "install", usage: "install", about: "what `test` needs on this machine", run: install },
];

/// Runs what was typed.
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
        None => bail!("there is no `cargo xtask {name}`\n\n{}", help()),
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
    fn an_unknown_command_is_refused_and_the_known_ones_are_shown() {
        let error = run(&["tset".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("there is no `cargo xtask tset`"), "{error}");
        assert!(error.contains("cargo xtask test [--fast|--agents]"), "{error}");
    }

    #[test]
    fn a_flag_that_does_not_exist_is_refused_before_anything_runs() {
        assert!(test(&["--quick".to_owned()]).is_err());
        assert!(tidy(&["--fix".to_owned()]).is_err());
    }
}
