//! Upstreams that a session can select by name.
//!
//! Not here: how an upstream is configured. `cli` passes a function that creates it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::lock;
use gateway::Upstream;

use crate::SessionError;

/// The upstreams that a session can select by name. Each is created at its first use, and then kept.
#[derive(Clone, Default)]
pub struct UpstreamRegistry(Option<Arc<UpstreamCache>>);

struct UpstreamCache {
    names: Vec<String>,
    make: Box<UpstreamFactory>,
    created: Mutex<HashMap<String, Arc<dyn Upstream>>>,
}

/// Creates the upstream with a name, or returns why that failed.
pub type UpstreamFactory = dyn Fn(&str) -> Result<Arc<dyn Upstream>, String> + Send + Sync;

impl UpstreamRegistry {
    /// Returns a registry of upstreams with these names, which `make` creates.
    pub fn new(
        names: Vec<String>,
        make: impl Fn(&str) -> Result<Arc<dyn Upstream>, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(UpstreamCache { names, make: Box::new(make), created: Mutex::default() })))
    }

    /// Returns the upstream with this name; fails when it is unknown or cannot be created.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<dyn Upstream>, SessionError> {
        let known = self.0.as_ref().map_or(&[][..], |known| &known.names);
        let Some(cache) = self.0.as_ref().filter(|_| known.iter().any(|known| known == name)) else {
            return Err(SessionError::UnknownUpstream { name: name.to_owned(), known: known.to_vec() });
        };
        let mut created = lock(&cache.created);
        if let Some(upstream) = created.get(name) {
            return Ok(upstream.clone());
        }
        let upstream =
            (cache.make)(name).map_err(|why| SessionError::UpstreamUnusable { name: name.to_owned(), why })?;
        created.insert(name.to_owned(), upstream.clone());
        Ok(upstream)
    }
}
