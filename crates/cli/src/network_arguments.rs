//! `--net packages` and `--allow`: hosts that a person opens for one run, in addition to the policy.

use clap::{Args, ValueEnum};

/// Options that open more network than the policy.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NetworkArguments {
    /// Open the package registries that this host's npm, pip, cargo, go, maven and apt use, with GET and HEAD only
    #[arg(long, value_enum, value_name = "WHAT")]
    net: Option<NetworkChoice>,
    /// Allow one more host, with port 443 unless given; repeatable. The ceiling still applies
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
}

/// What `--net` opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NetworkChoice {
    /// The package registries of this host's tools
    Packages,
}

impl NetworkArguments {
    /// Returns whether package registries are opened.
    pub(crate) fn packages(&self) -> bool {
        self.net == Some(NetworkChoice::Packages)
    }

    /// Returns whether the options open anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.net.is_none() && self.allow.is_empty()
    }
}
