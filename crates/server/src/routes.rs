//! The handlers, one per route, grouped by subject.

pub(crate) mod agents;
pub(crate) mod bundles;
pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod feed;
pub(crate) mod files;
pub(crate) mod grants;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod pending;
pub(crate) mod ports;
pub(crate) mod queue;
pub(crate) mod replays;
pub(crate) mod session_policy;
pub(crate) mod sessions;
pub(crate) mod tasks;
pub(crate) mod terminal;
pub(crate) mod usage;
pub(crate) mod whoami;
