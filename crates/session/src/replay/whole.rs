//! A recorded session played again from its id: what came of it, and in what it differs.

use std::path::PathBuf;
use std::sync::Arc;

use gateway::{ReplayUpstream, RequestNormalizer};
use protocol::{Event, EventBody, SessionId, TurnOutcome};

use super::{ReplaySessionError, ReplaySetup, SessionRecording, compare};
use crate::shelf::blocking;
use crate::{SessionError, SessionOptions, Sessions};

/// What came of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayOutcome {
    /// How its last turn ended.
    pub outcome: Option<TurnOutcome>,
    /// The first request that was not recorded.
    pub unrecorded_request: Option<String>,
    /// How many recorded calls nobody asked for.
    pub unused_calls: usize,
    /// In what the two records differ, line by line; nothing when they are the same.
    pub differences: Vec<String>,
}

impl Sessions {
    /// Plays the session `of` again in the new session `id`, under the policy of this host or of `options`, and ends
    /// that. What does not count in requests and records is what `options` says, or what no two runs have in common.
    pub async fn replay_by_id(
        &self,
        of: &SessionId,
        id: SessionId,
        directory: Option<PathBuf>,
        options: SessionOptions,
    ) -> Result<ReplayOutcome, ReplaySessionError> {
        let (info, kept, session) = (self.get(of)?, self.host.shelf.clone(), of.clone());
        let normal = match &options.normalizer {
            Some(normal) => normal.clone(),
            None => Arc::new(RequestNormalizer::new(&[])?),
        };
        let rules = normal.clone();
        let read = move || {
            let read = || {
                let recording = SessionRecording::read(kept.directory(), &info)?;
                let tape = ReplayUpstream::of(kept.directory(), &session, (*rules).clone())?;
                Ok::<_, ReplaySessionError>((recording, Arc::new(tape)))
            };
            Ok::<_, SessionError>(read())
        };
        let (recording, tape) = blocking(read).await??;
        let policy = match (&options.policy, directory.as_deref().or(recording.directory.as_deref())) {
            (Some(policy), directory) => self.host.hide_data(policy.clone(), directory)?,
            (None, directory) => self.host.policy_in(directory)?,
        };
        let stage = ReplaySetup { upstream: tape.clone(), policy, directory, options };
        self.replay_and_compare(id, &recording, &tape, stage, &normal, |_| ()).await
    }

    /// Plays `recording`, whose model speaks from `tape`, and tells what came of it; `hear` is told every event.
    pub async fn replay_and_compare(
        &self,
        id: SessionId,
        recording: &SessionRecording,
        tape: &ReplayUpstream,
        stage: ReplaySetup,
        normal: &RequestNormalizer,
        mut hear: impl FnMut(&Event),
    ) -> Result<ReplayOutcome, ReplaySessionError> {
        let (mut outcome, mut miss) = (None, None);
        let listen = |event: &Event| {
            match &event.draft.body {
                EventBody::TurnEnded(turn) => outcome = turn.outcome,
                EventBody::UpstreamError(error) if error.message.starts_with("replay of `") => {
                    miss.get_or_insert_with(|| error.message.clone());
                }
                _ => {}
            }
            hear(event);
        };
        self.replay(id.clone(), recording, stage, listen).await?;
        // With what came before the first turn and after the last.
        let journal = self.journal(&id)?;
        let events = blocking(move || Ok(journal.after(0, usize::MAX)?)).await?;
        let differences = compare(&recording.events, &events, normal);
        Ok(ReplayOutcome { outcome, unrecorded_request: miss, unused_calls: tape.left(), differences })
    }
}
