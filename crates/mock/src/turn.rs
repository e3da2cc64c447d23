//! A turn with the model: call the model, perform its tool calls, repeat until there are none.

use std::io::Write;
use std::path::Path;

use agents::{AgentLine, LineItem};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::{Attachment, ContentPart, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};
use serde_json::{Value, json};

use crate::gateway::{self, ModelEvent};
use crate::inbox::InboxMessage;
use crate::process::MockProcess;
use crate::tool::{self, CallResult};
use crate::turn_stop::TurnStop;

/// The maximum number of model calls in one turn, to stop loops.
const MAX_CALLS_PER_TURN: usize = 64;

/// A model response, as far as it has arrived.
#[derive(Debug, Default)]
struct ModelAnswer {
    blocks: Vec<Value>,
    open: Option<OpenBlock>,
    done: bool,
}

#[derive(Debug)]
struct OpenBlock {
    block: Value,
    text: String,
    item: Option<LineItem>,
}

impl<W: Write> MockProcess<W> {
    /// Runs a turn with the model.
    pub(crate) fn run_model_turn(&mut self, text: &str, attachments: &[Attachment]) -> Result<(), TurnStop> {
        let content = user_content(text, attachments, &self.settings.workspace);
        self.history.push(json!({ "role": "user", "content": content }));
        for _ in 0..MAX_CALLS_PER_TURN {
            let blocks = self.call_model(&tool::definitions())?;
            let mut results = Vec::new();
            for block in blocks.iter().filter(|block| block["type"] == "tool_use") {
                results.push(self.perform_tool_use(block)?);
            }
            // A call and its result are added together, because the model API rejects one without the other.
            self.history.push(json!({ "role": "assistant", "content": blocks }));
            if results.is_empty() {
                return Ok(());
            }
            self.history.push(json!({ "role": "user", "content": results }));
        }
        let message = format!("the turn exceeded {MAX_CALLS_PER_TURN} model calls");
        self.printer.print_error(message, "runtime_error")?;
        Err(TurnStop::Failed)
    }

    /// Calls a model without the conversation; its items are below the open call.
    pub(crate) fn run_sub_agent(&mut self, prompt: &str) -> Result<CallResult, TurnStop> {
        let above = self.printer.parent.replace(self.printer.last_item_id());
        let prompt = json!({ "role": "user", "content": prompt });
        let history = std::mem::replace(&mut self.history, vec![prompt]);
        let answered = self.call_model(&Value::Null);
        (self.history, self.printer.parent) = (history, above);
        let words: String = answered?.iter().filter_map(|block| block["text"].as_str()).collect();
        Ok(CallResult::done(words))
    }

    /// Calls the model for a text command, without tools. A failure has no effect.
    pub(crate) fn call_model_for_command(&mut self, text: &str) -> Result<(), TurnStop> {
        self.history.push(json!({ "role": "user", "content": text }));
        match self.call_model(&Value::Null) {
            Ok(blocks) => self.history.push(json!({ "role": "assistant", "content": blocks })),
            Err(TurnStop::Failed) => {}
            Err(stop) => return Err(stop),
        }
        Ok(())
    }

    fn call_model(&mut self, tools: &Value) -> Result<Vec<Value>, TurnStop> {
        let number = self.next_number();
        let body = gateway::request(&self.settings, &self.history, tools);
        gateway::call(&self.settings, body, number, self.inbox.sender.clone());
        let mut answer = ModelAnswer::default();
        let result = self.read_answer(number, &mut answer);
        if let Some(OpenBlock { item: Some(item), .. }) = answer.open.take() {
            self.printer.complete_item(item, ItemStatus::Failed)?;
        }
        result.map(|()| answer.blocks)
    }

    /// Reads a response to its end. The gateway ends the stream after it has recorded the call.
    fn read_answer(&mut self, number: u64, answer: &mut ModelAnswer) -> Result<(), TurnStop> {
        while let Some(frame) = self.next_frame(number)? {
            if !answer.done {
                self.handle_frame(&frame, answer)?;
            }
        }
        if answer.done { Ok(()) } else { self.model_failed("the model's stream ended early", None) }
    }

    fn next_frame(&mut self, number: u64) -> Result<Option<Value>, TurnStop> {
        // Other messages in the queue are handled by `wait`.
        let event = self.wait(|message| match message {
            InboxMessage::Model(call, ModelEvent::Frame(frame)) if *call == number => Some(Ok(Some(frame.clone()))),
            InboxMessage::Model(call, ModelEvent::End) if *call == number => Some(Ok(None)),
            InboxMessage::Model(call, ModelEvent::Failed { message, status }) if *call == number => {
                Some(Err((message.clone(), *status)))
            }
            _ => None,
        })?;
        match event {
            Ok(frame) => Ok(frame),
            Err((message, status)) => self.model_failed(&message, status),
        }
    }

    fn handle_frame(&mut self, frame: &Value, answer: &mut ModelAnswer) -> Result<(), TurnStop> {
        match frame["type"].as_str().unwrap_or_default() {
            "content_block_start" => answer.open = Some(self.begin_block(&frame["content_block"])?),
            "content_block_delta" => {
                if let Some(open) = &mut answer.open {
                    self.append_to_block(open, &frame["delta"])?;
                }
            }
            "content_block_stop" => {
                if let Some(open) = answer.open.take() {
                    answer.blocks.push(self.end_block(open)?);
                }
            }
            "message_stop" => answer.done = true,
            "error" => {
                let message = frame.pointer("/error/message").and_then(Value::as_str).unwrap_or("unknown error");
                return self.model_failed(message, None);
            }
            // `ping`, `message_start`, `message_delta` and events of later versions are ignored.
            _ => {}
        }
        Ok(())
    }

    fn begin_block(&mut self, block: &Value) -> Result<OpenBlock, TurnStop> {
        let is_spoken = matches!(block["type"].as_str(), Some("text" | "thinking"));
        let mut item = is_spoken.then(|| self.printer.new_item(ItemKind::Message, ItemRole::Assistant));
        if let Some(item) = &mut item {
            // Reasoning is marked as such from the start.
            item.content = if block["type"] == "thinking" { vec![text_part(block, "")] } else { Vec::new() };
            self.printer.start_item(item)?;
        }
        Ok(OpenBlock { block: block.clone(), text: String::new(), item })
    }

    fn append_to_block(&mut self, open: &mut OpenBlock, delta: &Value) -> Result<(), TurnStop> {
        let field = match delta["type"].as_str() {
            Some("text_delta") => "text",
            Some("thinking_delta") => "thinking",
            Some("input_json_delta") => "partial_json",
            Some("signature_delta") => {
                open.block["signature"] = delta["signature"].clone();
                return Ok(());
            }
            _ => return Ok(()),
        };
        let piece = delta[field].as_str().unwrap_or_default();
        open.text.push_str(piece);
        if let Some(item) = &mut open.item {
            item.content = vec![text_part(&open.block, &open.text)];
            self.printer.print_delta(item, piece)?;
        }
        Ok(())
    }

    fn end_block(&mut self, open: OpenBlock) -> Result<Value, TurnStop> {
        let OpenBlock { mut block, text, item } = open;
        if let Some(mut item) = item {
            item.content = vec![text_part(&block, &text)];
            self.printer.complete_item(item, ItemStatus::Completed)?;
            let field = if block["type"] == "thinking" { "thinking" } else { "text" };
            block[field] = Value::String(text);
        } else if block["type"] == "tool_use" && !text.is_empty() {
            match serde_json::from_str(&text) {
                Ok(input) => block["input"] = input,
                Err(error) => return self.model_failed(&format!("invalid JSON in the input of a tool: {error}"), None),
            }
        }
        Ok(block)
    }

    fn model_failed<T>(&mut self, message: &str, status: Option<u16>) -> Result<T, TurnStop> {
        self.printer.print_line(&AgentLine::Error {
            message: message.to_owned(),
            code: Some("upstream_error".to_owned()),
            details: status.map(|status| json!({ "status": status })),
        })?;
        Err(TurnStop::Failed)
    }
}

fn text_part(block: &Value, text: &str) -> ContentPart {
    let text = text.to_owned();
    if block["type"] == "thinking" {
        ContentPart::Reasoning { text, visibility: ReasoningVisibility::Public }
    } else {
        ContentPart::Text { text }
    }
}

/// Returns the prompt for the model. It names the attached files and contains the attached images.
fn user_content(text: &str, attachments: &[Attachment], workspace: &Path) -> Value {
    let text = attachments.iter().fold(text.to_owned(), |text, file| format!("{text}\n[attached: {}]", file.path));
    let images: Vec<Value> = attachments.iter().filter_map(|file| image_block(file, workspace)).collect();
    if images.is_empty() {
        return Value::String(text);
    }
    let words = json!({ "type": "text", "text": text });
    std::iter::once(words).chain(images).collect()
}

fn image_block(file: &Attachment, workspace: &Path) -> Option<Value> {
    let mime = file.mime.as_deref().filter(|mime| mime.starts_with("image/"))?;
    let data = STANDARD.encode(std::fs::read(workspace.join(&file.path)).ok()?);
    Some(json!({ "type": "image", "source": { "type": "base64", "media_type": mime, "data": data } }))
}
