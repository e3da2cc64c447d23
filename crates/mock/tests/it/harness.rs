//! Runs the mock agent in a thread with a model server on loopback.

mod model;

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agents::{
    Agent as _, Dialogue as _, DialogueOutput, LaunchContext, MockAgent, NormalizedDialogue, PermissionMode, Prompt,
};
use mock::{MockSettings, ProcessEnd};
use protocol::{EventBody, EventDraft, PermissionReply};
use tempfile::TempDir;

pub(crate) use model::{ModelReply, ModelServer};

/// An answer to a request of the agent.
#[derive(Debug, Clone)]
pub(crate) enum UserReply {
    Permission(PermissionReply),
    Question(Option<&'static str>),
    /// A list of answers for each question.
    Questions(&'static [&'static [&'static str]]),
    Interrupt,
}

pub(crate) struct MockHarness {
    pub(crate) model: ModelServer,
    pub(crate) folder: TempDir,
    pub(crate) outputs: Vec<DialogueOutput>,
    dialogue: NormalizedDialogue,
    stdin: Option<PipeWriter>,
    lines: BufReader<PipeReader>,
    agent: Option<JoinHandle<ProcessEnd>>,
}

impl MockHarness {
    pub(crate) fn new(replies: Vec<ModelReply>) -> Self {
        Self::in_mode(PermissionMode::Default, replies)
    }

    pub(crate) fn in_mode(mode: PermissionMode, replies: Vec<ModelReply>) -> Self {
        Self::start(mode, replies, None)
    }

    pub(crate) fn start(mode: PermissionMode, replies: Vec<ModelReply>, resume: Option<&str>) -> Self {
        let (model, folder) = (ModelServer::start(replies), tempfile::tempdir().unwrap());
        let ((input, stdin), (output, stdout)) = (pipe().unwrap(), pipe().unwrap());
        let settings = MockSettings {
            gateway_url: model.url.clone(),
            token: "secret".to_owned(),
            model: "scripted".to_owned(),
            mode,
            resume: resume.map(str::to_owned),
            delay: Duration::ZERO,
            proxy: None,
            workspace: folder.path().to_owned(),
        };
        let agent = thread::spawn(move || mock::run(settings, input, stdout));
        let dialogue =
            NormalizedDialogue::new(MockAgent.new_dialogue(&LaunchContext { epoch: 1, ..LaunchContext::default() }));
        let (lines, stdin, agent) = (BufReader::new(output), Some(stdin), Some(agent));
        Self { model, folder, outputs: Vec::new(), dialogue, stdin, lines, agent }
    }

    /// Runs a turn and returns its outputs. `answers` are given in order.
    pub(crate) fn turn(&mut self, text: &str, answers: &[UserReply]) -> Vec<DialogueOutput> {
        let begin = self.outputs.len();
        let mut answers = answers.iter().cloned();
        let sent = self.dialogue.send_prompt(&Prompt::text(text));
        self.take(sent);
        let mut seen = begin;
        loop {
            while seen < self.outputs.len() {
                let output = self.outputs[seen].clone();
                seen += 1;
                match output {
                    DialogueOutput::TurnEnded(_) => return self.outputs[begin..].to_vec(),
                    DialogueOutput::Event(draft) => self.react(&draft, &mut answers),
                    _ => {}
                }
            }
            assert!(self.read(), "the agent ended in the middle of a turn");
        }
    }

    fn react(&mut self, draft: &EventDraft, answers: &mut impl Iterator<Item = UserReply>) {
        let waits = matches!(draft.body, EventBody::PermissionRequested(_) | EventBody::QuestionRequested(_));
        if !waits {
            return;
        }
        let sent = match (answers.next().expect("an answer to the request"), &draft.body) {
            (UserReply::Permission(reply), EventBody::PermissionRequested(request)) => {
                self.dialogue.answer_permission(&request.permission_id, reply)
            }
            (UserReply::Question(answer), EventBody::QuestionRequested(request)) => {
                let answers = answer.map(|answer| vec![vec![answer.to_owned()]]);
                self.dialogue.answer_question(&request.question_id, answers.as_deref())
            }
            (UserReply::Questions(answers), EventBody::QuestionRequested(request)) => {
                let owned = |chosen: &&[&str]| chosen.iter().map(|word| (*word).to_owned()).collect();
                let answers: Vec<Vec<String>> = answers.iter().map(owned).collect();
                self.dialogue.answer_question(&request.question_id, Some(&answers))
            }
            (UserReply::Interrupt, _) => self.dialogue.interrupt(),
            (answer, request) => panic!("{answer:?} does not answer {request:?}"),
        };
        self.take(sent);
    }

    /// Sends a prompt and reads until `until` holds for an event.
    pub(crate) fn prompt_until(&mut self, text: &str, until: impl Fn(&EventBody) -> bool) {
        let sent = self.dialogue.send_prompt(&Prompt::text(text));
        self.take(sent);
        let mut seen = self.outputs.len();
        loop {
            for output in &self.outputs[seen..] {
                if matches!(output, DialogueOutput::Event(draft) if until(&draft.body)) {
                    return;
                }
            }
            seen = self.outputs.len();
            assert!(self.read(), "the agent ended before it came so far");
        }
    }

    /// Interrupts and reads to the end of the turn.
    pub(crate) fn interrupt(&mut self) -> Vec<DialogueOutput> {
        let begin = self.outputs.len();
        let sent = self.dialogue.interrupt();
        self.take(sent);
        while !self.outputs[begin..].iter().any(|output| matches!(output, DialogueOutput::TurnEnded(_))) {
            assert!(self.read(), "the agent ended in the middle of a turn");
        }
        self.outputs[begin..].to_vec()
    }

    /// Sends a prompt that ends the process, and reads the remaining output.
    pub(crate) fn last_prompt(mut self, text: &str) -> (ProcessEnd, Vec<DialogueOutput>) {
        let begin = self.outputs.len();
        let sent = self.dialogue.send_prompt(&Prompt::text(text));
        self.take(sent);
        while self.read() {}
        (self.agent.take().unwrap().join().unwrap(), self.outputs.split_off(begin))
    }

    /// Closes stdin and waits for the end of the agent.
    pub(crate) fn close(mut self) -> ProcessEnd {
        self.stdin = None;
        while self.read() {}
        self.agent.take().unwrap().join().unwrap()
    }

    /// Reads one line; returns `false` at the end.
    fn read(&mut self) -> bool {
        let mut line = Vec::new();
        if self.lines.read_until(b'\n', &mut line).unwrap() == 0 {
            return false;
        }
        let outputs = self.dialogue.read_line(line.strip_suffix(b"\n").unwrap_or(&line));
        self.take(outputs);
        true
    }

    fn take(&mut self, outputs: Vec<DialogueOutput>) {
        for output in &outputs {
            if let (DialogueOutput::Send(line), Some(stdin)) = (output, &mut self.stdin) {
                writeln!(stdin, "{line}").unwrap();
            }
        }
        self.outputs.extend(outputs);
    }
}

/// Returns the texts of completed messages, in order.
pub(crate) fn texts(outputs: &[DialogueOutput]) -> Vec<String> {
    let mut texts = Vec::new();
    for output in outputs {
        if let DialogueOutput::Event(EventDraft { body: EventBody::ItemCompleted(event), .. }) = output {
            texts.extend(event.item.content.iter().filter_map(|part| match part {
                protocol::ContentPart::Text { text } => Some(text.clone()),
                protocol::ContentPart::ToolResult { output, .. } => Some(output.clone()),
                _ => None,
            }));
        }
    }
    texts
}
