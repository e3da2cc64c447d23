//! Export and import of a session as one file, the bundle.
//!
//! A bundle is a tar archive with `session.json`, `journal.jsonl`, `policy.json`, `changes.json`, `changes.diff`,
//! `bodies/<sha256>`, and a `manifest.json` with their digests. An import trusts nothing: all digests and the hash chain
//! of the journal are verified before anything is stored. An imported session has ended; it can be read and replayed.

mod manifest;
mod reader;
mod writer;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

use protocol::{BodyRef, EventBody, EventDraft, SessionEndReason, SessionEnded, SessionId, SessionInfo, TerminatedBy};
use store::{
    FileBodyStore, Journal, JournalError, NewSession, SessionOrigin, SessionPatch, copy_journal, verify_journal,
};
use tempfile::NamedTempFile;

use crate::storage::{DIFF, ImportedSession, LIST, SessionChanges, last_sequence, run_blocking};
use crate::{SessionError, Sessions};
use reader::{check, unpack};
use writer::BundleWriter;

/// Events read at a time.
const PAGE: usize = 1000;

impl Sessions {
    /// Returns the bundle of a session as an unnamed temporary file.
    pub async fn export(&self, id: &SessionId) -> Result<File, SessionError> {
        let (mut info, journal, sessions) = (self.get(id)?, self.journal(id)?, self.clone());
        run_blocking(move || {
            let directory = sessions.host.store.directory();
            let file = tempfile::tempfile_in(directory.root()).map_err(failed("write"))?;
            let mut bundle = BundleWriter::new(file);
            let id = &info.session_id;
            // The session may have recorded events since.
            info.event_count = bundle.add_journal(&directory.journal(id))?;
            bundle.add("session.json", &serde_json::to_vec_pretty(&info).unwrap_or_default())?;
            let (policy, bodies) = find_policy_and_bodies(&*journal)?;
            bundle.add("policy.json", &policy)?;
            let changes = SessionChanges::open(directory, id).map_err(SessionError::Changes)?;
            if changes.exists() {
                let stat = changes.stat().map_err(SessionError::Changes)?;
                bundle.add(LIST, &serde_json::to_vec_pretty(&stat).unwrap_or_default())?;
                bundle.add(DIFF, changes.patch().map_err(SessionError::Changes)?.as_bytes())?;
            }
            for body in bodies {
                let stored = FileBodyStore::new(directory).get(&body.into());
                // A body that was deleted is missing in the bundle too.
                if let Ok((name, bytes)) = stored.map(|bytes| (base::Digest::of(&bytes), bytes)) {
                    bundle.add(&format!("bodies/{name}"), &bytes)?;
                }
            }
            bundle.finish()
        })
        .await
    }

    /// Imports a session from a bundle under its own id or under `new_id`. The imported session has ended. Fails when the
    /// bundle is invalid or the id is used.
    pub async fn import(&self, bundle: File, new_id: Option<SessionId>) -> Result<SessionInfo, SessionError> {
        let sessions = self.clone();
        let id = run_blocking(move || sessions.import_blocking(&bundle, new_id)).await?;
        self.get(&id)
    }

    fn import_blocking(&self, bundle: &File, new_id: Option<SessionId>) -> Result<SessionId, SessionError> {
        check(bundle)?;
        let directory = self.host.store.directory();
        let journal = NamedTempFile::new_in(directory.journal_dir()).map_err(failed("import"))?;
        let changes = tempfile::tempdir_in(directory.root()).map_err(failed("import"))?;
        let mut info = unpack(bundle, journal.path(), changes.path(), &FileBodyStore::new(directory))?;
        let ended = check_journal(journal.path(), &info)?;
        let journal = match new_id.filter(|id| *id != info.session_id) {
            None => journal,
            Some(id) => {
                let copy = NamedTempFile::new_in(directory.journal_dir()).map_err(failed("import"))?;
                copy_journal(journal.path(), copy.path(), &id)?;
                info.session_id = id;
                copy
            }
        };
        let id = info.session_id.clone();
        let _import_lock = self.host.store.lock_imports();
        if self.host.store.index.id_was_used(&id)? {
            return Err(self.host.store.id_used_error(id));
        }
        // A journal without an index row is left from an import that was killed.
        let path = directory.journal(&id);
        let _ = std::fs::remove_file(path.with_extension("idx"));
        journal.persist(&path).map_err(|error| failed("store")(error.error))?;
        let installed = ImportedSession::install(changes, directory, &id).map_err(failed("store"));
        installed.and_then(|()| self.register_ended(&info, ended)).inspect_err(|error| {
            // A session that another process created meanwhile stays.
            if !matches!(error, SessionError::AlreadyExists(_)) {
                self.host.store.undo_register(&id);
                let _ = ImportedSession::remove(directory, &id);
            }
        })?;
        Ok(id)
    }

    fn register_ended(&self, info: &SessionInfo, has_ended: bool) -> Result<(), SessionError> {
        let (store, id) = (&self.host.store, &info.session_id);
        let (journal, _) = store.journal(id)?;
        if !has_ended {
            journal.append(EventDraft::daemon(EventBody::SessionEnded(SessionEnded {
                reason: SessionEndReason::Terminated,
                terminated_by: TerminatedBy::Daemon,
                message: Some("imported from a bundle".to_owned()),
                exit_code: None,
                stderr: None,
            })))?;
        }
        journal.sync()?;
        let info = info.clone();
        let new = NewSession::new(id.clone(), info.agent, store.owner.id().clone());
        store.index.create(&NewSession {
            agent_mode: info.agent_mode,
            permission_mode: info.permission_mode,
            model: info.model,
            variant: info.variant,
            directory: info.directory,
            title: info.title,
            mcp: info.mcp,
            skills: info.skills,
            created_ms: Some(info.created_at),
            origin: SessionOrigin::Import,
            ..new
        })?;
        let patch = SessionPatch {
            native_session_id: info.native_session_id,
            event_count: Some(last_sequence(&*journal)),
            outcome: Some(end_reason(&*journal)?.into()),
            ..SessionPatch::default()
        };
        store.index.update(id, &patch)?;
        Ok(())
    }
}

/// Verifies that the journal is whole and matches `session.json`. Returns whether the session has ended.
fn check_journal(path: &Path, info: &SessionInfo) -> Result<bool, SessionError> {
    let verified = verify_journal(path).map_err(|error| match error {
        // The path on this host is left out of the message.
        JournalError::Damaged { line, defect, .. } => {
            SessionError::InvalidBundle(format!("line {line} of `journal.jsonl` is damaged: {defect}"))
        }
        other => SessionError::Journal(other),
    })?;
    if verified.session.as_ref() != Some(&info.session_id) || verified.torn_bytes > 0 {
        return Err(SessionError::InvalidBundle(
            "`journal.jsonl` is truncated or belongs to another session".to_owned(),
        ));
    }
    if verified.records != info.event_count {
        let (expected, found) = (info.event_count, verified.records);
        return Err(SessionError::InvalidBundle(format!(
            "`session.json` lists {expected} events, but `journal.jsonl` has {found}"
        )));
    }
    Ok(verified.ended)
}

/// Returns the reason in the last event; `Terminated` without one.
fn end_reason(journal: &dyn Journal) -> Result<SessionEndReason, SessionError> {
    let end = journal.after(last_sequence(journal).saturating_sub(1), 1)?.pop().map(|event| event.draft.body);
    Ok(match end {
        Some(EventBody::SessionEnded(ended)) => ended.reason,
        _ => SessionEndReason::Terminated,
    })
}

/// Returns the policy as JSON, and the keys of all referenced bodies.
fn find_policy_and_bodies(journal: &dyn Journal) -> Result<(Vec<u8>, BTreeSet<BodyKey>), SessionError> {
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
                    bodies.extend(BodyKey::of(&call.body));
                }
                EventBody::AnthropicResponse(answer)
                | EventBody::OpenaiResponse(answer)
                | EventBody::GeminiResponse(answer) => {
                    bodies.extend(BodyKey::of(&answer.body));
                }
                _ => {}
            }
        }
    }
}

/// The digest and size of a stored body.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BodyKey(String, u64);

impl BodyKey {
    /// Returns the key of a stored body; `None` for a body inside the journal.
    fn of(body: &BodyRef) -> Option<Self> {
        match body {
            BodyRef::Inline { .. } => None,
            BodyRef::Stored { sha256, bytes } => Some(Self(sha256.clone(), *bytes)),
        }
    }
}

impl From<BodyKey> for BodyRef {
    fn from(BodyKey(sha256, bytes): BodyKey) -> Self {
        Self::Stored { sha256, bytes }
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> SessionError {
    move |source| SessionError::BundleFile { doing, source }
}
