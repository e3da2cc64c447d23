//! Runs the console blocks of documents, so that pasted commands work.
//!
//! A line that begins with `$ ` is run by a shell, with the built `viv` first in PATH. All blocks of one document share
//! an empty folder and an empty data directory. A command must exit with 0; the last one of a block with the code that
//! the fence names (`console exit=5`). The lines below a command are compared with its output: `…` matches anything in
//! a line, and alone any number of lines.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::markdown::{self, Kind};
use crate::tree::Tree;
use crate::workspace;

/// The timeout of one command.
const LIMIT_SECS: &str = "120";

/// A command of a document with its expected output and exit code.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    line: usize,
    command: String,
    exit: i32,
    expected: Vec<String>,
}

/// Runs the blocks of every document, and returns a summary.
pub(crate) fn run_documents(viv: &Path) -> Result<String> {
    let tree = Tree::read(workspace::root())?;
    let mut count = 0;
    for (path, text) in tree.documents() {
        let calls = calls(path, text)?;
        if calls.is_empty() {
            continue;
        }
        let place = Place::new(path)?;
        for call in &calls {
            place.run(viv, call).with_context(|| format!("{path}:{}: `{}`", call.line, call.command))?;
        }
        count += calls.len();
    }
    Ok(format!("{count} commands"))
}

/// Returns the commands of one document in order.
fn calls(path: &str, text: &str) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for part in markdown::parts(text) {
        if let Kind::Fence(info, lines) = &part.kind
            && info.split_whitespace().next() == Some("console")
        {
            calls.extend(calls_of_block(part.line, info, lines).with_context(|| format!("{path}:{}", part.line))?);
        }
    }
    Ok(calls)
}

/// Returns the commands of one block. The exit code of the fence belongs to the last command.
fn calls_of_block(first_line: usize, info: &str, lines: &[&str]) -> Result<Vec<Call>> {
    let mut calls: Vec<Call> = Vec::new();
    for (line, content) in (first_line..).zip(lines) {
        match (content.strip_prefix("$ "), calls.last_mut()) {
            (Some(command), _) => {
                calls.push(Call { line, command: command.to_owned(), exit: 0, expected: Vec::new() });
            }
            (None, Some(call)) => call.expected.push((*content).to_owned()),
            (None, None) => bail!("a console block begins with `$ ` and a command"),
        }
    }
    let exit = exit_of(info).with_context(|| format!("cannot read `{info}`"))?;
    if let Some(last) = calls.last_mut() {
        last.exit = exit;
    }
    Ok(calls)
}

/// Returns the exit code that a fence names; 0 by default.
fn exit_of(info: &str) -> Result<i32> {
    match info.split_whitespace().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Ok(0),
        [word] => Ok(word.strip_prefix("exit=").context("only `exit=N` is known")?.parse()?),
        _ => bail!("only `exit=N` is known"),
    }
}

/// The working folder for one document.
struct Place(PathBuf);

impl Place {
    fn new(document: &str) -> Result<Self> {
        let name = document.replace(['/', '.'], "-");
        let place = Self(std::env::temp_dir().join(format!("viv-doc-{}-{name}", std::process::id())));
        std::fs::create_dir_all(place.0.join("here")).context("cannot make a folder for the document")?;
        Ok(place)
    }

    fn run(&self, viv: &Path, call: &Call) -> Result<()> {
        // A file instead of a pipe: a background process of the command would keep a pipe open.
        let path = self.0.join("output");
        let output = File::create(&path).context("cannot create the output file")?;
        let status = self.shell(viv, &call.command)?.stdout(output.try_clone()?).stderr(output).status()?;
        let said = std::fs::read_to_string(&path).context("cannot read the output")?;
        if status.code() != Some(call.exit) {
            bail!("ended with {status}, not with {}\n{said}", call.exit);
        }
        if !matches(&call.expected, &said) {
            bail!("printed\n{said}\nbut the document says\n{}", call.expected.join("\n"));
        }
        Ok(())
    }

    fn shell(&self, viv: &Path, command: &str) -> Result<Command> {
        let mut folders = vec![viv.parent().context("`viv` is in no folder")?.to_owned()];
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=5", LIMIT_SECS, "sh", "-c", command]).current_dir(self.0.join("here"));
        for name in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            shell.env_remove(name);
        }
        shell.env("PATH", std::env::join_paths(folders)?).env("HOME", &self.0).env("NO_COLOR", "1");
        shell.env("VIV_DATA_DIR", self.0.join("data")).stdin(Stdio::null());
        Ok(shell)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("warning: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Returns whether `output` matches `expected`. An empty expectation matches everything.
fn matches(expected: &[String], said: &str) -> bool {
    let said: Vec<&str> = said.trim_end().lines().map(str::trim_end).collect();
    let expected: Vec<&str> = expected.iter().map(|line| line.trim_end()).collect();
    expected.is_empty() || lines_match(&expected, &said)
}

fn lines_match(expected: &[&str], said: &[&str]) -> bool {
    match expected {
        [] => said.is_empty(),
        ["…", rest @ ..] => (0..=said.len()).any(|skipped| lines_match(rest, &said[skipped..])),
        [line, rest @ ..] => {
            said.first().is_some_and(|first| line_matches(line, first)) && lines_match(rest, &said[1..])
        }
    }
}

fn line_matches(expected: &str, said: &str) -> bool {
    let Some((start, rest)) = expected.split_once('…') else { return expected == said };
    let Some(mut left) = said.strip_prefix(start) else { return false };
    let pieces: Vec<&str> = rest.split('…').collect();
    let Some((last, middle)) = pieces.split_last() else { return true };
    for piece in middle {
        match left.find(piece) {
            Some(at) => left = &left[at + piece.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<()> {
        // Each test has its own thread, and therefore its own folder.
        let place = Place::new(&format!("{:?}", std::thread::current().id()))?;
        calls("t.md", text)?.iter().try_for_each(|call| place.run(Path::new("/nowhere/viv"), call))
    }

    #[test]
    fn output_of_a_block_is_compared() {
        run("```console\n$ echo one; echo two\none\ntwo\n$ printf 'a\\nb\\nc\\n'\n…\nc\n```").unwrap();
        let error = run("```console\n$ echo two\none\n```").unwrap_err().to_string();
        assert!(error.contains("printed\ntwo"), "{error}");
    }

    #[test]
    fn exit_code_must_match() {
        run("```console exit=5\n$ true\n$ exit 5\n```").unwrap();
        assert!(run("```console\n$ exit 5\n```").is_err());
        assert!(run("```console exit=5\n$ exit 5\n$ exit 5\n```").is_err());
        assert!(run("```console ecit=5\n$ exit 5\n```").is_err());
    }

    #[test]
    fn blocks_of_a_document_share_a_folder() {
        run(
            "```console\n$ ls\n$ touch a; test -n \"$VIV_DATA_DIR\"\n```\n```sh\nexit 1\n```\n```console\n$ ls\na\n```",
        )
        .unwrap();
    }

    #[test]
    fn wildcards_match_parts_of_lines_and_whole_lines() {
        assert!(line_matches("done in … s · … calls", "done in 0.6 s · 3 calls"));
        assert!(!line_matches("done in … s · … calls", "done in 0.6 s · 3 call"));
        assert!(lines_match(&["…", "end"], &["a", "b", "end"]) && !lines_match(&["…", "end"], &["a", "b"]));
    }
}
