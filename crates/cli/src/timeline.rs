//! Events of a session as readable lines.
//!
//! Text from the agent is untrusted: every line contains a [`PrintableText`].

use std::collections::HashMap;
use std::fmt::Write as _;

use base::PrintableText;
use protocol::{
    ContentPart, EgressConnection, Event, EventBody, FileAction, Item, ItemId, ItemKind, ItemRole, ItemStatus, LlmCall,
    Permission, PermissionStatus, Question, QuestionStatus, RequestMetadata, Usage,
};

use crate::approval::Approval;
use crate::shell_word::shell_word;

/// Prints events and sums their cost.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    started: Option<jiff::Timestamp>,
    calls: u64,
    usage: Usage,
    cost_picos: i64,
    /// Calls whose cost is estimated or unknown.
    inexact: Vec<LlmCall>,
    /// Number of calls to models without a known price.
    unpriced: u64,
    /// Tool calls that were shown at their start, with the arguments known then.
    called: HashMap<ItemId, String>,
    /// Whether messages of the agent are left out, because they are streamed elsewhere.
    without_messages: bool,
}

/// One printed line.
#[derive(Debug, PartialEq, Eq)]
struct TimelineLine {
    colour: &'static str,
    mark: &'static str,
    label: &'static str,
    text: PrintableText,
}

impl TimelineLine {
    fn new(colour: &'static str, mark: &'static str, label: &'static str, text: impl AsRef<str>) -> Self {
        Self { colour, mark, label, text: PrintableText::clean(text.as_ref()) }
    }

    /// Returns a line in which unsafe characters are visible: the text says what an agent does or wants to do.
    fn exact(colour: &'static str, mark: &'static str, label: &'static str, text: impl AsRef<str>) -> Self {
        Self { colour, mark, label, text: PrintableText::exact(text.as_ref()) }
    }
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const BLUE: &str = "\x1b[34m";
const DIM: &str = "\x1b[2m";

impl Timeline {
    /// Returns a timeline without the messages of the agent, which are streamed elsewhere.
    pub(crate) fn without_messages() -> Self {
        Self { without_messages: true, ..Self::default() }
    }

    /// Returns the lines of `event`; many types have none.
    pub(crate) fn render(&mut self, event: &Event) -> String {
        let shown = self.lines(&event.draft.body);
        self.layout(event, shown)
    }

    /// Returns the lines of `event` like [`Self::render`]; types without lines are shown by type and number.
    pub(crate) fn render_all(&mut self, event: &Event) -> String {
        let mut shown = self.lines(&event.draft.body);
        if shown.is_empty() {
            shown.push(TimelineLine::new(DIM, "·", "event", format!("{} {}", event.sequence, kind(event))));
        }
        self.layout(event, shown)
    }

    /// Returns the lines of one remark about `event`, laid out like its other lines.
    pub(crate) fn note(
        &mut self,
        event: &Event,
        colour: &'static str,
        mark: &'static str,
        label: &'static str,
        text: &str,
    ) -> String {
        self.layout(event, vec![TimelineLine::new(colour, mark, label, text)])
    }

    /// Returns the lines of an event. A tool call is shown at its start, before its results. Some agents send the arguments
    /// later; those are shown at its end.
    fn lines(&mut self, body: &EventBody) -> Vec<TimelineLine> {
        match body {
            EventBody::ItemStarted(event) => match arguments(&event.item) {
                Some(known) => {
                    self.called.insert(event.item.item_id.clone(), known.to_owned());
                    item(&event.item)
                }
                None => Vec::new(),
            },
            EventBody::ItemCompleted(event) => self.completed(&event.item),
            EventBody::LlmCall(call) => {
                let model = call.unpriced.as_deref().filter(|_| self.unpriced <= 1);
                model.map(unpriced_notice).into_iter().collect()
            }
            _ => lines(body),
        }
    }

    fn completed(&mut self, done: &Item) -> Vec<TimelineLine> {
        let known = self.called.remove(&done.item_id);
        // Messages of sub-agents are not streamed.
        let streamed =
            self.without_messages && done.kind == ItemKind::Message && done.role == Some(ItemRole::Assistant);
        let streamed = streamed && done.parent_id.is_none();
        let mut rest = done.clone();
        rest.content.retain(|part| match part {
            ContentPart::ToolCall { .. } => known.is_none(),
            ContentPart::Text { .. } => !streamed,
            _ => true,
        });
        let later = known.and_then(|known| arguments(done).filter(|now| is_empty(&known) && !is_empty(now)));
        let input = later.map(|now| TimelineLine::exact(DIM, "│", "input", main_argument(now)));
        input.into_iter().chain(item(&rest)).collect()
    }

    fn layout(&mut self, event: &Event, lines: Vec<TimelineLine>) -> String {
        self.count(&event.draft.body);
        let now: Option<jiff::Timestamp> = event.time.parse().ok();
        let started = *self.started.get_or_insert(now.unwrap_or_default());
        let seconds = now.map_or(0.0, |now| now.duration_since(started).as_secs_f64());
        let mut shown = String::new();
        for TimelineLine { colour, mark, label, text } in lines {
            let mut text = text.as_str().lines().filter(|text| !text.trim().is_empty());
            let first = text.next().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(shown, "{DIM}{seconds:>6.2}\x1b[0m  {colour}{mark} {label:<11}\x1b[0m {first}");
            for more in text {
                let _ = writeln!(shown, "{:>22}{more}", "");
            }
        }
        shown
    }

    fn count(&mut self, body: &EventBody) {
        if let EventBody::LlmCall(call) = body {
            self.calls += 1;
            self.usage += call.usage;
            self.cost_picos += call.cost_picos;
            if call.estimated || call.cost_unknown {
                self.inexact.push(call.clone());
            }
            self.unpriced += u64::from(call.unpriced.is_some());
        }
    }

    /// Returns calls, tokens and cost in one line.
    pub(crate) fn bill(&self) -> String {
        let input = self.usage.input_tokens + self.usage.cache_read_tokens + self.usage.cache_write_tokens;
        let calls = if self.calls == 1 { "1 model call".to_owned() } else { format!("{} model calls", self.calls) };
        let (output, cost) = (self.usage.output_tokens, cost(self.cost_picos, self.unpriced));
        format!("{calls} · {input} tokens in, {output} out · {cost}")
    }

    /// Returns the bill, and a line for each call whose cost is estimated or unknown.
    pub(crate) fn full_bill(&self) -> String {
        let note = |call: &LlmCall| {
            let (id, cost) = (&call.call_id, dollars(call.cost_picos));
            if call.cost_unknown {
                format!("\n{id}: the cost is unknown, and its hold counts (viv usage --unknown)")
            } else {
                format!("\n{id}: cancelled, and charged for at most ${cost} (viv usage --estimated)")
            }
        };
        self.inexact.iter().map(note).fold(self.bill(), |bill, note| bill + &note)
    }
}

/// Returns the notice that is shown once: the limits in force, and the lines that give the model a price.
fn unpriced_notice(model: &str) -> TimelineLine {
    let key = toml::Value::from(model);
    let text = format!(
        "no price is known for `{model}`: requests and tokens are limited, dollars are not\nto bill it, add to viv.toml \
         (dollars for a million tokens; 0 for a free model):\n[prices.{key}]\ninput = 1.00\noutput = 5.00"
    );
    TimelineLine::new(YELLOW, "!", "unpriced", text)
}

/// Returns the `type` of an event in JSON.
fn kind(event: &Event) -> String {
    let value = serde_json::to_value(&event.draft.body).unwrap_or_default();
    value.get("type").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned()
}

/// Formats a cost with its sign. The cost of calls without a known price is not zero but not known.
pub(crate) fn cost(picos: i64, unpriced_calls: u64) -> String {
    match (unpriced_calls, picos) {
        (0, picos) => format!("${}", dollars(picos)),
        (_, 0) => "unpriced".to_owned(),
        (_, picos) => format!("${} + unpriced", dollars(picos)),
    }
}

/// Formats pico-dollars as dollars with four decimals, rounded up so that small costs do not look free.
pub(crate) fn dollars(picos: i64) -> String {
    const TENTH_OF_MILLI: i64 = 100_000_000;
    let units = picos.div_euclid(TENTH_OF_MILLI) + i64::from(picos.rem_euclid(TENTH_OF_MILLI) != 0);
    format!("{}.{:04}", units / 10_000, units % 10_000)
}

fn lines(body: &EventBody) -> Vec<TimelineLine> {
    match body {
        EventBody::ItemCompleted(event) => item(&event.item),
        EventBody::PermissionRequested(permission) => {
            vec![TimelineLine::exact(YELLOW, "?", "permission", Approval::of(permission).text().as_str())]
        }
        EventBody::PermissionResolved(permission) => vec![resolved(permission)],
        EventBody::QuestionRequested(question) => {
            vec![TimelineLine::new(
                YELLOW,
                "?",
                "question",
                format!("{} ({})", question.prompt, question.options.join(" · ")),
            )]
        }
        EventBody::QuestionResolved(question) => vec![answered(question)],
        EventBody::EgressDenied(connection) => vec![denied(connection)],
        EventBody::Error(error) => vec![TimelineLine::new(RED, "✖", "error", &error.message)],
        EventBody::BudgetExceeded(exceeded) => vec![TimelineLine::new(RED, "✖", "budget", &exceeded.message)],
        EventBody::SessionRecovered(recovered) => {
            vec![TimelineLine::new(YELLOW, "↺", "recovered", recovered.interrupted.join(", "))]
        }
        EventBody::AgentUnparsed(unparsed) => vec![TimelineLine::new(YELLOW, "~", "unparsed", &unparsed.error)],
        _ => Vec::new(),
    }
}

/// Returns the arguments of a tool call.
fn arguments(item: &Item) -> Option<&str> {
    item.content.iter().find_map(|part| match part {
        ContentPart::ToolCall { arguments, .. } => Some(arguments.as_str()),
        _ => None,
    })
}

fn is_empty(arguments: &str) -> bool {
    matches!(arguments, "" | "{}" | "null")
}

fn item(item: &Item) -> Vec<TimelineLine> {
    if item.kind == ItemKind::Message && item.role == Some(ItemRole::User) {
        return Vec::new();
    }
    let failed = item.status == ItemStatus::Failed;
    item.content.iter().map(|part| content(part, failed)).collect()
}

fn content(part: &ContentPart, failed: bool) -> TimelineLine {
    match part {
        ContentPart::Text { text } => TimelineLine::new(GREEN, "●", "assistant", text),
        ContentPart::Reasoning { text, .. } => TimelineLine::new(DIM, "∴", "thinking", text),
        ContentPart::ToolCall { name, arguments, .. } => TimelineLine::exact(BLUE, "▶", "tool", call(name, arguments)),
        ContentPart::ToolResult { output, .. } if failed => TimelineLine::new(RED, "✖", "failed", shortened(output)),
        ContentPart::ToolResult { output, .. } => TimelineLine::new(DIM, "│", "result", shortened(output)),
        ContentPart::FileRef { path, action: FileAction::Read, .. } => TimelineLine::exact(DIM, "○", "read", path),
        ContentPart::FileRef { path, diff, .. } => {
            TimelineLine::exact(BLUE, "✎", "write", format!("{path}{}", counts(diff.as_deref())))
        }
        ContentPart::Image { path, .. } => TimelineLine::exact(BLUE, "▣", "image", path),
        ContentPart::Status { label, detail } => {
            TimelineLine::new(DIM, "·", "status", format!("{label} {}", detail.as_deref().unwrap_or_default()))
        }
        ContentPart::Json { json } => TimelineLine::new(DIM, "·", "data", shortened(&json.to_string())),
    }
}

fn call(name: &str, arguments: &str) -> String {
    if is_empty(arguments) { name.to_owned() } else { format!("{name} {}", main_argument(arguments)) }
}

/// Returns the most telling argument of a tool call.
fn main_argument(arguments: &str) -> String {
    let words = |value: &serde_json::Value| -> Option<String> {
        let words = value.get("command")?.as_array()?;
        Some(words.iter().map(|word| shell_word(word.as_str().unwrap_or_default())).collect::<Vec<_>>().join(" "))
    };
    let value: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let one = |key: &str| value.get(key).and_then(|value| value.as_str()).map(ToOwned::to_owned);
    let shown = words(&value)
        .or_else(|| one("command"))
        .or_else(|| one("file_path"))
        .or_else(|| one("path"))
        .or_else(|| one("url"))
        .or_else(|| one("question"));
    shown.unwrap_or_else(|| shortened(arguments))
}

fn counts(diff: Option<&str>) -> String {
    let Some(diff) = diff else { return String::new() };
    let starting =
        |with: char, not: &str| diff.lines().filter(|line| line.starts_with(with) && !line.starts_with(not)).count();
    format!(" (+{} -{})", starting('+', "+++"), starting('-', "---"))
}

fn resolved(permission: &Permission) -> TimelineLine {
    let reason = RequestMetadata::read(permission.metadata.as_ref()).reason;
    let because = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    match permission.status {
        PermissionStatus::Accept => TimelineLine::new(GREEN, "✓", "allowed", format!("once{because}")),
        PermissionStatus::AcceptForSession => {
            TimelineLine::new(GREEN, "✓", "allowed", format!("for this session{because}"))
        }
        _ => TimelineLine::exact(RED, "✗", "refused", format!("{}{because}", permission.action)),
    }
}

fn answered(question: &Question) -> TimelineLine {
    match question.status {
        QuestionStatus::Answered => {
            TimelineLine::new(GREEN, "✓", "answered", question.response.as_deref().unwrap_or_default())
        }
        _ => TimelineLine::new(RED, "✗", "unanswered", &question.prompt),
    }
}

fn denied(connection: &EgressConnection) -> TimelineLine {
    let EgressConnection { host, port, rule, .. } = connection;
    TimelineLine::exact(RED, "⛔", "denied", format!("connection to {host}:{port} ({rule})"))
}

/// Returns the first lines of a text, shortened.
fn shortened(text: &str) -> String {
    const LINES: usize = 6;
    const WIDTH: usize = 160;
    let mut shown: Vec<String> = text.lines().take(LINES).map(|line| line.chars().take(WIDTH).collect()).collect();
    let rest = text.lines().count().saturating_sub(LINES);
    if rest > 0 {
        shown.push(format!("… {rest} more lines"));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_rounded_up() {
        assert_eq!(dollars(0), "0.0000");
        assert_eq!(dollars(1), "0.0001");
        assert_eq!(dollars(1_234_500_000_000), "1.2345");
    }

    #[test]
    fn bill_names_calls_whose_cost_is_estimated_or_unknown() {
        let call = |id: &str, estimated: bool, cost_unknown: bool| {
            let call = serde_json::json!({"call_id": id, "model": "m", "upstream": "u", "usage": {}, "status": 200,
                "cost_picos": 1_000_000_000, "ttft_micros": 1, "duration_micros": 1,
                "estimated": estimated, "cost_unknown": cost_unknown});
            EventBody::LlmCall(serde_json::from_value(call).unwrap())
        };
        let mut timeline = Timeline::default();
        timeline.count(&call("call_1", false, false));
        assert_eq!(timeline.full_bill(), timeline.bill());
        timeline.count(&call("call_2", true, false));
        timeline.count(&call("call_3", false, true));
        let bill = timeline.full_bill();
        assert_eq!(
            bill.lines().skip(1).collect::<Vec<_>>(),
            [
                "call_2: cancelled, and charged for at most $0.0010 (viv usage --estimated)",
                "call_3: the cost is unknown, and its hold counts (viv usage --unknown)",
            ]
        );
    }

    #[test]
    fn long_output_is_shortened_with_a_note() {
        let text = (0..10).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        assert!(shortened(&text).ends_with("… 4 more lines"));
    }

    #[test]
    fn escape_sequences_of_the_agent_are_removed() {
        let part = ContentPart::Text { text: "a\x1b]52;c;x\x07b".into() };
        let line = content(&part, false);
        assert_eq!(line.text.as_str(), "ab");
    }
}
