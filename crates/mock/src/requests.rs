//! Permission requests and questions to the host.

use std::collections::HashSet;
use std::io::Write;

use agents::{AgentLine, HostLine};
use protocol::PermissionReply;
use serde_json::{Value, json};

use crate::inbox::InboxMessage;
use crate::process::MockProcess;
use crate::turn_stop::TurnStop;

impl<W: Write> MockProcess<W> {
    /// Requests a permission and waits. The request is withdrawn when the turn is interrupted or stdin is closed.
    pub(crate) fn ask_permission(&mut self, action: &str, metadata: Value) -> Result<PermissionReply, TurnStop> {
        let id = format!("p{}", self.next_number());
        self.printer.print_line(&AgentLine::PermissionRequested {
            id: id.clone(),
            action: action.to_owned(),
            metadata,
        })?;
        let reply = self.wait(|message| match message {
            InboxMessage::Host(HostLine::PermissionReply { id: answered, reply }) if *answered == id => {
                Some(Ok(*reply))
            }
            InboxMessage::Closed => Some(Err(TurnStop::Interrupted)),
            _ => None,
        });
        match reply {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(stop)) | Err(stop) => {
                self.printer.print_line(&AgentLine::PermissionWithdrawn { id })?;
                Err(stop)
            }
        }
    }

    /// Requests `count` permissions before it waits for the first answer. Ends when all are answered.
    pub(crate) fn ask_permissions(&mut self, count: usize) -> Result<(), TurnStop> {
        let mut open = HashSet::new();
        for number in 0..count {
            let id = format!("p{}", self.next_number());
            let metadata = json!({ "command": format!("true {number}") });
            self.printer.print_line(&AgentLine::PermissionRequested {
                id: id.clone(),
                action: "command".to_owned(),
                metadata,
            })?;
            open.insert(id);
        }
        while !open.is_empty() {
            let answered = self.wait(|message| match message {
                InboxMessage::Host(HostLine::PermissionReply { id, .. }) => Some(Some(id.clone())),
                InboxMessage::Closed => Some(None),
                _ => None,
            })?;
            open.remove(&answered.ok_or(TurnStop::Interrupted)?);
        }
        Ok(())
    }

    /// Asks a question and waits; returns `None` if the user rejects it.
    pub(crate) fn ask_question(&mut self, prompt: &str, options: &[String]) -> Result<Option<String>, TurnStop> {
        self.ask(prompt.to_owned(), options.to_vec(), Vec::new())
    }

    /// Asks several questions at once, with headers, descriptions and multiple choice.
    pub(crate) fn ask_questions(&mut self, questions: Vec<Value>) -> Result<Option<String>, TurnStop> {
        let first = questions.first().unwrap_or(&Value::Null);
        let prompt = first["question"].as_str().unwrap_or_default().to_owned();
        let labels = first["options"].as_array().into_iter().flatten().filter_map(|option| option["label"].as_str());
        let options = labels.map(str::to_owned).collect();
        self.ask(prompt, options, questions)
    }

    fn ask(&mut self, prompt: String, options: Vec<String>, questions: Vec<Value>) -> Result<Option<String>, TurnStop> {
        let id = format!("q{}", self.next_number());
        self.printer.print_line(&AgentLine::QuestionRequested { id: id.clone(), prompt, options, questions })?;
        let answer = self.wait(|message| match message {
            InboxMessage::Host(HostLine::QuestionReply { id: answered, answers }) if *answered == id => {
                Some(Ok(answers.clone()))
            }
            InboxMessage::Closed => Some(Err(TurnStop::Interrupted)),
            _ => None,
        });
        match answer {
            Ok(Ok(answers)) => Ok(answers.map(|answers| {
                let each: Vec<String> = answers.iter().map(|chosen| chosen.join(", ")).collect();
                each.join("; ")
            })),
            Ok(Err(stop)) | Err(stop) => {
                self.printer.print_line(&AgentLine::QuestionWithdrawn { id })?;
                Err(stop)
            }
        }
    }
}
