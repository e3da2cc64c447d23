//! One file that holds everything about a session, and the way back.
//!
//! A bundle is a tar: `session.json`, `journal.jsonl`, `policy.json`, `changes.json`, `changes.diff`, `bodies/<sha256>`
//! and the `manifest.json` that names them all. What comes in is trusted in nothing: every file must be what the
//! manifest says, and every line of the journal and every body what its hash says, before anything is kept. The
//! session that is made of it has ended. It can be read and replayed, never driven.

mod manifest;
mod packing;
mod unpacking;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;

use protocol::{BodyRef, EventBody, EventDraft, SessionEndReason, SessionEnded, SessionId, SessionInfo, TerminatedBy};
use store::{FileBodyStore, Journal, JournalError, NewSession, SessionPatch, copy_as, verify};
use tempfile::NamedTempFile;

use crate::changes::SessionChanges;
use crate::imported::{DIFF, ImportedSession, LIST};
use crate::shelf::{blocking, last};
use crate::{SessionError, Sessions};
use packing::Packing;
use unpacking::{check, unpack};

/// So many events are read at a time.
const PAGE: usize = 1000;

impl Sessions {
    /// Everything about a session, as it is now, in one file without a name.
    pub async fn export(&self, id: &SessionId) -> Result<File, SessionError> {
        let (mut info, journal, sessions) = (self.get(id)?, self.journal(id)?, self.clone());
        blocking(move || {
            let directory = sessions.host.shelf.directory();
            let file = tempfile::tempfile_in(directory.root()).map_err(failed("write"))?;
            let mut bundle = Packing::to(file);
            let id = &info.session_id;
            // It may have gone on since it was looked at.
            info.event_count = bundle.add_journal(&directory.journal(id))?;
            bundle.add("session.json", &serde_json::to_vec_pretty(&info).unwrap_or_default())?;
            let (policy, bodies) = look_through(&*journal)?;
            bundle.add("policy.json", &policy)?;
            let changes = SessionChanges::open(directory, id).map_err(SessionError::Changes)?;
            if changes.exists() {
                let stat = changes.stat().map_err(SessionError::Changes)?;
                bundle.add(LIST, &serde_json::to_vec_pretty(&stat).unwrap_or_default())?;
                bundle.add(DIFF, changes.patch().map_err(SessionError::Changes)?.as_bytes())?;
            }
            for body in bodies {
                let kept = FileBodyStore::new(directory).get(&body.into());
                // A body that was cleared away is missing from the bundle as it is missing here.
                if let Ok((name, bytes)) = kept.map(|bytes| (base::Digest::of(&bytes), bytes)) {
                    bundle.add(&format!("bodies/{name}"), &bytes)?;
                }
            }
            bundle.finish()
        })
        .await
    }

    /// Takes a session in from a bundle, under its own id or under `new_id`. It has ended, whatever it was.
    pub async fn import(&self, bundle: File, new_id: Option<SessionId>) -> Result<SessionInfo, SessionError> {
        let sessions = self.clone();
        let id = blocking(move || sessions.take_in(&bundle, new_id)).await?;
        self.get(&id)
    }

    fn take_in(&self, bundle: &File, new_id: Option<SessionId>) -> Result<SessionId, SessionError> {
        check(bundle)?;
        let directory = self.host.shelf.directory();
        let journal = NamedTempFile::new_in(directory.trajectory()).map_err(failed("take in"))?;
        let changes = tempfile::tempdir_in(directory.root()).map_err(failed("take in"))?;
        let mut info = unpack(bundle, journal.path(), changes.path(), &FileBodyStore::new(directory))?;
        let ended = check_journal(journal.path(), &info)?;
        let journal = match new_id.filter(|id| *id != info.session_id) {
            None => journal,
            Some(id) => {
                let copy = NamedTempFile::new_in(directory.trajectory()).map_err(failed("take in"))?;
                copy_as(journal.path(), copy.path(), &id)?;
                info.session_id = id;
                copy
            }
        };
        let id = info.session_id.clone();
        let _alone = self.host.shelf.take_in_alone();
        if self.host.shelf.index.is_used(&id)? {
            return Err(self.host.shelf.taken(id));
        }
        // A journal of a session that is not in the list is nobody's: an import that was killed has left it.
        let path = directory.journal(&id);
        let _ = std::fs::remove_file(path.with_extension("idx"));
        journal.persist(&path).map_err(|error| failed("keep")(error.error))?;
        let settled = ImportedSession::settle(changes, directory, &id).map_err(failed("keep"));
        settled.and_then(|()| self.enter_ended(&info, ended)).inspect_err(|error| {
            // What another process has entered meanwhile stays.
            if !matches!(error, SessionError::AlreadyExists(_)) {
                self.host.shelf.unmake(&id);
                let _ = ImportedSession::remove(directory, &id);
            }
        })?;
        Ok(id)
    }

    fn enter_ended(&self, info: &SessionInfo, has_ended: bool) -> Result<(), SessionError> {
        let (kept, id) = (&self.host.shelf, &info.session_id);
        let (journal, _) = kept.journal(id)?;
        if !has_ended {
            journal.append(EventDraft::daemon(EventBody::SessionEnded(SessionEnded {
                reason: SessionEndReason::Terminated,
                terminated_by: TerminatedBy::Daemon,
                message: Some("this is a copy, taken in from a bundle".to_owned()),
                exit_code: None,
                stderr: None,
            })))?;
        }
        journal.sync()?;
        let info = info.clone();
        let new = NewSession::new(id.clone(), info.agent, kept.owner.id().clone());
        kept.index.create(&NewSession {
            agent_mode: info.agent_mode,
            permission_mode: info.permission_mode,
            model: info.model,
            variant: info.variant,
            directory: info.directory,
            title: info.title,
            mcp: info.mcp,
            skills: info.skills,
            created_ms: Some(info.created_at),
            ..new
        })?;
        let change = SessionPatch {
            native_session_id: info.native_session_id,
            event_count: Some(last(&*journal)),
            outcome: Some(how_it_ended(&*journal)?.into()),
            ..SessionPatch::default()
        };
        kept.index.update(id, &change)?;
        Ok(())
    }
}

/// Fails unless the journal is whole and what the bundle says of its session; tells whether the session has ended.
fn check_journal(path: &Path, info: &SessionInfo) -> Result<bool, SessionError> {
    let verified = verify(path).map_err(|error| match error {
        // Where it lies here is nobody's business.
        JournalError::Damaged { line, flaw, .. } => {
            SessionError::InvalidBundle(format!("line {line} of its journal is damaged: {flaw}"))
        }
        other => SessionError::Journal(other),
    })?;
    if verified.session.as_ref() != Some(&info.session_id) || verified.torn_bytes > 0 {
        return Err(SessionError::InvalidBundle("its journal is not whole, or is another session's".to_owned()));
    }
    if verified.records != info.event_count {
        let (said, found) = (info.event_count, verified.records);
        return Err(SessionError::InvalidBundle(format!(
            "session.json speaks of {said} events, its journal has {found}"
        )));
    }
    Ok(verified.ended)
}

/// What the last event says.
fn how_it_ended(journal: &dyn Journal) -> Result<SessionEndReason, SessionError> {
    let end = journal.after(last(journal).saturating_sub(1), 1)?.pop().map(|event| event.draft.body);
    Ok(match end {
        Some(EventBody::SessionEnded(ended)) => ended.reason,
        _ => SessionEndReason::Terminated,
    })
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
        match body {
            BodyRef::Here { .. } => None,
            BodyRef::Named { sha256, bytes } => Some(Self(sha256.clone(), *bytes)),
        }
    }
}

impl From<Named> for BodyRef {
    fn from(Named(sha256, bytes): Named) -> Self {
        Self::Named { sha256, bytes }
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> SessionError {
    move |source| SessionError::BundleFile { doing, source }
}
