//! The tools the model may call, and the item each call makes.

use std::io::Write;

use agents::{LineItem, PermissionMode};
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus, PermissionReply};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::stop::Stop;
use crate::{fetch, files};

/// How the names of tools begin that MCP servers have.
const SERVED: &str = "mcp__";

/// A call of one of our tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "name", content = "input", rename_all = "snake_case")]
pub(crate) enum Tool {
    /// Gives its words back.
    Echo { text: String },
    /// Writes a whole file.
    WriteFile { path: String, content: String },
    /// Replaces the one place where `old` stands.
    EditFile { path: String, old: String, new: String },
    /// Runs a program.
    RunCommand { command: Vec<String> },
    /// Gets something from the network, if that can be reached.
    Fetch { url: String },
    /// Asks the person.
    AskUser {
        question: String,
        #[serde(default)]
        options: Vec<String>,
    },
    /// Asks the person several things at once.
    AskUserQuestions { questions: Vec<Value> },
    /// Tells what it means to do.
    UpdatePlan { done: Vec<String>, left: Vec<String> },
    /// Sends a sub-agent.
    Task { prompt: String },
}

/// What came of a call.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) output: String,
    pub(crate) failed: bool,
    pub(crate) parts: Vec<ContentPart>,
}

impl Outcome {
    pub(crate) fn failed(output: impl Into<String>) -> Self {
        Self { output: output.into(), failed: true, parts: Vec::new() }
    }

    pub(crate) fn done(output: impl Into<String>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }
}

/// The tools as a model is told of them.
pub(crate) fn definitions() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    json!([
        definition("echo", "Gives its words back.", &json!({ "text": text }), &["text"]),
        definition(
            "write_file",
            "Writes a whole file.",
            &json!({ "path": text, "content": text }),
            &["path", "content"]
        ),
        definition(
            "edit_file",
            "Replaces the one place in a file where `old` stands.",
            &json!({ "path": text, "old": text, "new": text }),
            &["path", "old", "new"]
        ),
        definition("run_command", "Runs a program; no shell.", &json!({ "command": texts }), &["command"]),
        definition("fetch", "Gets a URL.", &json!({ "url": text }), &["url"]),
        definition("ask_user", "Asks the person.", &json!({ "question": text, "options": texts }), &["question"]),
        definition(
            "ask_user_questions",
            "Asks the person several things at once.",
            &json!({ "questions": { "type": "array", "items": question() } }),
            &["questions"]
        ),
        definition(
            "update_plan",
            "Tells the steps that are done and those that are left.",
            &json!({ "done": texts, "left": texts }),
            &["done", "left"]
        ),
        definition("task", "Sends a sub-agent.", &json!({ "prompt": text }), &["prompt"]),
    ])
}

fn planning() -> Outcome {
    Outcome::failed("plan mode: nothing is done before the plan is approved")
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

fn answered(answer: Option<String>) -> Outcome {
    answer.map_or_else(|| Outcome::failed("the person did not answer"), Outcome::done)
}

impl<W: Write> Agent<W> {
    /// Does what a `tool_use` block asks for and returns its `tool_result`.
    pub(crate) fn perform(&mut self, block: &Value) -> Result<Value, Stop> {
        let call_id = block["id"].as_str().unwrap_or_default().to_owned();
        let name = block["name"].as_str().unwrap_or_default();
        let tool = serde_json::from_value::<Tool>(json!({ "name": name, "input": block["input"] }));
        let outcome = self.call(&call_id, name, &block["input"], |agent| match tool {
            Ok(tool) => agent.execute(tool),
            Err(_) if name.starts_with(SERVED) => agent.call_server(name, &block["input"]),
            Err(error) => Ok(Outcome::failed(format!("no such call: {error}"))),
        })?;
        Ok(json!({
            "type": "tool_result", "tool_use_id": call_id, "content": outcome.output, "is_error": outcome.failed,
        }))
    }

    /// The items around a call: the call while it runs, then its result below it.
    pub(crate) fn call(
        &mut self,
        call_id: &str,
        name: &str,
        input: &Value,
        execute: impl FnOnce(&mut Self) -> Result<Outcome, Stop>,
    ) -> Result<Outcome, Stop> {
        let mut call = self.voice.item(ItemKind::ToolCall, ItemRole::Assistant);
        let (name, arguments) = (name.to_owned(), input.to_string());
        call.content = vec![ContentPart::ToolCall { name, arguments, call_id: call_id.to_owned() }];
        self.voice.started(&call)?;
        match execute(self) {
            Ok(outcome) => {
                self.finish(call, call_id, &outcome)?;
                Ok(outcome)
            }
            // A call always has a result, also when there was no time for one.
            Err(stop @ (Stop::Interrupted | Stop::Failed)) => {
                self.finish(call, call_id, &Outcome::failed("interrupted"))?;
                Err(stop)
            }
            Err(ending) => Err(ending),
        }
    }

    fn finish(&mut self, call: LineItem, call_id: &str, outcome: &Outcome) -> Result<(), Stop> {
        let status = if outcome.failed { ItemStatus::Failed } else { ItemStatus::Completed };
        let mut result = self.voice.item(ItemKind::ToolResult, ItemRole::Tool);
        result.parent = Some(call.id.clone());
        result.content = vec![ContentPart::ToolResult { call_id: call_id.to_owned(), output: outcome.output.clone() }];
        result.content.extend(outcome.parts.iter().cloned());
        self.voice.completed(call, status)?;
        self.voice.started(&result)?;
        Ok(self.voice.completed(result, status)?)
    }

    fn execute(&mut self, tool: Tool) -> Result<Outcome, Stop> {
        let harmless = matches!(
            tool,
            Tool::Echo { .. }
                | Tool::AskUser { .. }
                | Tool::AskUserQuestions { .. }
                | Tool::UpdatePlan { .. }
                | Tool::Task { .. }
        );
        if self.mode == PermissionMode::Plan && !harmless {
            return Ok(planning());
        }
        if let Some(refusal) = self.ask_for(&tool)? {
            return Ok(refusal);
        }
        match tool {
            Tool::Echo { text } => Ok(Outcome::done(text)),
            Tool::WriteFile { path, content } => Ok(files::write(&self.settings.workspace, &path, &content)),
            Tool::EditFile { path, old, new } => Ok(files::edit(&self.settings.workspace, &path, &old, &new)),
            Tool::RunCommand { command } => self.run_program(&command),
            Tool::Fetch { url } => Ok(fetch::get(&url, self.settings.proxy.as_deref())),
            Tool::AskUser { question, options } => self.ask_question(&question, &options).map(answered),
            Tool::AskUserQuestions { questions } => self.ask_questions(questions).map(answered),
            Tool::UpdatePlan { done, left } => {
                self.tell_plan(&done, &left)?;
                Ok(Outcome::done("the plan is told"))
            }
            Tool::Task { prompt } => self.send_sub_agent(&prompt),
        }
    }

    /// What an MCP server would do, which it does not have: it asks, and gives back what the call says it would.
    fn call_server(&mut self, name: &str, input: &Value) -> Result<Outcome, Stop> {
        if self.mode == PermissionMode::Plan {
            return Ok(planning());
        }
        let asked = json!({ "tool": name, "input": input, "always": name });
        Ok(match self.ask_leave(name, name.to_owned(), asked)? {
            Some(refusal) => refusal,
            None => Outcome::done(input["answer"].as_str().unwrap_or_default()),
        })
    }

    /// Asks for what is not free: running a program, and changing a file outside the workspace.
    fn ask_for(&mut self, tool: &Tool) -> Result<Option<Outcome>, Stop> {
        let (action, input, covered) = match tool {
            Tool::RunCommand { command } => ("run_command", json!({ "command": command }), command.first().cloned()),
            Tool::WriteFile { path, .. } if !files::is_inside(&self.settings.workspace, path) => {
                ("write_file", json!({ "path": path }), Some(path.clone()))
            }
            Tool::EditFile { path, .. } if !files::is_inside(&self.settings.workspace, path) => {
                ("edit_file", json!({ "path": path }), Some(path.clone()))
            }
            _ => return Ok(None),
        };
        let covered = covered.unwrap_or_default();
        let metadata = json!({ "tool": action, "input": input, "always": covered });
        self.ask_leave(action, covered, metadata)
    }

    /// Asks, unless what it covers is free; what comes back is the refusal.
    fn ask_leave(&mut self, action: &str, covered: String, metadata: Value) -> Result<Option<Outcome>, Stop> {
        if self.mode == PermissionMode::Bypass || self.allowed.contains(&covered) {
            return Ok(None);
        }
        match self.ask_permission(action, metadata)? {
            PermissionReply::Once => Ok(None),
            PermissionReply::Always => {
                self.allowed.insert(covered);
                Ok(None)
            }
            PermissionReply::Reject => Ok(Some(Outcome::failed("the person said no"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_that_is_offered_can_be_called() {
        for offered in definitions().as_array().unwrap() {
            let mut input = json!({});
            for (name, schema) in offered["input_schema"]["properties"].as_object().unwrap() {
                input[name] = if schema["type"] == "array" { json!(["x"]) } else { json!("x") };
            }
            serde_json::from_value::<Tool>(json!({ "name": offered["name"], "input": input })).unwrap();
        }
    }
}
