//! Bodies are kept once, whole, and given back only as they were.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use protocol::BodyRef;
use store::{Bodies, BodyError, DataDir, Digest};
use tempfile::TempDir;

fn bodies() -> (TempDir, DataDir, Bodies) {
    let place = tempfile::tempdir().unwrap();
    let directory = DataDir::open(place.path().join("data")).unwrap();
    let bodies = Bodies::new(&directory);
    (place, directory, bodies)
}

/// Every file below `root`.
fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_body_stands_under_its_content_and_is_kept_once() {
    let (_place, directory, bodies) = bodies();
    let body = bodies.put(b"abc").unwrap();
    assert_eq!(body.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(body.bytes, 3);
    let path = directory.bodies().join("ba").join(&body.sha256);
    assert_eq!(fs::read(&path).unwrap(), b"abc");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bodies.put(b"abc").unwrap(), body);
    bodies.sync(&body).unwrap();
    assert_eq!(files(&directory.bodies()), [path]);
}

#[test]
fn a_changed_body_is_not_given_back_and_a_cut_one_is_written_again() {
    let (_place, directory, bodies) = bodies();
    let body = bodies.put(b"some words").unwrap();
    let path = files(&directory.bodies()).pop().unwrap();
    fs::write(&path, b"same w0rds").unwrap();
    assert!(matches!(bodies.get(&body), Err(BodyError::Damaged(named)) if named == path));
    fs::write(&path, b"").unwrap();
    assert!(matches!(bodies.get(&body), Err(BodyError::Damaged(_))));
    assert_eq!(bodies.put(b"some words").unwrap(), body);
    assert_eq!(bodies.get(&body).unwrap(), b"some words");
}

#[test]
fn what_is_not_kept_is_not_found_and_a_name_cannot_leave_the_directory() {
    let (_place, _directory, bodies) = bodies();
    let unknown = BodyRef { sha256: Digest::of(b"?").to_string(), bytes: 1 };
    assert!(matches!(bodies.get(&unknown), Err(BodyError::NotFound(_))));
    let outside = BodyRef { sha256: "../../../../etc/passwd".into(), bytes: 1 };
    assert!(matches!(bodies.get(&outside), Err(BodyError::Name(_))));
}

#[test]
fn a_body_that_never_ended_leaves_nothing() {
    let (_place, directory, bodies) = bodies();
    let mut writer = bodies.writer().unwrap();
    writer.write(b"half").unwrap();
    assert_eq!(files(&directory.bodies()).len(), 1);
    assert_eq!(bodies.sweep(), 0, "its writer still lives");
    drop(writer);
    assert!(files(&directory.bodies()).is_empty());

    fs::write(directory.bodies().join(".killed.part"), "half").unwrap();
    assert_eq!(bodies.sweep(), 1);
    assert!(files(&directory.bodies()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn pieces_and_the_whole_are_the_same_body(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let (_place, directory, bodies) = bodies();
        let mut writer = bodies.writer().unwrap();
        for piece in &pieces {
            writer.write(piece).unwrap();
        }
        let body = writer.finish().unwrap();
        prop_assert_eq!(&bodies.put(&pieces.concat()).unwrap(), &body);
        prop_assert_eq!(bodies.get(&body).unwrap(), pieces.concat());
        prop_assert_eq!(files(&directory.bodies()).len(), 1);
    }
}
