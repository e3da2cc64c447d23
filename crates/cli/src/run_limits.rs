//! Limits and checks that `viv run` and `viv exec` share: `--memory`, `--cpus`, and the home directory as a workspace.

use std::path::Path;

use clap::Args;
use protocol::ProblemCode;

use crate::failure::Failure;
use crate::output::{self, message};
use crate::{config, prompter};

/// Limits of the sandbox, as short forms of `--narrow`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LimitArguments {
    /// Memory limit, e.g. 512M or 2G; the same as --narrow proc.memory=512MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<String>,
    /// Limit of processors, e.g. 2 or 0.5; the same as --narrow proc.cpus=2
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<String>,
    /// Allow the home directory as workspace
    #[arg(long)]
    yes: bool,
}

impl LimitArguments {
    /// Returns the limits as entries of `--narrow`.
    pub(crate) fn narrowing(&self) -> impl Iterator<Item = String> {
        let memory = self.memory.iter().map(|size| format!("proc.memory={size}"));
        let cpus = self.cpus.iter().map(|number| format!("proc.cpus={number}"));
        memory.chain(cpus).collect::<Vec<_>>().into_iter()
    }

    /// Fails if the workspace contains the home directory and the person does not agree. Shell history, keys of other
    /// programs and toolchains are there.
    pub(crate) async fn check_home(&self, workspace: &Path) -> Result<(), Failure> {
        let home = config::home().and_then(|home| home.canonicalize().ok());
        // The root directory is refused as a workspace for everybody.
        let is_root = workspace.parent().is_none();
        if self.yes || is_root || !home.is_some_and(|home| home.starts_with(workspace)) {
            return Ok(());
        }
        let what =
            format!("the workspace `{}` contains your home directory: history, keys and settings", workspace.display());
        let refused = |why: &str| {
            Failure::new(ProblemCode::NoTerminal, format!("{what}{why}")).help("mkdir -p ~/project && cd ~/project")
        };
        if !output::stdin_is_terminal() || !output::stderr_is_terminal() {
            return Err(refused("; without a terminal this needs `--yes`"));
        }
        message!("\x1b[1mwarning\x1b[0m {what}");
        let answer =
            prompter::ask_choice("show all of it to the sandbox? [y]es · [n]o: ", &["y", "yes", "n", "no"]).await;
        if matches!(answer.as_str(), "y" | "yes") { Ok(()) } else { Err(refused("")) }
    }
}

/// Parses a size; `512M` means `512MiB`.
fn parse_size(text: &str) -> Result<String, String> {
    let letter = text
        .strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T'])
        .filter(|digits| digits.ends_with(|sign: char| sign.is_ascii_digit()));
    let size = match letter {
        Some(digits) => format!("{digits}{}iB", text[digits.len()..].to_uppercase()),
        None => text.to_owned(),
    };
    policy::size_from_text(&size).map(|_| size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_usual_short_forms() {
        assert_eq!(parse_size("512M").as_deref(), Ok("512MiB"));
        assert_eq!(parse_size("2g").as_deref(), Ok("2GiB"));
        assert_eq!(parse_size("1GiB").as_deref(), Ok("1GiB"));
        assert!(parse_size("1 cow").is_err());
    }
}
