//! The pager: long output on a terminal is shown in the program that `PAGER` names, by default `less`.
//!
//! The text is printable before it gets here. `NO_PAGER`, or an empty `PAGER` or `cat`, turns the pager off.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::config::pager_command;

/// Shows `text` in the pager if it has more lines than the terminal; returns false if it was not shown.
pub(crate) fn show(text: &str, rows: usize) -> bool {
    if text.lines().count() < rows {
        return false;
    }
    let Some(command) = pager_command() else { return false };
    let mut pager = Command::new("sh");
    // Colours pass, and a text that fits after all is left on the screen.
    pager.args(["-c", &command]).env("LESS", "FRX").stdin(Stdio::piped());
    let Ok(mut running) = pager.spawn() else { return false };
    if let Some(mut input) = running.stdin.take() {
        // A person who quits the pager has read enough.
        let _ = input.write_all(text.as_bytes());
    }
    // The shell prints its own message if the pager does not exist.
    running.wait().is_ok_and(|status| status.code() != Some(127))
}
