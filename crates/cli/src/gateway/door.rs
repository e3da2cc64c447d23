//! Whom a key belongs to.
//!
//! Keys are looked up at every call, so one that was revoked opens nothing from then on. What is kept between
//! calls is who a key stands for, for as long as its record says the same, and the record of its calls, which this
//! process alone writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::gateway::{CurrentTurn, Identity, Limits, NotAdmitted, SessionToken, Upstream};
use ::policy::{Base, Ceiling, Effective, Source};
use protocol::{Code, SessionId};
use store::{Bodies, DataDir, FileJournal, Journal, KeyRecord, Keys, Limit, Most, Scope, SystemClock, Window};

use super::place::Place;
use crate::failure::Failure;

/// Knows everybody who has a key.
pub(super) struct Door {
    directory: DataDir,
    place: Place,
    keys: Keys,
    upstream: Arc<dyn Upstream>,
    ceiling: Ceiling,
    limits: Limits,
    bodies: Bodies,
    journals: Mutex<HashMap<SessionId, Arc<dyn Journal>>>,
    /// Who calls with which key, by the key's name: reading its patterns costs more than the rest of a call.
    known: Mutex<HashMap<String, Holder>>,
}

/// Whoever has a key, for as long as its record says the same.
struct Holder {
    record: Arc<KeyRecord>,
    identity: Arc<Identity>,
}

impl Door {
    pub(super) fn open(directory: DataDir, upstream: Arc<dyn Upstream>, limits: Limits) -> Result<Self, Failure> {
        let place = Place::take(&directory)?;
        let keys = Keys::open(&directory, Arc::new(SystemClock))?;
        let ceiling = Ceiling::built_in().map_err(|error| Failure::of(Code::Internal, &error))?;
        let bodies = Bodies::new(&directory).compressed(limits.compress);
        let (journals, known) = (Mutex::default(), Mutex::default());
        Ok(Self { directory, place, keys, upstream, ceiling, limits, bodies, journals, known })
    }

    /// Whoever `token` belongs to.
    pub(super) fn admit(&self, token: &str) -> Result<Arc<Identity>, NotAdmitted> {
        let key = self.keys.find(&SessionToken::of(token).digest()).map_err(|error| {
            tracing::error!(%error, "cannot read the keys");
            NotAdmitted::Unavailable("the keys cannot be read".to_owned())
        })?;
        let key = key.ok_or(NotAdmitted::KeyInvalid)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = known.get_mut(&key.id)
            && (Arc::ptr_eq(&holder.record, &key) || holder.record == key)
        {
            holder.record = key;
            return Ok(holder.identity.clone());
        }
        let identity = self.identity(KeyRecord::clone(&key)).map_err(|error| {
            tracing::error!(%error, key = key.id, "a key cannot be used");
            NotAdmitted::Unavailable(error.to_string())
        })?;
        let identity = Arc::new(identity);
        known.insert(key.id.clone(), Holder { record: key, identity: identity.clone() });
        Ok(identity)
    }

    fn identity(&self, key: KeyRecord) -> Result<Identity, Failure> {
        let session = self.place.record_of(&key.id)?;
        Ok(Identity {
            token: SessionToken::of_digest(key.digest),
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
            turn: CurrentTurn::default(),
            upstream: self.upstream.clone(),
            limits: self.limits.clone(),
            session,
        })
    }

    /// Which models a key may name, as a policy: refused by the same evaluator, named by the same words.
    fn policy(&self, key: &KeyRecord) -> Result<Effective, Failure> {
        let patterns = serde_json::to_string(&key.models).map_err(|error| Failure::of(Code::Internal, &error))?;
        let text = format!("version: 1\nmodels:\n  allow: {patterns}\n");
        let base = Base::read(&Source::new(key.id.as_str(), text)).map_err(|error| {
            Failure::new(Code::PolicyInvalid, format!("the models of key `{}` are no patterns", key.id)).because(&error)
        })?;
        Ok(::policy::effective(&self.ceiling, &base, &[]))
    }

    fn journal(&self, session: &SessionId) -> Result<Arc<dyn Journal>, Failure> {
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = journals.get(session) {
            return Ok(journal.clone());
        }
        let opened = FileJournal::open(self.directory.journal(session), session.clone(), Arc::new(SystemClock))?;
        let journal: Arc<dyn Journal> = Arc::new(opened.journal);
        journals.insert(session.clone(), journal.clone());
        Ok(journal)
    }
}

fn budgets(key: &KeyRecord) -> Vec<Limit> {
    let of_key = |name, window, most| Limit { name, scope: Scope::Key, window, most };
    let budget = key.budget_picos.map(|picos| of_key("budget", Window::Ever, Most::Picos(picos)));
    let requests =
        key.requests_a_minute.map(|requests| of_key("requests-per-minute", Window::Minute, Most::Requests(requests)));
    budget.into_iter().chain(requests).collect()
}
