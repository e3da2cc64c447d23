//! Recorded conversations of real agents, compared with the mock.
//!
//! A fixture is a recorded conversation without irrelevant lines. `agent` lines are input of the dialogue, `host` lines
//! are actions of the caller, and `sends` are the lines that were sent to the recorded program. The name of a fixture
//! is the mock scenario with the same skeleton.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use agents::{Dialogue as _, DialogueOutput, LaunchContext, NormalizedDialogue, Prompt, by_name, skeleton};
use protocol::{EventBody, PermissionId, PermissionReply, QuestionId};
use serde_json::Value;

/// A recorded conversation.
pub(crate) struct Fixture {
    pub(crate) agent: String,
    pub(crate) scenario: String,
    pub(crate) lines: Vec<Value>,
}

/// Returns all fixtures.
pub(crate) fn fixtures() -> &'static [Fixture] {
    static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(load_all);
    &FIXTURES
}

fn load_all() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in std::fs::read_dir(root).unwrap() {
        paths.extend(std::fs::read_dir(folder.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    paths.sort();
    paths.iter().map(|path| load(path)).collect()
}

fn load(path: &Path) -> Fixture {
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Fixture { agent: name(path.parent().unwrap()), scenario: name(path), lines }
}

/// A caller that performs the actions of a fixture.
struct FixturePlayer {
    dialogue: NormalizedDialogue,
    outputs: Vec<DialogueOutput>,
    permission: Option<PermissionId>,
    question: Option<QuestionId>,
}

impl FixturePlayer {
    fn take(&mut self, outputs: Vec<DialogueOutput>) {
        for output in &outputs {
            if let DialogueOutput::Event(draft) = output {
                match &draft.body {
                    EventBody::PermissionRequested(request) => self.permission = Some(request.permission_id.clone()),
                    EventBody::QuestionRequested(request) => self.question = Some(request.question_id.clone()),
                    _ => {}
                }
            }
        }
        self.outputs.extend(outputs);
    }

    fn act(&mut self, line: &Value) {
        let outputs = match line["host"].as_str() {
            Some("open") => self.dialogue.open(),
            Some("prompt") => self.dialogue.send_prompt(&Prompt::text(line["text"].as_str().unwrap())),
            Some("interrupt") => self.dialogue.interrupt(),
            Some("permission") => {
                let reply = serde_json::from_value::<PermissionReply>(line["reply"].clone()).unwrap();
                self.dialogue.answer_permission(&self.permission.take().expect("a permission was asked for"), reply)
            }
            Some("question") => {
                let answers: Vec<Vec<String>> = serde_json::from_value(line["answers"].clone()).unwrap();
                self.dialogue.answer_question(&self.question.take().expect("a question was asked"), Some(&answers))
            }
            _ => self.dialogue.read_line(line["agent"].to_string().as_bytes()),
        };
        let sent = outputs.iter().find_map(|output| match output {
            DialogueOutput::Send(text) => Some(serde_json::from_str::<Value>(text).unwrap()),
            _ => None,
        });
        if let Some(expected) = line.get("sends") {
            assert_eq!(sent.as_ref(), Some(expected), "the line sent to the agent");
        }
        self.take(outputs);
    }
}

/// Plays a fixture and returns all outputs.
pub(crate) fn play(fixture: &Fixture) -> Vec<DialogueOutput> {
    let context = LaunchContext { epoch: 1, ..LaunchContext::default() };
    let agent = by_name(&fixture.agent).expect("a supported agent");
    let dialogue = NormalizedDialogue::new(agent.new_dialogue(&context));
    let mut caller = FixturePlayer { dialogue, outputs: Vec::new(), permission: None, question: None };
    for line in &fixture.lines {
        caller.act(line);
    }
    caller.outputs
}

/// Plays lines that may be invalid. Requests are answered only if they exist.
pub(crate) fn play_damaged(agent: &str, lines: &[FixtureLine]) -> Vec<DialogueOutput> {
    let context = LaunchContext { epoch: 1, ..LaunchContext::default() };
    let dialogue = NormalizedDialogue::new(by_name(agent).expect("a supported agent").new_dialogue(&context));
    let mut caller = FixturePlayer { dialogue, outputs: Vec::new(), permission: None, question: None };
    for line in lines {
        match line {
            FixtureLine::Agent(bytes) => {
                let outputs = caller.dialogue.read_line(bytes);
                caller.take(outputs);
            }
            FixtureLine::Host(line) => {
                let missing = match line["host"].as_str() {
                    Some("permission") => caller.permission.is_none(),
                    Some("question") => caller.question.is_none(),
                    _ => false,
                };
                if !missing {
                    let mut line = line.clone();
                    line.as_object_mut().unwrap().remove("sends");
                    caller.act(&line);
                }
            }
        }
    }
    caller.outputs
}

/// A line of a damaged fixture.
#[derive(Debug, Clone)]
pub(crate) enum FixtureLine {
    Agent(Vec<u8>),
    Host(Value),
}

impl FixtureLine {
    /// Returns a line of a fixture without damage.
    pub(crate) fn of(line: &Value) -> Self {
        match line.get("agent") {
            Some(native) => Self::Agent(native.to_string().into_bytes()),
            None => Self::Host(line.clone()),
        }
    }
}

/// Returns the mock's skeleton of a scenario, if there is one.
fn mock_skeleton(scenario: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mock/tests/it/snapshots");
    let text = std::fs::read_to_string(folder.join(format!("it__scenarios__{scenario}.snap"))).ok()?;
    // A snapshot starts with a header between two `---` lines.
    text.splitn(3, "---\n").nth(2).map(|body| body.trim_end().to_owned())
}

/// Known differences from the mock. Everything else must be equal.
const DEVIATIONS: &[(&str, &str)] = &[
    // The end of planning is a separate tool call.
    ("claude", "plan_approved"),
    // The agent ends the turn without a message after a denial.
    ("opencode", "command_refused"),
    // The agent reports its retries.
    ("copilot", "model_refused"),
];

#[test]
fn every_agent_has_the_skeleton_of_the_mock() {
    let mut different = Vec::new();
    for fixture in fixtures() {
        let name = (fixture.agent.as_str(), fixture.scenario.as_str());
        let played = skeleton(&play(fixture)).join("\n");
        match (mock_skeleton(name.1), DEVIATIONS.contains(&name)) {
            (Some(expected), deviates) if deviates == (played == expected) => {
                different.push(format!("{} {} is\n{played}\nand the mock\n{expected}\n", name.0, name.1));
            }
            (Some(_), false) => {}
            _ => insta::assert_snapshot!(format!("{}_{}", name.0, name.1), played),
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn every_agent_reports_its_session_and_no_unknown_items() {
    for fixture in fixtures() {
        let outputs = play(fixture);
        let named = outputs.iter().any(|output| matches!(output, DialogueOutput::NativeSession(_)));
        assert!(named, "{} {} has no session", fixture.agent, fixture.scenario);
        let lines = skeleton(&outputs);
        let odd: Vec<_> = lines.iter().filter(|line| line.contains("unknown") || line.contains("unparsed")).collect();
        assert!(odd.is_empty(), "{} {}: {odd:?}", fixture.agent, fixture.scenario);
    }
}
