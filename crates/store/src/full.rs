//! Whether something failed because the disk takes nothing more.

use std::error::Error;
use std::io;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_WRITE};

/// Whether `error`, or what caused it, is that the disk takes nothing more: it is full, or a quota or a limit is reached.
pub fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(says_full)
            || cause.downcast_ref::<rusqlite::Error>().is_some_and(database_is_full)
    })
}

fn says_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};

    // An error that wraps another of ours tells its kind as `Other`.
    let inner = error.get_ref().is_some_and(|inner| is_disk_full(inner));
    inner || matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// SQLite tells only a missing block as such; a quota, a limit of file sizes and a log that cannot grow are failed writes to it.
fn database_is_full(error: &rusqlite::Error) -> bool {
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
    fn a_full_disk_is_known_by_whatever_meets_it() {
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
    fn another_failure_is_none() {
        let broken = rusqlite::Connection::open_in_memory().unwrap().execute("nonsense", []).unwrap_err();
        assert!(!is_disk_full(&SessionIndexError::from(broken)));
        assert!(!is_disk_full(&io::Error::from(io::ErrorKind::PermissionDenied)));
    }
}
