//! Every Rust file is compiled: a `mod` line or a manifest reaches it.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use crate::source;
use crate::tree::{Tree, folder, has_extension, join};

/// Follows every `mod` from the crate roots, and finds the files that no `mod` reaches.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<(String, bool)> = roots(tree).into_iter().map(|root| (root, true)).collect();
    while let Some((path, is_root)) = waiting.pop() {
        if let Some(text) = tree.text(&path)
            && reached.insert(path.clone())
        {
            waiting.extend(children(tree, &path, text, is_root).into_iter().map(|child| (child, false)));
        }
    }
    let left = tree.rust().filter(|(path, _)| !reached.contains(*path));
    left.map(|(path, _)| Finding::new(path, 1, "no `mod` reaches this file", "declare the module, or delete the file"))
        .collect()
}

/// Returns the crate roots, which cargo compiles without a `mod` line.
fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for (package, _, text) in tree.packages() {
        let inside = |path: &str| join(package, path);
        roots.extend(["src/lib.rs", "src/main.rs", "build.rs"].into_iter().filter_map(inside));
        roots.extend(named_in_manifest(text).iter().filter_map(|path| inside(path)));
        for place in ["src/bin", "tests", "benches", "examples"] {
            let Some(place) = inside(place) else { continue };
            let below = tree.rust().map(|(path, _)| path).filter(|path| {
                let place_of_file = folder(path);
                place_of_file == place || (folder(place_of_file) == place && path.ends_with("/main.rs"))
            });
            roots.extend(below.map(str::to_owned));
        }
    }
    roots
}

/// Returns the paths that a manifest gives to its targets.
fn named_in_manifest(text: &str) -> Vec<String> {
    let Ok(manifest) = text.parse::<Table>() else { return Vec::new() };
    let build = manifest.get("package").and_then(|package| package.get("build"));
    let targets = ["lib", "bin", "test", "bench", "example"].into_iter().filter_map(|kind| manifest.get(kind));
    let tables = targets.flat_map(|target| match target {
        Value::Array(several) => several.iter().collect(),
        one => vec![one],
    });
    let paths = tables.filter_map(|target| target.get("path")).chain(build);
    paths.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the files that the `mod` and `include!` lines of one file name, existing or not.
fn children(tree: &Tree, path: &str, text: &str, is_root: bool) -> Vec<String> {
    let code = source::code(text);
    let owns_folder = is_root || path.ends_with("/mod.rs");
    let base = if owns_folder { folder(path) } else { path.trim_end_matches(".rs") };
    let mut found = Vec::new();
    for at in source::words(&code, "mod") {
        let rest = code[at + 3..].trim_start();
        let name: &str = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or("");
        if name.is_empty() || !rest[name.len()..].trim_start().starts_with(';') {
            continue;
        }
        if let Some(given) = path_attribute(&code[..at], text) {
            found.extend(join(folder(path), given));
            continue;
        }
        let place = enclosing(&code, at).iter().fold(base.to_owned(), |place, module| format!("{place}/{module}"));
        let named = [format!("{name}.rs"), format!("{name}/mod.rs")];
        found.extend(named.iter().filter_map(|file| join(&place, file)).filter(|file| tree.has(file)));
    }
    for at in source::words(&code, "include!") {
        let literal = text[at..].split('"').nth(1).filter(|path| has_extension(path, "rs"));
        found.extend(literal.and_then(|path_in_literal| join(folder(path), path_in_literal)));
    }
    found
}

/// Returns the value of a `#[path = "…"]` attribute at the end of `code`.
fn path_attribute<'a>(code: &str, text: &'a str) -> Option<&'a str> {
    let before = code.trim_end().trim_end_matches("pub").trim_end().trim_end_matches("pub(crate)").trim_end();
    let open = before.rfind("#[")?;
    let attribute = &before[open..];
    let is_path = attribute[2..].trim_start().starts_with("path") && attribute.ends_with(']');
    is_path.then(|| text[open..before.len()].split('"').nth(1)).flatten()
}

/// Returns the names of the inline modules around an offset, outermost first.
fn enclosing(code: &str, place: usize) -> Vec<&str> {
    let around = source::words(code, "mod").filter_map(|at| {
        let rest = &code[at + 3..];
        let name = rest.trim_start().split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
        let block = source::block(code, at)?;
        block.contains(&place).then_some(name)
    });
    around.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expected: &[&str]) {
        let mut all = vec![("k/Cargo.toml", "[package]\nname = \"k\"\n[[bin]]\nname = \"b\"\npath = \"src/other.rs\"")];
        all.extend_from_slice(files);
        let found: Vec<_> = check(&Tree::of(&all)).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unreached_file_is_found() {
        let lib = "// mod ghost;\nmod a;\nconst S: &str = \"mod ghost;\";";
        check_files(&[("k/src/lib.rs", lib), ("k/src/a.rs", ""), ("k/src/ghost.rs", "")], &["k/src/ghost.rs"]);
    }

    #[test]
    fn child_of_an_unreached_file_is_found() {
        check_files(
            &[("k/src/lib.rs", ""), ("k/src/a.rs", "mod b;"), ("k/src/a/b.rs", "")],
            &["k/src/a.rs", "k/src/a/b.rs"],
        );
    }

    #[test]
    fn every_form_of_mod_is_followed() {
        let lib = "mod a;\npub mod c { pub(crate) mod d; }\n#[path = \"odd/name.rs\"]\nmod e;\ninclude!(\"part.rs\");";
        check_files(
            &[
                ("k/src/lib.rs", lib),
                ("k/src/other.rs", "mod of_bin;"),
                ("k/src/of_bin.rs", ""),
                ("k/src/a/mod.rs", "mod b;"),
                ("k/src/a/b.rs", ""),
                ("k/src/c/d.rs", ""),
                ("k/src/odd/name.rs", ""),
                ("k/src/part.rs", ""),
                ("k/tests/one.rs", "mod kit;"),
                ("k/tests/kit/mod.rs", ""),
                ("k/tests/two/main.rs", "mod part;"),
                ("k/tests/two/part.rs", ""),
                ("k/build.rs", ""),
            ],
            &[],
        );
    }

    #[test]
    fn folder_below_tests_is_not_a_test_root() {
        check_files(&[("k/tests/kit/mod.rs", "")], &["k/tests/kit/mod.rs"]);
    }
}
