//! Every Rust file says in its first line what it is.

use super::Finding;
use crate::tree::Tree;

/// Finds files that begin with anything but `//!`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let bare = tree.rust().filter(|(_, text)| {
        let first = text.lines().next().and_then(|line| line.strip_prefix("//!"));
        first.is_none_or(|sentence| sentence.trim().is_empty())
    });
    bare.map(|(path, _)| Finding::new(path, 1, "has no header", "begin the file with `//! What it is.`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let tree = Tree::of(&[("a.rs", "//! Good.\n"), ("b.rs", "use x;\n"), ("c.rs", "//!\n"), ("d.md", "x")]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["b.rs", "c.rs"]);
    }
}
