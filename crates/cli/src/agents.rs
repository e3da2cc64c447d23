//! `viv agents`: which agents there are, and what is installed of them.
//!
//! Agents come from npm, in pinned versions, into the data directory; sandboxes mount them read-only. Data goes
//! to standard output, words for people to standard error.

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

/// What `viv agents` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Which agents there are, what they can do, and which versions are installed
    Ls,
    /// Install an agent, and Node where it needs that
    Install(InstallArguments),
    /// What is installed of an agent, with the hashes of every package
    Show {
        /// NAME or NAME@VERSION
        agent: String,
    },
    /// Where an agent's program is
    Path {
        /// NAME or NAME@VERSION
        agent: String,
    },
    /// Remove one version of an agent, or all of them
    Rm {
        /// NAME or NAME@VERSION
        agent: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// NAME or NAME@VERSION; the version that was measured when none is given
    #[arg(required = true)]
    agents: Vec<String>,
    /// Where npm keeps what it downloaded, so that a second installation downloads nothing
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Carries out `viv agents`.
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

/// Installs an agent that is about to be started, if it is not here yet.
pub(crate) fn install_on_first_use(config: &Config, wanted: &AgentSpec) -> Result<(), Failure> {
    let root = crate::host::data_dir(config)?.root().to_owned();
    if !install_folder::is_ready(&root, wanted) {
        let installed = install::ensure(&root, wanted, config.file.agents.npm_cache.as_deref())?;
        install::tell(&installed);
    }
    Ok(())
}

/// Installs an agent for a client of the API; with `again`, also when it is there.
pub(crate) fn install(config: &Config, wanted: &AgentSpec, again: bool) -> Result<(), Failure> {
    let root = crate::host::data_dir(config)?.root().to_owned();
    if again && install_folder::is_ready(&root, wanted) {
        show::remove(&root, wanted)?;
    }
    install::ensure(&root, wanted, config.file.agents.npm_cache.as_deref()).map(drop)
}
