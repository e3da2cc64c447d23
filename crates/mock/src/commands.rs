//! What the text commands do.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use agents::PermissionMode;
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus, ReasoningVisibility};
use serde_json::{Value, json};

use crate::ProcessEnd;
use crate::agent::Agent;
use crate::stop::Stop;
use crate::text_command::{Action, TABLE, TextCommand};
use crate::tool::Outcome;

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

/// Two questions with all that questions of agents have.
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

impl<W: Write> Agent<W> {
    /// Carries out a text command; most ask the model for a word first, as every turn does.
    pub(crate) fn obey(&mut self, command: &TextCommand) -> Result<(), Stop> {
        if command.action.asks_model() {
            self.comment(&command.text)?;
        }
        self.carry_out(command)
    }

    fn carry_out(&mut self, command: &TextCommand) -> Result<(), Stop> {
        match command.action {
            Action::Help => Ok(self.voice.speak([help().as_str()])?),
            Action::Demo => self.demo(),
            Action::Echo => Ok(self.voice.speak([command.argument_or("…")])?),
            Action::Markdown => Ok(self.voice.speak(MARKDOWN.iter().copied())?),
            Action::Reasoning => self.think("First I look, then I leap."),
            Action::Status => self.tell(ItemKind::Status, vec![status("Working", Some("half way"))]),
            Action::Image => self.draw(),
            Action::Plan => self.plan(),
            Action::Tool => self.use_tool("echo", &json!({ "text": command.argument_or("ping") })),
            Action::File => self.file(command.argument_or("mock-note.md")),
            Action::Run => self.run(command.argument_or("true")),
            Action::Permission => self.run("true"),
            Action::Fetch => self.use_tool("fetch", &json!({ "url": command.argument_or("http://example.com/") })),
            Action::Mcp => self.pretend("mcp__weather__forecast", &json!({ "city": "Ghent" }), "rain"),
            Action::Subagent => self.delegate(),
            Action::Question => self.use_tool(
                "ask_user",
                &json!({ "question": command.argument_or("Which colour?"), "options": ["red", "blue"] }),
            ),
            Action::Questions => self.use_tool("ask_user_questions", &json!({ "questions": questions() })),
            Action::Error => {
                self.voice.error(command.argument_or("an error on demand"), "runtime_error")?;
                Err(Stop::Failed)
            }
            _ => self.misbehave(command),
        }
    }

    /// The commands for trouble.
    fn misbehave(&mut self, command: &TextCommand) -> Result<(), Stop> {
        match command.action {
            Action::Unknown => Ok(self.voice.raw(b"{\"type\":\"hologram\",\"shape\":\"cube\"}\n")?),
            Action::Unparsed => Ok(self.voice.raw(b"{\"type\":\"item_delta\",\"id\":\n")?),
            Action::Slow => self.speak_slowly(command.number(10)),
            Action::Flood => self.flood(command.number(1000)),
            Action::Garbage => {
                Ok(self.voice.raw(b"not json\n\xff\xfe\xfd\n[1,2]\n\"text\"\nnull\n{\"type\":7}\n\n{}\n")?)
            }
            Action::Bigline => self.bigline(command.number(10 * 1024 * 1024)),
            Action::Memory => self.take_memory(command.number(64 * 1024 * 1024)),
            Action::Hang => Err(Stop::Ending(ProcessEnd::Hang)),
            Action::Exit => Err(Stop::Ending(ProcessEnd::Exit(command.number(1)))),
            Action::End => self.end(),
            _ => Err(Stop::Ending(ProcessEnd::Abort)),
        }
    }

    fn demo(&mut self) -> Result<(), Stop> {
        for command in DEMO.iter().filter_map(|text| TextCommand::parse(text)) {
            self.carry_out(&command)?;
        }
        Ok(())
    }

    fn tell(&mut self, kind: ItemKind, content: Vec<ContentPart>) -> Result<(), Stop> {
        Ok(self.voice.whole(kind, ItemRole::System, content)?)
    }

    fn think(&mut self, thought: &str) -> Result<(), Stop> {
        let spoken = |text: &str| {
            vec![ContentPart::Reasoning { text: text.to_owned(), visibility: ReasoningVisibility::Public }]
        };
        let mut item = self.voice.item(ItemKind::Message, ItemRole::Assistant);
        item.content = spoken("");
        self.voice.started(&item)?;
        self.voice.delta(&item, thought)?;
        item.content = spoken(thought);
        Ok(self.voice.completed(item, ItemStatus::Completed)?)
    }

    /// A picture of one pixel, really in the workspace.
    fn draw(&mut self) -> Result<(), Stop> {
        const PIXEL: &[u8] = b"P6 1 1 255\n\x30\x80\x50";
        let path = "mock-pixel.ppm";
        if let Err(error) = std::fs::write(self.settings.workspace.join(path), PIXEL) {
            self.voice.error(format!("cannot write `{path}`: {error}"), "runtime_error")?;
            return Err(Stop::Failed);
        }
        let part = ContentPart::Image { path: path.to_owned(), mime: Some("image/x-portable-pixmap".to_owned()) };
        Ok(self.voice.whole(ItemKind::Message, ItemRole::Assistant, vec![part])?)
    }

    fn plan(&mut self) -> Result<(), Stop> {
        let texts = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>();
        self.tell_plan(&texts(&["look"]), &texts(&["write", "check"]))?;
        if self.mode == PermissionMode::Plan {
            let options = ["yes".to_owned(), "no".to_owned()];
            if self.ask_question("Carry out this plan?", &options)?.as_deref() == Some("yes") {
                self.mode = PermissionMode::Default;
            }
        }
        Ok(())
    }

    /// The steps that are done, the one it is at, and the others.
    pub(crate) fn tell_plan(&mut self, done: &[String], left: &[String]) -> Result<(), Stop> {
        let step = |text: &String, status: &str| json!({ "text": text, "status": status });
        let coming = left.iter().enumerate();
        let coming = coming.map(|(at, text)| step(text, if at == 0 { "in_progress" } else { "pending" }));
        let steps: Vec<Value> = done.iter().map(|text| step(text, "completed")).chain(coming).collect();
        let detail = format!("{} of {} done", done.len(), steps.len());
        self.tell(ItemKind::Status, vec![status("Plan", Some(&detail)), ContentPart::Json { json: steps.into() }])
    }

    fn use_tool(&mut self, name: &str, input: &Value) -> Result<(), Stop> {
        let id = format!("call_{}", self.next_number());
        self.perform(&json!({ "id": id, "name": name, "input": input })).map(|_| ())
    }

    fn file(&mut self, path: &str) -> Result<(), Stop> {
        self.use_tool("write_file", &json!({ "path": path, "content": "# Note\n\nfirst\n" }))?;
        self.use_tool("edit_file", &json!({ "path": path, "old": "first", "new": "second" }))
    }

    fn run(&mut self, words: &str) -> Result<(), Stop> {
        let command: Vec<&str> = words.split_whitespace().collect();
        self.use_tool("run_command", &json!({ "command": command }))
    }

    fn pretend(&mut self, name: &str, input: &Value, output: &str) -> Result<(), Stop> {
        let id = format!("call_{}", self.next_number());
        self.call(&id, name, input, |_| Ok(Outcome::done(output))).map(|_| ())
    }

    /// A sub-agent is a call in which other items happen.
    fn delegate(&mut self) -> Result<(), Stop> {
        let id = format!("call_{}", self.next_number());
        let parent = self.voice.next_item_id();
        self.call(&id, "task", &json!({ "prompt": "count to one" }), |agent| {
            let mut item = agent.voice.item(ItemKind::Message, ItemRole::Assistant);
            item.parent = Some(parent);
            agent.voice.started(&item)?;
            agent.voice.delta(&item, "one")?;
            item.content = vec![ContentPart::Text { text: "one".to_owned() }];
            agent.voice.completed(item, ItemStatus::Completed)?;
            Ok(Outcome::done("one"))
        })
        .map(|_| ())
    }

    fn speak_slowly(&mut self, words: usize) -> Result<(), Stop> {
        let mut item = self.voice.item(ItemKind::Message, ItemRole::Assistant);
        self.voice.started(&item)?;
        let mut text = String::new();
        for number in 1..=words {
            let word = format!("{number} ");
            self.voice.delta(&item, &word)?;
            text.push_str(&word);
            item.content = vec![ContentPart::Text { text: text.clone() }];
            if let Err(stop) = self.pause(Duration::from_millis(100)) {
                self.voice.completed(item, ItemStatus::Failed)?;
                return Err(stop);
            }
        }
        Ok(self.voice.completed(item, ItemStatus::Completed)?)
    }

    fn flood(&mut self, count: usize) -> Result<(), Stop> {
        let mut item = self.voice.item(ItemKind::Message, ItemRole::Assistant);
        self.voice.started(&item)?;
        for _ in 0..count {
            self.voice.delta(&item, "drop ")?;
        }
        item.content = vec![ContentPart::Text { text: "drop ".repeat(count) }];
        Ok(self.voice.completed(item, ItemStatus::Completed)?)
    }

    fn bigline(&mut self, bytes: usize) -> Result<(), Stop> {
        const CHUNK: [u8; 4096] = [b'x'; 4096];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(CHUNK.len());
            self.voice.raw(&CHUNK[..now])?;
            left -= now;
        }
        Ok(self.voice.raw(b"\n")?)
    }

    fn take_memory(&mut self, bytes: usize) -> Result<(), Stop> {
        // Not zeros, which the kernel would promise without giving them.
        let taken = std::hint::black_box(vec![1_u8; bytes]);
        self.voice.speak([format!("I hold {} bytes.", taken.len()).as_str()])?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        self.voice.speak(["Good bye."])?;
        self.voice.say(&agents::AgentLine::TurnEnded { outcome: protocol::TurnOutcome::Completed })?;
        Err(Stop::Ending(ProcessEnd::Exit(0)))
    }
}

fn status(label: &str, detail: Option<&str>) -> ContentPart {
    ContentPart::Status { label: label.to_owned(), detail: detail.map(str::to_owned) }
}

fn help() -> String {
    TABLE.iter().fold(String::new(), |mut text, (name, _, about)| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "/{name} {about}");
        text
    })
}
