//! The table of findings in docs/SECURITY.md names tests that exist.

use super::Finding;
use crate::tree::Tree;

const SECURITY: &str = "docs/SECURITY.md";
const MARKERS: [&str; 2] = ["<!-- findings: begin -->", "<!-- findings: end -->"];
/// The folder of the attacks. The name of an attack is a literal there.
const ATTACKS: &str = "tests/security/src/";

/// Checks every row of the table.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(SECURITY).unwrap_or_default();
    let rows: Vec<(usize, &str)> = (text.lines().enumerate())
        .skip_while(|(_, line)| *line != MARKERS[0])
        .take_while(|(_, line)| *line != MARKERS[1])
        .filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| finding |") && !line.starts_with("| --- |"))
        .map(|(index, line)| (index + 1, line))
        .collect();
    if rows.is_empty() {
        let remedy = format!("write the table between `{}` and `{}`", MARKERS[0], MARKERS[1]);
        return vec![Finding::new(SECURITY, 1, "there is no table of findings", remedy)];
    }
    rows.into_iter().flat_map(|(line, row)| check_row(tree, line, row)).collect()
}

fn check_row(tree: &Tree, line: usize, row: &str) -> Vec<Finding> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [id, _, tests] = cells[..] else {
        return vec![Finding::new(
            SECURITY,
            line,
            "a row does not have three cells",
            "write finding, problem and tests",
        )];
    };
    let named: Vec<&str> = tests.split('`').skip(1).step_by(2).filter(|name| is_test_name(name)).collect();
    if named.is_empty() {
        let remedy = "name the test that fails without the fix";
        return vec![Finding::new(SECURITY, line, format!("{id} has no test"), remedy)];
    }
    let missing = named.into_iter().filter(|name| !exists(tree, name));
    missing
        .map(|name| Finding::new(SECURITY, line, format!("{id} names the unknown test `{name}`"), "correct the name"))
        .collect()
}

fn is_test_name(name: &str) -> bool {
    name.contains('_') && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Returns whether a function or an attack has this name.
fn exists(tree: &Tree, name: &str) -> bool {
    let (function, literal) = (format!("fn {name}("), format!("\"{name}\""));
    tree.rust().any(|(path, text)| text.contains(&function) || path.starts_with(ATTACKS) && text.contains(&literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_table(rows: &str) -> Vec<String> {
        let document = format!("{}\n\n| finding | problem | tests |\n{rows}\n{}\n", MARKERS[0], MARKERS[1]);
        let attacks = "program(Net, \"net_pair\", \"make a pair\")";
        let tree = Tree::of(&[
            (SECURITY, &document),
            ("tests/security/src/net.rs", attacks),
            ("crates/a/src/lib.rs", "fn links_are_refused() {}"),
        ]);
        check(&tree).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn tests_that_exist_are_accepted() {
        assert!(check_table("| H1 | a link | `net_pair` `links_are_refused` |").is_empty());
    }

    #[test]
    fn unknown_and_missing_tests_are_found() {
        assert_eq!(
            check_table("| H1 | a link | `links_are_followed` |"),
            ["H1 names the unknown test `links_are_followed`"]
        );
        assert_eq!(check_table("| H2 | a link | see below |"), ["H2 has no test"]);
        assert_eq!(check_table(""), ["there is no table of findings"]);
    }
}
