//! The only way to the terminal: everything that `viv` prints passes one of these functions.
//!
//! Text becomes a [`PrintableText`] here, so no escape sequence, carriage return or direction character of an agent, a
//! repository or an imported file can reach the terminal. JSON keeps its data exactly; on a terminal, unsafe characters
//! are written as `\u` escapes. `cargo xtask tidy` finds output that does not pass this file.
//!
//! Not here: the layout of tables (`table`), events (`timeline`) and errors (`failure`).

use std::io::{IsTerminal, Write};

use base::{EscapeFilter, PrintableText};
use protocol::ProblemCode;
use sandbox::{OutputFilter, OutputSink};
use serde_json::Value;

use crate::failure::Failure;
use crate::pager;

/// Prints a line for a person on stderr, with the arguments of `format!`.
macro_rules! message {
    ($($argument:tt)*) => { $crate::output::print_message(&format!($($argument)*)) };
}
pub(crate) use message;

/// Prints a line for a person on stderr.
pub(crate) fn print_message(text: &str) {
    print_message_part(&format!("{text}\n"));
}

/// Prints text for a person on stderr, without a line end: a prompt, or several lines with their ends.
pub(crate) fn print_message_part(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // A person who closed stderr needs no messages.
    let _ = write!(stderr, "{}", PrintableText::composed(text)).and_then(|()| stderr.flush());
}

/// Sends a fixed control sequence to the terminal of stderr, if there is one.
pub(crate) fn notify(sequence: &'static [u8]) {
    if stderr_is_terminal() && !sequence.is_empty() {
        // A terminal that cannot be written to cannot notify.
        let _ = std::io::stderr().lock().write_all(sequence);
    }
}

/// Replaces the current line of stderr; an empty text clears it. For progress on a terminal.
pub(crate) fn replace_line(text: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{}", PrintableText::exact_line(text));
}

/// Prints data on stdout; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    written(write_text(text))
}

/// Prints text on stdout; on a terminal, a text that does not fit is shown in the pager.
pub(crate) fn print_paged(text: &str) -> Result<(), Failure> {
    if stdout_is_terminal() && pager::show(&PrintableText::composed(text).to_string(), terminal_rows()) {
        return Ok(());
    }
    print(text)
}

/// Prints data whose bytes matter like [`print_exact`]; on a terminal, in colour and in the pager.
pub(crate) fn print_diff(text: &str) -> Result<(), Failure> {
    if !stdout_is_terminal() {
        return print_exact(text);
    }
    print_paged(&crate::diff_colour::coloured(&text.replace("\r\n", "\n")))
}

/// Returns the number of columns of the terminal on stdout; 80 if it is not known.
pub(crate) fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 0).unwrap_or(80)
}

/// Returns the number of rows of the terminal on stdout; 24 if it is not known.
pub(crate) fn terminal_rows() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map(|size| usize::from(size.ws_row)).ok().filter(|rows| *rows > 0).unwrap_or(24)
}

/// Prints data on stdout; fails also if the pipe is closed.
pub(crate) fn write_text(text: &str) -> std::io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    write!(stdout, "{}", PrintableText::composed(text))?;
    stdout.flush()
}

/// Prints data whose bytes matter, such as a patch or CSV: exactly in a pipe, printable on a terminal.
pub(crate) fn print_exact(text: &str) -> Result<(), Failure> {
    if stdout_is_terminal() {
        return print(&text.replace("\r\n", "\n"));
    }
    written(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// Prints one JSON document on stdout.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print_json_text(&format!("{value}\n"))
}

/// Prints JSON that ends its line; a closed pipe is not an error.
pub(crate) fn print_json_text(text: &str) -> Result<(), Failure> {
    written(write_json(text))
}

/// Prints JSON that ends its line; fails also if the pipe is closed.
pub(crate) fn write_json(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if stdout.is_terminal() {
        write!(stdout, "{}", PrintableText::json(text))?;
    } else {
        stdout.write_all(text.as_bytes())?;
    }
    stdout.flush()
}

/// Prints an error as one line of JSON on stderr.
pub(crate) fn print_json_error(text: &str) {
    let shown = if stderr_is_terminal() { PrintableText::json(text).into() } else { text.to_owned() };
    let _ = writeln!(std::io::stderr(), "{shown}");
}

fn written(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ProblemCode::StreamError, "cannot write the output").because(&error))
        }
        _ => Ok(()),
    }
}

/// Whether stdin is a terminal.
pub(crate) fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Whether stdout is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether stderr is a terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Returns a writer of text to stdout, made printable line by line.
pub(crate) fn text_writer() -> PrintableWriter<anstream::AutoStream<std::io::Stdout>> {
    PrintableWriter::new(anstream::stdout())
}

/// Returns a writer of text to stderr, made printable line by line.
pub(crate) fn message_writer() -> PrintableWriter<anstream::AutoStream<std::io::Stderr>> {
    PrintableWriter::new(anstream::stderr())
}

/// Returns a writer of JSON or other data to stdout: the bytes as they are in a pipe. On a terminal, unsafe characters are
/// written as `\u` escapes.
pub(crate) fn data_writer() -> Box<dyn Write> {
    if stdout_is_terminal() {
        return Box::new(PrintableWriter { to: std::io::stdout(), pending: Vec::new(), convert: PrintableText::json });
    }
    Box::new(std::io::stdout())
}

/// Returns the two output streams of a command. On a terminal, `filter` decides which escape sequences pass.
pub(crate) fn command_sinks(filter: fn() -> EscapeFilter) -> (OutputSink, OutputSink) {
    let on_terminal = |is_terminal: bool| is_terminal.then(|| output_filter(filter()));
    let output = OutputSink { to: Box::new(tokio::io::stdout()), filter: on_terminal(stdout_is_terminal()) };
    let errors = OutputSink { to: Box::new(tokio::io::stderr()), filter: on_terminal(stderr_is_terminal()) };
    (output, errors)
}

fn output_filter(mut filter: EscapeFilter) -> OutputFilter {
    Box::new(move |bytes: &[u8]| filter.pass(bytes))
}

/// Writes bytes of a terminal UI to stdout. The caller has filtered them with a [`TerminalFilter`](base::TerminalFilter).
pub(crate) fn write_screen(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes text in a printable form. Text is written at the end of each line, and when the writer is flushed or dropped.
pub(crate) struct PrintableWriter<W: Write> {
    to: W,
    pending: Vec<u8>,
    convert: fn(&str) -> PrintableText,
}

impl<W: Write> PrintableWriter<W> {
    fn new(to: W) -> Self {
        Self { to, pending: Vec::new(), convert: PrintableText::composed }
    }

    /// Writes the first `count` pending bytes.
    fn emit(&mut self, count: usize) -> std::io::Result<()> {
        let bytes: Vec<u8> = self.pending.drain(..count).collect();
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        write!(self.to, "{}", (self.convert)(&text))
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if let Some(end) = self.pending.iter().rposition(|byte| *byte == b'\n') {
            self.emit(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // The first bytes of a character wait for the others.
        let whole = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.pending.len(),
        };
        self.emit(whole)?;
        self.to.flush()
    }
}

impl<W: Write> Drop for PrintableWriter<W> {
    fn drop(&mut self) {
        let count = self.pending.len();
        // A closed output is reported by the write before.
        let _ = self.emit(count).and_then(|()| self.to.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_never_splits_characters_or_passes_commands() {
        let mut shown = Vec::new();
        let mut writer = PrintableWriter::new(&mut shown);
        for byte in "\x1b[1mé\x1b[0m \x1b]52;c;x\x07\u{202e}\u{9b}6n\r\nnext".bytes() {
            writer.write_all(&[byte]).unwrap();
        }
        writer.write_all(b"\xc3").unwrap();
        writer.flush().unwrap();
        writer.write_all(b"\xa9").unwrap();
        drop(writer);
        assert_eq!(String::from_utf8(shown).unwrap(), "\x1b[1mé\x1b[0m ^[]52;c;x^G<U+202E><U+009B>6n\nnexté");
    }
}
