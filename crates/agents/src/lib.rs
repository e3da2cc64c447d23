//! How to launch each agent, and what its lines mean.
//!
//! Everything here is pure: a `LaunchPlan` is data, a `Dialogue` turns lines into events and answers
//! into lines. It never spawns, reads a clock or touches a file.
//!
//! Not here: running the plan (`sandbox`), the life of a session (`session`).

mod dialogue;
mod launch;

pub use dialogue::{Dialogue, Output, Prompt};
pub use launch::{Agent, AgentError, LaunchContext, LaunchPlan, Mount, PlacedFile};
