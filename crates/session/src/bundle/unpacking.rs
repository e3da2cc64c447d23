//! A bundle while it is read: first all of it is checked, then it is taken apart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base::{Digest, DigestReader};
use protocol::SessionInfo;
use sandbox::ChangeStat;
use serde::de::DeserializeOwned;
use store::FileBodyStore;

use super::failed;
use super::manifest::{self, FILES, Manifest};
use crate::SessionError;
use crate::imported::{DIFF, LIST, keep};

/// `session.json` is small.
const INFO_BYTES: u64 = 1 << 20;
/// The list of what was changed is no longer.
const LIST_BYTES: u64 = 64 << 20;
/// No body of a model call is larger.
const BODY_BYTES: u64 = 256 << 20;

/// Fails unless the bundle is what was written, to the last byte of it that counts.
pub(super) fn check(mut bundle: &File) -> Result<(), SessionError> {
    if !is_whole(bundle).map_err(failed("read"))? {
        return Err(SessionError::InvalidBundle("it breaks off before its end".to_owned()));
    }
    bundle.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
    let mut archive = tar::Archive::new(bundle);
    let (mut manifest, mut found) = (None, BTreeMap::new());
    for entry in archive.entries().map_err(not_a_bundle)? {
        let entry = entry.map_err(not_a_bundle)?;
        let name = name(&entry)?;
        let twice = if name == manifest::NAME {
            manifest.replace(read_json::<Manifest>(entry, &name, manifest::BYTES)?).is_some()
        } else {
            found.insert(name.clone(), digest(entry)?).is_some()
        };
        if twice || found.len() > FILES {
            return Err(SessionError::InvalidBundle(format!("`{name}` is one file too many")));
        }
    }
    let none =
        "it has no manifest.json, by which a change would show; an earlier build made it, so export the session again";
    manifest.ok_or_else(|| SessionError::InvalidBundle(none.to_owned()))?.check(&found)
}

/// Puts the journal at `journal`, what was changed below `changes` and the bodies where bodies are; what the bundle
/// says of its session comes back.
pub(super) fn unpack(
    mut bundle: &File,
    journal: &Path,
    changes: &Path,
    bodies: &FileBodyStore,
) -> Result<SessionInfo, SessionError> {
    bundle.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
    let mut archive = tar::Archive::new(bundle);
    let (mut info, mut has_journal) = (None, false);
    for entry in archive.entries().map_err(not_a_bundle)? {
        let mut entry = entry.map_err(not_a_bundle)?;
        let name = name(&entry)?;
        match name.split_once('/') {
            None if name == "session.json" => info = Some(read_json::<SessionInfo>(entry, &name, INFO_BYTES)?),
            None if name == "journal.jsonl" => {
                let mut file = File::options().write(true).truncate(true).open(journal).map_err(failed("read"))?;
                io::copy(&mut entry, &mut file).map_err(not_a_bundle)?;
                has_journal = true;
            }
            None if name == LIST => {
                let list = read_json::<Vec<ChangeStat>>(entry, &name, LIST_BYTES)?;
                let list = serde_json::to_vec(&list).unwrap_or_default();
                keep(&changes.join(LIST), &mut &*list).map_err(not_a_bundle)?;
            }
            None if name == DIFF => keep(&changes.join(DIFF), &mut entry).map_err(not_a_bundle)?,
            // Told by the journal, or seen before.
            None if matches!(name.as_str(), "policy.json" | manifest::NAME) => {}
            Some(("bodies", digest)) => keep_body(entry, digest, bodies)?,
            _ => return Err(SessionError::InvalidBundle(format!("`{name}` does not belong in it"))),
        }
    }
    info.filter(|_| has_journal)
        .ok_or_else(|| SessionError::InvalidBundle("it has no session or no journal".to_owned()))
}

/// Whether it ends as archives do. One that was cut between two files reads like a shorter one.
fn is_whole(bundle: &File) -> io::Result<bool> {
    let mut end = [1; 1024];
    match bundle.metadata()?.len().checked_sub(end.len() as u64) {
        Some(at) => bundle.read_exact_at(&mut end, at)?,
        None => return Ok(false),
    }
    Ok(end.iter().all(|byte| *byte == 0))
}

/// The name of a file in the bundle; nothing but files is taken.
fn name<R: Read>(entry: &tar::Entry<'_, R>) -> Result<String, SessionError> {
    let name = entry.path().map_err(not_a_bundle)?.to_string_lossy().into_owned();
    if entry.header().entry_type().is_file() {
        Ok(name)
    } else {
        Err(SessionError::InvalidBundle(format!("`{name}` is no file")))
    }
}

fn digest(entry: impl Read) -> Result<Digest, SessionError> {
    let mut entry = DigestReader::new(entry);
    io::copy(&mut entry, &mut io::sink()).map_err(not_a_bundle)?;
    Ok(entry.finish())
}

/// At most `most` bytes, read as JSON.
fn read_json<T: DeserializeOwned>(entry: impl Read, name: &str, most: u64) -> Result<T, SessionError> {
    let bytes = read(entry, name, most)?;
    serde_json::from_slice(&bytes).map_err(|error| SessionError::InvalidBundle(format!("{name}: {error}")))
}

fn read(entry: impl Read, name: &str, most: u64) -> Result<Vec<u8>, SessionError> {
    let mut bytes = Vec::new();
    let count = entry.take(most + 1).read_to_end(&mut bytes).map_err(not_a_bundle)?;
    if count as u64 > most {
        return Err(SessionError::InvalidBundle(format!("`{name}` has more than {most} bytes")));
    }
    Ok(bytes)
}

fn keep_body(entry: impl Read, digest: &str, bodies: &FileBodyStore) -> Result<(), SessionError> {
    let bytes = read(entry, digest, BODY_BYTES)?;
    if Digest::of(&bytes).to_string() != digest {
        return Err(SessionError::InvalidBundle(format!("the body `{digest}` is another")));
    }
    bodies.file(&bytes).map(drop).map_err(|error| failed("take in")(io::Error::other(error)))
}

/// What cannot be read is no bundle, unless it is we who have no room for it.
fn not_a_bundle(error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            failed("take in")(error)
        }
        _ => SessionError::InvalidBundle(error.to_string()),
    }
}
