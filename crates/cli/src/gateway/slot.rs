//! Which of the gateways of a data directory this process is.
//!
//! A record has one writer. Several gateways may serve the same keys, so each writes records of its own, under its
//! number; the kernel gives the number free when the process ends, however it ends, and the next one goes on with it.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;

use protocol::{ProblemCode, SessionId};
use store::DataDir;

use crate::failure::Failure;

/// Gateways of one data directory.
const MOST: u32 = 64;

/// The number of this process, its own for as long as it lives.
pub(super) struct GatewaySlot {
    number: u32,
    _lock: File,
}

impl GatewaySlot {
    /// Takes the first number that no living process has.
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
        let what = format!("{MOST} gateways serve this data directory already");
        Err(Failure::new(ProblemCode::ProxyBindError, what).help("stop one of them, or use another data directory"))
    }

    /// Under which name the calls of `key` are recorded here.
    pub(super) fn record_of(&self, key: &str) -> Result<SessionId, Failure> {
        let name = if self.number == 1 { key.to_owned() } else { format!("{key}.{}", self.number) };
        SessionId::new(name).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))
    }
}
