//! Checks that the `viv` commands in documents exist, by asking the built program.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::markdown;
use crate::tidy::Finding;
use crate::tree::Tree;
use crate::workspace;

/// Compares every `viv …` in documents with the program's help, and returns a summary.
pub(crate) fn check_documents(viv: &Path) -> Result<String> {
    let tree = Tree::read(workspace::root())?;
    let mut helps = Helps { viv, known: BTreeMap::new() };
    let (mut findings, mut count) = (Vec::new(), 0);
    for (path, text) in tree.documents() {
        for (line, mention) in mentions(text) {
            count += 1;
            for what in helps.wrong(&mention)? {
                findings.push(Finding::new(path, line, what, "name a command that `viv --help` lists"));
            }
        }
    }
    if findings.is_empty() {
        return Ok(format!("{count} mentions"));
    }
    bail!("{}", findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"));
}

/// The help of each command, cached.
struct Helps<'a> {
    viv: &'a Path,
    known: BTreeMap<Vec<String>, Option<String>>,
}

impl Helps<'_> {
    /// Returns the problems of one mention.
    fn wrong(&mut self, mention: &Mention) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for path in mention.paths() {
            let shown = path.join(" ");
            let Some(help) = self.of(path)? else {
                wrong.push(format!("unknown command `viv {shown}`"));
                continue;
            };
            let unknown = mention.flags.iter().filter(|flag| !has_flag(&help, flag));
            wrong.extend(unknown.map(|flag| format!("`viv {shown}` has no `{flag}`")));
        }
        Ok(wrong)
    }

    /// Returns the help of a command; `None` for an unknown command.
    fn of(&mut self, path: Vec<String>) -> Result<Option<String>> {
        if let Some(help) = self.known.get(&path) {
            return Ok(help.clone());
        }
        let output = Command::new(self.viv).args(&path).arg("--help").output();
        let output = output.with_context(|| format!("cannot run {}", self.viv.display()))?;
        let help = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned());
        self.known.insert(path, help.clone());
        Ok(help)
    }
}

/// A `viv` command line in a document.
#[derive(Debug, PartialEq, Eq)]
struct Mention {
    /// The commands: at most two words, each with its alternatives (`ls|show`).
    words: Vec<Vec<String>>,
    flags: Vec<String>,
}

impl Mention {
    /// Parses `viv …`; `None` for other text.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim_start_matches("$ ").replace('\\', "");
        let rest = text.strip_prefix("viv ")?;
        let (mut words, mut flags) = (Vec::new(), Vec::new());
        for word in rest.split_whitespace().take_while(|word| !matches!(*word, "--" | "#" | "|" | "&&" | ";" | ">")) {
            let bare = word.trim_matches(['[', ']', ',']);
            if let Some(name) = bare.strip_prefix("--") {
                let name = name.split(['=', '|']).next().unwrap_or(name);
                flags.push(format!("--{name}"));
            } else if words.len() < 2 && is_command(bare) && !word.starts_with('[') {
                words.push(bare.split('|').map(str::to_owned).collect());
            }
        }
        Some(Self { words, flags })
    }

    /// Returns every command, with alternatives expanded.
    fn paths(&self) -> Vec<Vec<String>> {
        self.words.iter().fold(vec![Vec::new()], |paths, alternatives| {
            let longer = paths.iter().flat_map(|path| {
                alternatives.iter().map(move |word| path.iter().chain([word]).cloned().collect::<Vec<String>>())
            });
            longer.collect()
        })
    }
}

/// Returns whether a word is a command, not a placeholder, value or quoted text.
fn is_command(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_lowercase())
        && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-' || letter == '|')
}

/// Returns every mention in a document with its line.
fn mentions(text: &str) -> Vec<(usize, Mention)> {
    let parts = markdown::parts(text);
    let code = parts.iter().flat_map(markdown::Part::code);
    code.filter_map(|(line, code)| Some((line, Mention::read(code)?))).collect()
}

/// Returns whether the help lists exactly this flag.
fn has_flag(help: &str, flag: &str) -> bool {
    help.match_indices(flag).any(|(at, _)| {
        let after = help[at + flag.len()..].chars().next();
        after.is_none_or(|letter| !letter.is_ascii_alphanumeric() && letter != '-')
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A script that answers `--help` like a parser of nested commands.
    const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
  --help) echo "--data-dir <DIR>" ;;
  "run --help" | "run mock --help") echo "--json" ;;
  "sessions --help" | "sessions ls --help" | "sessions show --help") echo "--json-lines" ;;
  *) exit 2 ;;
esac
"#;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let name = format!("viv-help-{}-{:?}", std::process::id(), std::thread::current().id());
        let program = std::env::temp_dir().join(name);
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let mut helps = Helps { viv: &program, known: BTreeMap::new() };
        let found: Vec<_> = mentions(text).iter().flat_map(|(_, mention)| helps.wrong(mention).unwrap()).collect();
        std::fs::remove_file(&program).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn known_commands_pass() {
        check("`viv run mock \"say hello\" --json`, `viv sessions ls|show SESSION`, `viv --data-dir DIR`, `viv`", &[]);
        check("```console\n$ viv sessions ls | wc -l\n```", &[]);
    }

    #[test]
    fn unknown_commands_and_flags_are_found() {
        check("`viv rnu`", &["unknown command `viv rnu`"]);
        check("`viv sessions ls\\|purge`", &["unknown command `viv sessions purge`"]);
        check("`viv sessions ls --json`", &["`viv sessions ls` has no `--json`"]);
    }
}
