//! Known differences of agents from the mock's outline, as a diff with a reason.
//!
//! A difference that no longer exists fails the test, like a new one. Differences that `agents` can remove are removed
//! there.

/// Agents with the same difference in one scenario.
struct KnownDifference {
    agents: &'static [&'static str],
    scenario: &'static str,
    reason: &'static str,
    diff: &'static str,
}

/// Returns the known difference of an agent and its reason; empty if there is none.
#[track_caller]
pub(crate) fn of(agent: &str, scenario: &str) -> (&'static str, &'static str) {
    let mut entries = DIFFERENCES.iter().filter(|known| known.agents.contains(&agent) && known.scenario == scenario);
    let found = entries.next().map(|known| (known.diff, known.reason)).unwrap_or_default();
    assert!(entries.next().is_none(), "{agent} has two differences in {scenario}");
    found
}

/// Checks that every entry names existing scenarios and agents.
pub(crate) fn check_names(scenarios: &[&str]) {
    for KnownDifference { agents, scenario, .. } in DIFFERENCES {
        assert!(scenarios.contains(scenario), "unknown scenario `{scenario}`");
        assert!(agents.iter().all(|agent| agents::by_name(agent).is_some()), "unknown agents {agents:?}");
    }
}

#[rustfmt::skip]
const DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        agents: &["opencode"],
        scenario: "denied_command_does_not_run",
        reason: "After a denial it ends the turn without a message.",
        diff: "\
@@ -14,3 +13,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["qwen"],
        scenario: "line_of_a_file_is_replaced",
        reason: "Its model must read a file before it edits it.",
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
        reason: "It does not mark the end of a text, so the last text may be incomplete.",
        diff: "\
@@ -14 +14 @@
-item.completed assistant message [text] completed
+item.completed assistant message [text] failed",
    },
    KnownDifference {
        agents: &["claude"],
        scenario: "truncated_model_response_ends_the_turn",
        reason: "It keeps the partial text and retries.",
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
        reason: "It retries five times and keeps the partial text each time.",
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
        reason: "It retries five times, and each partial text is incomplete.",
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
        reason: "It takes the partial text as complete.",
        diff: "\
@@ -8,2 +8 @@
-error upstream_error
-turn.ended failed
+turn.ended completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "truncated_model_response_ends_the_turn",
        reason: "It does not mark the end of a text, so the last text may be incomplete.",
        diff: "\
@@ -7 +6,0 @@
-item.completed assistant message [text] completed
@@ -8,0 +8 @@
+item.completed assistant message [text] failed",
    },
    KnownDifference {
        agents: &["claude", "gemini", "opencode", "qwen", "copilot", "pi"],
        scenario: "transient_model_error_is_retried",
        reason: "It retries; the mock does not.",
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
        reason: "It retries, except after a rate limit.",
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
        reason: "It distinguishes an invalid response from an empty one; the mock does not.",
        diff: "\
@@ -5 +5,2 @@
-turn.ended completed
+error upstream_error
+turn.ended failed",
    },
    KnownDifference {
        agents: &["copilot"],
        scenario: "invalid_model_response_ends_the_turn",
        reason: "It asks its model to continue and gets an answer.",
        diff: "\
@@ -4,0 +5,3 @@
+item.started assistant message []
+item.delta assistant message []
+item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["opencode"],
        scenario: "invalid_model_response_ends_the_turn",
        reason: "It retries until its budget is spent.",
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
        reason: "It reports that a plan exists, without its steps.",
        diff: "\
@@ -9,2 +8,0 @@
-item.started system status [status, json]
-item.completed system status [status, json] completed",
    },
    KnownDifference {
        agents: &["gemini"],
        scenario: "plan_is_reported",
        reason: "It asks for permission to plan, and does not report the plan.",
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
        reason: "After a denial it ends the turn without a message.",
        diff: "\
@@ -28,3 +27,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
    KnownDifference {
        agents: &["gemini"],
        scenario: "plan_mode_changes_nothing",
        reason: "Its model has no shell in plan mode: the call is dropped, and the turn ends.",
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
        reason: "After a denial it ends the turn without a message.",
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
        reason: "It reports the prompt and the result of a sub-agent, but not its messages.",
        diff: "\
@@ -9,3 +8,0 @@
-item.started assistant message in tool_call []
-item.delta assistant message in tool_call []
-item.completed assistant message in tool_call [text] completed",
    },
    KnownDifference {
        agents: &["qwen"],
        scenario: "sub_agent_items_are_below_its_call",
        reason: "It asks for permission to start a sub-agent, does not report its messages, and informs its model at the end.",
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
        reason: "After a denial it ends the turn without a message.",
        diff: "\
@@ -47,3 +46,0 @@
-item.started assistant message []
-item.delta assistant message []
-item.completed assistant message [text] completed",
    },
];
