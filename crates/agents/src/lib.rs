//! How to launch each agent, and what its lines mean.
//!
//! Everything here is pure: a `LaunchPlan` is data, a `Dialogue` turns lines into events and answers
//! into lines. It never spawns, reads a clock or touches a file. Whatever an agent prints, its events
//! leave in strict order: `normalize` sees to it.
//!
//! Not here: running the plan (`sandbox`), the life of a session (`session`).

mod dialogue;
mod launch;
mod mode;
mod normalize;
mod raw;
mod registry;
mod skeleton;
mod transcript;

mod mock;

pub use dialogue::{Dialogue, Output, Prompt};
pub use launch::{Agent, AgentError, LaunchContext, LaunchPlan, Mount, PlacedFile};
pub use mock::{AgentLine, HostLine, LineItem, MockAgent};
pub use mode::PermissionMode;
pub use normalize::{Normalized, Normalizer};
pub use registry::{UNSUPPORTED, Unsupported, all, by_name};
pub use skeleton::skeleton;
