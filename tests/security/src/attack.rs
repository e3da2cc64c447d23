//! What an attack is: a small program, the walls it runs behind, and a control that shows it works without.

use std::fmt;
use std::io;

use sandbox::OverlayLayers;
use serde::{Deserialize, Serialize};

use crate::lead::Lead;
use crate::scene::Scene;
use crate::stage::Stage;

/// What an attack is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Files of the host.
    Fs,
    /// Ways out by socket.
    Net,
    /// The way out that there is: the egress proxy.
    Proxy,
    /// The kernel, other processes, and what they share.
    Proc,
    /// What the host knows.
    Secrets,
    /// The machine and who sits at it.
    Host,
}

impl Group {
    /// Whether what is attacked is the same in every sandbox: the proxy is a program of the host.
    pub(crate) fn is_of_every_backend(self) -> bool {
        self == Self::Proxy
    }

    pub(crate) const ALL: [Self; 6] = [Self::Fs, Self::Net, Self::Proxy, Self::Proc, Self::Secrets, Self::Host];
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
        })
    }
}

/// How an attack ended, with what it saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// It got what it was after.
    Succeeded(String),
    /// It was stopped.
    Blocked(String),
}

impl Verdict {
    /// Success when the kernel let it happen.
    pub(crate) fn of<T>(what: &str, result: Result<T, impl Into<io::Error>>) -> Self {
        match result {
            Ok(_) => Self::Succeeded(what.to_owned()),
            Err(error) => Self::Blocked(format!("{what}: {}", error.into())),
        }
    }

    /// Success when any of `tries` succeeded; all reasons otherwise.
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

    /// Success when `happened`.
    pub(crate) fn when(happened: bool, what: impl Into<String>) -> Self {
        if happened { Self::Succeeded(what.into()) } else { Self::Blocked(what.into()) }
    }
}

/// Where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a sandbox.
    Inside,
    /// On the host, as the control.
    Outside,
}

/// The sandbox an attack runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Walls {
    /// An overlay workspace; a user without cgroups gets the weaker means the policy accepts.
    #[default]
    Usual,
    /// The workspace itself, writable.
    Bound,
    /// No weaker means are accepted: where a limit cannot be kept, the sandbox must not start at all.
    Strict,
    /// A tenth of a processor, and nothing weaker.
    Slow,
    /// As usual, with a name server inside.
    Named,
}

/// How it is shown that an attack works where nothing stops it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Control {
    /// The same program as a plain child of the host succeeds.
    Plain,
    /// The same program succeeds in namespaces of its own, where it can do no harm.
    Namespaced,
    /// Only root can do it at all: it succeeds for root, and for anybody else the kernel refuses it.
    Root,
    /// The same as root, on a kernel that has what is attacked; one that has not says so.
    RootWhere(&'static str),
    /// It cannot succeed on every machine, for the reason given; where it does not, another program shows that
    /// all it needs is there.
    Probe(fn(&Lead) -> Verdict, &'static str),
    /// The probe alone: outside a sandbox the attack would reach beyond this machine.
    ProbeOnly(fn(&Lead) -> Verdict, &'static str),
}

impl Control {
    /// How the table names it.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Plain => "as a plain process".into(),
            Self::Namespaced => "in namespaces of its own".into(),
            Self::Root => "as root; nobody else can".into(),
            Self::RootWhere(what) => format!("as root, where {what}"),
            Self::Probe(_, why) => format!("as a plain process, else by a probe: {why}"),
            Self::ProbeOnly(_, why) => format!("by a probe: {why}"),
        }
    }
}

/// What the host looks at when a program has ended: whether it was harmed after all.
pub(crate) type Harm = fn(&Scene, Option<&OverlayLayers>) -> Option<String>;

/// Where an attack on the proxy succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Careless {
    /// Behind a proxy that has no rule.
    Proxy,
    /// Before a name server that passes every question on.
    Names,
    /// Where no proxy is needed: in the network of the hosts it is after.
    NoProxy,
}

/// How an attack is carried out.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// One program, inside and as its control.
    Program { run: fn(&Lead) -> Verdict, walls: Walls, control: Control, harm: Option<Harm> },
    /// One program in a sandbox, before an internet that the suite makes.
    Proxied { run: fn(&Lead) -> Verdict, control: Careless },
    /// Something that needs the host's part too; carried out in both places.
    Scenario { run: fn(&Stage, Place) -> Verdict, control: &'static str },
}

/// One attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) group: Group,
    pub(crate) name: &'static str,
    /// What it tries, in a few words.
    pub(crate) what: &'static str,
    pub(crate) act: Act,
}

/// An attack by one program, with a plain control.
pub(crate) fn program(group: Group, name: &'static str, what: &'static str, run: fn(&Lead) -> Verdict) -> Attack {
    let act = Act::Program { run, walls: Walls::default(), control: Control::Plain, harm: None };
    Attack { group, name, what, act }
}

/// An attack the host plays a part in.
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
    /// With another control.
    pub(crate) fn shown(mut self, shown: Control) -> Self {
        if let Act::Program { control, .. } = &mut self.act {
            *control = shown;
        }
        self
    }

    /// Behind other walls.
    pub(crate) fn behind(mut self, other: Walls) -> Self {
        if let Act::Program { walls, .. } = &mut self.act {
            *walls = other;
        }
        self
    }

    /// With a look at the host afterwards.
    pub(crate) fn harming(mut self, look: Harm) -> Self {
        if let Act::Program { harm, .. } = &mut self.act {
            *harm = Some(look);
        }
        self
    }

    /// How the table names its control.
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
