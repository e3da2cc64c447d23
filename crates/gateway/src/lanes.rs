//! The threads that serve model calls, each with a reactor of its own: a connection never changes its thread.
//!
//! Between threads a call would wait to be woken at every step, longer than all the rest takes.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A thread serves thousands of calls a second; the agents beside it need the processors, too.
const MOST_LANES: usize = 4;

/// The lanes of a gateway, started when the first listener comes. Dropped, they end, and with them what they serve.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Mutex<Vec<Lane>>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Lane {
    handle: Handle,
    /// Dropped, the thread ends.
    _life: oneshot::Sender<()>,
}

impl Lanes {
    /// The lane of the next connection.
    pub(crate) fn next(&self) -> io::Result<Handle> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.is_empty() {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            *lanes = (0..processors.min(MOST_LANES)).map(|_| Lane::start()).collect::<io::Result<_>>()?;
        }
        let place = self.next.fetch_add(1, Ordering::Relaxed) % lanes.len();
        Ok(lanes[place].handle.clone())
    }
}

impl Lane {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (life, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("gateway".into()).spawn(move || {
            // Nothing is ever sent: it ends when the other side is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _life: life })
    }
}
