//! The tools of the mock agent, and the items of a tool call.

use std::io::Write;

use agents::{LineItem, PermissionMode};
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus, PermissionReply};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::process::MockProcess;
use crate::turn_stop::TurnStop;
use crate::{fetch, files};

/// Prefix of the names of MCP tools.
const MCP_PREFIX: &str = "mcp__";

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "name", content = "input", rename_all = "snake_case")]
pub(crate) enum MockTool {
    /// Returns its text.
    Echo { text: String },
    /// Writes a whole file.
    WriteFile { path: String, content: String },
    /// Replaces the only occurrence of `old`.
    EditFile { path: String, old: String, new: String },
    /// Runs a program.
    RunCommand { command: Vec<String> },
    /// Fetches a URL, if the network is reachable.
    Fetch { url: String },
    /// Asks the user a question.
    AskUser {
        question: String,
        #[serde(default)]
        options: Vec<String>,
    },
    /// Asks the user several questions at once.
    AskUserQuestions { questions: Vec<Value> },
    /// Reports a plan.
    UpdatePlan { done: Vec<String>, left: Vec<String> },
    /// Starts a sub-agent.
    Task { prompt: String },
}

/// The result of a tool call.
#[derive(Debug, Default)]
pub(crate) struct CallResult {
    pub(crate) output: String,
    pub(crate) failed: bool,
    pub(crate) parts: Vec<ContentPart>,
}

impl CallResult {
    pub(crate) fn failed(output: impl Into<String>) -> Self {
        Self { output: output.into(), failed: true, parts: Vec::new() }
    }

    pub(crate) fn done(output: impl Into<String>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }
}

/// Returns the definitions of the tools for the model.
pub(crate) fn definitions() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!([
        definition("echo", "Returns its text.", &json!({ "text": text }), &["text"]),
        definition(
            "write_file",
            "Writes a whole file.",
            &json!({ "path": text, "content": text }),
            &["path", "content"]
        ),
        definition(
            "edit_file",
            "Replaces the only occurrence of `old` in a file.",
            &json!({ "path": text, "old": text, "new": text }),
            &["path", "old", "new"]
        ),
        definition("run_command", "Runs a program; no shell.", &json!({ "command": texts }), &["command"]),
        definition("fetch", "Gets a URL.", &json!({ "url": text }), &["url"]),
        definition("ask_user", "Asks the person.", &json!({ "question": text, "options": texts }), &["question"]),
        definition(
            "ask_user_questions",
            "Asks the user several questions at once.",
            &json!({ "questions": { "type": "array", "items": question() } }),
            &["questions"]
        ),
        definition(
            "update_plan",
            "Reports the finished and the remaining steps of a plan.",
            &json!({ "done": texts, "left": texts }),
            &["done", "left"]
        ),
        definition("task", "Sends a sub-agent.", &json!({ "prompt": text }), &["prompt"]),
    ])
}

fn refused_while_planning() -> CallResult {
    CallResult::failed("plan mode: the plan is not approved yet")
}

fn definition(name: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "name": name, "description": description, "input_schema": schema })
}

fn question() -> Value {
    let text = json!({ "type": "string" });
    let option = json!({ "type": "object", "properties": { "label": text, "description": text } });
    let options = json!({ "type": "array", "items": option });
    let properties =
        json!({ "question": text, "header": text, "options": options, "multiSelect": { "type": "boolean" } });
    json!({ "type": "object", "properties": properties })
}

fn answer_result(answer: Option<String>) -> CallResult {
    answer.map_or_else(|| CallResult::failed("no answer from the user"), CallResult::done)
}

impl<W: Write> MockProcess<W> {
    /// Performs a `tool_use` block and returns its `tool_result`.
    pub(crate) fn perform_tool_use(&mut self, block: &Value) -> Result<Value, TurnStop> {
        let call_id = block["id"].as_str().unwrap_or_default().to_owned();
        let name = block["name"].as_str().unwrap_or_default();
        let tool = serde_json::from_value::<MockTool>(json!({ "name": name, "input": block["input"] }));
        let outcome = self.call(&call_id, name, &block["input"], |agent| match tool {
            Ok(tool) => agent.execute(tool),
            Err(_) if name.starts_with(MCP_PREFIX) => agent.call_mcp_tool(name, &block["input"]),
            Err(error) => Ok(CallResult::failed(format!("invalid tool call: {error}"))),
        })?;
        Ok(json!({
            "type": "tool_result", "tool_use_id": call_id, "content": outcome.output, "is_error": outcome.failed,
        }))
    }

    /// Prints the items of a call: the call while it runs, then its result below it.
    pub(crate) fn call(
        &mut self,
        call_id: &str,
        name: &str,
        input: &Value,
        execute: impl FnOnce(&mut Self) -> Result<CallResult, TurnStop>,
    ) -> Result<CallResult, TurnStop> {
        let mut call = self.printer.new_item(ItemKind::ToolCall, ItemRole::Assistant);
        let (name, arguments) = (name.to_owned(), input.to_string());
        call.content = vec![ContentPart::ToolCall { name, arguments, call_id: call_id.to_owned() }];
        self.printer.start_item(&call)?;
        match execute(self) {
            Ok(outcome) => {
                self.finish(call, call_id, &outcome)?;
                Ok(outcome)
            }
            // Every call has a result, also when it was interrupted.
            Err(stop @ (TurnStop::Interrupted | TurnStop::Failed)) => {
                self.finish(call, call_id, &CallResult::failed("interrupted"))?;
                Err(stop)
            }
            Err(ending) => Err(ending),
        }
    }

    fn finish(&mut self, call: LineItem, call_id: &str, outcome: &CallResult) -> Result<(), TurnStop> {
        let status = if outcome.failed { ItemStatus::Failed } else { ItemStatus::Completed };
        let mut result = self.printer.new_item(ItemKind::ToolResult, ItemRole::Tool);
        result.parent = Some(call.id.clone());
        result.content = vec![ContentPart::ToolResult { call_id: call_id.to_owned(), output: outcome.output.clone() }];
        result.content.extend(outcome.parts.iter().cloned());
        self.printer.complete_item(call, status)?;
        self.printer.start_item(&result)?;
        Ok(self.printer.complete_item(result, status)?)
    }

    fn execute(&mut self, tool: MockTool) -> Result<CallResult, TurnStop> {
        let harmless = matches!(
            tool,
            MockTool::Echo { .. }
                | MockTool::AskUser { .. }
                | MockTool::AskUserQuestions { .. }
                | MockTool::UpdatePlan { .. }
                | MockTool::Task { .. }
        );
        if self.mode == PermissionMode::Plan && !harmless {
            return Ok(refused_while_planning());
        }
        if let Some(refusal) = self.ask_if_needed(&tool)? {
            return Ok(refusal);
        }
        match tool {
            MockTool::Echo { text } => Ok(CallResult::done(text)),
            MockTool::WriteFile { path, content } => Ok(files::write(&self.settings.workspace, &path, &content)),
            MockTool::EditFile { path, old, new } => Ok(files::edit(&self.settings.workspace, &path, &old, &new)),
            MockTool::RunCommand { command } => self.run_program(&command),
            MockTool::Fetch { url } => Ok(fetch::get(&url, self.settings.proxy.as_deref())),
            MockTool::AskUser { question, options } => self.ask_question(&question, &options).map(answer_result),
            MockTool::AskUserQuestions { questions } => self.ask_questions(questions).map(answer_result),
            MockTool::UpdatePlan { done, left } => {
                self.print_plan(&done, &left)?;
                Ok(CallResult::done("the plan was updated"))
            }
            MockTool::Task { prompt } => self.run_sub_agent(&prompt),
        }
    }

    /// Simulates an MCP tool: asks for permission and returns the answer that the call contains.
    fn call_mcp_tool(&mut self, name: &str, input: &Value) -> Result<CallResult, TurnStop> {
        if self.mode == PermissionMode::Plan {
            return Ok(refused_while_planning());
        }
        let metadata = json!({ "tool": name, "input": input, "always": name });
        Ok(match self.ask_unless_allowed(name, name.to_owned(), metadata)? {
            Some(refusal) => refusal,
            None => CallResult::done(input["answer"].as_str().unwrap_or_default()),
        })
    }

    /// Asks for permission to run a program or to change a file outside the workspace. Returns a result if it is
    /// denied.
    fn ask_if_needed(&mut self, tool: &MockTool) -> Result<Option<CallResult>, TurnStop> {
        let of_file = |action: &str, input: Value, path: &String| {
            let pattern = json!({ "tool": action, "path": path });
            json!({ "tool": action, "input": input, "always": path, "pattern": pattern })
        };
        let (action, metadata, covered) = match tool {
            MockTool::RunCommand { command } => {
                let covered = command.first().cloned().unwrap_or_default();
                let input = json!({ "command": command });
                ("run_command", json!({ "tool": "run_command", "input": input, "always": covered }), covered)
            }
            MockTool::WriteFile { path, content } if !files::is_inside(&self.settings.workspace, path) => {
                let input = json!({ "path": path, "content": content });
                ("write_file", of_file("write_file", input, path), path.clone())
            }
            MockTool::EditFile { path, old, new } if !files::is_inside(&self.settings.workspace, path) => {
                let input = json!({ "path": path, "old": old, "new": new });
                ("edit_file", of_file("edit_file", input, path), path.clone())
            }
            _ => return Ok(None),
        };
        self.ask_unless_allowed(action, covered, metadata)
    }

    /// Asks for permission, unless it was granted before. Returns a result if it is denied.
    fn ask_unless_allowed(
        &mut self,
        action: &str,
        covered: String,
        metadata: Value,
    ) -> Result<Option<CallResult>, TurnStop> {
        if self.mode == PermissionMode::Bypass || self.allowed.contains(&covered) {
            return Ok(None);
        }
        match self.ask_permission(action, metadata)? {
            PermissionReply::Once => Ok(None),
            PermissionReply::Always => {
                self.allowed.insert(covered);
                Ok(None)
            }
            PermissionReply::Reject => Ok(Some(CallResult::failed("permission denied by user"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offered_tool_can_be_called() {
        for offered in definitions().as_array().unwrap() {
            let mut input = json!({});
            for (name, schema) in offered["input_schema"]["properties"].as_object().unwrap() {
                input[name] = if schema["type"] == "array" { json!(["x"]) } else { json!("x") };
            }
            serde_json::from_value::<MockTool>(json!({ "name": offered["name"], "input": input })).unwrap();
        }
    }
}
