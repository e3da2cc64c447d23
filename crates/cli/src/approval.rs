//! A permission request as a person must see it before answering.
//!
//! Nothing is shortened or hidden: the whole command, the diff of an edit, every other field of the input, the rule that
//! asks, and the requests that `always` would allow. Unsafe characters are shown in escaped form.
//!
//! Not here: showing the lines and reading the answer (`prompter`).

use ::agents::{RequestedChange, requested_changes};
use base::PrintableText;
use protocol::Permission;
use serde_json::{Map, Value};

use crate::shell_word::shell_word;

/// Input fields that repeat the command.
const COMMAND: &str = "command";

/// A permission request, ready to be shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Approval {
    /// The agent's name of the action.
    pub(crate) action: PrintableText,
    /// The whole request, line by line.
    pub(crate) lines: Vec<ApprovalLine>,
    /// The rule that asks, and the requests that `always` would allow.
    pub(crate) terms: Vec<PrintableText>,
}

/// One line of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalLine {
    /// Style of the line, or an empty text.
    pub(crate) style: &'static str,
    pub(crate) text: PrintableText,
}

impl Approval {
    /// Returns everything that a person needs to answer `permission`.
    pub(crate) fn of(permission: &Permission) -> Self {
        let request = RequestFields { permission };
        let terms = [format!("rule: {}", request.asking_rule()), format!("always: {}", request.always())];
        Self {
            action: PrintableText::exact_line(&permission.action),
            lines: request.lines(),
            terms: terms.iter().map(|text| PrintableText::exact_line(text)).collect(),
        }
    }

    /// Returns the action and the whole request as text, for a list of events.
    pub(crate) fn text(&self) -> PrintableText {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.text.as_str()).collect();
        let first = lines.first().copied().map(|line| line.strip_prefix("$ ").unwrap_or(line)).unwrap_or_default();
        let rest = lines.iter().skip(1).map(|line| format!("\n{line}")).collect::<String>();
        PrintableText::exact(format!("{} {first}{rest}", self.action).trim_end())
    }
}

/// Returns the whole request on one line, for a table.
pub(crate) fn summary(permission: &Permission) -> PrintableText {
    let request = RequestFields { permission };
    let (changes, _) = requested_changes(permission);
    let what = match (request.command(), request.title()) {
        (Some(command), _) => command,
        (None, _) if !changes.is_empty() => {
            changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>().join(", ")
        }
        (None, Some(title)) => title.to_owned(),
        (None, None) => request.field("input").map(Value::to_string).unwrap_or_default(),
    };
    PrintableText::exact_line(format!("{} {what}", permission.action).trim_end())
}

/// Access to the metadata of a request.
struct RequestFields<'a> {
    permission: &'a Permission,
}

impl<'a> RequestFields<'a> {
    fn field(&self, name: &str) -> Option<&'a Value> {
        self.permission.metadata.as_ref()?.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.field(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// Returns the title of the call, which for some agents is the command.
    fn title(&self) -> Option<&'a str> {
        self.text("title")
    }

    /// Returns the command line. Words that a shell would split are quoted.
    fn command(&self) -> Option<String> {
        let command = self.field("input").and_then(|input| input.get(COMMAND)).or_else(|| self.field(COMMAND));
        match command {
            Some(Value::String(line)) => Some(line.clone()),
            Some(Value::Array(words)) => {
                let words = words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), shell_word));
                Some(words.collect::<Vec<_>>().join(" "))
            }
            // Some agents send no input and put the command in the title.
            None if self.permission.action == "execute" && self.field("input").is_none_or(is_empty) => {
                self.title().map(str::to_owned)
            }
            _ => None,
        }
    }

    fn lines(&self) -> Vec<ApprovalLine> {
        let (changes, mut others) = requested_changes(self.permission);
        let mut lines = Vec::new();
        match self.command() {
            Some(command) => {
                others.remove(COMMAND);
                lines.extend(plain(&format!("$ {command}")));
            }
            None if changes.is_empty() => lines.extend(self.title().into_iter().flat_map(plain)),
            None => {}
        }
        for change in &changes {
            lines.extend(diff_lines(change));
        }
        lines.extend(field_lines(&others));
        for name in ["cwd", "blocked_path", "description", "reason"] {
            if let Some(text) = self.text(name).filter(|text| others.get(name).and_then(Value::as_str) != Some(text)) {
                lines.extend(plain(&format!("{name}: {text}")));
            }
        }
        // Data in a form that no agent sends today is shown as it is.
        let others = [self.permission.metadata.as_ref(), self.field("input")].into_iter().flatten();
        lines.extend(
            others.filter(|data| !data.is_object() && !data.is_null()).flat_map(|data| plain(&data.to_string())),
        );
        lines
    }

    fn asking_rule(&self) -> String {
        match self.text("asked_by") {
            Some(rule) => rule.to_owned(),
            None => "the agent asks; no rule of the policy decides".to_owned(),
        }
    }

    /// Describes the later requests that the answer `always` allows.
    fn always(&self) -> String {
        let Some(pattern) = session::grant_pattern(self.permission) else {
            return "the same as yes once, because a later request cannot be recognized".to_owned();
        };
        let tool = pattern["tool"].as_str().unwrap_or(&self.permission.action).to_owned();
        let scope = "until the session ends";
        if let Some(path) = pattern["path"].as_str() {
            return format!("every change of `{path}` by {tool}, {scope}");
        }
        if let Some(paths) = pattern["paths"].as_array() {
            let paths: Vec<String> = paths.iter().map(|path| path.as_str().unwrap_or_default().to_owned()).collect();
            return format!("every change of `{}` by {tool}, {scope}", paths.join("`, `"));
        }
        let mut input = pattern["input"].as_object().cloned().unwrap_or_default();
        if self.command().is_some() && (input.remove(COMMAND).is_some() || pattern["title"].is_string()) {
            let with = if input.is_empty() { String::new() } else { format!(" with {}", Value::Object(input)) };
            return format!("exactly this command{with} by {tool}, {scope}");
        }
        format!("exactly {pattern}, {scope}")
    }
}

fn is_empty(input: &Value) -> bool {
    input.as_object().is_some_and(Map::is_empty)
}

fn plain(text: &str) -> Vec<ApprovalLine> {
    styled(text, |_| "")
}

fn styled(text: &str, style: impl Fn(&str) -> &'static str) -> Vec<ApprovalLine> {
    let line = |line: &str| ApprovalLine { style: style(line), text: PrintableText::exact(line) };
    // A carriage return stays visible, because it could hide the line before it.
    text.split('\n').map(line).collect()
}

fn diff_lines(change: &RequestedChange) -> Vec<ApprovalLine> {
    let mut lines = plain(&change.path);
    if change.path.is_empty() {
        lines.clear();
    }
    let style = |line: &str| match line.as_bytes().first() {
        Some(b'+') => "\x1b[32m",
        Some(b'-') => "\x1b[31m",
        _ => "",
    };
    lines.extend(styled(change.diff.trim_end_matches('\n'), style));
    lines
}

/// Returns the fields of an input, each with its whole value.
fn field_lines(fields: &Map<String, Value>) -> Vec<ApprovalLine> {
    let line = |(name, value): (&String, &Value)| match value {
        Value::String(text) => plain(&format!("{name}: {text}")),
        value => plain(&format!("{name}: {value:#}")),
    };
    fields.iter().flat_map(line).collect()
}

#[cfg(test)]
mod tests {
    use protocol::PermissionStatus;
    use serde_json::json;

    use super::*;

    fn permission(action: &str, metadata: Value) -> Permission {
        Permission {
            permission_id: "perm_1".parse().unwrap(),
            action: action.into(),
            status: PermissionStatus::Requested,
            metadata: Some(metadata),
        }
    }

    #[track_caller]
    fn check(permission: &Permission, lines: &[&str], terms: [&str; 2]) {
        let approval = Approval::of(permission);
        let shown: Vec<&str> = approval.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(shown, lines);
        assert_eq!(approval.terms.iter().map(PrintableText::as_str).collect::<Vec<_>>(), terms);
    }

    const AGENT: &str = "rule: the agent asks; no rule of the policy decides";

    #[test]
    fn the_whole_command_is_shown() {
        let long = format!("echo {}; rm -rf ./HIDDEN", "x".repeat(500));
        let input = json!({"command": long, "timeout": 5});
        let pattern = json!({"tool": "Bash", "input": {"command": long, "timeout": 5}});
        let asked = permission("Bash", json!({"tool": "Bash", "input": input, "pattern": pattern}));
        let always = r#"always: exactly this command with {"timeout":5} by Bash, until the session ends"#;
        check(&asked, &[&format!("$ {long}"), "timeout: 5"], [AGENT, always]);
        assert!(summary(&asked).as_str().ends_with("rm -rf ./HIDDEN"));
        let words = json!({"input": {"command": ["sh", "-c", "rm -rf 'a b'\n"]}});
        let shown = Approval::of(&permission("run_command", words));
        assert_eq!(shown.text().as_str(), "run_command sh -c 'rm -rf '\\''a b'\\''\n'");
    }

    #[test]
    fn a_command_in_the_title_is_shown() {
        let asked = json!({"tool": "execute", "title": "rm -rf x", "input": null, "asked_by": "tools.ask (p.yaml:7)",
            "pattern": {"tool": "execute", "title": "rm -rf x"}});
        let always = "always: exactly this command by execute, until the session ends";
        check(&permission("execute", asked), &["$ rm -rf x"], ["rule: tools.ask (p.yaml:7)", always]);
    }

    #[test]
    fn an_edit_is_shown_as_a_diff() {
        let input = json!({"file_path": "/w/a", "old_string": "one\n", "new_string": "two\n", "replace_all": true});
        let pattern = json!({"tool": "Edit", "path": "/w/a"});
        let asked = permission("Edit", json!({"tool": "Edit", "input": input, "pattern": pattern}));
        let lines = ["/w/a", "--- a/w/a", "+++ b/w/a", "@@ -1 +1 @@", "-one", "+two", "replace_all: true"];
        check(&asked, &lines, [AGENT, "always: every change of `/w/a` by Edit, until the session ends"]);
        assert_eq!(summary(&asked).as_str(), "Edit /w/a");
    }

    #[test]
    fn hostile_characters_are_visible_and_never_act() {
        let command = "ls\r\x1b[2Kecho safe\u{202e}\u{200b}\u{9b}8m";
        let asked = permission("Bash", json!({"input": {"command": command}}));
        let shown = Approval::of(&asked);
        assert_eq!(shown.lines[0].text.as_str(), "$ ls^M^[[2Kecho safe<U+202E><U+200B><U+009B>8m");
        let named = permission("Ba\x1b]0;t\x07sh", json!({"input": {"x": "a\u{2066}"}}));
        assert_eq!(Approval::of(&named).action.as_str(), "Ba^[]0;t^Gsh");
        assert_eq!(summary(&named).as_str(), "Ba^[]0;t^Gsh {\"x\":\"a<U+2066>\"}");
    }

    #[test]
    fn a_request_that_cannot_be_recognized_again_says_so() {
        let always = "always: the same as yes once, because a later request cannot be recognized";
        check(&permission("Tool", Value::Null), &[], [AGENT, always]);
        check(&permission("Tool", json!("text")), &["\"text\""], [AGENT, always]);
    }
}
