//! What `viv` says of itself while it works: nothing, unless `VIV_LOG` asks for it.

use tracing_subscriber::EnvFilter;

use crate::config;

/// Writes to stderr what `VIV_LOG` names, as in `VIV_LOG=gateway=debug` or `VIV_LOG=trace`.
pub(crate) fn start() {
    let Some(wanted) = config::log_filter() else { return };
    let filter = EnvFilter::builder().parse_lossy(wanted);
    // Nobody has started a log before: this is the first thing that happens.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
