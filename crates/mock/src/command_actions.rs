//! Actions of the text commands.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use agents::PermissionMode;
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};
use serde_json::{Value, json};

use crate::ProcessEnd;
use crate::process::MockProcess;
use crate::text_command::{CommandAction, TEXT_COMMANDS, TextCommand};
use crate::tool::CallResult;
use crate::turn_stop::TurnStop;

const MARKDOWN: &[&str] = &[
    "# A heading\n\n",
    "Some *words*, a list:\n\n- one\n- two\n\n",
    "```rust\nfn main() {}\n```\n\n",
    "| a | b |\n| --- | --- |\n| 1 | 2 |\n",
];
const DEMO: &[&str] = &[
    "/echo Hello from the mock agent.",
    "/reasoning",
    "/status",
    "/plan",
    "/markdown",
    "/image",
    "/tool",
    "/file",
    "/mcp",
    "/subagent",
    "/unknown",
];

fn print_to_stderr(lines: usize) -> Result<(), TurnStop> {
    let (line, mut stderr) = (format!("{}\n", "x".repeat(999)), std::io::stderr().lock());
    Ok((0..lines).try_for_each(|_| stderr.write_all(line.as_bytes()))?)
}

/// Two questions with all optional fields.
fn questions() -> Value {
    let option = |label: &str, description: &str| json!({ "label": label, "description": description });
    json!([
        {
            "question": "Which colour?", "header": "Colour", "multiSelect": false,
            "options": [option("red", "like a brick"), option("blue", "like the sea")],
        },
        {
            "question": "Which sizes?", "header": "Sizes", "multiSelect": true,
            "options": [option("small", "for a pocket"), option("large", "for a wall")],
        },
    ])
}

impl<W: Write> MockProcess<W> {
    /// Runs a text command. Most commands call the model first, as every turn does.
    pub(crate) fn run_text_command(&mut self, command: &TextCommand) -> Result<(), TurnStop> {
        if command.action.asks_model() {
            self.call_model_for_command(&command.text)?;
        }
        self.perform_command(command)
    }

    fn perform_command(&mut self, command: &TextCommand) -> Result<(), TurnStop> {
        match command.action {
            CommandAction::Help => Ok(self.printer.print_message([help().as_str()])?),
            CommandAction::Demo => self.demo(),
            CommandAction::Echo => Ok(self.printer.print_message([command.argument_or("…")])?),
            CommandAction::Markdown => Ok(self.printer.print_message(MARKDOWN.iter().copied())?),
            CommandAction::Reasoning => self.print_reasoning("First I look, then I leap."),
            CommandAction::Status => {
                self.print_system_item(ItemKind::Status, vec![status("Working", Some("half way"))])
            }
            CommandAction::Image => self.write_image(),
            CommandAction::Plan => self.print_example_plan(),
            CommandAction::Tool => self.use_tool("echo", &json!({ "text": command.argument_or("ping") })),
            CommandAction::File => self.file(command.argument_or("mock-note.md")),
            CommandAction::Run => self.run_command(command.argument_or("true")),
            CommandAction::Permission => self.run_command("true"),
            CommandAction::Fetch => {
                self.use_tool("fetch", &json!({ "url": command.argument_or("http://example.com/") }))
            }
            CommandAction::Mcp => self.print_fake_call("mcp__weather__forecast", &json!({ "city": "Ghent" }), "rain"),
            CommandAction::Subagent => self.print_fake_sub_agent(),
            CommandAction::Question => self.use_tool(
                "ask_user",
                &json!({ "question": command.argument_or("Which colour?"), "options": ["red", "blue"] }),
            ),
            CommandAction::Questions => self.use_tool("ask_user_questions", &json!({ "questions": questions() })),
            CommandAction::Error => {
                self.printer.print_error(command.argument_or("an error on demand"), "runtime_error")?;
                Err(TurnStop::Failed)
            }
            _ => self.perform_fault(command),
        }
    }

    /// Runs a command that simulates a fault.
    fn perform_fault(&mut self, command: &TextCommand) -> Result<(), TurnStop> {
        match command.action {
            CommandAction::Unknown => Ok(self.printer.print_bytes(b"{\"type\":\"hologram\",\"shape\":\"cube\"}\n")?),
            CommandAction::Unparsed => Ok(self.printer.print_bytes(b"{\"type\":\"item_delta\",\"id\":\n")?),
            CommandAction::Slow => self.print_slowly(command.number(10)),
            CommandAction::Flood => self.print_flood(command.number(1000)),
            CommandAction::Stderr => print_to_stderr(command.number(1000)),
            CommandAction::Permissions => self.ask_permissions(command.number(100)),
            CommandAction::Garbage => {
                Ok(self.printer.print_bytes(b"not json\n\xff\xfe\xfd\n[1,2]\n\"text\"\nnull\n{\"type\":7}\n\n{}\n")?)
            }
            CommandAction::Bigline => self.print_long_line(command.number(10 * 1024 * 1024)),
            CommandAction::Memory => self.allocate_memory(command.number(64 * 1024 * 1024)),
            CommandAction::Hang => Err(TurnStop::ProcessEnds(ProcessEnd::Hang)),
            CommandAction::Exit => Err(TurnStop::ProcessEnds(ProcessEnd::Exit(command.number(1)))),
            CommandAction::End => self.end_session(),
            _ => Err(TurnStop::ProcessEnds(ProcessEnd::Abort)),
        }
    }

    fn demo(&mut self) -> Result<(), TurnStop> {
        for command in DEMO.iter().filter_map(|text| TextCommand::parse(text)) {
            self.perform_command(&command)?;
        }
        Ok(())
    }

    fn print_system_item(&mut self, kind: ItemKind, content: Vec<ContentPart>) -> Result<(), TurnStop> {
        Ok(self.printer.print_item(kind, ItemRole::System, content)?)
    }

    fn print_reasoning(&mut self, thought: &str) -> Result<(), TurnStop> {
        let part = |text: &str| {
            vec![ContentPart::Reasoning { text: text.to_owned(), visibility: ReasoningVisibility::Public }]
        };
        let mut item = self.printer.new_item(ItemKind::Message, ItemRole::Assistant);
        item.content = part("");
        self.printer.start_item(&item)?;
        self.printer.print_delta(&item, thought)?;
        item.content = part(thought);
        Ok(self.printer.complete_item(item, ItemStatus::Completed)?)
    }

    /// Writes an image of one pixel to the workspace and prints it as an item.
    fn write_image(&mut self) -> Result<(), TurnStop> {
        const PIXEL: &[u8] = b"P6 1 1 255\n\x30\x80\x50";
        let path = "mock-pixel.ppm";
        if let Err(error) = std::fs::write(self.settings.workspace.join(path), PIXEL) {
            self.printer.print_error(format!("cannot write `{path}`: {error}"), "runtime_error")?;
            return Err(TurnStop::Failed);
        }
        let part = ContentPart::Image { path: path.to_owned(), mime: Some("image/x-portable-pixmap".to_owned()) };
        Ok(self.printer.print_item(ItemKind::Message, ItemRole::Assistant, vec![part])?)
    }

    fn print_example_plan(&mut self) -> Result<(), TurnStop> {
        let texts = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        self.print_plan(&texts(&["look"]), &texts(&["write", "check"]))?;
        if self.mode == PermissionMode::Plan {
            let options = ["yes".to_owned(), "no".to_owned()];
            if self.ask_question("Carry out this plan?", &options)?.as_deref() == Some("yes") {
                self.mode = PermissionMode::Default;
            }
        }
        Ok(())
    }

    /// Prints a plan: the finished steps, the current one, and the others.
    pub(crate) fn print_plan(&mut self, done: &[String], left: &[String]) -> Result<(), TurnStop> {
        let step = |text: &String, status: &str| json!({ "text": text, "status": status });
        let coming = left.iter().enumerate();
        let coming = coming.map(|(at, text)| step(text, if at == 0 { "in_progress" } else { "pending" }));
        let steps: Vec<Value> = done.iter().map(|text| step(text, "completed")).chain(coming).collect();
        let detail = format!("{} of {} done", done.len(), steps.len());
        self.print_system_item(
            ItemKind::Status,
            vec![status("Plan", Some(&detail)), ContentPart::Json { json: steps.into() }],
        )
    }

    fn use_tool(&mut self, name: &str, input: &Value) -> Result<(), TurnStop> {
        let id = format!("call_{}", self.next_number());
        self.perform_tool_use(&json!({ "id": id, "name": name, "input": input })).map(|_| ())
    }

    fn file(&mut self, path: &str) -> Result<(), TurnStop> {
        self.use_tool("write_file", &json!({ "path": path, "content": "# Note\n\nfirst\n" }))?;
        self.use_tool("edit_file", &json!({ "path": path, "old": "first", "new": "second" }))
    }

    fn run_command(&mut self, words: &str) -> Result<(), TurnStop> {
        let command: Vec<&str> = words.split_whitespace().collect();
        self.use_tool("run_command", &json!({ "command": command }))
    }

    fn print_fake_call(&mut self, name: &str, input: &Value, output: &str) -> Result<(), TurnStop> {
        let id = format!("call_{}", self.next_number());
        self.call(&id, name, input, |_| Ok(CallResult::done(output))).map(|_| ())
    }

    /// Prints a sub-agent, which is a call with other items below it.
    fn print_fake_sub_agent(&mut self) -> Result<(), TurnStop> {
        let id = format!("call_{}", self.next_number());
        let parent = self.printer.next_item_id();
        self.call(&id, "task", &json!({ "prompt": "count to one" }), |agent| {
            let mut item = agent.printer.new_item(ItemKind::Message, ItemRole::Assistant);
            item.parent = Some(parent);
            agent.printer.start_item(&item)?;
            agent.printer.print_delta(&item, "one")?;
            item.content = vec![ContentPart::Text { text: "one".to_owned() }];
            agent.printer.complete_item(item, ItemStatus::Completed)?;
            Ok(CallResult::done("one"))
        })
        .map(|_| ())
    }

    fn print_slowly(&mut self, words: usize) -> Result<(), TurnStop> {
        let mut item = self.printer.new_item(ItemKind::Message, ItemRole::Assistant);
        self.printer.start_item(&item)?;
        let mut text = String::new();
        for number in 1..=words {
            let word = format!("{number} ");
            self.printer.print_delta(&item, &word)?;
            text.push_str(&word);
            item.content = vec![ContentPart::Text { text: text.clone() }];
            if let Err(stop) = self.pause(Duration::from_millis(100)) {
                self.printer.complete_item(item, ItemStatus::Failed)?;
                return Err(stop);
            }
        }
        Ok(self.printer.complete_item(item, ItemStatus::Completed)?)
    }

    fn print_flood(&mut self, count: usize) -> Result<(), TurnStop> {
        let mut item = self.printer.new_item(ItemKind::Message, ItemRole::Assistant);
        self.printer.start_item(&item)?;
        for _ in 0..count {
            self.printer.print_delta(&item, "drop ")?;
        }
        item.content = vec![ContentPart::Text { text: "drop ".repeat(count) }];
        Ok(self.printer.complete_item(item, ItemStatus::Completed)?)
    }

    fn print_long_line(&mut self, bytes: usize) -> Result<(), TurnStop> {
        const CHUNK: [u8; 4096] = [b'x'; 4096];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(CHUNK.len());
            self.printer.print_bytes(&CHUNK[..now])?;
            left -= now;
        }
        Ok(self.printer.print_bytes(b"\n")?)
    }

    fn allocate_memory(&mut self, bytes: usize) -> Result<(), TurnStop> {
        // The bytes are not zero, because the kernel would not allocate pages of zeros.
        let allocated = std::hint::black_box(vec![1_u8; bytes]);
        self.printer.print_message([format!("I hold {} bytes.", allocated.len()).as_str()])?;
        Ok(())
    }

    fn end_session(&mut self) -> Result<(), TurnStop> {
        self.printer.print_message(["Good bye."])?;
        self.printer.print_line(&agents::AgentLine::TurnEnded { outcome: protocol::TurnOutcome::Completed })?;
        Err(TurnStop::ProcessEnds(ProcessEnd::Exit(0)))
    }
}

fn status(label: &str, detail: Option<&str>) -> ContentPart {
    ContentPart::Status { label: label.to_owned(), detail: detail.map(str::to_owned) }
}

fn help() -> String {
    TEXT_COMMANDS.iter().fold(String::new(), |mut text, (name, _, about)| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "/{name} {about}");
        text
    })
}
