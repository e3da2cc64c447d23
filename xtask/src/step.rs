//! Named steps with their duration. The first step that fails ends the run and shows its whole output.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A sequence of steps.
pub(crate) struct Steps {
    started: Instant,
    done: usize,
}

impl Steps {
    /// Starts the clock.
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), done: 0 }
    }

    /// Runs one step. Its result is a summary that is shown with the duration.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        let started = Instant::now();
        println!("▸ {name}");
        let outcome = work();
        let took = seconds(started.elapsed());
        match outcome {
            Ok(note) if note.is_empty() => println!("✔ {name} · {took}"),
            Ok(note) => println!("✔ {name} · {note} · {took}"),
            Err(error) => {
                println!("✘ {name} · {took}");
                let after = seconds(self.started.elapsed());
                return Err(error.context(format!("`{name}` failed, after {} good steps and {after}", self.done)));
            }
        }
        self.done += 1;
        Ok(())
    }

    /// Runs a command as a step.
    pub(crate) fn command(&mut self, name: &str, mut command: Command) -> Result<()> {
        self.step(name, || quietly(&mut command).map(|_| String::new()))
    }

    /// Prints the total after the last step.
    pub(crate) fn finish(self) {
        println!("✔ all {} steps passed · {}", self.done, seconds(self.started.elapsed()));
    }
}

/// Runs a command, and returns its output. A terminal shows the last line meanwhile; the error of a failed command
/// contains the whole output.
pub(crate) fn quietly(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
    // Close our copies of the writing end, or the reader would never see the end of the output.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let output = follow(BufReader::new(reader))?;
    let status = child.wait().with_context(|| format!("cannot wait for {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}\n{}", output.trim_end());
    }
    Ok(output)
}

fn follow(mut reader: impl BufRead) -> Result<String> {
    let terminal = std::io::stdout().is_terminal();
    let (mut output, mut line) = (String::new(), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if terminal {
            let brief: String = text.trim().chars().filter(|letter| !letter.is_control()).take(76).collect();
            print!("\r\x1b[K  {brief}");
            std::io::stdout().flush()?;
        }
        output.push_str(&text);
        line.clear();
    }
    if terminal {
        print!("\r\x1b[K");
    }
    Ok(output)
}

/// Returns a duration as text: `0.4 s`, `12 s`, `3 min 05 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let mut text = String::new();
    let whole = time.as_secs();
    // Writing to a string cannot fail.
    let _ = match whole {
        0..10 => write!(text, "{:.1} s", time.as_secs_f64()),
        10..60 => write!(text, "{whole} s"),
        _ => write!(text, "{} min {:02} s", whole / 60, whole % 60),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn failed_command_shows_its_output() {
        let error = quietly(&mut shell("echo one; echo two >&2; exit 3")).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("one\ntwo"), "{error}");
    }

    #[test]
    fn failed_step_is_named() {
        let mut steps = Steps::start();
        steps.command("good", shell("true")).unwrap();
        let error = format!("{:#}", steps.command("bad", shell("echo why; false")).unwrap_err());
        assert!(error.starts_with("`bad` failed, after 1 good steps") && error.contains("why"), "{error}");
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
