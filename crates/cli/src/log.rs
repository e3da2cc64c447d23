//! What `viv` says of itself while it works: what `VIV_LOG` asks for, and of a server what went wrong.

use tracing_subscriber::EnvFilter;

use crate::config;

/// Writes to stderr what `VIV_LOG` names, as in `VIV_LOG=gateway=debug` or `VIV_LOG=trace`.
pub(crate) fn start() {
    if let Some(wanted) = config::log_filter() {
        write(&wanted);
    }
}

/// The same for a server, which tells of errors and warnings unless `VIV_LOG` asks for something else: nobody looks at
/// what it does, and a client is told only its own part.
pub(crate) fn start_server() {
    if config::log_filter().is_none() {
        write("warn");
    }
}

fn write(filter: &str) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    // Nobody has started a log before: this is one of the first things that happen.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
