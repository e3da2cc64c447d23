//! Lookup of host environment variables that `env.pass` of a policy names.
//!
//! Not here: reading the environment. The caller passes the lookup function.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use policy::EffectivePolicy;
use sandbox::Toolchains;

type VariableLookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Looks up environment variables of the host. The default finds none.
#[derive(Clone, Default)]
pub struct HostVariables(Option<Arc<VariableLookup>>);

impl HostVariables {
    /// Returns variables that the function `look_up` finds.
    pub fn new(look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look_up)))
    }

    /// Returns a variable of the host; `None` when it is not set.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.as_ref().and_then(|look_up| look_up(name))
    }

    /// Returns the toolchains of the host that `policy` shows in a sandbox with this workspace.
    pub(crate) fn toolchains(&self, workspace: Option<&Path>, policy: &EffectivePolicy) -> Toolchains {
        Toolchains::find(|name| self.get(name), workspace, policy)
    }

    /// Adds the variables of a command to `env`: those of toolchains, those that `policy` passes, and those that it sets.
    pub(crate) fn pass(&self, tools: &Toolchains, policy: &EffectivePolicy, env: &mut BTreeMap<String, String>) {
        if let Some(look_up) = &self.0 {
            sandbox::pass_variables(env, &policy.env_pass(), |name| look_up(name));
        }
        tools.add_to(env);
        env.extend(policy.env_set());
        let first = policy.path_prepend();
        if !first.is_empty() {
            let rest = env.get("PATH").map(|path| format!(":{path}")).unwrap_or_default();
            env.insert("PATH".to_owned(), format!("{}{rest}", first.join(":")));
        }
    }
}

/// Prints no values, which may be secret.
impl fmt::Debug for HostVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostVariables")
    }
}
