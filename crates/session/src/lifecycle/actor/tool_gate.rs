//! Checks permission requests against `tools` of the policy. A denied call is refused before a person or a grant
//! decides.
//!
//! Only requests are checked. Calls that an agent makes without asking are confined by the sandbox alone.

use policy::{Action, EffectivePolicy, RuleRef, Verdict};
use protocol::Permission;

use super::Actor;
use crate::lifecycle::RequestedTool;

/// The policy's name for every tool that runs a command, whatever the agent calls the tool.
const SHELL: &str = "Bash";
/// The policy's name for every tool that changes a file.
const EDIT: &str = "Edit";

impl Actor {
    /// Returns the policy rule that denies `permission`.
    pub(super) fn denying_rule(&self, permission: &Permission) -> Option<RuleRef> {
        denying_rule(&self.plan.policy, permission)
    }

    /// Returns the policy rule that demands that a person decides about `permission`.
    pub(super) fn asking_rule(&self, permission: &Permission) -> Option<RuleRef> {
        asking_rule(&self.plan.policy, permission)
    }
}

/// Returns the rule that denies a call. The call is checked under the policy's name, if it has one, and under the
/// agent's name. A rule for either name can deny it; for a call with a policy name, only that name can allow it.
fn denying_rule(policy: &EffectivePolicy, permission: &Permission) -> Option<RuleRef> {
    let RequestedCall { tool, policy_name, argument } = RequestedCall::of(permission);
    let denied = |name: &str| {
        let decision = policy.decide(&Action::Tool { name: name.to_owned(), argument: argument.clone() });
        (decision.allowed == Verdict::Deny).then_some(decision.rule)
    };
    match policy_name {
        Some(name) => denied(name).or_else(|| denied(&tool).filter(|rule| rule.text.starts_with("tools.deny"))),
        None => denied(&tool),
    }
}

/// Returns the rule that asks about a call, under the policy's name of the tool or under the agent's name.
fn asking_rule(policy: &EffectivePolicy, permission: &Permission) -> Option<RuleRef> {
    let RequestedCall { tool, policy_name, argument } = RequestedCall::of(permission);
    let asked = |name: &str| {
        let decision = policy.decide(&Action::Tool { name: name.to_owned(), argument: argument.clone() });
        (decision.allowed == Verdict::Ask).then_some(decision.rule)
    };
    policy_name.and_then(asked).or_else(|| asked(&tool))
}

/// A tool call in the terms of the policy.
struct RequestedCall {
    tool: String,
    policy_name: Option<&'static str>,
    argument: String,
}

impl RequestedCall {
    fn of(permission: &Permission) -> Self {
        let requested = RequestedTool::of(permission);
        let tool = requested.name().unwrap_or(&permission.action).to_owned();
        let (command, path) = (requested.command_line(), requested.path());
        let policy_name = match (&command, path) {
            // A tool of an MCP server may use the field `command` for anything.
            _ if tool.starts_with("mcp__") => None,
            (Some(_), _) => Some(SHELL),
            (None, Some(_)) => Some(EDIT),
            (None, None) => None,
        };
        let argument = command.or(path.map(str::to_owned)).unwrap_or_default();
        Self { tool, policy_name, argument }
    }
}

#[cfg(test)]
mod tests {
    use policy::{BaseLayer, CeilingLayer, PolicySource, effective};
    use protocol::PermissionStatus;
    use serde_json::{Value, json};

    use super::*;

    /// Returns whether `tools` denies a request with this metadata.
    fn denies(tools: &str, metadata: Value) -> bool {
        let (policy, permission) = requested(tools, metadata);
        denying_rule(&policy, &permission).is_some()
    }

    fn requested(tools: &str, metadata: Value) -> (EffectivePolicy, Permission) {
        let source = PolicySource::new("test.yaml", format!("version: 1\ntools: {tools}\n"));
        let policy = effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]);
        let permission = Permission {
            permission_id: "perm_1".parse().unwrap(),
            action: "something".into(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        };
        (policy, permission)
    }

    #[test]
    fn the_asking_rule_is_named_with_its_line() {
        let asks = |tools: &str, metadata: Value| {
            let (policy, permission) = requested(tools, metadata);
            asking_rule(&policy, &permission).map(|rule| rule.to_string())
        };
        let push = json!({"tool": "exec_command", "input": {"command": "git push"}});
        let rule = r#"{allow: ["*"], ask: ["Bash(git push*)"]}"#;
        assert!(asks(rule, push.clone()).unwrap().ends_with("(test.yaml:2)"));
        assert_eq!(asks(rule, json!({"tool": "exec_command", "input": {"command": "ls"}})), None);
        assert_eq!(asks(r#"{allow: ["*"]}"#, push), None);
    }

    #[test]
    fn shell_rule_applies_to_every_tool_with_a_command() {
        let rule = r#"{allow: ["*"], deny: ["Bash(rm *)"]}"#;
        for tool in ["Bash", "exec_command", "run_shell_command"] {
            let permission = |line: &str| json!({"tool": tool, "input": {"command": line}});
            assert!(denies(rule, permission("rm -r x")) && denies(rule, permission("true; rm x")), "{tool}");
            assert!(!denies(rule, permission("ls")), "{tool}");
        }
        assert!(denies(rule, json!({"tool": "exec_command", "command": "rm x"})));
        assert!(denies(rule, json!({"tool": "shell", "input": {"command": ["rm", "x"]}})));
        assert!(!denies(rule, json!({"tool": "mcp__shop__do", "input": {"command": "rm x"}})));
    }

    #[test]
    fn unlisted_tool_is_denied_and_edit_rule_applies_to_every_edit() {
        let rule = r"{allow: [Read], ask: [Bash, Edit]}";
        assert!(!denies(rule, json!({"tool": "apply_patch", "pattern": {"tool": "apply_patch", "path": "a"}})));
        assert!(!denies(rule, json!({"tool": "exec_command", "input": {"command": "ls"}})));
        assert!(denies(rule, json!({"tool": "WebFetch", "input": {"url": "https://example.com"}})));
        assert!(denies("{}", json!({"tool": "Read", "input": {"file_path": "a"}})));
    }

    #[test]
    fn deny_rule_for_the_agents_own_name_applies() {
        let rule = r#"{allow: ["*"], deny: ["write_*"]}"#;
        assert!(denies(rule, json!({"tool": "write_file", "pattern": {"tool": "write_file", "path": "a"}})));
        assert!(!denies(rule, json!({"tool": "replace", "pattern": {"tool": "replace", "path": "a"}})));
    }
}
