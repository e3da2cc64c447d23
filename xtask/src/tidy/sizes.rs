//! Files and functions stay short. A long one usually lacks a noun.

use super::Finding;
use crate::source;
use crate::tree::Tree;

/// Most lines of a file, without its tests.
const FILE_LINES: usize = 400;
/// Most lines of a function, from its name to its closing brace.
const FUNCTION_LINES: usize = 60;

/// Finds files and functions that are too long.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let code = source::code(text);
    let in_tests: usize = source::test_blocks(&code).iter().map(|block| text[block.clone()].lines().count()).sum();
    let lines = text.lines().count().saturating_sub(in_tests);
    let mut findings = Vec::new();
    if lines > FILE_LINES {
        findings.push(Finding::new(
            path,
            1,
            format!("the file has {lines} lines, the limit is {FILE_LINES}"),
            "split the file by noun",
        ));
    }
    for at in source::words(&code, "fn") {
        let name = code[at + 2..].trim_start().split(['(', '<']).next().unwrap_or("").trim();
        // `fn(…)` is a type and has no body of its own.
        let Some(block) = (!name.is_empty()).then(|| source::block(&code, at)).flatten() else { continue };
        let lines = code[at..block.end].lines().count();
        if lines > FUNCTION_LINES {
            let problem = format!("`{name}` has {lines} lines, the limit is {FUNCTION_LINES}");
            findings.push(Finding::new(
                path,
                source::line(text, at),
                problem,
                "move one step into a function with its own name",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<_> = check_file("a.rs", text).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn long_functions_are_found() {
        let body = "    step();\n".repeat(60);
        check(
            &format!("type F = fn(u8);\nfn long<T>(t: T) {{\n{body}}}\nfn short() {{}}\n"),
            &["`long` has 62 lines, the limit is 60"],
        );
    }

    #[test]
    fn tests_do_not_make_a_file_long() {
        let lines = "const A: u8 = 1;\n".repeat(401);
        check(&lines, &["the file has 401 lines, the limit is 400"]);
        check(&format!("#[cfg(test)]\nmod tests {{\n{lines}}}"), &[]);
    }
}
