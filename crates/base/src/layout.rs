//! Paths and ports inside every sandbox. They are the same in the jail, in containers and in the policy's rules.

/// The mount point of the workspace.
pub const WORKSPACE: &str = "/workspace";
/// The mount point of read-only dependencies.
pub const DEPENDENCIES: &str = "/deps";
/// The home directory of the sandbox user.
pub const HOME: &str = "/home/agent";
/// The loopback port of the model gateway.
pub const MODEL_PORT: u16 = 18080;
/// The loopback port of the egress proxy.
pub const EGRESS_PORT: u16 = 18081;
/// The loopback port of the name server.
pub const DNS_PORT: u16 = 53;
