//! The body store: bodies are stored once, and damaged bodies are not returned.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::Digest;
use proptest::prelude::*;
use protocol::BodyRef;
use store::{BodyError, BodyKind, DataDir, FileBodyStore};
use tempfile::TempDir;

fn bodies() -> (TempDir, DataDir, FileBodyStore) {
    let place = tempfile::tempdir().unwrap();
    let directory = DataDir::open(place.path().join("data")).unwrap();
    let bodies = FileBodyStore::new(&directory);
    (place, directory, bodies)
}

/// Returns every file below `root`.
fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the reference of a body in a file.
fn stored(bytes: &[u8]) -> BodyRef {
    BodyRef::Stored { sha256: Digest::of(bytes).to_string(), bytes: bytes.len() as u64 }
}

/// Returns the file of a body; `None` for an inline body.
fn path(directory: &DataDir, body: &BodyRef) -> Option<PathBuf> {
    let BodyRef::Stored { sha256, .. } = body else { return None };
    Some(directory.bodies().join(&sha256[..2]).join(sha256))
}

#[test]
fn body_is_stored_once_under_its_digest() {
    let (_place, directory, bodies) = bodies();
    let body = bodies.put(BodyKind::Request, b"abc\xff").unwrap();
    assert_eq!(body, stored(b"abc\xff"));
    let path = path(&directory, &body).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"abc\xff");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(bodies.put(BodyKind::Request, b"abc\xff").unwrap(), body);
    bodies.sync(&body).unwrap();
    assert_eq!(files(&directory.bodies()), [path]);
}

#[test]
fn short_text_is_inline() {
    let (_place, directory, bodies) = bodies();
    let body = bodies.put(BodyKind::Request, b"abc").unwrap();
    assert_eq!(body, BodyRef::Inline { text: "abc".to_owned() });
    bodies.sync(&body).unwrap();
    assert!(files(&directory.bodies()).is_empty());
    assert_eq!(bodies.get(&body).unwrap(), b"abc");
}

#[test]
fn only_long_bodies_have_a_file_and_responses_have_a_higher_limit() {
    let (_place, directory, plain) = bodies();
    let compressed = plain.clone().with_compression(true);
    let check = |bodies: &FileBodyStore, kind, longest: usize| {
        let text = vec![b'a'; longest + 1];
        assert!(bodies.is_short(kind, longest) && !bodies.is_short(kind, longest + 1));
        assert_eq!(bodies.put(kind, &text[1..]).unwrap(), BodyRef::Inline { text: "a".repeat(longest) });
        let body = bodies.put(kind, &text).unwrap();
        assert_eq!(body, stored(&text));
        assert_eq!(bodies.get(&body).unwrap(), text);
    };
    check(&plain, BodyKind::Request, 4_095);
    check(&plain, BodyKind::Response, 65_535);
    check(&compressed, BodyKind::Request, 4_095);
    check(&compressed, BodyKind::Response, 4_095);
    assert_eq!(files(&directory.bodies()).len(), 2);
    assert_eq!(plain.put_file(b"abc").unwrap(), stored(b"abc"));
    assert_eq!(files(&directory.bodies()).len(), 3);
}

#[test]
fn changed_body_is_rejected_and_truncated_body_is_written_again() {
    let (_place, directory, bodies) = bodies();
    let body = bodies.put(BodyKind::Request, b"some words\xff").unwrap();
    let path = files(&directory.bodies()).pop().unwrap();
    fs::write(&path, b"same w0rds\xff").unwrap();
    assert!(matches!(bodies.get(&body), Err(BodyError::Damaged(named)) if named == path));
    fs::write(&path, b"").unwrap();
    assert!(matches!(bodies.get(&body), Err(BodyError::Damaged(_))));
    assert_eq!(bodies.put(BodyKind::Request, b"some words\xff").unwrap(), body);
    assert_eq!(bodies.get(&body).unwrap(), b"some words\xff");
}

#[test]
fn missing_body_is_not_found_and_digest_cannot_leave_the_directory() {
    let (_place, _directory, bodies) = bodies();
    let unknown = stored(b"?");
    assert!(matches!(bodies.get(&unknown), Err(BodyError::NotFound(_))));
    let outside = BodyRef::Stored { sha256: "../../../../etc/passwd".into(), bytes: 1 };
    assert!(matches!(bodies.get(&outside), Err(BodyError::Name(_))));
}

#[test]
fn unfinished_body_leaves_no_file() {
    let (_place, directory, bodies) = bodies();
    let mut writer = bodies.writer().unwrap();
    writer.write(b"half").unwrap();
    assert_eq!(files(&directory.bodies()).len(), 1);
    assert_eq!(bodies.remove_abandoned(), 0, "the file of a live writer was removed");
    drop(writer);
    assert!(files(&directory.bodies()).is_empty());

    fs::write(directory.bodies().join(".killed.part"), "half").unwrap();
    assert_eq!(bodies.remove_abandoned(), 1);
    assert!(files(&directory.bodies()).is_empty());
}

/// Returns the request of one turn as agents send it: the whole conversation with a cache mark at its end, then the
/// same prompt and tools.
fn request(turns: usize) -> Vec<u8> {
    let scattered = |seed: usize| (0..70_usize).map(move |n| (seed * 7_919 + n * n * 31) % 9_973);
    let word = |seed: usize| scattered(seed).map(|number| format!("{number:x}")).collect::<Vec<_>>().join(" ");
    let message = |turn: usize| {
        let mark = if turn + 1 == turns { r#","cache_control":{"type":"ephemeral"}"# } else { "" };
        format!(r#"{{"role":"user","content":[{{"type":"text","text":"{} {}"{mark}}}]}}"#, word(turn), word(turn + 500))
    };
    let messages: Vec<String> = (0..turns).map(message).collect();
    let prompt: String = (1_000..1_230).map(word).collect();
    let body = format!(r#"{{"model":"m","messages":[{}],"system":"{prompt}","stream":true}}"#, messages.join(","));
    body.into_bytes()
}

fn stored_bytes(directory: &DataDir) -> u64 {
    files(&directory.bodies()).iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[test]
fn fifty_turns_take_less_than_three_times_the_space_of_the_first() {
    for compress in [false, true] {
        let (_place, directory, bodies) = bodies();
        let bodies = bodies.with_compression(compress);
        let requests: Vec<Vec<u8>> = (1..=50).map(request).collect();
        assert!((70_000..90_000).contains(&requests[0].len()), "{} bytes", requests[0].len());
        let mut kept = Vec::new();
        for request in &requests {
            kept.push(bodies.put(BodyKind::Request, request).unwrap());
            // A response is stored between two requests.
            bodies
                .put(
                    BodyKind::Response,
                    format!("event: message_start\ndata: {}\n\n", "x".repeat(kept.len() * 200)).as_bytes(),
                )
                .unwrap();
        }
        let (first, all) = (requests[0].len() as u64, requests.iter().map(Vec::len).sum::<usize>() as u64);
        let taken = stored_bytes(&directory);
        println!("compress {compress}: {all} bytes of requests take {taken}, the first alone {first}");
        assert!(taken < 3 * first, "{all} bytes take {taken}, the first alone {first}");
        // A new store has no recent bodies in memory.
        let reader = FileBodyStore::new(&directory);
        for (body, request) in kept.iter().zip(&requests) {
            assert_eq!(&reader.get(body).unwrap(), request);
            reader.sync(body).unwrap();
        }
    }
}

#[test]
fn damaged_base_of_a_body_is_detected() {
    let (_place, directory, bodies) = bodies();
    let (first, second) =
        (bodies.put(BodyKind::Request, request(1)).unwrap(), bodies.put(BodyKind::Request, request(2)).unwrap());
    let path = |body: &BodyRef| path(&directory, body).unwrap();
    let packed = path(&second).with_extension("pack");
    assert!(packed.metadata().unwrap().len() < 5_000);
    let mut bytes = fs::read(path(&first)).unwrap();
    bytes[1_000] ^= 1;
    fs::write(path(&first), &bytes).unwrap();
    assert!(matches!(bodies.get(&second), Err(BodyError::Damaged(_))));
    fs::remove_file(path(&first)).unwrap();
    assert!(matches!(bodies.get(&second), Err(BodyError::NotFound(_))));
    // A truncated body is written again.
    fs::write(&packed, b"vivb1").unwrap();
    assert!(bodies.get(&second).is_err());
    bodies.put(BodyKind::Request, request(1)).unwrap();
    bodies.put(BodyKind::Request, request(2)).unwrap();
    assert_eq!(bodies.get(&second).unwrap(), request(2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn body_in_pieces_equals_the_whole_body(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let (_place, directory, bodies) = bodies();
        let mut writer = bodies.writer().unwrap();
        for piece in &pieces {
            writer.write(piece).unwrap();
        }
        let body = writer.finish().unwrap();
        let whole = bodies.put_file(&pieces.concat()).unwrap();
        prop_assert_eq!(&whole, &body);
        prop_assert_eq!(bodies.get(&body).unwrap(), pieces.concat());
        prop_assert_eq!(files(&directory.bodies()).len(), 1);
    }
}
