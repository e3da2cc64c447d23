//! Items of a thread: messages, reasoning, commands, patches and calls.

use protocol::{ContentPart, ItemId, ItemStatus};
use serde_json::{Value, json};

use super::CodexDialogue;
use crate::diff;
use crate::transcript::{TextKind, ToolOutcome};

/// The type of a call that starts sub-agents or sends them messages.
const SUB_AGENT_CALL: &str = "collabAgentToolCall";
/// The type with which newer models report the start and the activity of a sub-agent.
const SUB_AGENT_ACTIVITY: &str = "subAgentActivity";

impl CodexDialogue {
    /// Handles the start of an item; `parent` is the call of a sub-agent.
    pub(super) fn item_started(&mut self, item: &Value, parent: Option<ItemId>) {
        let id = item["id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            "agentMessage" => self.transcript.append_text(id, TextKind::Message, parent, ""),
            "reasoning" => self.transcript.append_text(id, TextKind::Thought, parent, ""),
            "contextCompaction" => self.transcript.push_status_under(parent, "Compacting", None, Vec::new()),
            _ => {
                if let Some((name, arguments)) = call(item) {
                    self.transcript.start_call(id, &name, &arguments, parent);
                    self.link_sub_agents(id, item);
                }
            }
        }
    }

    /// Handles the end of an item; `parent` is the call of a sub-agent.
    pub(super) fn item_completed(&mut self, item: &Value, parent: Option<ItemId>) {
        let id = item["id"].as_str().unwrap_or_default();
        match item["type"].as_str().unwrap_or_default() {
            // The prompt was recorded before; the compaction was reported at its start.
            "userMessage" | "contextCompaction" => {}
            // The turn of the sub-agent reports its result.
            SUB_AGENT_ACTIVITY if item["kind"] != "started" => {}
            "agentMessage" | "plan" => {
                let text = item["text"].as_str().unwrap_or_default();
                self.transcript.complete_text(id, TextKind::Message, parent, text, ItemStatus::Completed);
            }
            "reasoning" => {
                self.transcript.complete_text(id, TextKind::Thought, parent, &thought(item), ItemStatus::Completed);
            }
            _ => match call(item) {
                Some((name, arguments)) => {
                    self.transcript.start_call(id, &name, &arguments, parent);
                    self.link_sub_agents(id, item);
                    self.transcript.finish_call(id, outcome(item));
                }
                None => self.transcript.record_unknown(item.clone()),
            },
        }
    }
}

/// Returns the summary of reasoning, or its content if there is no summary.
fn thought(item: &Value) -> String {
    let texts = |name: &str| -> Vec<String> {
        let list = item[name].as_array().into_iter().flatten();
        list.filter_map(|part| part.as_str().or(part["text"].as_str())).map(str::to_owned).collect()
    };
    let summary = texts("summary");
    if summary.is_empty() { texts("content").concat() } else { summary.concat() }
}

/// Returns the tool and its input if the item is a tool call.
fn call(item: &Value) -> Option<(String, Value)> {
    let named = |name: &str, arguments| Some((name.to_owned(), arguments));
    match item["type"].as_str()? {
        "commandExecution" => named("exec_command", json!({ "command": item["command"], "cwd": item["cwd"] })),
        "fileChange" => named("apply_patch", json!({ "changes": item["changes"] })),
        "mcpToolCall" => {
            let (server, tool) = (item["server"].as_str().unwrap_or_default(), item["tool"].as_str()?);
            Some((format!("mcp__{server}__{tool}"), item["arguments"].clone()))
        }
        "dynamicToolCall" => Some((item["tool"].as_str()?.to_owned(), item["arguments"].clone())),
        SUB_AGENT_CALL => {
            let input = ["prompt", "model", "reasoningEffort", "receiverThreadIds"].into_iter();
            let known = input.filter(|name| !item[*name].is_null()).map(|name| (name.to_owned(), item[name].clone()));
            Some((snake_case(item["tool"].as_str()?), known.collect()))
        }
        SUB_AGENT_ACTIVITY if item["kind"] == "started" => {
            named("spawn_agent", json!({ "path": item["agentPath"], "model": item["model"] }))
        }
        "webSearch" => named("web_search", json!({ "query": item["query"] })),
        _ => None,
    }
}

/// Converts the protocol's camel case to the model's tool name.
fn snake_case(name: &str) -> String {
    name.chars().fold(String::new(), |mut word, letter| {
        if letter.is_uppercase() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
        word
    })
}

/// Formats the status or the last message of a sub-agent.
fn state((thread, state): (&String, &Value)) -> String {
    let (status, message) = (state["status"].as_str().unwrap_or_default(), state["message"].as_str());
    format!("{thread}: {}", message.unwrap_or(status))
}

fn outcome(item: &Value) -> ToolOutcome {
    let done = matches!(item["status"].as_str(), None | Some("completed"));
    let failed = !done || item["exitCode"].as_i64().is_some_and(|code| code != 0);
    let output = match item["type"].as_str().unwrap_or_default() {
        "commandExecution" => item["aggregatedOutput"].as_str().unwrap_or_default().to_owned(),
        "mcpToolCall" => item["result"]["content"]
            .as_array()
            .map(|blocks| blocks.iter().filter_map(|block| block["text"].as_str()).collect())
            .or_else(|| item["error"]["message"].as_str().map(str::to_owned))
            .unwrap_or_default(),
        SUB_AGENT_CALL => {
            item["agentsStates"].as_object().into_iter().flatten().map(state).collect::<Vec<_>>().join("\n")
        }
        _ => item["status"].as_str().unwrap_or_default().to_owned(),
    };
    let output =
        if output.is_empty() && failed { item["status"].as_str().unwrap_or_default().to_owned() } else { output };
    let changes = item["changes"].as_array().filter(|_| !failed).into_iter().flatten();
    ToolOutcome { output, failed, parts: changes.filter_map(change).collect() }
}

/// Returns a changed file. A new or deleted file has its content, a changed file has hunks.
pub(crate) fn change(change: &Value) -> Option<ContentPart> {
    let path = change["path"].as_str()?;
    let known = change["diff"].as_str().unwrap_or_default();
    Some(match change["kind"]["type"].as_str().or(change["kind"].as_str()) {
        Some("add") => diff::file_written(path, "", known),
        Some("delete") => diff::file_written(path, known, ""),
        _ => diff::file_patched(path, known),
    })
}
