//! The patterns of policy lists: hosts, paths, globs, names and tools.
//!
//! Each pattern can match a candidate, and can tell whether it covers another pattern. `covers` may miss a case but
//! never returns `true` wrongly: otherwise a widening could pass unnoticed.

mod connection;
mod endpoint;
mod exact;
mod glob;
mod glob_set;
mod host;
mod injection;
mod name;
mod path;
mod request;
mod tool;
mod wildcard;

use std::fmt;

pub(crate) use connection::{ConnectionAttempt, ConnectionPattern};
pub use endpoint::Endpoint;
pub(crate) use endpoint::{DEFAULT_PORT, DenyPattern, EndpointPattern, split_port};
pub(crate) use exact::ExactText;
pub(crate) use glob::PathGlob;
pub(crate) use glob_set::{PathGlobSet, build_glob_set};
pub(crate) use host::parse_port;
pub use host::{Host, HostError};
pub use injection::HeaderInjection;
pub(crate) use injection::InjectPattern;
pub(crate) use name::{NamePattern, VariableName};
pub(crate) use path::{PathLocation, PathPrefix, locate};
pub(crate) use request::{HttpRequest, RequestPath};
pub(crate) use tool::{SHELL, ToolCall, ToolPattern};

/// One entry of an allow-list.
pub(crate) trait Pattern: Clone + Ord + fmt::Display {
    /// The type of value that the pattern is matched against.
    type Candidate: ?Sized;
    /// Returns whether the pattern matches `candidate`.
    fn matches(&self, candidate: &Self::Candidate) -> bool;
    /// Returns whether this pattern matches everything that `other` matches. Must be a partial order.
    fn covers(&self, other: &Self) -> bool;
}

/// A kind of pattern whose intersections are patterns again, or empty.
pub(crate) trait Intersect: Pattern {
    /// Returns the pattern of everything that both match; `None` if that is nothing.
    fn intersect(&self, other: &Self) -> Option<Self>;
}
