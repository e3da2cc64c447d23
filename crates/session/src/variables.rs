//! Variables of the host's environment, each asked for by the name that a policy passes.
//!
//! Not here: reading the environment. Whoever opens sessions says how a variable is found, or that none is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use policy::EffectivePolicy;

type Look = dyn Fn(&str) -> Option<String> + Send + Sync;

/// How a variable of the host is found. By default none is.
#[derive(Clone, Default)]
pub struct HostVariables(Option<Arc<Look>>);

impl HostVariables {
    /// Those that `look` finds.
    pub fn new(look: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    /// Adds to `env` what `policy` passes.
    pub(crate) fn pass(&self, policy: &EffectivePolicy, env: &mut BTreeMap<String, String>) {
        if let Some(look) = &self.0 {
            sandbox::pass_variables(env, &policy.env_pass(), |name| look(name));
        }
    }
}

/// No value is shown: nobody has passed it yet.
impl fmt::Debug for HostVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables")
    }
}
