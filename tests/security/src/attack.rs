//! An attack: a small program, the sandbox it runs in, and a control that shows that it works without a sandbox.

use std::fmt;
use std::io;

use sandbox::OverlayLayers;
use serde::{Deserialize, Serialize};

use crate::lead::Lead;
use crate::scene::Scene;
use crate::stage::Stage;

/// The target of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Host files.
    Fs,
    /// The network, by sockets.
    Net,
    /// The egress proxy.
    Proxy,
    /// The kernel, other processes and shared resources.
    Proc,
    /// Secrets of the host.
    Secrets,
    /// The machine, and the person at its terminal.
    Host,
    /// The review of changes: exactly the shown changes land on the host.
    Review,
    /// Memory, disk, sockets and processor time that the host process spends for a sandbox.
    Spend,
}

impl Group {
    /// Returns whether the target is the same in every sandbox, because it runs on the host.
    pub(crate) fn is_of_every_backend(self) -> bool {
        matches!(self, Self::Proxy | Self::Review | Self::Spend)
    }

    pub(crate) const ALL: [Self; 8] =
        [Self::Fs, Self::Net, Self::Proxy, Self::Proc, Self::Secrets, Self::Host, Self::Review, Self::Spend];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fs => "FS",
            Self::Net => "NET",
            Self::Proxy => "PROXY",
            Self::Proc => "PROC",
            Self::Secrets => "SECRETS",
            Self::Host => "HOST",
            Self::Review => "REVIEW",
            Self::Spend => "SPEND",
        })
    }
}

/// The result of an attack with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// The attack reached its target.
    Succeeded(String),
    /// The attack was stopped.
    Blocked(String),
}

impl Verdict {
    /// Returns success when the system call succeeded.
    pub(crate) fn of<T>(what: &str, result: Result<T, impl Into<io::Error>>) -> Self {
        match result {
            Ok(_) => Self::Succeeded(what.to_owned()),
            Err(error) => Self::Blocked(format!("{what}: {}", error.into())),
        }
    }

    /// Returns success when any of `tries` succeeded, else all reasons.
    pub(crate) fn any(tries: impl IntoIterator<Item = Self>) -> Self {
        let mut reasons = Vec::new();
        for verdict in tries {
            match verdict {
                Self::Succeeded(_) => return verdict,
                Self::Blocked(reason) => reasons.push(reason),
            }
        }
        Self::Blocked(reasons.join("; "))
    }

    /// Returns success when `happened`.
    pub(crate) fn when(happened: bool, what: impl Into<String>) -> Self {
        if happened { Self::Succeeded(what.into()) } else { Self::Blocked(what.into()) }
    }
}

/// The location of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a sandbox.
    Inside,
    /// On the host, as the control.
    Outside,
}

/// The kind of sandbox an attack runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Walls {
    /// An overlay workspace. A user without cgroups gets the weaker limits that the policy accepts.
    #[default]
    Usual,
    /// A writable bind mount of the workspace.
    Bound,
    /// No weaker limits: if a limit cannot be enforced, the sandbox must not start.
    Strict,
    /// A tenth of a processor, without weaker limits.
    Slow,
    /// An overlay workspace, with a name server inside.
    Named,
}

/// How the suite shows that an attack works without a sandbox.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Control {
    /// The same program succeeds as a plain child process.
    Plain,
    /// The same program succeeds in separate namespaces, where it does no harm.
    Namespaced,
    /// Only root can do it: it succeeds for root, and the kernel refuses it for other users.
    Root,
    /// The attack succeeds for root on a kernel that has the attacked feature.
    RootWhere(&'static str),
    /// The attack cannot succeed on every machine, for the given reason. If it fails, a probe shows that its preconditions
    /// hold.
    Probe(fn(&Lead) -> Verdict, &'static str),
    /// Only a probe: without a sandbox, the attack would reach beyond this machine.
    ProbeOnly(fn(&Lead) -> Verdict, &'static str),
}

impl Control {
    /// Returns the text for the table.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Plain => "as a plain process".into(),
            Self::Namespaced => "in separate namespaces".into(),
            Self::Root => "as root; other users cannot".into(),
            Self::RootWhere(what) => format!("as root, where {what}"),
            Self::Probe(_, why) => format!("as a plain process, else by a probe: {why}"),
            Self::ProbeOnly(_, why) => format!("by a probe: {why}"),
        }
    }
}

/// Checks after the program has ended whether the host was harmed.
pub(crate) type Harm = fn(&Scene, Option<&OverlayLayers>) -> Option<String>;

/// The control of an attack on the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Careless {
    /// A proxy without rules.
    Proxy,
    /// A name server that forwards every question.
    Names,
    /// No proxy: the attack runs in the network of its target hosts.
    NoProxy,
}

/// How an attack runs.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// One program, in the sandbox and as its control.
    Program { run: fn(&Lead) -> Verdict, walls: Walls, control: Control, harm: Option<Harm> },
    /// One program in a sandbox that is connected to the suite's own internet.
    Proxied { run: fn(&Lead) -> Verdict, control: Careless },
    /// A scenario with actions of the host, run with and without a sandbox.
    Scenario { run: fn(&Stage, Place) -> Verdict, control: &'static str },
}

/// One attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) group: Group,
    pub(crate) name: &'static str,
    /// A short description.
    pub(crate) what: &'static str,
    pub(crate) act: Act,
}

/// Returns an attack by one program, with a plain control.
pub(crate) fn program(group: Group, name: &'static str, what: &'static str, run: fn(&Lead) -> Verdict) -> Attack {
    let act = Act::Program { run, walls: Walls::default(), control: Control::Plain, harm: None };
    Attack { group, name, what, act }
}

/// Returns an attack with actions of the host.
pub(crate) fn scenario(
    group: Group,
    name: &'static str,
    what: &'static str,
    control: &'static str,
    run: fn(&Stage, Place) -> Verdict,
) -> Attack {
    Attack { group, name, what, act: Act::Scenario { run, control } }
}

impl Attack {
    /// Sets another control.
    pub(crate) fn shown(mut self, shown: Control) -> Self {
        if let Act::Program { control, .. } = &mut self.act {
            *control = shown;
        }
        self
    }

    /// Sets another kind of sandbox.
    pub(crate) fn behind(mut self, other: Walls) -> Self {
        if let Act::Program { walls, .. } = &mut self.act {
            *walls = other;
        }
        self
    }

    /// Adds a check of the host afterwards.
    pub(crate) fn harming(mut self, look: Harm) -> Self {
        if let Act::Program { harm, .. } = &mut self.act {
            *harm = Some(look);
        }
        self
    }

    /// Returns the control's text for the table.
    pub(crate) fn control(&self) -> String {
        match self.act {
            Act::Program { control, .. } => control.title(),
            Act::Proxied { control: Careless::Proxy, .. } => "through a proxy without rules".into(),
            Act::Proxied { control: Careless::Names, .. } => "by a name server that passes every question on".into(),
            Act::Proxied { control: Careless::NoProxy, .. } => "in the network of the hosts themselves".into(),
            Act::Scenario { control, .. } => control.to_owned(),
        }
    }
}
