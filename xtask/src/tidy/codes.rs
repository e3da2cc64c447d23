//! docs/errors.md and docs/exit-codes.md list exactly the problem codes of `protocol`, with their numbers.

use std::collections::BTreeMap;

use protocol::ProblemCode;

use super::Finding;
use crate::markdown::{self, Kind};
use crate::tree::Tree;

const ERRORS: &str = "docs/errors.md";
const EXITS: &str = "docs/exit-codes.md";

/// Compares both documents with the codes of `protocol`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (errors, exits) = (tree.text(ERRORS).unwrap_or_default(), tree.text(EXITS).unwrap_or_default());
    [check_errors(errors), check_exits(exits)].concat()
}

/// Checks docs/errors.md: a heading for each code, below it the numbers, `Cause:` and `Remedy:`.
fn check_errors(text: &str) -> Vec<Finding> {
    let sections = sections(text);
    let mut findings = Vec::new();
    for code in ProblemCode::ALL {
        let name = code.as_str();
        let Some((line, body)) = sections.get(name) else {
            findings.push(Finding::new(
                ERRORS,
                1,
                format!("`{name}` is missing"),
                format!("add a section `## {name}`"),
            ));
            continue;
        };
        let numbers = format!("HTTP {}, exit code {}.", code.status(), code.exit());
        let wanted = [(numbers.as_str(), 0), ("Cause: ", 1), ("Remedy: ", 1)];
        for (start, at_least) in wanted {
            let there = body.iter().any(|line| line.strip_prefix(start).is_some_and(|rest| rest.len() >= at_least));
            if !there {
                findings.push(Finding::new(ERRORS, *line, format!("`{name}` lacks `{start}`"), "add the line"));
            }
        }
    }
    let extra = sections.iter().filter(|(name, _)| !ProblemCode::ALL.iter().any(|code| code.as_str() == **name));
    findings.extend(extra.map(|(name, (line, _))| {
        Finding::new(ERRORS, *line, format!("unknown code `{name}`"), "delete the section, or correct its name")
    }));
    findings
}

/// Checks docs/exit-codes.md: a table row for each exit code, with the problem codes that lead to it.
fn check_exits(text: &str) -> Vec<Finding> {
    let rows: BTreeMap<u8, (usize, Vec<&str>)> = (text.lines().enumerate())
        .filter_map(|(index, line)| {
            let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let named = cells.get(2)?.split('`').skip(1).step_by(2).collect();
            Some((cells[0].parse().ok()?, (index + 1, named)))
        })
        .collect();
    let mut findings = Vec::new();
    for code in ProblemCode::ALL {
        let (name, exit) = (code.as_str(), code.exit());
        if !rows.get(&exit).is_some_and(|(_, named)| named.contains(&name)) {
            let remedy = format!("add the code to the row of {exit}");
            findings.push(Finding::new(EXITS, 1, format!("`{name}` is not in the row of {exit}"), remedy));
        }
    }
    for (exit, (line, named)) in &rows {
        let wrong = named
            .iter()
            .filter(|name| !ProblemCode::ALL.iter().any(|code| code.as_str() == **name && code.exit() == *exit));
        findings.extend(wrong.map(|name| {
            Finding::new(EXITS, *line, format!("`{name}` does not lead to {exit}"), "remove the code from the row")
        }));
    }
    findings
}

/// The sections of the second level: name → line of the heading and lines below it.
fn sections(text: &str) -> BTreeMap<&str, (usize, Vec<&str>)> {
    let headings: Vec<(usize, &str)> = (markdown::parts(text).into_iter())
        .filter_map(|part| match part.kind {
            Kind::Heading(2, title) => Some((part.line, title.trim_matches('`'))),
            _ => None,
        })
        .collect();
    let lines: Vec<&str> = text.lines().collect();
    let ends = headings.iter().skip(1).map(|(line, _)| line - 1).chain([lines.len()]);
    headings.iter().zip(ends).map(|((line, name), end)| (*name, (*line, lines[*line..end].to_vec()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(code: ProblemCode) -> String {
        let (name, status, exit) = (code.as_str(), code.status(), code.exit());
        format!("## {name}\nHTTP {status}, exit code {exit}.\nCause: x.\nRemedy: y.\n")
    }

    fn errors_but(replaced: ProblemCode, with: &str) -> Vec<String> {
        let text: String =
            ProblemCode::ALL.iter().map(|code| if *code == replaced { with.into() } else { section(*code) }).collect();
        check_errors(&text).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_code_that_is_missing_wrong_or_made_up_is_found() {
        assert_eq!(errors_but(ProblemCode::Timeout, &section(ProblemCode::Timeout)), [""; 0]);
        assert_eq!(errors_but(ProblemCode::Timeout, ""), ["`timeout` is missing"]);
        assert_eq!(
            errors_but(ProblemCode::Timeout, "## timeout\nHTTP 200, exit code 0.\nCause: \nRemedy: y.\n"),
            ["`timeout` lacks `HTTP 504, exit code 124.`", "`timeout` lacks `Cause: `"]
        );
        let extra = format!("{}## made_up\n", section(ProblemCode::Timeout));
        assert_eq!(errors_but(ProblemCode::Timeout, &extra), ["unknown code `made_up`"]);
    }

    #[test]
    fn a_code_in_the_wrong_row_is_found() {
        let mut rows: BTreeMap<u8, String> = BTreeMap::new();
        for code in ProblemCode::ALL {
            let exit = if *code == ProblemCode::Timeout { 1 } else { code.exit() };
            *rows.entry(exit).or_default() += &["`", code.as_str(), "` "].concat();
        }
        let table: Vec<_> = rows.iter().map(|(exit, codes)| format!("| {exit} | meaning | {codes} |")).collect();
        let found: Vec<_> = check_exits(&table.join("\n")).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, ["`timeout` is not in the row of 124", "`timeout` does not lead to 1"]);
    }
}
