//! The script of the model, with the tool names of each agent.

use gateway::{ModelScript, ScriptedUpstream};
use serde_json::{Value, json};

use crate::tested_agent::TestedAgent;

/// The prompts that trigger each part of the script.
pub(crate) mod prompts {
    pub(crate) const REMEMBER: &str = "Keep the number 7391 in mind.";
    pub(crate) const RECALL: &str = "Which number was it?";
    pub(crate) const COMMAND: &str = "Use the shell, please.";
    pub(crate) const FILE: &str = "Make a file, please.";
    pub(crate) const OTHER_FILE: &str = "Make another file, please.";
    pub(crate) const EDIT: &str = "Mend a file, please.";
    pub(crate) const OTHER_COMMAND: &str = "Use the shell for something else.";
    pub(crate) const QUESTION: &str = "Ask me something, please.";
    pub(crate) const SLOW: &str = "Talk slowly, please.";
    pub(crate) const LONG_TURN: &str = "Talk for a while, please.";
    pub(crate) const LONG_TEXT: &str = "Talk a lot, please.";
    pub(crate) const MCP_TOOL: &str = "Polish it, please.";
    pub(crate) const LOOK: &str = "Look at this, please.";
    pub(crate) const THINK: &str = "Think aloud, please.";
    pub(crate) const PLAN: &str = "Plan it, please.";
    pub(crate) const SUB_AGENT: &str = "Send somebody, please.";
    pub(crate) const CRASH: &str = "End yourself, please.";
    pub(crate) const UNAUTHORIZED: &str = "Fail with 401.";
    pub(crate) const RATE_LIMITED: &str = "Fail once with 429.";
    pub(crate) const BROKEN: &str = "Fail once with 500.";
    pub(crate) const INVALID: &str = "Talk nonsense.";
    pub(crate) const TRUNCATED: &str = "Hang up.";
    pub(crate) const HANG: &str = "Say nothing.";
}

/// Output of the command in [`prompts::COMMAND`], besides the name of its PID namespace.
pub(crate) const COMMAND_OUTPUT: &str = "conformance-42";
/// Name and content of the file in [`prompts::FILE`].
pub(crate) const FILE: (&str, &str) = ("made.txt", "made by an agent\n");
/// Name and content of the file in [`prompts::OTHER_FILE`].
pub(crate) const OTHER_FILE: (&str, &str) = ("free.txt", "made without asking\n");
/// The file in [`prompts::EDIT`], its content, and the line that is replaced.
pub(crate) const EDITED_FILE: &str = "kept.txt";
pub(crate) const EDITED_FILE_CONTENT: &str = "the first line\nthe second line\nthe third line\n";
pub(crate) const OLD_LINE: &str = "the second line";
pub(crate) const NEW_LINE: &str = "a better line";
/// Output of the command in [`prompts::OTHER_COMMAND`].
pub(crate) const OTHER_OUTPUT: &str = "conformance-43";
/// Output of the tool in `equipment/server.sh`.
pub(crate) const MCP_OUTPUT: &str = "polished";
/// Prompt and answer of the sub-agent in [`prompts::SUB_AGENT`].
pub(crate) const SUB_AGENT_PROMPT: &str = "Count the leaves.";
pub(crate) const SUB_AGENT_ANSWER: &str = "There are twelve leaves.";
/// The file that the command creates.
pub(crate) const COMMAND_FILE: &str = "ran.txt";
/// Length of the answer to [`prompts::LONG_TEXT`], in characters.
pub(crate) const LONG_TEXT_CHARS: usize = 200_000;

/// Returns the model for an agent.
pub(crate) fn model(agent: &TestedAgent) -> ScriptedUpstream {
    ScriptedUpstream::new(ModelScript::parse(&script_text(agent)).unwrap())
}

/// Returns the script of the model for an agent.
pub(crate) fn script_text(agent: &TestedAgent) -> String {
    // The output does not occur in the command line.
    let command = format!("touch {COMMAND_FILE}; printf 'conformance-%d\\n' 42; readlink /proc/self/ns/pid");
    // The command writes a file, because some agents run commands that only print without asking.
    let other = "printf 'conformance-%d\\n' 43 | tee other.txt";
    let mut rules = tool_sequence(prompts::EDIT, agent.edit(EDITED_FILE, OLD_LINE, NEW_LINE));
    rules.extend([
        rule(prompts::RECALL, json!({"conversation": {"contains": "7391"}}), json!([{"text": "It was 7391."}])),
        first_response(prompts::COMMAND, &agent.command(&command)),
        final_response(prompts::COMMAND, "It said: ${tool_result}"),
        first_response(prompts::FILE, &agent.write(FILE.0, FILE.1)),
        final_response(prompts::FILE, "It is made."),
        first_response(prompts::OTHER_FILE, &agent.write_freely(OTHER_FILE.0, OTHER_FILE.1)),
        final_response(prompts::OTHER_FILE, "It is made."),
        final_response(prompts::EDIT, "It is mended."),
        first_response(prompts::OTHER_COMMAND, &agent.command(other)),
        final_response(prompts::OTHER_COMMAND, "It said: ${tool_result}"),
        first_response(prompts::QUESTION, &agent.question()),
        final_response(prompts::QUESTION, "You chose: ${tool_result}"),
        first_response(prompts::MCP_TOOL, &agent.mcp_call()),
        final_response(prompts::MCP_TOOL, "It gave: ${tool_result}"),
        first_response(prompts::PLAN, &agent.plan().unwrap_or_else(|| json!({"text": "I have no plan."}))),
        final_response(prompts::PLAN, "It is planned."),
        // Two agents inform their model about the end of a sub-agent.
        rule("<task-notification>", json!({}), json!([{"text": "So it is."}])),
        rule("<subagent_notification>", json!({}), json!([{"text": "So it is."}])),
        // Newer sub-agents of Codex get their task as a message between models, not as a prompt.
        rule("<environment_context>", json!({}), json!([{"text": SUB_AGENT_ANSWER}])),
        rule(SUB_AGENT_PROMPT, json!({}), json!([{"text": SUB_AGENT_ANSWER}])),
        first_response(
            prompts::SUB_AGENT,
            &agent.sub_agent_call().unwrap_or_else(|| json!({"text": "Nobody is here."})),
        ),
        // Slower than the sub-agent, so that the end of the sub-agent is not taken for the end of the turn.
        slow_response(prompts::SUB_AGENT, format!("{}That is all.", "It takes a while. ".repeat(8)), 20, 300),
        // Written so that an agent that looks for `kill` does not find it.
        first_response(prompts::CRASH, &agent.command("printf 'k%s -9 -1' ill > end.sh; sh end.sh")),
        slow_response(prompts::SLOW, "one two three four ".repeat(200), 20, 200),
        slow_response(prompts::LONG_TURN, format!("{}That is all.", "It takes a while. ".repeat(8)), 20, 300),
        slow_response(prompts::LONG_TEXT, long_text(), 8000, 0),
        rule(prompts::THINK, json!({}), json!([{"thinking": "A thought."}, {"text": "So it is: ${prompt}"}])),
        error_response(prompts::UNAUTHORIZED, 401, None),
        error_response(prompts::RATE_LIMITED, 429, Some(1)),
        error_response(prompts::BROKEN, 500, Some(1)),
        rule(prompts::INVALID, json!({}), json!([{"raw": "<html>this is no model</html>"}])),
        rule(prompts::TRUNCATED, json!({}), json!([{"text": "And then I"}, "cut"])),
        rule(prompts::HANG, json!({}), json!([{"text": "Hm."}, "hang"])),
        json!({"answer": [{"text": "You said: ${prompt}"}]}),
    ]);
    json!({"version": 1, "rules": rules}).to_string()
}

/// Returns a long text without repetitions, because some agents stop a model that repeats itself.
fn long_text() -> String {
    let scattered = |line: u64| line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let lines: Vec<String> =
        (1..=LONG_TEXT_CHARS as u64 / 17).map(|line| format!("{:016x}", scattered(line))).collect();
    lines.join("\n")
}

fn rule(prompt: &str, mut when: Value, answer: Value) -> Value {
    when["prompt"] = json!({"contains": prompt});
    json!({"when": when, "answer": answer})
}

/// Returns the first response to a prompt: a message and a tool call.
fn first_response(prompt: &str, tool: &Value) -> Value {
    rule(prompt, json!({"step": 1}), json!([{"text": "I am on it."}, tool]))
}

/// Returns rules that call several tools in sequence.
fn tool_sequence(prompt: &str, tools: Vec<Value>) -> Vec<Value> {
    (1..).zip(tools).map(|(step, tool): (u64, _)| rule(prompt, json!({"step": step}), json!([tool]))).collect()
}

/// Returns the response after the tool result.
fn final_response(prompt: &str, words: &str) -> Value {
    rule(prompt, json!({"tool_result": {"contains": ""}}), json!([{"text": words}]))
}

fn slow_response(prompt: &str, text: String, chars: u64, delay_ms: u64) -> Value {
    let mut rule = rule(prompt, json!({}), json!([{"text": text}]));
    rule["pace"] = json!({"chars": chars, "delay_ms": delay_ms});
    rule
}

fn error_response(prompt: &str, status: u16, times: Option<u64>) -> Value {
    let mut rule = json!({"when": {"prompt": {"contains": prompt}}, "error": {"status": status, "message": "no"}});
    if let Some(times) = times {
        rule["times"] = json!(times);
    }
    rule
}
