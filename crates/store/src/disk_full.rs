//! Detection of errors that are caused by a full disk.

use std::error::Error;
use std::io;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_WRITE};

/// Returns whether `error` or one of its causes means that the disk is full, or that a quota or size limit is reached.
pub fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(is_full_io)
            || cause.downcast_ref::<rusqlite::Error>().is_some_and(is_full_database)
    })
}

fn is_full_io(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};

    // An `io::Error` that wraps another error has the kind `Other`.
    let inner = error.get_ref().is_some_and(|inner| is_disk_full(inner));
    inner || matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// SQLite reports only a full disk as such. A quota, a file size limit and a log that cannot grow are failed writes.
fn is_full_database(error: &rusqlite::Error) -> bool {
    let failed_write = [SQLITE_IOERR_WRITE, SQLITE_IOERR_SHMSIZE];
    error
        .sqlite_error()
        .is_some_and(|error| error.code == ErrorCode::DiskFull || failed_write.contains(&error.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatabaseError, SessionIndexError};

    #[test]
    fn full_disk_is_detected_in_every_error_type() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x BLOB); PRAGMA max_page_count = 2").unwrap();
        let full = connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap_err();
        assert!(is_disk_full(&SessionIndexError::from(full)));
        assert!(is_disk_full(&io::Error::from(io::ErrorKind::StorageFull)));
        assert!(is_disk_full(&io::Error::other(io::Error::from(io::ErrorKind::FileTooLarge))));
        let source = io::ErrorKind::QuotaExceeded.into();
        assert!(is_disk_full(&DatabaseError::Io { path: "db".into(), source }));
    }

    #[test]
    fn other_failures_are_not_a_full_disk() {
        let broken = rusqlite::Connection::open_in_memory().unwrap().execute("nonsense", []).unwrap_err();
        assert!(!is_disk_full(&SessionIndexError::from(broken)));
        assert!(!is_disk_full(&io::Error::from(io::ErrorKind::PermissionDenied)));
    }
}
