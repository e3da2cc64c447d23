//! Asking the host: may I, and what do you want?

use std::io::Write;

use agents::{AgentLine, HostLine};
use protocol::PermissionReply;
use serde_json::Value;

use crate::process::MockProcess;
use crate::inbox::InboxMessage;
use crate::turn_stop::TurnStop;

impl<W: Write> MockProcess<W> {
    /// Asks for a permission and waits. Withdrawn when the turn is interrupted or nobody is left.
    pub(crate) fn ask_permission(&mut self, action: &str, metadata: Value) -> Result<PermissionReply, TurnStop> {
        let id = format!("p{}", self.next_number());
        self.printer.print_line(&AgentLine::PermissionRequested { id: id.clone(), action: action.to_owned(), metadata })?;
        let reply = self.wait(|arrival| match arrival {
            InboxMessage::Host(HostLine::PermissionReply { id: answered, reply }) if *answered == id => Some(Ok(*reply)),
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

    /// Asks a question and waits; `None` when the person does not want to answer.
    pub(crate) fn ask_question(&mut self, prompt: &str, options: &[String]) -> Result<Option<String>, TurnStop> {
        self.ask(prompt.to_owned(), options.to_vec(), Vec::new())
    }

    /// Asks several at once, each with all that belongs to it: header, descriptions, whether more than one may be chosen.
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
        let answer = self.wait(|arrival| match arrival {
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
