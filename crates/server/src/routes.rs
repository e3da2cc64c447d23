//! One handler a route, by what it is about.

pub(crate) mod agents;
pub(crate) mod answers;
pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod sessions;
pub(crate) mod usage;
