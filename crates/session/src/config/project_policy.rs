//! The policy of a project: narrows the host's policy by the policy file in a session's directory.
//!
//! Not here: reading the file. `cli` passes a function that does.

use std::path::Path;
use std::sync::Arc;

use policy::EffectivePolicy;

use crate::SessionError;

/// Narrows the host's policy by the policy file in a session's directory. It can never widen the policy.
#[derive(Clone)]
pub struct ProjectPolicy(pub Arc<NarrowPolicy>);

/// The function of a [`ProjectPolicy`]: returns the narrowed policy for a directory.
pub type NarrowPolicy =
    dyn Fn(&Arc<EffectivePolicy>, &Path) -> Result<Arc<EffectivePolicy>, SessionError> + Send + Sync;
