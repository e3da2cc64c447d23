//! The rules of the repository that no compiler checks.
//!
//! A rule is a pure function from the tree to findings, and its file says what it guards. Each finding
//! names a file, a line and how to mend it. `cargo test -p xtask` runs them too.
//!
//! Not here: what needs a built `viv` (`viv`, `transcript`).

mod codes;
mod documents;
mod headers;
mod layers;
mod modules;
mod places;
mod sizes;
mod wall;

use std::fmt;

use anyhow::{Result, bail};

use crate::tree::Tree;
use crate::workspace;

/// Something that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) mend: String,
}

impl Finding {
    /// A finding at a place.
    pub(crate) fn new(file: &str, line: usize, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    mend: {}", self.file, self.line, self.what, self.mend)
    }
}

/// One rule, in a file of its own.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// What must hold.
const RULES: &[Rule] = &[
    Rule { name: "layers", check: layers::check },
    Rule { name: "modules", check: modules::check },
    Rule { name: "headers", check: headers::check },
    Rule { name: "documents", check: documents::check },
    Rule { name: "wall", check: wall::check },
    Rule { name: "places", check: places::check },
    Rule { name: "codes", check: codes::check },
];

/// Checks every rule; what is only worth a second look is told and fails nothing.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read(workspace::root())?;
    for finding in sizes::check(&tree) {
        println!("warning: {finding}");
    }
    let broken = broken(&tree);
    if broken.is_empty() {
        println!("tidy: {} rules hold for {} files", RULES.len(), tree.files().count());
        return Ok(());
    }
    bail!("{}", report(&broken));
}

/// Every finding, with the name of its rule.
fn broken(tree: &Tree) -> Vec<(&'static str, Finding)> {
    let all = RULES.iter().flat_map(|rule| (rule.check)(tree).into_iter().map(move |finding| (rule.name, finding)));
    all.collect()
}

/// Findings as text, with a last line that counts them.
fn report(broken: &[(&'static str, Finding)]) -> String {
    let lines = broken.iter().map(|(rule, finding)| format!("[{rule}] {finding}\n"));
    format!("the repository is not tidy\n{}{} to mend", lines.collect::<String>(), broken.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let broken = broken(&Tree::read(workspace::root()).unwrap());
        assert!(broken.is_empty(), "{}", report(&broken));
    }
}
