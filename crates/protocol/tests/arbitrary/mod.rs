//! Generators of arbitrary events, for property tests here and in the store.

#![allow(dead_code, reason = "the store uses only some generators")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod enforcement;

use std::fmt::Debug;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use protocol::{
    AgentUnparsed, BodyRef, BudgetExceeded, ContentPart, EgressConnection, ErrorData, Event, EventBody, EventDraft,
    EventSource, FileAction, HostDraining, Item, ItemDelta, ItemEvent, ItemKind, ItemRole, ItemStatus, LeftProcess,
    LlmCall, ModelRequest, ModelResponse, Permission, PermissionStatus, PolicyChange, PolicyEffective, PolicySentence,
    Question, QuestionStatus, ReasoningVisibility, SessionEndReason, SessionEnded, SessionRecovered, SessionRegistered,
    SessionStarted, SessionStatus, SessionStatusChanged, SessionUpdated, StderrOutput, TerminatedBy, Turn, TurnOutcome,
    TurnPhase, UpstreamError, Usage, WorkspaceChanged,
};
use serde_json::{Map, Value};

/// Generates events.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    (1..u64::MAX, any::<String>(), id(), draft()).prop_map(|(sequence, time, session_id, draft)| Event {
        event_id: format!("evt_{sequence}"),
        sequence,
        time,
        session_id,
        draft,
    })
}

/// Generates event drafts.
pub(crate) fn draft() -> impl Strategy<Value = EventDraft> {
    let source = prop_oneof![Just(EventSource::Agent), Just(EventSource::Daemon)];
    (of(id()), of(any::<String>()), any::<bool>(), source, body(), of(something())).prop_map(
        |(turn_id, native_session_id, synthetic, source, body, raw)| EventDraft {
            turn_id,
            native_session_id,
            synthetic,
            source,
            body,
            raw,
        },
    )
}

/// Generates event bodies, each variant with the same probability.
pub(crate) fn body() -> impl Strategy<Value = EventBody> {
    proptest::strategy::Union::new(bodies())
}

/// Returns one generator for each variant.
pub(crate) fn bodies() -> Vec<BoxedStrategy<EventBody>> {
    use EventBody as Body;
    vec![
        of(something()).prop_map(|metadata| Body::SessionStarted(SessionStarted { metadata })).boxed(),
        session_ended().prop_map(Body::SessionEnded).boxed(),
        turn().prop_map(Body::TurnStarted).boxed(),
        turn().prop_map(Body::TurnEnded).boxed(),
        item().prop_map(|item| Body::ItemStarted(ItemEvent { item })).boxed(),
        item_delta().prop_map(Body::ItemDelta).boxed(),
        item().prop_map(|item| Body::ItemCompleted(ItemEvent { item })).boxed(),
        error_data().prop_map(Body::Error).boxed(),
        permission().prop_map(Body::PermissionRequested).boxed(),
        permission().prop_map(Body::PermissionResolved).boxed(),
        question().prop_map(Body::QuestionRequested).boxed(),
        question().prop_map(Body::QuestionResolved).boxed(),
        agent_unparsed().prop_map(Body::AgentUnparsed).boxed(),
        policy_effective().prop_map(Body::PolicyEffective).boxed(),
        session_registered().prop_map(Body::SessionRegistered).boxed(),
        session_recovered().prop_map(Body::SessionRecovered).boxed(),
        session_status().prop_map(Body::SessionStatus).boxed(),
        any::<u64>().prop_map(|drain_ms| Body::HostDraining(HostDraining { drain_ms })).boxed(),
        session_updated().prop_map(Body::SessionUpdated).boxed(),
        model_request().prop_map(Body::AnthropicRequest).boxed(),
        model_response().prop_map(Body::AnthropicResponse).boxed(),
        model_request().prop_map(Body::OpenaiRequest).boxed(),
        model_response().prop_map(Body::OpenaiResponse).boxed(),
        model_request().prop_map(Body::GeminiRequest).boxed(),
        model_response().prop_map(Body::GeminiResponse).boxed(),
        upstream_error().prop_map(Body::UpstreamError).boxed(),
        llm_call().prop_map(Body::LlmCall).boxed(),
        budget_exceeded().prop_map(Body::BudgetExceeded).boxed(),
        connection().prop_map(Body::EgressAllowed).boxed(),
        connection().prop_map(Body::EgressDenied).boxed(),
        commands::exec_started().prop_map(Body::ExecStarted).boxed(),
        commands::exec_finished().prop_map(Body::ExecFinished).boxed(),
        commands::task_command_finished().prop_map(Body::TaskCommandFinished).boxed(),
        workspace_changed().prop_map(Body::WorkspaceChanged).boxed(),
        policy_change().prop_map(Body::PolicyNarrowed).boxed(),
        policy_change().prop_map(Body::PolicyWidened).boxed(),
        // The prefix keeps unknown types apart from known ones, which would be parsed as known.
        (any::<String>(), json()).prop_map(|(kind, data)| Body::Other { kind: format!("x.{kind}"), data }).boxed(),
    ]
}

fn id<T: Debug + TryFrom<String, Error: Debug>>() -> impl Strategy<Value = T> {
    "[a-zA-Z0-9_-]([a-zA-Z0-9_-]|\\.[a-zA-Z0-9_-]){0,30}".prop_map(|text| T::try_from(text).unwrap())
}

/// Generates JSON values, including floats and deep nesting.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 32, 5, |inner| {
        let object = btree_map(any::<String>(), inner.clone(), 0..5);
        prop_oneof![vec(inner, 0..5).prop_map(Value::from), object.prop_map(|map| Map::from_iter(map).into())]
    })
}

/// Generates JSON values except null, which is the same as an absent field.
fn something() -> impl Strategy<Value = Value> {
    json().prop_filter("null is nothing", |value| !value.is_null())
}

fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn session_ended() -> impl Strategy<Value = SessionEnded> {
    let reason = prop_oneof![
        Just(SessionEndReason::Completed),
        Just(SessionEndReason::Error),
        Just(SessionEndReason::Terminated)
    ];
    let by = prop_oneof![Just(TerminatedBy::Agent), Just(TerminatedBy::Daemon)];
    (reason, by, of(text()), of(any::<i32>()), of(stderr_output())).prop_map(
        |(reason, terminated_by, message, exit_code, stderr)| SessionEnded {
            reason,
            terminated_by,
            message,
            exit_code,
            stderr,
        },
    )
}

fn stderr_output() -> impl Strategy<Value = StderrOutput> {
    (of(text()), of(text()), any::<bool>(), of(any::<u64>()))
        .prop_map(|(head, tail, truncated, total_lines)| StderrOutput { head, tail, truncated, total_lines })
}

fn turn() -> impl Strategy<Value = Turn> {
    let phase = prop_oneof![Just(TurnPhase::Started), Just(TurnPhase::Ended)];
    let outcome = prop_oneof![
        Just(TurnOutcome::Completed),
        Just(TurnOutcome::Failed),
        Just(TurnOutcome::Interrupted),
        Just(TurnOutcome::TimedOut)
    ];
    (phase, of(id()), of(outcome), of(something())).prop_map(|(phase, turn_id, outcome, metadata)| Turn {
        phase,
        turn_id,
        outcome,
        metadata,
    })
}

fn item() -> impl Strategy<Value = Item> {
    let kind = prop_oneof![
        Just(ItemKind::Message),
        Just(ItemKind::ToolCall),
        Just(ItemKind::ToolResult),
        Just(ItemKind::System),
        Just(ItemKind::Status),
        Just(ItemKind::Unknown)
    ];
    let role =
        prop_oneof![Just(ItemRole::User), Just(ItemRole::Assistant), Just(ItemRole::System), Just(ItemRole::Tool)];
    let status = prop_oneof![Just(ItemStatus::InProgress), Just(ItemStatus::Completed), Just(ItemStatus::Failed)];
    (id(), of(text()), of(id()), kind, of(role), vec(content_part(), 0..4), status).prop_map(
        |(item_id, native_item_id, parent_id, kind, role, content, status)| Item {
            item_id,
            native_item_id,
            parent_id,
            kind,
            role,
            content,
            status,
        },
    )
}

fn content_part() -> impl Strategy<Value = ContentPart> {
    use ContentPart as Part;
    let action = prop_oneof![Just(FileAction::Read), Just(FileAction::Write), Just(FileAction::Patch)];
    let visibility = prop_oneof![Just(ReasoningVisibility::Public), Just(ReasoningVisibility::Private)];
    prop_oneof![
        text().prop_map(|text| Part::Text { text }),
        json().prop_map(|json| Part::Json { json }),
        (text(), text(), text()).prop_map(|(name, arguments, call_id)| Part::ToolCall { name, arguments, call_id }),
        (text(), text()).prop_map(|(call_id, output)| Part::ToolResult { call_id, output }),
        (text(), action, of(text())).prop_map(|(path, action, diff)| Part::FileRef { path, action, diff }),
        (text(), visibility).prop_map(|(text, visibility)| Part::Reasoning { text, visibility }),
        (text(), of(text())).prop_map(|(path, mime)| Part::Image { path, mime }),
        (text(), of(text())).prop_map(|(label, detail)| Part::Status { label, detail }),
    ]
}

fn item_delta() -> impl Strategy<Value = ItemDelta> {
    (id(), of(text()), text()).prop_map(|(item_id, native_item_id, delta)| ItemDelta { item_id, native_item_id, delta })
}

fn error_data() -> impl Strategy<Value = ErrorData> {
    (text(), of(text()), of(something())).prop_map(|(message, code, details)| ErrorData { message, code, details })
}

fn permission() -> impl Strategy<Value = Permission> {
    let status = prop_oneof![
        Just(PermissionStatus::Requested),
        Just(PermissionStatus::Accept),
        Just(PermissionStatus::AcceptForSession),
        Just(PermissionStatus::Reject)
    ];
    (id(), text(), status, of(something())).prop_map(|(permission_id, action, status, metadata)| Permission {
        permission_id,
        action,
        status,
        metadata,
    })
}

fn question() -> impl Strategy<Value = Question> {
    let status =
        prop_oneof![Just(QuestionStatus::Requested), Just(QuestionStatus::Answered), Just(QuestionStatus::Rejected)];
    let answers = vec(vec(text(), 0..3), 0..3);
    (id(), text(), vec(text(), 0..4), of(text()), of(answers), status, of(something())).prop_map(
        |(question_id, prompt, options, response, answers, status, metadata)| Question {
            question_id,
            prompt,
            options,
            response,
            answers,
            status,
            metadata,
        },
    )
}

fn agent_unparsed() -> impl Strategy<Value = AgentUnparsed> {
    (text(), text(), of(text())).prop_map(|(error, location, raw_hash)| AgentUnparsed { error, location, raw_hash })
}

fn policy_effective() -> impl Strategy<Value = PolicyEffective> {
    let sentence = (text(), text(), text()).prop_map(|(text, layer, rule)| PolicySentence { text, layer, rule });
    (text(), enforcement::key_enforcements(), vec(sentence, 0..3))
        .prop_map(|(backend, keys, sentences)| PolicyEffective { backend, keys, sentences })
}

fn session_registered() -> impl Strategy<Value = SessionRegistered> {
    (id(), text(), of(text())).prop_map(|(session_id, sandbox_id, task_name)| SessionRegistered {
        session_id,
        sandbox_id,
        task_name,
    })
}

fn session_status() -> impl Strategy<Value = SessionStatusChanged> {
    let status = || proptest::sample::select(&SessionStatus::ALL[..]);
    (status(), of(status()), of(text())).prop_map(|(status, previous, reason)| SessionStatusChanged {
        status,
        previous,
        reason,
    })
}

fn session_updated() -> impl Strategy<Value = SessionUpdated> {
    let labels = of(btree_map(text(), text(), 0..3));
    (of(text()), labels).prop_map(|(title, labels)| SessionUpdated { title, labels, metadata: None })
}

fn session_recovered() -> impl Strategy<Value = SessionRecovered> {
    (vec(text(), 0..4), any::<u64>()).prop_map(|(interrupted, torn_bytes)| SessionRecovered { interrupted, torn_bytes })
}

fn body_ref() -> impl Strategy<Value = BodyRef> {
    prop_oneof![
        any::<String>().prop_map(|text| BodyRef::Inline { text }),
        vec("data: \\{\"text\":\".{0,9}\"\\}\n\n", 0..9).prop_map(|events| BodyRef::Inline { text: events.concat() }),
        ("[0-9a-f]{64}", any::<u64>()).prop_map(|(sha256, bytes)| BodyRef::Stored { sha256, bytes }),
    ]
}

fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 5]>().prop_map(|tokens| Usage {
        input_tokens: tokens[0],
        output_tokens: tokens[1],
        cache_read_tokens: tokens[2],
        cache_write_tokens: tokens[3],
        cache_write_1h_tokens: tokens[4],
    })
}

fn model_request() -> impl Strategy<Value = ModelRequest> {
    (id(), text(), of(text()), any::<bool>(), of(text()), body_ref()).prop_map(
        |(call_id, path, model, stream, beta, body)| ModelRequest { call_id, path, model, stream, beta, body },
    )
}

fn model_response() -> impl Strategy<Value = ModelResponse> {
    (id(), any::<u16>(), any::<bool>(), usage(), of(text()), body_ref()).prop_map(
        |(call_id, status, stream, usage, stop_reason, body)| ModelResponse {
            call_id,
            status,
            stream,
            usage,
            stop_reason,
            body,
        },
    )
}

fn upstream_error() -> impl Strategy<Value = UpstreamError> {
    (id(), of(any::<u16>()), text()).prop_map(|(call_id, status, message)| UpstreamError { call_id, status, message })
}

fn llm_call() -> impl Strategy<Value = LlmCall> {
    let names = (id(), text(), of(text()), text(), of(text()), of(text()), of(text()));
    let numbers = (usage(), any::<[bool; 2]>(), any::<i64>(), any::<u16>(), any::<u64>(), any::<u64>());
    (names, numbers).prop_map(|(names, numbers)| {
        let (call_id, model, model_answered, upstream, upstream_call_id, stop_reason, unpriced) = names;
        let (usage, [estimated, cost_unknown], cost_picos, status, ttft_micros, duration_micros) = numbers;
        LlmCall {
            call_id,
            model,
            model_answered,
            upstream,
            upstream_call_id,
            usage,
            estimated,
            cost_unknown,
            cost_picos,
            unpriced,
            status,
            ttft_micros,
            duration_micros,
            stop_reason,
        }
    })
}

fn budget_exceeded() -> impl Strategy<Value = BudgetExceeded> {
    (text(), text()).prop_map(|(limit, message)| BudgetExceeded { limit, message })
}

fn connection() -> impl Strategy<Value = EgressConnection> {
    let seen = (of(text()), of(text()), of(text()), of(text()));
    let counted = (of(any::<u64>()), of(any::<u64>()), of(any::<u64>()), of(any::<u64>()));
    (text(), any::<u16>(), text(), seen, counted).prop_map(|(host, port, rule, seen, counted)| {
        let (method, path, address, error) = seen;
        let (bytes, bytes_sent, duration_micros, count) = counted;
        EgressConnection { host, port, rule, method, path, address, bytes, bytes_sent, duration_micros, count, error }
    })
}

fn workspace_changed() -> impl Strategy<Value = WorkspaceChanged> {
    let paths = (vec(text(), 0..3), vec(text(), 0..3), vec(text(), 0..3));
    let left = (any::<u32>(), text()).prop_map(|(pid, command)| LeftProcess { pid, command });
    (paths, of(any::<u64>()), of(text()), vec(left, 0..3)).prop_map(
        |((added, modified, deleted), set, digest, left_processes)| WorkspaceChanged {
            added,
            modified,
            deleted,
            set,
            digest,
            left_processes,
        },
    )
}

fn policy_change() -> impl Strategy<Value = PolicyChange> {
    (vec(text(), 0..3), of(any::<u64>()))
        .prop_map(|(rules, expires_unix_secs)| PolicyChange { rules, expires_unix_secs })
}
