//! Generators of the enforcement of policy keys.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use protocol::{CopiedLinks, EnforcedValue, EnforcementState, KeyEnforcement, KeyEnforcements, NetworkAccess};

use super::{json, text};

pub(super) fn key_enforcements() -> impl Strategy<Value = KeyEnforcements> {
    let state = prop_oneof![
        Just(EnforcementState::Enforced),
        Just(EnforcementState::Weaker),
        Just(EnforcementState::Absent),
        "[A-Z]{1,8}".prop_map(EnforcementState::Other),
    ];
    let network = (any::<bool>(), vec(text(), 0..3), vec(text(), 0..3))
        .prop_map(|(enabled, allowlist, intercept)| NetworkAccess { enabled, allowlist, intercept });
    let value = prop_oneof![
        any::<u64>().prop_map(EnforcedValue::Number),
        network.prop_map(EnforcedValue::Network),
        btree_map(text(), text(), 1..3).prop_map(EnforcedValue::HostBudget),
        btree_map(text(), vec(text(), 0..3), 0..3).prop_map(EnforcedValue::Toolchains),
        vec(json(), 0..3).prop_map(|values| EnforcedValue::Other(values.into())),
    ];
    let details = (of(any::<u64>()), [vec(text(), 0..3), vec(text(), 0..3)], of((any::<u64>(), any::<u64>())), json());
    let row = (state, text(), of(value), details).prop_map(|(state, by, value, details)| {
        let (hidden, [without_credentials, in_workspace], copied, raw) = details;
        let copied_links = copied.map(|(files, bytes)| CopiedLinks { files, bytes });
        let other = [("later".to_owned(), raw)].into_iter().collect();
        KeyEnforcement { state, by, value, hidden, without_credentials, in_workspace, copied_links, other }
    });
    vec((text(), row), 0..3).prop_map(|rows| rows.into_iter().collect())
}
