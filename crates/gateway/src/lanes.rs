//! The threads that serve model calls, each with a reactor of its own: a connection never changes its thread.
//!
//! Between threads a call would wait to be woken at every step, longer than all the rest takes.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use base::lock;
use store::Ledger;

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::scribe::Scribe;

/// A thread serves thousands of calls a second; the agents beside it need the processors, too.
const MOST_LANES: usize = 4;

/// The lanes of a gateway, started when the first listener comes. Dropped, they end, and with them what they serve.
pub(crate) struct Lanes {
    ledger: Arc<dyn Ledger>,
    started: Mutex<Vec<(Arc<Lane>, Life)>>,
    next: AtomicUsize,
}

/// One of them.
pub(crate) struct Lane {
    pub(crate) handle: Handle,
    pub(crate) scribe: Arc<Scribe>,
}

/// Dropped, the thread of a lane ends.
struct Life(#[expect(dead_code, reason = "nothing is ever sent")] oneshot::Sender<()>);

impl Lanes {
    /// Lanes whose calls are held and charged in `ledger`.
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, started: Mutex::default(), next: AtomicUsize::new(0) }
    }

    /// The lane of the next connection.
    pub(crate) fn next(&self) -> io::Result<Arc<Lane>> {
        let mut lanes = lock(&self.started);
        if lanes.is_empty() {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            *lanes = (0..processors.min(MOST_LANES)).map(|_| Lane::start(&self.ledger)).collect::<io::Result<_>>()?;
        }
        let place = self.next.fetch_add(1, Ordering::Relaxed) % lanes.len();
        Ok(lanes[place].0.clone())
    }
}

impl Lane {
    fn start(ledger: &Arc<dyn Ledger>) -> io::Result<(Arc<Self>, Life)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, scribe) = (runtime.handle().clone(), Arc::new(Scribe::new(ledger.clone())));
        runtime.spawn(scribe.clone().work());
        let (life, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("gateway".into()).spawn(move || {
            // Nothing is ever sent: it ends when the other side is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok((Arc::new(Self { handle, scribe }), Life(life)))
    }
}
