//! The normalizer puts any sequence of events in strict order.

use std::collections::{BTreeMap, BTreeSet};

use agents::{DialogueOutput, EventNormalizer};
use proptest::prelude::*;
use protocol::{
    ContentPart, EventBody, EventDraft, Item, ItemDelta, ItemEvent, ItemId, ItemKind, ItemRole, ItemStatus, Permission,
    PermissionId, PermissionStatus, TurnOutcome,
};
use serde_json::json;

fn item(number: u64, kind: ItemKind, status: ItemStatus, text: &str) -> Item {
    let content = if text.is_empty() { Vec::new() } else { vec![ContentPart::Text { text: text.to_owned() }] };
    Item {
        item_id: ItemId::numbered(1, number),
        native_item_id: None,
        parent_id: None,
        kind,
        role: Some(ItemRole::Assistant),
        content,
        status,
    }
}

fn started(number: u64) -> DialogueOutput {
    let item = item(number, ItemKind::Message, ItemStatus::InProgress, "");
    DialogueOutput::Event(EventDraft::agent(EventBody::ItemStarted(ItemEvent { item })))
}

fn delta(number: u64, delta: &str) -> DialogueOutput {
    let (item_id, delta) = (ItemId::numbered(1, number), delta.to_owned());
    DialogueOutput::Event(EventDraft::agent(EventBody::ItemDelta(ItemDelta { item_id, native_item_id: None, delta })))
}

fn completed(number: u64, text: &str) -> DialogueOutput {
    let item = item(number, ItemKind::Message, ItemStatus::Completed, text);
    DialogueOutput::Event(EventDraft::agent(EventBody::ItemCompleted(ItemEvent { item })))
}

fn apply(outputs: impl IntoIterator<Item = DialogueOutput>) -> Vec<DialogueOutput> {
    let mut normalizer = EventNormalizer::new();
    outputs.into_iter().flat_map(|output| normalizer.apply(output)).collect()
}

/// Checks the order of all events.
pub(crate) fn check_order(outputs: &[DialogueOutput]) {
    let mut open: BTreeMap<ItemId, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for output in outputs {
        match output {
            DialogueOutput::TurnEnded(_) => assert!(open.is_empty(), "items outlive their turn: {open:?}"),
            DialogueOutput::Event(draft) => match &draft.body {
                EventBody::ItemStarted(ItemEvent { item }) => {
                    assert!(seen.insert(item.item_id.clone()), "started twice");
                    assert_eq!(item.status, ItemStatus::InProgress);
                    open.insert(item.item_id.clone(), String::new());
                }
                EventBody::ItemDelta(delta) => {
                    open.get_mut(&delta.item_id).expect("a delta of an open item").push_str(&delta.delta);
                }
                EventBody::ItemCompleted(ItemEvent { item }) => {
                    let streamed = open.remove(&item.item_id).expect("the end of an open item");
                    assert_ne!(item.status, ItemStatus::InProgress);
                    if item.kind == ItemKind::Message
                        && let [ContentPart::Text { text }] = &item.content[..]
                    {
                        assert!(!streamed.is_empty() || text.is_empty(), "a message without a delta");
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[test]
fn complete_message_gets_a_synthetic_start_and_delta() {
    let outputs = apply([completed(1, "hi")]);
    check_order(&outputs);
    let made_up: Vec<bool> = outputs
        .iter()
        .map(|output| match output {
            DialogueOutput::Event(draft) => draft.synthetic,
            _ => panic!("not an event"),
        })
        .collect();
    assert_eq!(made_up, [true, true, false]);
}

#[test]
fn text_that_was_not_streamed_becomes_one_delta() {
    let outputs = apply([started(1), delta(1, "hel"), completed(1, "hello")]);
    assert_eq!(outputs.len(), 4);
    let DialogueOutput::Event(draft) = &outputs[2] else { panic!("not an event") };
    assert!(draft.synthetic);
    assert!(matches!(&draft.body, EventBody::ItemDelta(delta) if delta.delta == "lo"));
}

#[test]
fn item_without_content_gets_the_streamed_text() {
    let outputs = apply([started(1), delta(1, "hello"), completed(1, "")]);
    let DialogueOutput::Event(EventDraft { body: EventBody::ItemCompleted(event), .. }) = &outputs[2] else {
        panic!("no end")
    };
    assert_eq!(event.item.content, [ContentPart::Text { text: "hello".to_owned() }]);
}

#[test]
fn items_open_at_the_end_of_a_turn_fail() {
    let outputs = apply([started(1), delta(1, "half"), DialogueOutput::TurnEnded(TurnOutcome::Interrupted)]);
    let DialogueOutput::Event(draft) = &outputs[2] else { panic!("not an event") };
    assert!(draft.synthetic);
    let EventBody::ItemCompleted(event) = &draft.body else { panic!("not completed") };
    assert_eq!(event.item.status, ItemStatus::Failed);
    assert_eq!(event.item.content, [ContentPart::Text { text: "half".to_owned() }]);
}

#[test]
fn events_out_of_order_are_recorded_as_unparsed() {
    let outputs = apply([started(1), completed(1, "x"), delta(1, "late"), completed(1, "x"), started(1)]);
    check_order(&outputs);
    let kept: Vec<&EventDraft> = outputs
        .iter()
        .filter_map(|output| match output {
            DialogueOutput::Event(draft) if matches!(draft.body, EventBody::AgentUnparsed(_)) => Some(draft),
            _ => None,
        })
        .collect();
    assert_eq!(kept.len(), 3);
    assert_eq!(kept[0].raw.as_ref().unwrap()["data"]["delta"], "late");
}

fn arbitrary_output() -> impl Strategy<Value = DialogueOutput> {
    let kinds = prop_oneof![Just(ItemKind::Message), Just(ItemKind::ToolCall), Just(ItemKind::Status)];
    let statuses =
        prop_oneof![Just(ItemStatus::InProgress), Just(ItemStatus::Completed), Just(ItemStatus::Failed)].boxed();
    let items =
        (1..6u64, kinds, statuses, "[ab]{0,3}").prop_map(|(n, kind, status, text)| item(n, kind, status, &text));
    let permission = |status| {
        move |number| Permission {
            permission_id: PermissionId::numbered(1, number),
            action: "run".to_owned(),
            status,
            metadata: Some(json!({})),
        }
    };
    prop_oneof![
        items.clone().prop_map(|item| EventBody::ItemStarted(ItemEvent { item })).prop_map(event),
        items.prop_map(|item| EventBody::ItemCompleted(ItemEvent { item })).prop_map(event),
        (1..6u64, "[ab]{0,3}").prop_map(|(number, text)| delta(number, &text)),
        (1..4u64)
            .prop_map(permission(PermissionStatus::Requested))
            .prop_map(EventBody::PermissionRequested)
            .prop_map(event),
        (1..4u64)
            .prop_map(permission(PermissionStatus::Reject))
            .prop_map(EventBody::PermissionResolved)
            .prop_map(event),
        Just(DialogueOutput::TurnEnded(TurnOutcome::Completed)),
        Just(DialogueOutput::NativeSession("n".to_owned())),
    ]
}

fn event(body: EventBody) -> DialogueOutput {
    DialogueOutput::Event(EventDraft::agent(body))
}

proptest! {
    #[test]
    fn any_sequence_is_put_in_order(outputs in prop::collection::vec(arbitrary_output(), 0..40)) {
        let normal = apply(outputs.iter().cloned().chain([DialogueOutput::TurnEnded(TurnOutcome::Completed)]));
        check_order(&normal);
    }

    #[test]
    fn ordered_sequence_is_unchanged(outputs in prop::collection::vec(arbitrary_output(), 0..40)) {
        let normal = apply(outputs);
        prop_assert_eq!(apply(normal.iter().cloned()), normal);
    }
}
