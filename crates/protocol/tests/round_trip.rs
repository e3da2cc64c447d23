//! Every event survives a round trip through JSON.

mod arbitrary;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use protocol::{Event, EventDraft};
use serde_json::Value;

proptest! {
    #[test]
    fn any_event_round_trips(event in arbitrary::event()) {
        let text = serde_json::to_string(&event).unwrap();
        prop_assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event.clone());
        let value = serde_json::to_value(&event).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value.clone());
        prop_assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
    }

    #[test]
    fn any_draft_round_trips(draft in arbitrary::draft()) {
        let text = serde_json::to_string(&draft).unwrap();
        prop_assert_eq!(serde_json::from_str::<EventDraft>(&text).unwrap(), draft);
    }
}

#[test]
fn every_event_type_has_a_unique_name_and_a_generator() {
    let mut runner = TestRunner::deterministic();
    let bodies = arbitrary::bodies();
    let mut kinds = BTreeSet::new();
    for body in &bodies {
        let value = serde_json::to_value(body.new_tree(&mut runner).unwrap().current()).unwrap();
        let kind = value["type"].as_str().unwrap().to_owned();
        kinds.insert(if kind.starts_with("x.") { "a type of a later version".to_owned() } else { kind });
    }
    assert_eq!(kinds.len(), bodies.len());
    insta::assert_snapshot!(kinds.into_iter().collect::<Vec<_>>().join("\n"));
}
