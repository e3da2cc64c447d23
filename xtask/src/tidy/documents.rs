//! Files, links, anchors, `cargo xtask` commands and programs that documents name exist.

use toml::{Table, Value};

use super::Finding;
use crate::markdown::{self, Kind};
use crate::tree::{Tree, folder, has_extension, join};
use crate::{bench, command};

/// Folders of the repository. A path that begins with one of them must exist.
const FOLDERS: &[&str] = &[".cargo", ".ci", "bench", "crates", "docs", "fuzz", "sdk", "tasks", "tests", "web", "xtask"];

/// Checks every document.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.documents().flat_map(|(path, text)| check_document(tree, path, text)).collect()
}

fn check_document(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in markdown::parts(text) {
        let named = match part.kind {
            Kind::Code(code) => missing_path(tree, path, code),
            Kind::Link(target) => missing_target(tree, path, text, target),
            Kind::Heading(..) | Kind::Fence(..) => None,
        };
        let named = named.into_iter().map(|problem| (part.line, problem));
        let code = part.code().into_iter();
        let commands =
            code.flat_map(|(line, code)| wrong_cargo(tree, code).into_iter().map(move |problem| (line, problem)));
        let remedy = "correct the name";
        findings.extend(named.chain(commands).map(|(line, problem)| Finding::new(path, line, problem, remedy)));
    }
    findings
}

/// Returns a problem when inline code is a path that does not exist in the repository.
fn missing_path(tree: &Tree, document: &str, code: &str) -> Option<String> {
    if code.is_empty() || code.contains(|letter: char| letter.is_whitespace() || "*<>{}$…\"'()|=~@".contains(letter))
    {
        return None;
    }
    let path = match code.rsplit_once(':') {
        Some((path, line)) if line.bytes().all(|digit| digit.is_ascii_digit()) => path,
        _ => code,
    };
    let below = |place: &str| join(place, path).is_some_and(|joined| tree.has(&joined));
    let found = match path.split_once('/') {
        Some((first, _)) if FOLDERS.contains(&first) => below(""),
        Some(_) if has_extension(path, "rs") => below("") || below("crates") || below(folder(document)),
        None if has_extension(path, "rs") => tree.rust().any(|(file, _)| file.rsplit('/').next() == Some(path)),
        None if has_extension(path, "md") => below("") || below(folder(document)),
        _ => true,
    };
    (!found).then(|| format!("`{code}` does not exist"))
}

fn missing_target(tree: &Tree, document: &str, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, wanted) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { Some(document.to_owned()) } else { join(folder(document), file) };
    let Some(path) = path.filter(|path| tree.has(path)) else {
        return Some(format!("the link `{target}` has no target"));
    };
    let text = if path == document { text } else { tree.text(&path).unwrap_or_default() };
    let has_anchor = |wanted: &str| {
        markdown::parts(text).iter().any(|part| match part.kind {
            Kind::Heading(_, title) => markdown::anchor(title) == wanted,
            _ => false,
        })
    };
    wanted.filter(|wanted| !has_anchor(wanted)).map(|wanted| format!("`{path}` has no heading for `#{wanted}`"))
}

/// Returns problems with the words after `cargo`.
fn wrong_cargo(tree: &Tree, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.trim_start_matches("$ ").split_whitespace().collect();
    let mut wrong = Vec::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "cargo") {
        let rest = &words[at + 1..];
        if let ["xtask", name, more @ ..] = rest
            && is_name(name)
        {
            if !command::COMMANDS.iter().any(|command| command.name == *name) {
                wrong.push(format!("unknown command `cargo xtask {name}`"));
            }
            let bench = more.first().filter(|bench| *name == "bench" && is_name(bench));
            let unknown = bench.filter(|bench| !bench::BENCHES.iter().any(|known| known.name == **bench));
            wrong.extend(unknown.map(|bench| format!("unknown bench `cargo xtask bench {bench}`")));
        }
        let program = rest.iter().position(|word| *word == "--bin").and_then(|at| rest.get(at + 1));
        let unknown = program.filter(|name| is_name(name) && !programs(tree).iter().any(|program| program == *name));
        wrong.extend(unknown.map(|name| format!("unknown program `{name}`")));
    }
    wrong
}

/// Returns whether a word is a name, not a placeholder.
fn is_name(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
        && !word.starts_with('-')
}

/// Returns the programs that our manifests define.
fn programs(tree: &Tree) -> Vec<String> {
    let manifests = tree.packages().filter_map(|(_, _, text)| text.parse::<Table>().ok());
    let bins =
        manifests.flat_map(|manifest| manifest.get("bin").and_then(Value::as_array).cloned().unwrap_or_default());
    bins.filter_map(|bin| bin.get("name").and_then(Value::as_str).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let tree = Tree::of(&[
            ("README.md", "# T\n## Where it lives\n"),
            ("docs/a.md", ""),
            ("crates/jail/src/sys.rs", ""),
            ("crates/cli/Cargo.toml", "[package]\nname = \"cli\"\n[[bin]]\nname = \"viv\""),
        ]);
        let found: Vec<_> =
            check_document(&tree, "docs/x.md", text).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn existing_paths_pass() {
        check("`crates/jail`, `crates/jail/src/sys.rs:12`, `jail/src/sys.rs`, `sys.rs`, `README.md`, `a.md`", &[]);
        check("`trajectory/<session>.jsonl`, `/v1/sessions`, `sandbox.policy.yaml`, `crates/*/src`, `v1/x`", &[]);
    }

    #[test]
    fn missing_paths_are_found() {
        check("`crates/none`", &["`crates/none` does not exist"]);
        check("`web/app.ts` `gone.rs`", &["`web/app.ts` does not exist", "`gone.rs` does not exist"]);
        check("`b.md`", &["`b.md` does not exist"]);
    }

    #[test]
    fn broken_links_are_found() {
        check("[a](a.md) [r](../README.md#where-it-lives) [w](https://example.com/x)", &[]);
        check("[b](b.md)", &["the link `b.md` has no target"]);
        check("[r](../README.md#no)", &["`README.md` has no heading for `#no`"]);
        check("[out](../../x.md)", &["the link `../../x.md` has no target"]);
    }

    #[test]
    fn unknown_commands_are_found() {
        check(
            "```sh\ncargo xtask test --fast\ncargo run --release --bin viv -- demo\n```\n`cargo xtask bench NAME`",
            &[],
        );
        check("`cargo xtask tets`", &["unknown command `cargo xtask tets`"]);
        check("`cargo xtask bench none`", &["unknown bench `cargo xtask bench none`"]);
        check("```sh\n$ cargo run --bin vvi\n```", &["unknown program `vvi`"]);
    }
}
