//! Replay of a session by its id, with a comparison of both journals.

use std::path::PathBuf;
use std::sync::Arc;

use gateway::{ReplayUpstream, RequestNormalizer};
use protocol::{Event, EventBody, SessionId, TurnOutcome};

use super::{ReplaySessionError, ReplaySetup, SessionRecording, compare};
use crate::storage::run_blocking;
use crate::{SessionError, SessionOptions, Sessions};

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayOutcome {
    /// The outcome of the last turn.
    pub outcome: Option<TurnOutcome>,
    /// The first model request that is not in the recording.
    pub unrecorded_request: Option<String>,
    /// Number of recorded calls that the replay did not make.
    pub unused_calls: usize,
    /// Lines in which the two journals differ; empty when they are equal.
    pub differences: Vec<String>,
}

impl Sessions {
    /// Replays the session `of` in the new session `id`, under the policy of `options` or of this host, and ends the new
    /// session. Requests and events are compared after the normalizer of `options`, or the built-in one.
    pub async fn replay_by_id(
        &self,
        of: &SessionId,
        id: SessionId,
        directory: Option<PathBuf>,
        options: SessionOptions,
    ) -> Result<ReplayOutcome, ReplaySessionError> {
        let (info, store, session) = (self.get(of)?, self.host.store.clone(), of.clone());
        let normalizer = match &options.normalizer {
            Some(normalizer) => normalizer.clone(),
            None => Arc::new(RequestNormalizer::new(&[])?),
        };
        let rules = normalizer.clone();
        let read = move || {
            let read = || {
                let recording = SessionRecording::read(store.directory(), &info)?;
                let upstream = ReplayUpstream::open(store.directory(), &session, (*rules).clone())?;
                Ok::<_, ReplaySessionError>((recording, Arc::new(upstream)))
            };
            Ok::<_, SessionError>(read())
        };
        let (recording, upstream) = run_blocking(read).await??;
        let policy = match (&options.policy, directory.as_deref().or(recording.directory.as_deref())) {
            (Some(policy), directory) => self.host.hide_data_dir(policy.clone(), directory)?,
            (None, directory) => self.host.policy_in(directory)?,
        };
        let setup = ReplaySetup { upstream: upstream.clone(), policy, directory, options };
        self.replay_and_compare(id, &recording, &upstream, setup, &normalizer, |_| ()).await
    }

    /// Replays `recording` with the recorded responses of `upstream`, compares the journals, and calls `listener` for
    /// every event.
    pub async fn replay_and_compare(
        &self,
        id: SessionId,
        recording: &SessionRecording,
        upstream: &ReplayUpstream,
        setup: ReplaySetup,
        normalizer: &RequestNormalizer,
        mut listener: impl FnMut(&Event),
    ) -> Result<ReplayOutcome, ReplaySessionError> {
        let mut outcome = None;
        let listen = |event: &Event| {
            if let EventBody::TurnEnded(turn) = &event.draft.body {
                outcome = turn.outcome;
            }
            listener(event);
        };
        self.replay(id.clone(), recording, setup, listen).await?;
        // Includes events before the first turn and after the last one.
        let journal = self.journal(&id)?;
        let events = run_blocking(move || Ok(journal.after(0, usize::MAX)?)).await?;
        let differences = compare(&recording.events, &events, normalizer);
        let unrecorded_request = upstream.first_miss().map(str::to_owned);
        Ok(ReplayOutcome { outcome, unrecorded_request, unused_calls: upstream.unused_calls(), differences })
    }
}
