//! What a host knows beside its own policy and its usual model: what a session's directory says, and other models.
//!
//! Not here: where either is read from. `cli` hands both over as functions.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::lock;
use gateway::Upstream;
use policy::EffectivePolicy;

use crate::SessionError;

/// Narrows the host's policy by what a session's own directory says. It can never make it wider.
#[derive(Clone)]
pub struct ProjectPolicy(pub Arc<NarrowPolicy>);

/// What a [`ProjectPolicy`] does.
pub type NarrowPolicy =
    dyn Fn(&Arc<EffectivePolicy>, &Path) -> Result<Arc<EffectivePolicy>, SessionError> + Send + Sync;

/// The upstreams that a session can name. One is made when it is first used, and then kept.
#[derive(Clone, Default)]
pub struct UpstreamRegistry(Option<Arc<Known>>);

struct Known {
    names: Vec<String>,
    make: Box<UpstreamFactory>,
    made: Mutex<HashMap<String, Arc<dyn Upstream>>>,
}

/// Makes the upstream of a name; says why where it cannot.
pub type UpstreamFactory = dyn Fn(&str) -> Result<Arc<dyn Upstream>, String> + Send + Sync;

impl UpstreamRegistry {
    /// Those of these names.
    pub fn new(
        names: Vec<String>,
        make: impl Fn(&str) -> Result<Arc<dyn Upstream>, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(Known { names, make: Box::new(make), made: Mutex::default() })))
    }

    /// The one of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<dyn Upstream>, SessionError> {
        let known = self.0.as_ref().map_or(&[][..], |known| &known.names);
        let Some(all) = self.0.as_ref().filter(|_| known.iter().any(|known| known == name)) else {
            return Err(SessionError::UnknownUpstream { name: name.to_owned(), known: known.to_vec() });
        };
        let mut made = lock(&all.made);
        if let Some(upstream) = made.get(name) {
            return Ok(upstream.clone());
        }
        let upstream = (all.make)(name).map_err(|why| SessionError::UpstreamUnusable { name: name.to_owned(), why })?;
        made.insert(name.to_owned(), upstream.clone());
        Ok(upstream)
    }
}
