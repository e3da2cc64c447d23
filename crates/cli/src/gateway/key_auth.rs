//! Authentication of gateway clients by key.
//!
//! A key is looked up at every call, so a revoked key is rejected at once. Between calls this caches the identity of
//! a key, while its record is unchanged, and its journal, which only this process writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ::gateway::{AuthenticationError, GatewayIdentity, GatewayLimits, NoTurn, SessionToken, Upstream};
use ::policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource};
use base::{ByteBudget, lock};
use protocol::{ProblemCode, SessionId};
use store::{
    DataDir, FileBodyStore, FileJournal, Journal, KeyRecord, KeyStore, LimitAmount, LimitScope, LimitWindow,
    StorageMeter, SystemClock, UsageLimit,
};

use super::slot::GatewaySlot;
use crate::failure::Failure;

/// Maps keys to identities.
pub(crate) struct KeyAuth {
    directory: DataDir,
    slot: GatewaySlot,
    keys: KeyStore,
    upstream: Arc<dyn Upstream>,
    ceiling: CeilingLayer,
    limits: GatewayLimits,
    /// The most bytes of the journal of a key.
    journal_bytes: u64,
    bodies: FileBodyStore,
    journals: Mutex<HashMap<SessionId, Arc<dyn Journal>>>,
    /// Identities by key id. Compiling the model patterns of a key costs more than the rest of a call.
    known: Mutex<HashMap<String, KeyIdentity>>,
}

/// The identity of a key and the record it was made from.
struct KeyIdentity {
    record: Arc<KeyRecord>,
    identity: Arc<GatewayIdentity>,
}

impl KeyAuth {
    pub(crate) fn open(
        directory: DataDir,
        upstream: Arc<dyn Upstream>,
        limits: GatewayLimits,
        journal_bytes: u64,
    ) -> Result<Self, Failure> {
        let slot = GatewaySlot::take(&directory)?;
        let keys = KeyStore::open(&directory, Arc::new(SystemClock))?;
        let ceiling = CeilingLayer::built_in().map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        let bodies = FileBodyStore::new(&directory).with_compression(limits.compress);
        let (journals, known) = (Mutex::default(), Mutex::default());
        Ok(Self { directory, slot, keys, upstream, ceiling, limits, journal_bytes, bodies, journals, known })
    }

    /// Returns the identity of `token`; fails if the key is unknown, revoked or expired.
    pub(crate) fn authenticate(&self, token: &str) -> Result<Arc<GatewayIdentity>, AuthenticationError> {
        let key = self.keys.find(&SessionToken::from_text(token).digest()).map_err(|error| {
            tracing::error!(%error, "cannot read the keys");
            AuthenticationError::Unavailable("cannot read the keys".to_owned())
        })?;
        let key = key.ok_or(AuthenticationError::KeyInvalid)?;
        let mut known = lock(&self.known);
        if let Some(cached) = known.get_mut(&key.id)
            && (Arc::ptr_eq(&cached.record, &key) || cached.record == key)
        {
            cached.record = key;
            return Ok(cached.identity.clone());
        }
        let identity = self.identity(KeyRecord::clone(&key)).map_err(|error| {
            tracing::error!(%error, key = key.id, "cannot use a key");
            AuthenticationError::Unavailable(error.to_string())
        })?;
        let identity = Arc::new(identity);
        known.insert(key.id.clone(), KeyIdentity { record: key, identity: identity.clone() });
        Ok(identity)
    }

    fn identity(&self, key: KeyRecord) -> Result<GatewayIdentity, Failure> {
        let session = self.slot.session_of(&key.id)?;
        Ok(GatewayIdentity {
            token: SessionToken::from_digest(key.digest),
            journal: self.journal(&session)?,
            policy: Some(Arc::new(self.policy(&key)?)),
            budgets: budgets(&key),
            account: key.account.into(),
            user: key.user.map(Into::into),
            run: key.id.as_str().into(),
            key: Some(key.id.into()),
            agent: None,
            attempt: 1,
            bodies: Arc::new(self.bodies.clone()),
            turn: Arc::new(NoTurn),
            upstream: self.upstream.clone(),
            in_flight: ByteBudget::new(self.limits.in_flight_bytes),
            limits: self.limits.clone(),
            session,
        })
    }

    /// Returns the models of a key as a policy, so that the same evaluator decides. A model without a known price is
    /// refused by the gateway if the key has a dollar budget.
    fn policy(&self, key: &KeyRecord) -> Result<EffectivePolicy, Failure> {
        let patterns =
            serde_json::to_string(&key.models).map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
        let text = format!("version: 1\nmodels:\n  allow: {patterns}\n  unpriced: allow\n");
        let base = BaseLayer::read(&PolicySource::new(key.id.as_str(), text)).map_err(|error| {
            Failure::new(ProblemCode::PolicyInvalid, format!("invalid model patterns of key `{}`", key.id))
                .because(&error)
        })?;
        Ok(::policy::effective(&self.ceiling, &base, &[]))
    }

    fn journal(&self, session: &SessionId) -> Result<Arc<dyn Journal>, Failure> {
        let mut journals = lock(&self.journals);
        if let Some(journal) = journals.get(session) {
            return Ok(journal.clone());
        }
        let opened = FileJournal::open(self.directory.journal(session), session.clone(), Arc::new(SystemClock))?;
        let storage = StorageMeter::of_key(self.directory.root().to_owned(), self.journal_bytes);
        let journal: Arc<dyn Journal> = Arc::new(opened.journal.with_storage_meter(Arc::new(storage)));
        journals.insert(session.clone(), journal.clone());
        Ok(journal)
    }
}

fn budgets(key: &KeyRecord) -> Vec<UsageLimit> {
    let of_key = |name, window, most| UsageLimit { name, scope: LimitScope::Key, window, max: most };
    let budget = key.budget_picos.map(|picos| of_key("budget", LimitWindow::Ever, LimitAmount::Picos(picos)));
    let requests = key
        .requests_a_minute
        .map(|requests| of_key("requests-per-minute", LimitWindow::Minute, LimitAmount::Requests(requests)));
    budget.into_iter().chain(requests).collect()
}
