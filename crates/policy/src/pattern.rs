//! The little languages of the lists: hosts, paths, globs, names, tools.
//!
//! Each can say whether it matches, and whether it surely covers everything another pattern of its kind
//! matches. Covering may be missed but is never claimed wrongly: a widening must not slip through.

mod endpoint;
mod glob;
mod host;
mod inject;
mod name;
mod path;
mod reach;
mod request;
mod tool;
mod wildcard;

use std::fmt;

pub use endpoint::Endpoint;
pub(crate) use endpoint::{DEFAULT_PORT, Denied, EndpointPattern, split_port};
pub(crate) use glob::PathGlob;
pub(crate) use host::parse_port;
pub use host::{Host, HostError};
pub(crate) use inject::InjectPattern;
pub use inject::HeaderInjection;
pub(crate) use name::{NamePattern, VariableName};
pub(crate) use path::{Location, PathPrefix, locate};
pub(crate) use reach::{Reach, ReachPattern};
pub(crate) use request::{Request, RequestPath};
pub(crate) use tool::{SHELL, ToolCall, ToolPattern};

/// One entry of an allow-list.
pub(crate) trait Pattern: Clone + Ord + fmt::Display {
    /// What it is matched against.
    type Subject: ?Sized;
    /// Whether `subject` is in its language.
    fn matches(&self, subject: &Self::Subject) -> bool;
    /// Whether everything `other` matches is surely matched here too. Must be a partial order.
    fn covers(&self, other: &Self) -> bool;
}

/// A pattern kind in which two patterns always meet in a pattern, or in nothing.
pub(crate) trait Intersect: Pattern {
    /// What both match.
    fn intersect(&self, other: &Self) -> Option<Self>;
}
