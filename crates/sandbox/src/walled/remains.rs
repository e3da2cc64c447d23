//! What a sandbox leaves on the host, and what the host's kernel has counted of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use jail::Cgroup;

use super::{SIGKILL, lock};
use crate::ProcessExit;

/// What is left of a sandbox when everything in it is dead. Dropping it clears away what can be without waiting.
pub(crate) trait Remains: Send {
    /// How many processes of it the kernel killed for want of memory.
    fn oom_kills(&self) -> u64;
    /// Processor time that all of it has used, by the host's count; where that is what its init counts by, nothing.
    fn cpu_micros(&self) -> Option<u64>;
    /// Clears it away. Where its host is `alone` with it nobody else is kept waiting meanwhile.
    fn clear(self: Box<Self>, alone: bool) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Remains for Cgroup {
    fn oom_kills(&self) -> u64 {
        Self::oom_kills(self)
    }

    fn cpu_micros(&self) -> Option<u64> {
        None
    }

    fn clear(self: Box<Self>, alone: bool) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if alone {
                return drop(self);
            }
            // Removing a group may wait some milliseconds for the kernel.
            let _ = tokio::task::spawn_blocking(move || drop(self)).await;
        })
    }
}

pub(super) type Left = Arc<Mutex<Option<Box<dyn Remains>>>>;

/// What the host's kernel has counted of a sandbox; nothing when it is gone.
#[derive(Default)]
pub(super) struct Count {
    oom_kills: u64,
    cpu_micros: Option<u64>,
}

impl Count {
    pub(super) fn of(remains: &Left) -> Self {
        lock(remains).as_ref().map_or_else(Self::default, |remains| Self {
            oom_kills: remains.oom_kills(),
            cpu_micros: remains.cpu_micros(),
        })
    }

    /// What an init cannot know of a command that began at this count and ended at `after`.
    pub(super) fn correct(&self, exit: &mut ProcessExit, after: &Self) {
        // The kernel kills the largest; that it was this one is told by how it ended.
        exit.out_of_memory = exit.signal == Some(SIGKILL) && after.oom_kills > self.oom_kills;
        if let (Some(before), Some(after)) = (self.cpu_micros, after.cpu_micros) {
            // A kernel of the sandbox's own counts as running what waits for the host's processors.
            exit.cpu_micros = exit.cpu_micros.min(after.saturating_sub(before));
        }
    }
}
