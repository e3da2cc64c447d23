//! `viv agents`: list, install, show and remove agents.
//!
//! Agents come from npm in pinned versions. They are installed in the data directory, and sandboxes mount them
//! read-only. Data goes to standard output, messages to standard error.

mod agent_spec;
mod install;
mod install_folder;
mod list;
mod manifest;
mod npm;
mod progress;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::config::Config;
use crate::failure::Failure;

pub(crate) use agent_spec::AgentSpec;

/// Subcommands of `viv agents`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List agents with their capabilities and installed versions
    Ls,
    /// Install an agent, and Node if the agent needs it
    Install(InstallArguments),
    /// Show the installed versions of an agent, with the hash of every package
    Show {
        /// Agent: NAME or NAME@VERSION
        agent: String,
    },
    /// Print the path of an agent's program
    Path {
        /// Agent: NAME or NAME@VERSION
        agent: String,
    },
    /// Remove one version of an agent, or all of them
    Rm {
        /// Agent: NAME or NAME@VERSION
        agent: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// Agent: NAME or NAME@VERSION; without a version, the one that viv was tested with
    #[arg(required = true)]
    agents: Vec<String>,
    /// Download cache of npm, so that a second installation downloads nothing
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Runs `viv agents`.
pub(crate) fn carry_out(command: AgentsCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let data = crate::host::data_dir(config)?;
    let root = data.root().to_owned();
    match command {
        AgentsCommand::Ls => list::print(&data, json),
        AgentsCommand::Install(arguments) => {
            let cache = arguments.cache.or_else(|| config.file.agents.npm_cache.clone());
            for name in &arguments.agents {
                let wanted = AgentSpec::parse(name)?;
                let installed = install::ensure(&root, &wanted, cache.as_deref())?;
                install::tell(&installed);
            }
            Ok(ExitCode::SUCCESS)
        }
        AgentsCommand::Show { agent } => show::print(&root, &AgentSpec::parse(&agent)?, json),
        AgentsCommand::Path { agent } => show::print_path(&root, &AgentSpec::parse(&agent)?, json),
        AgentsCommand::Rm { agent } => show::remove(&root, &AgentSpec::parse(&agent)?),
    }
}

/// Installs an agent that is about to be started, unless it is installed.
pub(crate) fn install_on_first_use(config: &Config, wanted: &AgentSpec) -> Result<(), Failure> {
    let root = crate::host::data_dir(config)?.root().to_owned();
    if !install_folder::is_ready(&root, wanted) {
        let installed = install::ensure(&root, wanted, config.file.agents.npm_cache.as_deref())?;
        install::tell(&installed);
    }
    Ok(())
}

/// Installs an agent for a client of the API; with `again`, replaces an existing installation.
pub(crate) fn install(config: &Config, wanted: &AgentSpec, again: bool) -> Result<(), Failure> {
    let root = crate::host::data_dir(config)?.root().to_owned();
    if again && install_folder::is_ready(&root, wanted) {
        show::remove(&root, wanted)?;
    }
    install::ensure(&root, wanted, config.file.agents.npm_cache.as_deref()).map(drop)
}
