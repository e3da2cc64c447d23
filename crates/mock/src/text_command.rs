//! The text commands, with their names and descriptions.

/// The action of a text command.
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
    Stderr,
    Permissions,
    Garbage,
    Bigline,
    Memory,
    Crash,
    Hang,
    Exit,
    End,
}

/// All text commands: name, action and description.
pub(crate) const TEXT_COMMANDS: &[(&str, CommandAction, &str)] = &[
    ("help", CommandAction::Help, "list the text commands"),
    ("demo", CommandAction::Demo, "show one item of every harmless kind"),
    ("echo", CommandAction::Echo, "say WORDS"),
    ("markdown", CommandAction::Markdown, "send a message with headings, lists and code"),
    ("reasoning", CommandAction::Reasoning, "send reasoning"),
    ("status", CommandAction::Status, "send a status"),
    ("image", CommandAction::Image, "write an image to the workspace"),
    ("plan", CommandAction::Plan, "send a plan; in plan mode ask for its approval"),
    ("tool", CommandAction::Tool, "call a tool and send its result"),
    ("file", CommandAction::File, "write PATH (mock-note.md), then edit it"),
    ("run", CommandAction::Run, "run PROGRAM ARGUMENTS…, after asking for permission"),
    ("fetch", CommandAction::Fetch, "try to reach URL (http://example.com/)"),
    ("mcp", CommandAction::Mcp, "call a tool of an MCP server"),
    ("subagent", CommandAction::Subagent, "run a sub-agent, with its items below its call"),
    ("permission", CommandAction::Permission, "request a permission"),
    ("question", CommandAction::Question, "ask a question"),
    (
        "questions",
        CommandAction::Questions,
        "ask two questions at once, with headers and descriptions; the second is multiple choice",
    ),
    ("error", CommandAction::Error, "report an error and fail the turn"),
    ("unknown", CommandAction::Unknown, "print a line of an unknown type"),
    ("unparsed", CommandAction::Unparsed, "print an incomplete line"),
    ("slow", CommandAction::Slow, "send N words (10), a tenth of a second apart"),
    ("flood", CommandAction::Flood, "send N deltas (1000) as fast as possible"),
    ("stderr", CommandAction::Stderr, "print N lines (1000) of a thousand bytes to stderr"),
    ("permissions", CommandAction::Permissions, "request N permissions (100) at once"),
    ("garbage", CommandAction::Garbage, "print lines that are neither JSON nor UTF-8"),
    ("bigline", CommandAction::Bigline, "print one line of N bytes (10485760)"),
    ("memory", CommandAction::Memory, "allocate N bytes of memory (67108864) and use them"),
    ("crash", CommandAction::Crash, "abort the process"),
    ("hang", CommandAction::Hang, "stop responding without exiting"),
    ("exit", CommandAction::Exit, "exit with code N (1) during the turn"),
    ("end", CommandAction::End, "end the turn, then the session"),
];

/// A prompt that is a text command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextCommand {
    pub(crate) action: CommandAction,
    /// The text after the name.
    pub(crate) argument: String,
    /// The whole prompt.
    pub(crate) text: String,
}

impl TextCommand {
    /// Parses a prompt that starts with `/` and the name of a command; other prompts are for the model.
    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let text = prompt.trim();
        let rest = text.strip_prefix('/')?;
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (_, action, _) = TEXT_COMMANDS.iter().find(|(known, ..)| *known == name)?;
        Some(Self { action: *action, argument: argument.trim().to_owned(), text: text.to_owned() })
    }

    /// Returns the argument as a number, or `default` if it is not one.
    pub(crate) fn number<N: std::str::FromStr>(&self, default: N) -> N {
        self.argument.parse().unwrap_or(default)
    }

    /// Returns the argument, or `default` if it is empty.
    pub(crate) fn argument_or<'a>(&'a self, default: &'a str) -> &'a str {
        if self.argument.is_empty() { default } else { &self.argument }
    }
}

impl CommandAction {
    /// Returns whether the command calls the model first. Commands that test a fault do not.
    pub(crate) fn asks_model(self) -> bool {
        !matches!(
            self,
            Self::Help
                | Self::Echo
                | Self::Slow
                | Self::Flood
                | Self::Stderr
                | Self::Permissions
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
    fn only_known_names_are_commands() {
        let command = TextCommand::parse(" /flood  12 ").unwrap();
        assert_eq!((command.action, command.number(1000)), (CommandAction::Flood, 12));
        for prompt in ["hello", "/usr/bin is what?", "/", "say /help", "/helpme"] {
            assert_eq!(TextCommand::parse(prompt), None, "{prompt}");
        }
    }

    #[test]
    fn document_lists_every_command() {
        let document = include_str!("../../../docs/mock-agent.md");
        let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `/")).collect();
        let ours: Vec<String> =
            TEXT_COMMANDS.iter().map(|(name, _, about)| format!("| `/{name}` | {about} |")).collect();
        assert_eq!(rows, ours);
    }
}
