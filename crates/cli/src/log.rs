//! Log output on stderr, controlled by `VIV_LOG`.

use tracing_subscriber::EnvFilter;

use crate::{config, output};

/// Starts logging with the filter of `VIV_LOG`, e.g. `gateway=debug` or `trace`; without `VIV_LOG`, logs nothing.
pub(crate) fn start() {
    if let Some(filter) = config::log_filter() {
        write(&filter);
    }
}

/// Starts logging for a server: without `VIV_LOG`, logs warnings and errors, because its clients see only their own.
pub(crate) fn start_server() {
    if config::log_filter().is_none() {
        write("warn");
    }
}

fn write(filter: &str) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    // Fails only if logging was started before; the earlier logging continues.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output::message_writer).try_init();
}
