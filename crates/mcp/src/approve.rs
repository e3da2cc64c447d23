//! Decisions about tool calls of an agent on the host: by rule, on record, and denied in doubt.
//!
//! The tools of this server are always allowed, because they act in a sandbox. Every other tool acts on the host, so
//! `tools.allow` must name it: the entry `*`, which is meant for agents inside a sandbox, does not count here. Nobody can
//! be asked, so `tools.ask` denies.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use policy::{Action, EffectivePolicy, NarrowingLayer, PolicySource, Verdict};
use serde_json::{Value, json};
use store::{Clock, DataDir};

use crate::arguments::cut;
use crate::tools::{SERVER_NAME, tools};

/// The file of the decisions, in the data directory.
const FILE: &str = "tool-decisions.jsonl";
/// Most bytes of a call's argument in a record.
const MAX_ARGUMENT: usize = 4096;
/// The policy's name for every tool that runs a command.
const SHELL: &str = "Bash";
/// The policy's name for every tool that changes a file.
const EDIT: &str = "Edit";
/// Tools of agents that only read files, which have no other name in a policy.
const READERS: &[&str] = &["Read", "Glob", "Grep", "LS", "NotebookRead"];

/// The answer to one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDecision {
    /// The tool, as the agent names it.
    pub tool: String,
    /// The command or path of the call.
    pub argument: String,
    /// Whether the call is allowed.
    pub is_allowed: bool,
    /// The rule that decided.
    pub rule: String,
}

impl ToolDecision {
    /// Returns the refusal for a model, with the remedy.
    pub fn message(&self) -> String {
        format!(
            "{:?} is denied: {}. Run code and commands with the tool `run` of the MCP server `{SERVER_NAME}`, which \
             works in a sandbox.",
            self.tool, self.rule
        )
    }

    /// Appends the decision to the record in `directory`. `gate` names the place that asked.
    pub fn record(&self, directory: &DataDir, gate: &str, clock: &dyn Clock) -> io::Result<()> {
        let argument = cut(&self.argument, MAX_ARGUMENT);
        let line = json!({"unixMillis": clock.now().as_millisecond(), "gate": gate,
            "tool": self.tool, "argument": argument, "allowed": self.is_allowed, "rule": self.rule});
        let path = directory.root().join(FILE);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        // One write for each line, so that lines of concurrent processes do not mix.
        file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Decides about a call of `tool` with `input` by an agent on the host.
pub fn decide_tool(policy: &EffectivePolicy, tool: &str, input: &Value) -> ToolDecision {
    let argument = argument(input);
    let answer = |is_allowed, rule: String| ToolDecision {
        tool: tool.to_owned(),
        argument: argument.clone().unwrap_or_default(),
        is_allowed,
        rule,
    };
    if is_own_tool(tool) {
        return answer(true, format!("built-in: the tools of `{SERVER_NAME}` act in a sandbox"));
    }
    let names = policy_names(tool, input);
    let named_only = match without_wildcard(policy) {
        Ok(policy) => policy,
        Err(why) => return answer(false, why),
    };
    let mut rule = None;
    for name in names {
        let action = Action::Tool { name: name.to_owned(), argument: argument.clone().unwrap_or_default() };
        let decision = policy.decide(&action);
        match decision.allowed {
            Verdict::Allow => {}
            Verdict::Ask => return answer(false, format!("{}, and nobody can be asked here", decision.rule)),
            Verdict::Deny => return answer(false, decision.rule.to_string()),
        }
        if !named_only.decide(&action).is_allowed() {
            return answer(false, format!("it acts on the host, and `tools.allow` does not name `{name}`"));
        }
        rule.get_or_insert(decision.rule.to_string());
    }
    answer(true, rule.unwrap_or_default())
}

/// Returns whether `tool` is one of this server's tools, in the spelling of an MCP client.
fn is_own_tool(tool: &str) -> bool {
    let rest = tool.strip_prefix("mcp__").unwrap_or(tool).strip_prefix(SERVER_NAME);
    let name = rest.and_then(|rest| rest.strip_prefix("__").or_else(|| rest.strip_prefix('.')));
    name.is_some_and(|name| tools().iter().any(|known| known.name == name))
}

/// Returns the names under which the policy must allow a call: its own, and the policy's name for what it does.
fn policy_names<'a>(tool: &'a str, input: &Value) -> Vec<&'a str> {
    // A tool of an MCP server may use these fields for anything.
    if tool.starts_with("mcp__") || READERS.contains(&tool) {
        return vec![tool];
    }
    if input.get("command").is_some() || input.get("cmd").is_some() || input.get("script").is_some() {
        return if tool == SHELL { vec![SHELL] } else { vec![SHELL, tool] };
    }
    let changes_file = ["file_path", "path", "notebook_path", "patch"].iter().any(|field| input.get(field).is_some());
    if changes_file && tool != EDIT { vec![EDIT, tool] } else { vec![tool] }
}

/// Returns the text that patterns match: the command line or the path.
fn argument(input: &Value) -> Option<String> {
    let field = ["command", "cmd", "script", "file_path", "path", "notebook_path", "url", "pattern"]
        .iter()
        .find_map(|name| input.get(name))?;
    match field {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        other => Some(other.to_string()),
    }
}

/// Returns `policy` without the entry `*` of `tools.allow`.
fn without_wildcard(policy: &EffectivePolicy) -> Result<EffectivePolicy, String> {
    let named: Vec<String> = policy
        .tools()
        .into_iter()
        .filter_map(|rules| rules.allow)
        .flatten()
        .filter(|entry| entry.chars().any(|c| c != '*'))
        .collect();
    let text = json!({"version": 1, "tools": {"allow": named}}).to_string();
    let layer = NarrowingLayer::read(&PolicySource::new("tools on the host", text));
    Ok(policy.restricted_by(&layer.map_err(|error| format!("the policy cannot be used here: {error}"))?))
}

#[cfg(test)]
mod tests {
    use policy::{BaseLayer, CeilingLayer, effective};

    use super::*;

    #[track_caller]
    fn check(tools: &str, tool: &str, input: Value, allowed: bool) {
        let source = PolicySource::new("test.yaml", format!("version: 1\ntools: {tools}\n"));
        let policy = effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]);
        let decision = decide_tool(&policy, tool, &input);
        assert_eq!(decision.is_allowed, allowed, "{tool}: {}", decision.rule);
    }

    #[test]
    fn wildcard_does_not_approve_a_tool_on_the_host() {
        for tool in ["Bash", "WebFetch", "mcp__other__run", "Agent"] {
            check(r#"{allow: ["*"]}"#, tool, json!({"command": "id"}), false);
        }
        check(r#"{allow: ["*"]}"#, "mcp__sandboxed_code__run", json!({"argv": ["id"]}), true);
        check("{allow: []}", "sandboxed_code.run", json!({}), true);
    }

    #[test]
    fn tools_of_servers_with_similar_names_are_not_ours() {
        for tool in [
            "mcp__sandboxed_code2__run",
            "mcp__sandboxed_code__run2",
            "mcp__x__sandboxed_code__run",
            "mcp__sandboxed_code",
            "mcp__sandboxed_code__",
            "mcp__Sandboxed_code__run",
            "sandboxed_coderun",
        ] {
            check("{allow: []}", tool, json!({}), false);
        }
    }

    #[test]
    fn a_named_tool_is_approved_by_its_argument() {
        let rules = r#"{allow: ["Read", "Bash(git status*)", "Edit(/src/notes/*)"], deny: ["Read(*.env)"]}"#;
        check(rules, "Read", json!({"file_path": "/src/a.txt"}), true);
        check(rules, "Read", json!({"file_path": "/src/a.env"}), false);
        check(rules, "Bash", json!({"command": "git status --short"}), true);
        check(rules, "Bash", json!({"command": "git push"}), false);
        check(rules, "shell", json!({"command": ["git", "push"]}), false);
        check(rules, "Edit", json!({"file_path": "/src/notes/a"}), true);
        check(rules, "Write", json!({"file_path": "/src/notes/a"}), false);
    }

    #[test]
    fn a_call_that_a_person_must_decide_is_denied() {
        check(r#"{allow: ["Bash"], ask: ["Bash(rm *)"]}"#, "Bash", json!({"command": "rm -r x"}), false);
    }
}
