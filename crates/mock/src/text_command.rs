//! The text commands: their names, and what a person is told of each.

/// What a text command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandAction {
    Help,
    Demo,
    Echo,
    Markdown,
    Reasoning,
    Status,
    Image,
    Plan,
    Tool,
    File,
    Run,
    Fetch,
    Mcp,
    Subagent,
    Permission,
    Question,
    Questions,
    Error,
    Unknown,
    Unparsed,
    Slow,
    Flood,
    Garbage,
    Bigline,
    Memory,
    Crash,
    Hang,
    Exit,
    End,
}

/// Every text command: its name, what it does, and what a person is told.
pub(crate) const TEXT_COMMANDS: &[(&str, CommandAction, &str)] = &[
    ("help", CommandAction::Help, "lists the text commands"),
    ("demo", CommandAction::Demo, "one of every item that harms nobody"),
    ("echo", CommandAction::Echo, "says WORDS"),
    ("markdown", CommandAction::Markdown, "a message with headings, lists and code"),
    ("reasoning", CommandAction::Reasoning, "a thought"),
    ("status", CommandAction::Status, "a status"),
    ("image", CommandAction::Image, "a picture in the workspace"),
    ("plan", CommandAction::Plan, "a plan; in plan mode asks whether to carry it out"),
    ("tool", CommandAction::Tool, "a tool call and its result"),
    ("file", CommandAction::File, "writes PATH (mock-note.md), then edits it"),
    ("run", CommandAction::Run, "runs PROGRAM ARGUMENTS…, after asking"),
    ("fetch", CommandAction::Fetch, "tries to reach URL (http://example.com/)"),
    ("mcp", CommandAction::Mcp, "a call of an MCP server's tool"),
    ("subagent", CommandAction::Subagent, "a sub-agent at work, its items below its call"),
    ("permission", CommandAction::Permission, "asks for a permission"),
    ("question", CommandAction::Question, "asks a question"),
    (
        "questions",
        CommandAction::Questions,
        "asks two at once, with headers and descriptions; of the second several may be chosen",
    ),
    ("error", CommandAction::Error, "an error; the turn fails"),
    ("unknown", CommandAction::Unknown, "a line of a type nobody knows"),
    ("unparsed", CommandAction::Unparsed, "half a line"),
    ("slow", CommandAction::Slow, "N words (10), a tenth of a second apart"),
    ("flood", CommandAction::Flood, "N deltas (1000) as fast as they go"),
    ("garbage", CommandAction::Garbage, "lines that are neither JSON nor UTF-8"),
    ("bigline", CommandAction::Bigline, "one line of N bytes (10485760)"),
    ("memory", CommandAction::Memory, "takes N bytes of memory (67108864) and uses them"),
    ("crash", CommandAction::Crash, "aborts the process"),
    ("hang", CommandAction::Hang, "lives on and hears nothing any more"),
    ("exit", CommandAction::Exit, "ends the process with code N (1) in the middle of the turn"),
    ("end", CommandAction::End, "ends the turn, then the session"),
];

/// A prompt that is a text command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextCommand {
    pub(crate) action: CommandAction,
    /// What stands after the name.
    pub(crate) argument: String,
    /// The whole prompt.
    pub(crate) text: String,
}

impl TextCommand {
    /// A prompt that begins with `/` and one of our names; any other prompt is for the model.
    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let text = prompt.trim();
        let rest = text.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (_, action, _) = TEXT_COMMANDS.iter().find(|(known, ..)| *known == name)?;
        Some(Self { action: *action, argument: argument.trim().to_owned(), text: text.to_owned() })
    }

    /// The argument as a number, or `default` when there is none that can be read.
    pub(crate) fn number<N: std::str::FromStr>(&self, default: N) -> N {
        self.argument.parse().unwrap_or(default)
    }

    /// The argument, or `default` when there is none.
    pub(crate) fn argument_or<'a>(&'a self, default: &'a str) -> &'a str {
        if self.argument.is_empty() { default } else { &self.argument }
    }
}

impl CommandAction {
    /// Whether the model is asked as in every turn: not where the point is what happens without it.
    pub(crate) fn asks_model(self) -> bool {
        !matches!(
            self,
            Self::Help
                | Self::Echo
                | Self::Slow
                | Self::Flood
                | Self::Garbage
                | Self::Bigline
                | Self::Memory
                | Self::Crash
                | Self::Hang
                | Self::Exit
                | Self::End
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_commands() {
        let command = TextCommand::parse(" /flood  12 ").unwrap();
        assert_eq!((command.action, command.number(1000)), (CommandAction::Flood, 12));
        for prompt in ["hello", "/usr/bin is what?", "/", "say /help", "/helpme"] {
            assert_eq!(TextCommand::parse(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn the_document_lists_every_command_as_it_is() {
        let document = include_str!("../../../docs/mock-agent.md");
        let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `/")).collect();
        let ours: Vec<String> = TEXT_COMMANDS.iter().map(|(name, _, about)| format!("| `/{name}` | {about} |")).collect();
        assert_eq!(rows, ours);
    }
}
