//! One file that holds everything about a session, and the way back.
//!
//! A bundle is a tar: `session.json`, `journal.jsonl`, `policy.json`, `changes.diff` and `bodies/<sha256>`. What comes
//! in is trusted in nothing: every line of the journal and every body must be what its hash says, and the session that
//! is made of it has ended. It can be read and replayed, never driven.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::{BodyRef, Draft, EventBody, SessionEndReason, SessionEnded, SessionId, SessionInfo, TerminatedBy};
use sandbox::{SavedChanges, render_diff};
use store::{Bodies, Journal, NewSession, SessionChange, verify};

use crate::shelf::{blocking, last};
use crate::{SessionError, Sessions};

/// So many events are read at a time.
const PAGE: usize = 1000;
/// `session.json` is small.
const INFO_BYTES: u64 = 1 << 20;

impl Sessions {
    /// Everything about a session, as it is now, in one file without a name.
    pub async fn export(&self, id: &SessionId) -> Result<File, SessionError> {
        let (info, journal, sessions) = (self.get(id)?, self.journal(id)?, self.clone());
        blocking(move || {
            let directory = sessions.host.shelf.directory();
            let file = tempfile::tempfile_in(directory.root()).map_err(failed("write"))?;
            let mut bundle = tar::Builder::new(file);
            let id = &info.session_id;
            add(&mut bundle, "session.json", &serde_json::to_vec_pretty(&info).unwrap_or_default())?;
            add_journal(&mut bundle, &directory.journal(id))?;
            let (policy, bodies) = look_through(&*journal)?;
            add(&mut bundle, "policy.json", &policy)?;
            if let Ok(saved) = SavedChanges::open(&directory.changes(id)) {
                let diff = render_diff(&saved, None).map_err(SessionError::Changes)?;
                add(&mut bundle, "changes.diff", diff.as_bytes())?;
            }
            for body in bodies {
                let kept = Bodies::new(directory).get(&body.into());
                // A body that was cleared away is missing from the bundle as it is missing here.
                if let Ok((name, bytes)) = kept.map(|bytes| (store::Digest::of(&bytes), bytes)) {
                    add(&mut bundle, &format!("bodies/{name}"), &bytes)?;
                }
            }
            let mut file = bundle.into_inner().map_err(failed("write"))?;
            file.seek(SeekFrom::Start(0)).map_err(failed("write"))?;
            Ok(file)
        })
        .await
    }

    /// Takes a session in from a bundle. It has ended, whatever it was.
    pub async fn import(&self, bundle: File) -> Result<SessionInfo, SessionError> {
        let sessions = self.clone();
        let id = blocking(move || sessions.take_in(bundle)).await?;
        self.get(&id)
    }

    fn take_in(&self, bundle: File) -> Result<SessionId, SessionError> {
        let directory = self.host.shelf.directory();
        let journal = tempfile::NamedTempFile::new_in(directory.trajectory()).map_err(failed("read"))?;
        let info = unpack(bundle, journal.path(), &Bodies::new(directory))?;
        let verified = verify(journal.path()).map_err(|error| SessionError::Bundle(error.to_string()))?;
        let id = info.session_id.clone();
        if verified.session.as_ref() != Some(&id) || verified.torn_bytes > 0 {
            return Err(SessionError::Bundle("its journal is not whole, or is another session's".to_owned()));
        }
        let _alone = self.host.shelf.take_in_alone();
        if self.host.shelf.index.is_used(&id)? {
            return Err(self.host.shelf.taken(id));
        }
        // A journal of a session that is not in the list is nobody's: an import that was killed has left it.
        let path = directory.journal(&id);
        let _ = std::fs::remove_file(path.with_extension("idx"));
        journal.persist(&path).map_err(|error| failed("keep")(error.error))?;
        self.enter_ended(&info, verified.ended).inspect_err(|error| {
            // What another process has entered meanwhile stays.
            if !matches!(error, SessionError::AlreadyExists(_)) {
                self.host.shelf.unmake(&id);
            }
        })?;
        Ok(id)
    }

    fn enter_ended(&self, info: &SessionInfo, has_ended: bool) -> Result<(), SessionError> {
        let (kept, id) = (&self.host.shelf, &info.session_id);
        let (journal, _) = kept.journal(id)?;
        if !has_ended {
            journal.append(Draft::daemon(EventBody::SessionEnded(SessionEnded {
                reason: SessionEndReason::Terminated,
                terminated_by: TerminatedBy::Daemon,
                message: Some("this is a copy, taken in from a bundle".to_owned()),
                exit_code: None,
                stderr: None,
            })))?;
        }
        journal.sync()?;
        let new = NewSession::new(id.clone(), info.agent.clone(), kept.owner.id().clone());
        kept.index.create(&NewSession {
            agent_mode: info.agent_mode.clone(),
            permission_mode: info.permission_mode.clone(),
            model: info.model.clone(),
            title: info.title.clone(),
            ..new
        })?;
        let (event_count, outcome) = (Some(last(&*journal)), Some(SessionEndReason::Terminated.into()));
        kept.index.update(id, &SessionChange { event_count, outcome, ..SessionChange::default() })?;
        Ok(())
    }
}

/// The policy, and every body that is spoken of.
fn look_through(journal: &dyn Journal) -> Result<(Vec<u8>, BTreeSet<Named>), SessionError> {
    let (mut policy, mut bodies, mut seen) = (Vec::new(), BTreeSet::new(), 0);
    loop {
        let page = journal.after(seen, PAGE)?;
        let Some(end) = page.last() else { return Ok((policy, bodies)) };
        seen = end.sequence;
        for event in &page {
            match &event.draft.body {
                EventBody::PolicyEffective(effective) => {
                    policy = serde_json::to_vec_pretty(effective).unwrap_or_default();
                }
                EventBody::AnthropicRequest(call) | EventBody::OpenaiRequest(call) | EventBody::GeminiRequest(call) => {
                    bodies.extend(Named::of(&call.body));
                }
                EventBody::AnthropicResponse(answer)
                | EventBody::OpenaiResponse(answer)
                | EventBody::GeminiResponse(answer) => {
                    bodies.extend(Named::of(&answer.body));
                }
                _ => {}
            }
        }
    }
}

/// A body by its name, each once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Named(String, u64);

impl Named {
    /// None where the journal itself has it.
    fn of(body: &BodyRef) -> Option<Self> {
        body.text.is_none().then(|| Self(body.sha256.clone(), body.bytes))
    }
}

impl From<Named> for BodyRef {
    fn from(Named(sha256, bytes): Named) -> Self {
        Self { sha256, bytes, text: None }
    }
}

fn add(bundle: &mut tar::Builder<File>, name: &str, bytes: &[u8]) -> Result<(), SessionError> {
    append(bundle, name, bytes.len() as u64, bytes)
}

/// The journal up to its last whole line: a session may be writing it now.
fn add_journal(bundle: &mut tar::Builder<File>, path: &Path) -> Result<(), SessionError> {
    let file = File::open(path).map_err(failed("read the journal for"))?;
    let length = whole(&file).map_err(failed("read the journal for"))?;
    append(bundle, "journal.jsonl", length, file.take(length))
}

fn append(bundle: &mut tar::Builder<File>, name: &str, length: u64, from: impl Read) -> Result<(), SessionError> {
    let mut header = tar::Header::new_gnu();
    header.set_size(length);
    header.set_mode(0o600);
    bundle.append_data(&mut header, name, from).map_err(failed("write"))
}

/// Bytes up to the last newline.
fn whole(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut piece = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(piece, start)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Puts the journal at `journal` and the bodies where bodies are; what the bundle says of its session comes back.
fn unpack(bundle: File, journal: &Path, bodies: &Bodies) -> Result<SessionInfo, SessionError> {
    if !is_whole(&bundle).map_err(failed("read"))? {
        return Err(SessionError::Bundle("it breaks off before its end".to_owned()));
    }
    let mut archive = tar::Archive::new(bundle);
    let (mut info, mut has_journal) = (None, false);
    for entry in archive.entries().map_err(not_a_bundle)? {
        let mut entry = entry.map_err(not_a_bundle)?;
        let name = entry.path().map_err(not_a_bundle)?.to_string_lossy().into_owned();
        if !entry.header().entry_type().is_file() {
            return Err(SessionError::Bundle(format!("`{name}` is no file")));
        }
        match name.split_once('/') {
            None if name == "session.json" => {
                let read = serde_json::from_reader::<_, SessionInfo>(entry.take(INFO_BYTES));
                info = Some(read.map_err(|error| SessionError::Bundle(format!("session.json: {error}")))?);
            }
            None if name == "journal.jsonl" => {
                let mut file = File::options().write(true).truncate(true).open(journal).map_err(failed("read"))?;
                io::copy(&mut entry, &mut file).map_err(not_a_bundle)?;
                has_journal = true;
            }
            // Made again from the journal, or only for people.
            None if matches!(name.as_str(), "policy.json" | "changes.diff") => {}
            Some(("bodies", digest)) => keep_body(&mut entry, digest, bodies)?,
            _ => return Err(SessionError::Bundle(format!("`{name}` does not belong in it"))),
        }
    }
    info.filter(|_| has_journal).ok_or_else(|| SessionError::Bundle("it has no session or no journal".to_owned()))
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

fn keep_body(entry: &mut impl Read, digest: &str, bodies: &Bodies) -> Result<(), SessionError> {
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(not_a_bundle)?;
    if store::Digest::of(&bytes).to_string() != digest {
        return Err(SessionError::Bundle(format!("the body `{digest}` is another")));
    }
    bodies.file(&bytes).map(drop).map_err(|error| failed("take in")(io::Error::other(error)))
}

/// What cannot be read is no bundle, unless it is we who have no room for it.
fn not_a_bundle(error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            failed("take in")(error)
        }
        _ => SessionError::Bundle(error.to_string()),
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> SessionError {
    move |source| SessionError::BundleFile { doing, source }
}
