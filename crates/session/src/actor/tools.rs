//! The gate for tool calls that an agent asks about: what `tools` of the policy denies is refused before anybody is
//! asked, and whatever was granted before.
//!
//! It judges what is asked. What an agent does without asking is not seen here: the sandbox is the wall.

use policy::{Action, EffectivePolicy, RuleRef, Verdict};
use protocol::Permission;
use serde_json::Value;

use super::Actor;

/// By this name the policy means any tool that runs a command, whatever the agent calls it.
const SHELL: &str = "Bash";
/// By this one, any tool that changes a file.
const EDIT: &str = "Edit";

impl Actor {
    /// The rule that denies what is asked for, if one does.
    pub(super) fn denied(&self, asked: &Permission) -> Option<RuleRef> {
        denied(&self.plan.policy, asked)
    }
}

/// The call is judged by our name for it, where it has one, and by the agent's own: to allow, ours is enough; to
/// deny, either.
fn denied(policy: &EffectivePolicy, asked: &Permission) -> Option<RuleRef> {
    let Call { tool, ours, argument } = Call::of(asked);
    let denied = |name: &str| {
        let decision = policy.decide(&Action::Tool { name: name.to_owned(), argument: argument.clone() });
        (decision.allowed == Verdict::Deny).then_some(decision.rule)
    };
    match ours {
        Some(ours) => denied(ours).or_else(|| denied(&tool).filter(|rule| rule.text.starts_with("tools.deny"))),
        None => denied(&tool),
    }
}

/// A call as a policy names it.
struct Call {
    tool: String,
    ours: Option<&'static str>,
    argument: String,
}

impl Call {
    fn of(asked: &Permission) -> Self {
        let metadata = asked.metadata.as_ref().unwrap_or(&Value::Null);
        let (pattern, input) = (&metadata["pattern"], &metadata["input"]);
        let tool = metadata["tool"].as_str().or(pattern["tool"].as_str()).unwrap_or(&asked.action).to_owned();
        let places = [&pattern["input"]["command"], &pattern["command"], &input["command"], &metadata["command"]];
        let command = places.into_iter().find_map(command);
        let path = pattern["path"].as_str();
        let ours = match (&command, path) {
            // A tool of a server may call anything a command.
            _ if tool.starts_with("mcp__") => None,
            (Some(_), _) => Some(SHELL),
            (None, Some(_)) => Some(EDIT),
            (None, None) => None,
        };
        let argument = command.or(path.map(str::to_owned)).unwrap_or_default();
        Self { tool, ours, argument }
    }
}

/// A command line, or the words of one.
fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use policy::{BaseLayer, CeilingLayer, PolicySource, effective};
    use protocol::PermissionStatus;
    use serde_json::json;

    use super::*;

    /// Whether `tools` denies a request with this metadata.
    fn denies(tools: &str, metadata: Value) -> bool {
        let source = PolicySource::new("test.yaml", format!("version: 1\ntools: {tools}\n"));
        let policy = effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]);
        let asked = Permission {
            permission_id: "perm_1".parse().unwrap(),
            action: "something".into(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        };
        denied(&policy, &asked).is_some()
    }

    #[test]
    fn a_command_is_judged_as_one_whatever_the_agent_calls_its_tool() {
        let rule = r#"{allow: ["*"], deny: ["Bash(rm *)"]}"#;
        for tool in ["Bash", "exec_command", "run_shell_command"] {
            let asked = |line: &str| json!({"tool": tool, "input": {"command": line}});
            assert!(denies(rule, asked("rm -r x")) && denies(rule, asked("true; rm x")), "{tool}");
            assert!(!denies(rule, asked("ls")), "{tool}");
        }
        assert!(denies(rule, json!({"tool": "exec_command", "command": "rm x"})));
        assert!(denies(rule, json!({"tool": "shell", "input": {"command": ["rm", "x"]}})));
        assert!(!denies(rule, json!({"tool": "mcp__shop__do", "input": {"command": "rm x"}})));
    }

    #[test]
    fn what_no_list_names_is_denied_and_an_edit_is_an_edit() {
        let rule = r"{allow: [Read], ask: [Bash, Edit]}";
        assert!(!denies(rule, json!({"tool": "apply_patch", "pattern": {"tool": "apply_patch", "path": "a"}})));
        assert!(!denies(rule, json!({"tool": "exec_command", "input": {"command": "ls"}})));
        assert!(denies(rule, json!({"tool": "WebFetch", "input": {"url": "https://example.com"}})));
        assert!(denies("{}", json!({"tool": "Read", "input": {"file_path": "a"}})));
    }

    #[test]
    fn a_rule_against_the_agents_own_name_holds_too() {
        let rule = r#"{allow: ["*"], deny: ["write_*"]}"#;
        assert!(denies(rule, json!({"tool": "write_file", "pattern": {"tool": "write_file", "path": "a"}})));
        assert!(!denies(rule, json!({"tool": "replace", "pattern": {"tool": "replace", "path": "a"}})));
    }
}
