//! The data directory: permissions, owner and server lock.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;

use protocol::ProblemCode;
use store::{DataDir, DataDirError};

#[test]
fn directory_is_private_to_its_user() {
    let place = tempfile::tempdir().unwrap();
    let directory = DataDir::open(place.path().join("a/b")).unwrap();
    for path in [directory.root().to_owned(), directory.journal_dir(), directory.bodies(), directory.owners()] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    assert_eq!(DataDir::open(directory.root()).unwrap(), directory);
    let journal = directory.journal(&"v1.2".parse().unwrap());
    assert_eq!(journal, place.path().join("a/b/trajectory/v1.2.jsonl"));
}

#[test]
fn writable_directory_and_file_are_rejected() {
    let place = tempfile::tempdir().unwrap();
    let (shared, file) = (place.path().join("shared"), place.path().join("file"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(DataDir::open(&shared), Err(DataDirError::Exposed { mode: 0o770, .. })));
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
    fs::write(&file, "").unwrap();
    assert!(matches!(DataDir::open(&file), Err(DataDirError::NotADirectory(_))));
}

#[test]
fn directory_of_another_user_is_rejected() {
    let user = rustix::process::geteuid();
    let place = tempfile::tempdir().unwrap();
    let theirs = place.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    // Root can change the owner of a directory; other users find one that belongs to root.
    let theirs = if user.is_root() {
        std::os::unix::fs::chown(&theirs, Some(12_345), None).unwrap();
        theirs
    } else {
        "/usr".into()
    };
    let error = DataDir::open(&theirs).unwrap_err();
    assert!(matches!(error, DataDirError::OtherUser { .. }), "{error:?}");
}

#[test]
fn second_server_is_rejected_until_the_first_ends() {
    const NAME: &str = "second_server_is_rejected_until_the_first_ends";
    if let Some(place) = support::child_directory() {
        let _lock = DataDir::open(place).unwrap().lock_server().unwrap();
        println!("locked");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = DataDir::open(place.path()).unwrap();
    let mut child = support::child_command(NAME, place.path()).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("locked")));

    let error = directory.lock_server().unwrap_err();
    assert!(matches!(error, DataDirError::InUse { pid: Some(pid), .. } if pid == child.id()), "{error:?}");
    assert_eq!(error.code(), ProblemCode::DataDirInUse);
    child.kill().unwrap();
    child.wait().unwrap();

    let lock = directory.lock_server().unwrap();
    assert!(matches!(directory.lock_server(), Err(DataDirError::InUse { .. })));
    drop(lock);
    directory.lock_server().unwrap();
}
