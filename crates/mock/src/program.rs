//! Runs programs, with interrupts.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::inbox::InboxMessage;
use crate::process::MockProcess;
use crate::tool::CallResult;
use crate::turn_stop::TurnStop;

/// Bytes that are kept, for stdout and stderr each.
const MAX_BYTES: u64 = 64 * 1024;

/// The output and exit status of a program.
#[derive(Debug, Clone)]
pub(crate) struct ProgramEnd {
    output: String,
    status: Result<ExitStatus, String>,
}

impl<W: Write> MockProcess<W> {
    /// Runs `command` to its end. An interrupt kills it and all its child processes.
    pub(crate) fn run_program(&mut self, command: &[String]) -> Result<CallResult, TurnStop> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(CallResult::failed("the command is empty"));
        };
        let child = Command::new(program)
            .args(arguments)
            .current_dir(&self.settings.workspace)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => return Ok(CallResult::failed(format!("cannot run `{program}`: {error}"))),
        };
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let number = self.next_number();
        let sender = self.inbox.sender.clone();
        thread::spawn(move || sender.send(InboxMessage::Program(number, wait_for_exit(child))));
        let ended = self.wait(|message| match message {
            InboxMessage::Program(ended, end) if *ended == number => Some(end.clone()),
            _ => None,
        });
        if let (Err(_), Some(group)) = (&ended, group) {
            // The program may have ended at the same time.
            let _ = kill_process_group(group, Signal::KILL);
        }
        ended.map(outcome)
    }
}

fn wait_for_exit(mut child: Child) -> ProgramEnd {
    let errors = child.stderr.take().map(|stderr| thread::spawn(|| read(stderr)));
    let mut output = child.stdout.take().map(read).unwrap_or_default();
    if let Some(errors) = errors {
        output.push_str(&errors.join().unwrap_or_default());
    }
    ProgramEnd { output, status: child.wait().map_err(|error| error.to_string()) }
}

/// Returns the first bytes. The rest is read and dropped, so that the program never blocks.
fn read(mut pipe: impl Read) -> String {
    let mut kept = Vec::new();
    let more = pipe.by_ref().take(MAX_BYTES).read_to_end(&mut kept).and_then(|_| io::copy(&mut pipe, &mut io::sink()));
    let mut text = String::from_utf8_lossy(&kept).into_owned();
    if more.is_ok_and(|more| more > 0) {
        text.push_str(
            "
        [output truncated]
        ",
        );
    }
    text
}

fn outcome(end: ProgramEnd) -> CallResult {
    match end.status {
        Ok(status) if status.success() => CallResult::done(end.output),
        Ok(status) => CallResult::failed(format!("{}[{status}]", end.output)),
        Err(error) => CallResult::failed(format!("{}[{error}]", end.output)),
    }
}
