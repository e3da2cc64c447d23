//! Tool calls in `tool_call`, `tool_call_update` and `session/request_permission`.

use agent_client_protocol_schema::{
    ContentBlock, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use protocol::ContentPart;
use serde_json::{Value, json};

use super::AcpDialogue;
use crate::diff;
use crate::transcript::ToolOutcome;

impl AcpDialogue {
    pub(super) fn call(&mut self, call: &ToolCallUpdate) {
        let call_id = call.tool_call_id.to_string();
        if !self.refused.remove(&call_id) {
            self.close_refused_calls();
        }
        self.begin_call(call);
        let failed = match call.fields.status {
            Some(ToolCallStatus::Completed) => false,
            Some(ToolCallStatus::Failed) => true,
            _ => return,
        };
        let parts = if failed { Vec::new() } else { files(&call.fields) };
        self.transcript.finish_call(&call_id, ToolOutcome { output: output(&call.fields), failed, parts });
    }

    /// Starts a call, or updates an open one.
    pub(super) fn begin_call(&mut self, call: &ToolCallUpdate) {
        let call_id = call.tool_call_id.to_string();
        let title = call.fields.title.as_deref().unwrap_or_default();
        let name = match call.fields.kind {
            Some(kind) if kind != ToolKind::Other => wire_name(&kind),
            _ => title.to_owned(),
        };
        let input = match &call.fields.raw_input {
            None if !title.is_empty() && !self.transcript.is_call_open(&call_id) => json!({ "title": title }),
            input => input.clone().unwrap_or_default(),
        };
        self.transcript.start_call(&call_id, &name, &input, None);
        self.transcript.set_call_files(&call_id, files(&call.fields));
    }

    /// Closes denied calls whose end the agent did not report.
    pub(super) fn close_refused_calls(&mut self) {
        for call in std::mem::take(&mut self.refused) {
            if self.transcript.is_call_open(&call) {
                let output = "permission denied by user".to_owned();
                self.transcript.finish_call(&call, ToolOutcome { output, failed: true, parts: Vec::new() });
            }
        }
    }
}

/// Returns the name of a protocol value on the wire.
pub(super) fn wire_name(word: &impl serde::Serialize) -> String {
    serde_json::to_value(word).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn files(fields: &ToolCallUpdateFields) -> Vec<ContentPart> {
    let parts = fields.content.iter().flatten();
    parts
        .filter_map(|part| match part {
            ToolCallContent::Diff(diff) => Some(diff::file_written(
                diff.path.to_str()?,
                diff.old_text.as_deref().unwrap_or_default(),
                &diff.new_text,
            )),
            _ => None,
        })
        .collect()
}

/// Returns the output of a tool, from the first field that contains it.
fn output(fields: &ToolCallUpdateFields) -> String {
    let parts = fields.content.iter().flatten();
    let words: String = parts.filter_map(words).collect();
    if !words.is_empty() {
        return words;
    }
    let raw = fields.raw_output.as_ref().unwrap_or(&Value::Null);
    let text = ["output", "content", "error", "message"].iter().find_map(|name| raw[*name].as_str());
    text.or(raw.as_str()).unwrap_or_default().to_owned()
}

fn words(part: &ToolCallContent) -> Option<&str> {
    match part {
        ToolCallContent::Content(content) => match &content.content {
            ContentBlock::Text(text) => Some(&text.text),
            _ => None,
        },
        _ => None,
    }
}
