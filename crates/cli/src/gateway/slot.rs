//! The number of this process among the gateways of a data directory.
//!
//! A journal has one writer. Several gateways may serve the same keys, so each has its own journals, named by its
//! number. The kernel releases the number when the process ends, and the next gateway reuses it.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;

use protocol::{ProblemCode, SessionId};
use store::DataDir;

use crate::failure::Failure;

/// Maximum number of gateways on one data directory.
const MOST: u32 = 64;

/// The number of this process, locked until it ends.
pub(super) struct GatewaySlot {
    number: u32,
    _lock: File,
}

impl GatewaySlot {
    /// Locks the first free number; fails if all numbers are taken.
    pub(super) fn take(directory: &DataDir) -> Result<Self, Failure> {
        for number in 1..=MOST {
            let path = directory.root().join(format!("gateway.{number}.lock"));
            let failed = |error: std::io::Error| {
                Failure::new(ProblemCode::ProxyBindError, format!("cannot lock `{}`", path.display())).because(&error)
            };
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
            let file = file.map_err(failed)?;
            match file.try_lock() {
                Ok(()) => return Ok(Self { number, _lock: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        let what = format!("{MOST} gateways, the maximum, are running on this data directory");
        Err(Failure::new(ProblemCode::ProxyBindError, what).help("viv --data-dir ./viv-data gateway serve"))
    }

    /// Returns the session id under which this gateway records the calls of `key`.
    pub(super) fn session_of(&self, key: &str) -> Result<SessionId, Failure> {
        let name = if self.number == 1 { key.to_owned() } else { format!("{key}.{}", self.number) };
        SessionId::new(name).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))
    }
}
