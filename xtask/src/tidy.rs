//! Rules of the repository that the compiler does not check.
//!
//! A rule is a pure function from the tree to findings. Each finding names a file, a line, the problem and its remedy.
//! `cargo test -p xtask` checks the rules too.
//!
//! Not here: checks that need a built `viv` (`viv`, `transcript`).

mod codes;
mod documents;
mod findings;
mod headers;
mod layers;
mod machine_paths;
mod modules;
mod reserved;
mod sizes;
mod vocabulary;

use std::fmt;

use anyhow::{Result, bail};

use crate::tree::Tree;
use crate::workspace;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

impl Finding {
    /// Returns a finding at `file:line`.
    pub(crate) fn new(file: &str, line: usize, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    remedy: {}", self.file, self.line, self.problem, self.remedy)
    }
}

/// A rule with its name. Each rule has its own file.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// All rules.
const RULES: &[Rule] = &[
    Rule { name: "layers", check: layers::check },
    Rule { name: "modules", check: modules::check },
    Rule { name: "headers", check: headers::check },
    Rule { name: "documents", check: documents::check },
    Rule { name: "reserved", check: reserved::check },
    Rule { name: "machine paths", check: machine_paths::check },
    Rule { name: "sizes", check: sizes::check },
    Rule { name: "vocabulary", check: vocabulary::check },
    Rule { name: "codes", check: codes::check },
    Rule { name: "findings", check: findings::check },
];

/// Checks every rule, and fails with all findings.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read(workspace::root())?;
    let broken = broken(&tree);
    if broken.is_empty() {
        println!("tidy: {} rules hold for {} files", RULES.len(), tree.files().count());
        return Ok(());
    }
    bail!("{}", report(&broken));
}

/// Returns every finding with the name of its rule.
fn broken(tree: &Tree) -> Vec<(&'static str, Finding)> {
    let all = RULES.iter().flat_map(|rule| (rule.check)(tree).into_iter().map(move |finding| (rule.name, finding)));
    all.collect()
}

/// Returns the findings as text, with a count in the last line.
fn report(broken: &[(&'static str, Finding)]) -> String {
    let lines = broken.iter().map(|(rule, finding)| format!("[{rule}] {finding}\n"));
    format!("the repository breaks its rules\n{}{} findings", lines.collect::<String>(), broken.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_keeps_its_rules() {
        let broken = broken(&Tree::read(workspace::root()).unwrap());
        assert!(broken.is_empty(), "{}", report(&broken));
    }
}
