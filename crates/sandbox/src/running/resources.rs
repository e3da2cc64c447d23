//! Resources of a sandbox on the host, and the counters that the host's kernel keeps for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use jail::Cgroup;

use super::{SIGKILL, lock};
use crate::ProcessExit;
use crate::blocking::BlockingRunner;

/// The resources of a sandbox that outlive its processes. Dropping them frees those that need no waiting.
pub(crate) trait SandboxResources: Send {
    /// Returns how many processes the kernel has killed because memory ran out.
    fn oom_kills(&self) -> u64;
    /// Returns the processor time that the whole sandbox has used, as the host counts it. `None` when init reports the
    /// same count.
    fn cpu_micros(&self) -> Option<u64>;
    /// Frees the resources, using `runner` for work that blocks.
    fn release(self: Box<Self>, runner: BlockingRunner) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl SandboxResources for Cgroup {
    fn oom_kills(&self) -> u64 {
        Self::oom_kills(self)
    }

    fn cpu_micros(&self) -> Option<u64> {
        None
    }

    fn release(self: Box<Self>, runner: BlockingRunner) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Removing a cgroup may wait some milliseconds for the kernel.
        Box::pin(async move { drop(runner.run(move || drop(self)).await) })
    }
}

pub(super) type SharedResources = Arc<Mutex<Option<Box<dyn SandboxResources>>>>;

/// Counters of the host's kernel for a sandbox; zero when the sandbox is gone.
#[derive(Default)]
pub(super) struct KernelCounters {
    oom_kills: u64,
    cpu_micros: Option<u64>,
}

impl KernelCounters {
    /// Returns the counters as they are now.
    pub(super) fn of(resources: &SharedResources) -> Self {
        lock(resources).as_ref().map_or_else(Self::default, |resources| Self {
            oom_kills: resources.oom_kills(),
            cpu_micros: resources.cpu_micros(),
        })
    }

    /// Adds to `exit` what init cannot know about a command that ran between `self` and `after`.
    pub(super) fn correct(&self, exit: &mut ProcessExit, after: &Self) {
        // The kernel kills the largest process. It was this command if SIGKILL ended the command.
        exit.memory_kills = after.oom_kills.saturating_sub(self.oom_kills);
        exit.out_of_memory = exit.signal == Some(SIGKILL) && exit.memory_kills > 0;
        if let (Some(before), Some(after)) = (self.cpu_micros, after.cpu_micros) {
            // A container's own kernel also counts the time for which a process waits for the host's processors.
            exit.cpu_micros = exit.cpu_micros.min(after.saturating_sub(before));
        }
    }
}
