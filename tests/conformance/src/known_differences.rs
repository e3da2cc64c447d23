//! Where an agent's form is not the mock's, and why: as lines of a diff from the mock's form to its own.
//!
//! A difference that is no longer there fails like one that is new. Whatever can be mended in `agents` is mended there.

/// Agents that differ in the same way, in one scenario.
struct KnownDifference {
    agents: &'static [&'static str],
    scenario: &'static str,
    why: &'static str,
    diff: &'static str,
}

/// How the form of an agent differs from the mock's, and why; nothing, where it does not.
#[track_caller]
pub(crate) fn of(agent: &str, scenario: &str) -> (&'static str, &'static str) {
    let mut ours = DIFFERENCES.iter().filter(|known| known.agents.contains(&agent) && known.scenario == scenario);
    let found = ours.next().map(|known| (known.diff, known.why)).unwrap_or_default();
    assert!(ours.next().is_none(), "{agent} has two differences in {scenario}");
    found
}

/// Everything here is about a scenario and an agent that there are.
pub(crate) fn check_names(scenarios: &[&str]) {
    for KnownDifference { agents, scenario, .. } in DIFFERENCES {
        assert!(scenarios.contains(scenario), "there is no scenario `{scenario}`");
        assert!(agents.iter().all(|agent| agents::by_name(agent).is_some()), "there are no agents {agents:?}");
    }
}

#[rustfmt::skip]
const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        agents: &["opencode"],
        scenario: "denied_command_does_not_run",
        why: "Having been refused, it ends the turn without a word.",
        diff: "\
@@ -14,3 +13,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["qwen"],
        scenario: "line_of_a_file_is_replaced",
        why: "It lets its model edit only what it has read.",
        diff: "\
@@ -5,0 +6,4 @@
+item.completed assistant tool_call [tool_call] completed
+item.started tool tool_result in tool_call [tool_result]
+item.completed tool tool_result in tool_call [tool_result] completed
+item.started assistant tool_call [tool_call]",
    },
    KnownDifference {
        agents: &["gemini", "opencode", "qwen", "copilot"],
        scenario: "silent_model_times_out",
        why: "It does not mark the end of words: what was said last is not known to be whole.",
        diff: "\
@@ -14 +14 @@
-item.completed assistant message [text] completed
+item.completed assistant message [text] failed",
    },
    KnownDifference {
        agents: &["claude"],
        scenario: "truncated_model_response_ends_the_turn",
        why: "It keeps what came, and asks again.",
        diff: "\
@@ -8,2 +8,4 @@
-error upstream_error
-turn.ended failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+turn.ended completed",
    },
    KnownDifference {
        agents: &["codex"],
        scenario: "truncated_model_response_ends_the_turn",
        why: "It asks again five times, and keeps what came each time.",
        diff: "\
@@ -7,0 +8,15 @@
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["copilot"],
        scenario: "truncated_model_response_ends_the_turn",
        why: "It asks again five times, and what came each time is not whole.",
        diff: "\
@@ -7 +7,16 @@
-item.completed assistant message [text] completed
+item.completed assistant message [text] failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] failed",
    },
    KnownDifference {
        agents: &["gemini"],
        scenario: "truncated_model_response_ends_the_turn",
        why: "It takes what came for all there is.",
        diff: "\
@@ -8,2 +8 @@
-error upstream_error
-turn.ended failed
+turn.ended completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "truncated_model_response_ends_the_turn",
        why: "It does not mark the end of words: what was said last is not known to be whole.",
        diff: "\
@@ -7 +6,0 @@
-item.completed assistant message [text] completed
@@ -8,0 +8 @@
+item.completed assistant message [text] failed",
    },
    KnownDifference {
        agents: &["claude", "gemini", "opencode", "qwen", "copilot", "pi"],
        scenario: "transient_model_error_is_retried",
        why: "It asks again by itself, where the mock leaves that to the person.",
        diff: "\
@@ -5,2 +5,4 @@
-error upstream_error
-turn.ended failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+turn.ended completed
@@ -10,2 +12,4 @@
-error upstream_error
-turn.ended failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+turn.ended completed",
    },
    KnownDifference {
        agents: &["codex"],
        scenario: "transient_model_error_is_retried",
        why: "It asks again by itself, but not a model that says it is asked too often.",
        diff: "\
@@ -10,2 +10,4 @@
-error upstream_error
-turn.ended failed
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed
+turn.ended completed",
    },
    KnownDifference {
        agents: &["claude", "gemini", "qwen"],
        scenario: "invalid_model_response_ends_the_turn",
        why: "It knows nonsense from silence, which the mock does not.",
        diff: "\
@@ -5 +5,2 @@
-turn.ended completed
+error upstream_error
+turn.ended failed",
    },
    KnownDifference {
        agents: &["copilot"],
        scenario: "invalid_model_response_ends_the_turn",
        why: "It asks its model by itself to go on, and gets an answer.",
        diff: "\
@@ -4,0 +5,3 @@
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "invalid_model_response_ends_the_turn",
        why: "It asks until its budget is spent, and then nothing is said any more.",
        diff: "\
@@ -5,8 +5,2 @@
-turn.ended completed
-turn.started
-item.started user message [text]
-item.completed user message [text] completed
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed
-turn.ended completed
+error upstream_error
+turn.ended failed",
    },
    KnownDifference {
        agents: &["copilot"],
        scenario: "plan_is_reported",
        why: "It tells that there is a plan, and none of its steps.",
        diff: "\
@@ -9,2 +8,0 @@
-item.started system status [status, json]
-item.completed system status [status, json] completed",
    },
    KnownDifference {
        agents: &["gemini"],
        scenario: "plan_is_reported",
        why: "It asks before its model may plan, and tells nobody what it planned.",
        diff: "\
@@ -9,2 +9,2 @@
-item.started system status [status, json]
-item.completed system status [status, json] completed
+permission.requested requested
+permission.resolved accept",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "accept_edits_mode_does_not_ask_for_edits",
        why: "Having been refused, it ends the turn without a word.",
        diff: "\
@@ -28,3 +27,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["gemini"],
        scenario: "plan_mode_changes_nothing",
        why: "While it plans its model has no shell: the call is dropped, and the turn ends with it.",
        diff: "\
@@ -8,7 +7,0 @@
-item.started assistant tool_call [tool_call]
-item.completed assistant tool_call [tool_call] failed
-item.started tool tool_result in tool_call [tool_result]
-item.completed tool tool_result in tool_call [tool_result] failed
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "plan_mode_changes_nothing",
        why: "Having been refused, it ends the turn without a word.",
        diff: "\
@@ -12,3 +11,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed
@@ -26,3 +22,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["claude"],
        scenario: "sub_agent_items_are_below_its_call",
        why: "It tells what a sub-agent was asked and what came of it, and not its words.",
        diff: "\
@@ -9,3 +8,0 @@
-item.started assistant message in tool_call []
-item.delta assistant message in tool_call []
-item.completed assistant message in tool_call [text] completed",
    },
    KnownDifference {
        agents: &["qwen"],
        scenario: "sub_agent_items_are_below_its_call",
        why: "It asks before it sends one, does not tell its words, and tells its model when it is done.",
        diff: "\
@@ -9,3 +9,2 @@
-item.started assistant message in tool_call []
-item.delta assistant message in tool_call []
-item.completed assistant message in tool_call [text] completed
+permission.requested requested
+permission.resolved accept
@@ -17,0 +17,3 @@
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "always_allowed_command_is_not_asked_again",
        why: "Having been refused, it ends the turn without a word.",
        diff: "\
@@ -47,3 +46,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
];
