//! The worker threads that serve model calls, each with a single-threaded runtime.
//!
//! A connection stays on its worker. Between threads a call would wait for a wake-up at every step, which takes longer
//! than the rest of its work.

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

use crate::call::BatchWriter;

/// One worker serves thousands of calls a second, and the agents need the other processors.
const MAX_WORKERS: usize = 4;

/// The workers of a gateway, started for its first listener. Dropping them ends everything that they serve.
pub(crate) struct WorkerPool {
    ledger: Arc<dyn Ledger>,
    started: Mutex<Vec<(Arc<Worker>, ThreadGuard)>>,
    next: AtomicUsize,
}

/// A thread with its runtime and the writer for its calls.
pub(crate) struct Worker {
    pub(crate) runtime: Handle,
    pub(crate) writer: Arc<BatchWriter>,
}

/// Ends the thread of a worker when dropped.
struct ThreadGuard(#[expect(dead_code, reason = "nothing is ever sent")] oneshot::Sender<()>);

impl WorkerPool {
    /// Makes a pool whose calls are held and settled in `ledger`. Starts no thread yet.
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, started: Mutex::default(), next: AtomicUsize::new(0) }
    }

    /// Returns the worker for the next connection, in turn. Fails if the threads cannot be started.
    pub(crate) fn next(&self) -> io::Result<Arc<Worker>> {
        let mut workers = lock(&self.started);
        if workers.is_empty() {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            let started = (0..processors.min(MAX_WORKERS)).map(|_| Worker::start(&self.ledger));
            *workers = started.collect::<io::Result<_>>()?;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed) % workers.len();
        Ok(workers[index].0.clone())
    }
}

impl Worker {
    fn start(ledger: &Arc<dyn Ledger>) -> io::Result<(Arc<Self>, ThreadGuard)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, writer) = (runtime.handle().clone(), Arc::new(BatchWriter::new(ledger.clone())));
        runtime.spawn(writer.clone().run());
        let (guard, dropped) = oneshot::channel::<()>();
        thread::Builder::new().name("gateway".into()).spawn(move || {
            // The channel carries no message: the runtime ends when the guard drops its sender.
            let _ = runtime.block_on(dropped);
            runtime.shutdown_background();
        })?;
        Ok((Arc::new(Self { runtime: handle, writer }), ThreadGuard(guard)))
    }
}
