//! Imports the commits of a session into the host's repository by `git fetch`.
//!
//! The fetch checks every object, runs no hook and writes below `refs/viv/<session>/` only. It is repeated at each review;
//! without new commits it does nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::CommitsError;
use super::bare::{BareRepository, CHECKED_OUT, SESSION_REPOSITORY};
use super::git::{GitCommand, GitPlace};
use super::host_repository::HostRepository;
use super::ref_name::session_part;
use super::repository_start::{GIT, HEADS};
use super::session_refs::{HEAD, SessionReferences};
use crate::review::manifest::{read_json, write_json};
use crate::review::{SavedChanges, SavedEntry, json_path};

/// The most branches of a session that are imported.
const MAX_TIPS: usize = 200;
/// The record of an import, beside the saved changes.
const RECORD: &str = "imported-commits.json";

/// Checks of the fetch that the host's own settings must not turn off.
const CHECKS: &[&str] = &[
    "protocol.file.allow=always",
    "fetch.fsckObjects=true",
    "transfer.fsckObjects=true",
    "transfer.bundleURI=false",
    "fetch.fsck.skipList=/dev/null",
    "fetch.fsck.hasDot=error",
    "fetch.fsck.hasDotdot=error",
    "fetch.fsck.hasDotgit=error",
    "fetch.fsck.fullPathname=error",
    "fetch.fsck.emptyName=error",
    "fetch.fsck.badFilemode=error",
    "fetch.fsck.duplicateEntries=error",
    "fetch.fsck.treeNotSorted=error",
    "fetch.fsck.nulInCommit=error",
    "fetch.fsck.nullSha1=error",
    "fetch.fsck.gitmodulesUrl=error",
    "fetch.fsck.gitmodulesPath=error",
    "fetch.fsck.gitmodulesName=error",
    "fetch.fsck.gitmodulesUpdate=error",
    "fetch.fsck.gitmodulesSymlink=error",
    "fetch.fsck.gitmodulesParse=error",
    "fetch.fsck.gitmodulesBlob=error",
    "fetch.fsck.gitattributesSymlink=error",
    "fetch.fsck.gitignoreSymlink=error",
    "fetch.fsck.mailmapSymlink=error",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "fetch.writeCommitGraph=false",
    "fetch.recurseSubmodules=false",
];

/// The host's repository and session of an import.
#[derive(Debug, Serialize, Deserialize)]
struct ImportRecord {
    #[serde(with = "json_path")]
    workspace: PathBuf,
    session: String,
}

/// Returns the reference below which the commits of a session are.
pub(crate) fn namespace(session: &str) -> String {
    format!("refs/viv/{}/", session_part(session))
}

/// The lock of an import: one import at a time, among all processes. A save needs another lock, so that it never
/// waits for git.
struct ImportLock(File);

impl ImportLock {
    fn take(directory: &Path) -> io::Result<Self> {
        let file = File::options().create(true).write(true).truncate(false).open(directory.join("commits.lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for ImportLock {
    fn drop(&mut self) {
        // A process that another thread forks now has a copy of the descriptor, and would hold the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Removes the repository of an import that was killed.
fn remove_leftovers(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(SESSION_REPOSITORY.as_bytes()) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Imports the tips of the session, and removes references of tips that it no longer has.
pub(crate) fn import(
    saved: &SavedChanges,
    session: &str,
    host: &HostRepository,
    references: &SessionReferences,
) -> Result<(), CommitsError> {
    if references.tips.len() > MAX_TIPS {
        let count = references.tips.len();
        return Err(CommitsError::Unsupported(format!("{count} branches moved, the limit is {MAX_TIPS}")));
    }
    refuse_other_directory(saved)?;
    let (namespace, wanted) = (namespace(session), wanted(references));
    let present = imported(host.place(), &namespace)?;
    let stale: Vec<&String> = present.keys().filter(|name| !wanted.contains_key(*name)).collect();
    let is_complete = wanted.iter().all(|(name, (_, id))| present.get(name) == Some(id));
    if is_complete && stale.is_empty() {
        return Ok(());
    }
    let _lock = ImportLock::take(saved.directory())?;
    remove_leftovers(saved.directory())?;
    let record = ImportRecord { workspace: host.workspace.clone(), session: session.to_owned() };
    write_json(saved.directory(), RECORD, &record)?;
    if !is_complete {
        let bare = BareRepository::of_session(saved, host, references)?;
        check_commits(&bare, &wanted)?;
        delete(host.place(), &namespace, &stale)?;
        return fetch(host, &bare, &namespace, &wanted);
    }
    delete(host.place(), &namespace, &stale)
}

/// Removes the imported references of the saved changes in `directory` from the host's repository.
pub fn remove_imported_commits(directory: &Path) -> Result<(), CommitsError> {
    let record: ImportRecord = match read_json(&directory.join(RECORD)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        record => record?,
    };
    if record.workspace.join(GIT).is_dir() {
        let (place, namespace) = (GitPlace::Host(&record.workspace), namespace(&record.session));
        let present = imported(place, &namespace)?;
        delete(place, &namespace, &present.keys().collect::<Vec<_>>())?;
    }
    Ok(std::fs::remove_file(directory.join(RECORD))?)
}

/// Fails when the session replaced `.git` by a file or a link, so that its commits are elsewhere.
fn refuse_other_directory(saved: &SavedChanges) -> Result<(), CommitsError> {
    let found = saved.manifest.changes.iter().find(|record| record.change.path == Path::new(GIT));
    match found.map(|record| &record.change.entry) {
        None | Some(None | Some(SavedEntry::Directory { .. })) => Ok(()),
        Some(Some(_)) => Err(CommitsError::Unsupported("`.git` of the session is not a directory".to_owned())),
    }
}

/// Returns the references to import by name: the source in the bare repository, and the id.
fn wanted(references: &SessionReferences) -> BTreeMap<String, (String, String)> {
    let branch = |branch: &str| format!("{HEADS}{branch}");
    let mut wanted: BTreeMap<String, (String, String)> = references
        .tips
        .iter()
        .filter_map(|tip| Some((tip.reference.clone(), (branch(tip.branch()?), tip.id.clone()))))
        .collect();
    let head = references.head.iter().map(|id| (HEAD.to_owned(), (CHECKED_OUT.to_owned(), id.clone())));
    wanted.extend(head);
    wanted
}

/// Returns the references below `namespace` with their ids, by the rest of their name.
fn imported(place: GitPlace<'_>, namespace: &str) -> Result<BTreeMap<String, String>, CommitsError> {
    let listed = GitCommand::new(place, ["for-each-ref", "--format=%(objectname) %(refname)", namespace]).run()?;
    let text = listed.checked()?.text();
    let entries = text.lines().filter_map(|line| line.split_once(' '));
    let named = entries.filter_map(|(id, name)| Some((name.strip_prefix(namespace)?.to_owned(), id.to_owned())));
    Ok(named.collect())
}

fn delete(place: GitPlace<'_>, namespace: &str, names: &[&String]) -> Result<(), CommitsError> {
    if names.is_empty() {
        return Ok(());
    }
    let lines: String = names.iter().map(|name| format!("delete {namespace}{name}\n")).collect();
    GitCommand::new(place, ["update-ref", "--stdin"]).input(lines).run()?.checked().map(drop)
}

/// Fails unless every tip is a commit.
fn check_commits(bare: &BareRepository, wanted: &BTreeMap<String, (String, String)>) -> Result<(), CommitsError> {
    let ids: String = wanted.values().map(|(_, id)| format!("{id}\n")).collect();
    let asked = GitCommand::new(bare.place(), ["cat-file", "--batch-check=%(objecttype)"]).input(ids);
    let kinds = asked.run()?.checked()?.text();
    for (kind, (name, (_, id))) in kinds.lines().zip(wanted) {
        if kind != "commit" {
            return Err(CommitsError::Refused(format!("`{name}` is not a commit: {id}")));
        }
    }
    Ok(())
}

fn fetch(
    host: &HostRepository,
    bare: &BareRepository,
    namespace: &str,
    wanted: &BTreeMap<String, (String, String)>,
) -> Result<(), CommitsError> {
    let options = [
        "fetch",
        "--quiet",
        "--atomic",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--no-auto-maintenance",
        "--no-show-forced-updates",
        "--no-prune",
        "--refmap=",
        "--stdin",
        "--",
    ];
    let specs: String = wanted.iter().map(|(name, (from, _))| format!("+{from}:{namespace}{name}\n")).collect();
    let arguments = options.map(Into::into).into_iter().chain([bare.directory.clone().into_os_string()]);
    let fetched = GitCommand::new(host.place(), arguments).with(CHECKS).input(specs).run()?;
    fetched.checked()?;
    let present = imported(host.place(), namespace)?;
    let missing = wanted.iter().find(|(name, (_, id))| present.get(*name) != Some(id));
    missing.map_or(Ok(()), |(name, _)| Err(CommitsError::Refused(format!("`{name}` was not imported"))))
}
