//! Reads a bundle: verifies all of it first, then unpacks it.

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
use super::manifest::{self, BundleManifest, MAX_FILES};
use crate::SessionError;
use crate::storage::{DIFF, LIST, write_private_file};

/// Largest `session.json`.
const MAX_INFO_BYTES: u64 = 1 << 20;
/// Largest `changes.json`.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Largest body of a model call.
const MAX_BODY_BYTES: u64 = 256 << 20;

/// Fails unless the bundle is complete and every file matches the manifest.
pub(super) fn check(mut bundle: &File) -> Result<(), SessionError> {
    if !has_end_marker(bundle).map_err(failed("read"))? {
        return Err(SessionError::InvalidBundle("the archive is truncated".to_owned()));
    }
    bundle.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
    let mut archive = tar::Archive::new(bundle);
    let (mut manifest, mut found) = (None, BTreeMap::new());
    for entry in archive.entries().map_err(not_a_bundle)? {
        let entry = entry.map_err(not_a_bundle)?;
        let name = file_name(&entry)?;
        let is_duplicate = if name == manifest::NAME {
            manifest.replace(read_json::<BundleManifest>(entry, &name, manifest::MAX_BYTES)?).is_some()
        } else {
            found.insert(name.clone(), digest(entry)?).is_some()
        };
        if is_duplicate || found.len() > MAX_FILES {
            return Err(SessionError::InvalidBundle(format!("duplicate file `{name}`, or too many files")));
        }
    }
    let missing = "`manifest.json` is missing; an earlier version wrote this bundle, so export the session again";
    manifest.ok_or_else(|| SessionError::InvalidBundle(missing.to_owned()))?.check(&found)
}

/// Unpacks the journal to `journal`, the changes to `changes` and the bodies to `bodies`. Returns the content of
/// `session.json`.
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
        let name = file_name(&entry)?;
        match name.split_once('/') {
            None if name == "session.json" => info = Some(read_json::<SessionInfo>(entry, &name, MAX_INFO_BYTES)?),
            None if name == "journal.jsonl" => {
                let mut file = File::options().write(true).truncate(true).open(journal).map_err(failed("read"))?;
                io::copy(&mut entry, &mut file).map_err(not_a_bundle)?;
                has_journal = true;
            }
            None if name == LIST => {
                let list = read_json::<Vec<ChangeStat>>(entry, &name, MAX_LIST_BYTES)?;
                let list = serde_json::to_vec(&list).unwrap_or_default();
                write_private_file(&changes.join(LIST), &mut &*list).map_err(not_a_bundle)?;
            }
            None if name == DIFF => write_private_file(&changes.join(DIFF), &mut entry).map_err(not_a_bundle)?,
            // The journal has the policy, and the manifest was checked before.
            None if matches!(name.as_str(), "policy.json" | manifest::NAME) => {}
            Some(("bodies", digest)) => store_body(entry, digest, bodies)?,
            _ => return Err(SessionError::InvalidBundle(format!("unexpected file `{name}`"))),
        }
    }
    info.filter(|_| has_journal)
        .ok_or_else(|| SessionError::InvalidBundle("`session.json` or `journal.jsonl` is missing".to_owned()))
}

/// Returns whether the archive has its end marker. Without it, an archive that was cut between two files looks whole.
fn has_end_marker(bundle: &File) -> io::Result<bool> {
    let mut end = [1; 1024];
    match bundle.metadata()?.len().checked_sub(end.len() as u64) {
        Some(at) => bundle.read_exact_at(&mut end, at)?,
        None => return Ok(false),
    }
    Ok(end.iter().all(|byte| *byte == 0))
}

/// Returns the name of a file in the bundle; fails for other entries, such as links.
fn file_name<R: Read>(entry: &tar::Entry<'_, R>) -> Result<String, SessionError> {
    let name = entry.path().map_err(not_a_bundle)?.to_string_lossy().into_owned();
    if entry.header().entry_type().is_file() {
        Ok(name)
    } else {
        Err(SessionError::InvalidBundle(format!("`{name}` is not a regular file")))
    }
}

fn digest(entry: impl Read) -> Result<Digest, SessionError> {
    let mut entry = DigestReader::new(entry);
    io::copy(&mut entry, &mut io::sink()).map_err(not_a_bundle)?;
    Ok(entry.finish())
}

/// Parses a JSON file of at most `limit` bytes.
fn read_json<T: DeserializeOwned>(entry: impl Read, name: &str, limit: u64) -> Result<T, SessionError> {
    let bytes = read(entry, name, limit)?;
    serde_json::from_slice(&bytes).map_err(|error| SessionError::InvalidBundle(format!("{name}: {error}")))
}

fn read(entry: impl Read, name: &str, limit: u64) -> Result<Vec<u8>, SessionError> {
    let mut bytes = Vec::new();
    let count = entry.take(limit + 1).read_to_end(&mut bytes).map_err(not_a_bundle)?;
    if count as u64 > limit {
        return Err(SessionError::InvalidBundle(format!("`{name}` is larger than the limit of {limit} bytes")));
    }
    Ok(bytes)
}

fn store_body(entry: impl Read, digest: &str, bodies: &FileBodyStore) -> Result<(), SessionError> {
    let bytes = read(entry, digest, MAX_BODY_BYTES)?;
    if Digest::of(&bytes).to_string() != digest {
        return Err(SessionError::InvalidBundle(format!("the body `{digest}` does not match its digest")));
    }
    bodies.put_file(&bytes).map(drop).map_err(|error| failed("import")(io::Error::other(error)))
}

/// Returns the error for a file that cannot be read: an invalid bundle, unless the disk of this host is full.
fn not_a_bundle(error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            failed("import")(error)
        }
        _ => SessionError::InvalidBundle(error.to_string()),
    }
}
