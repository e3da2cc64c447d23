//! Every Rust file begins with a header that describes it.

use super::Finding;
use crate::tree::Tree;

/// Finds files that do not begin with `//!`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let bare = tree.rust().filter(|(_, text)| {
        let first = text.lines().next().and_then(|line| line.strip_prefix("//!"));
        first.is_none_or(|sentence| sentence.trim().is_empty())
    });
    bare.map(|(path, _)| {
        Finding::new(path, 1, "the file has no header", "begin the file with `//! ` and one sentence that describes it")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_header_is_found() {
        let tree = Tree::of(&[("a.rs", "//! Good.\n"), ("b.rs", "use x;\n"), ("c.rs", "//!\n"), ("d.md", "x")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["b.rs", "c.rs"]);
    }
}
