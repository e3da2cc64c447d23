//! No file contains a path of a developer's machine or the host of a package registry.

use super::Finding;
use crate::tree::Tree;
use crate::workspace;

/// Home directories that are examples or exist only in a sandbox.
const EXAMPLE_HOMES: &[&str] = &["agent", "sandbox", "user", "viv", "you"];

/// Hosts of package registries, split into labels so that this file keeps its own rule.
const REGISTRIES: &[&[&str]] = &[
    &["crates", "io"],
    &["npmjs", "org"],
    &["yarnpkg", "com"],
    &["pypi", "org"],
    &["pythonhosted", "org"],
    &["deb", "debian", "org"],
    &["archive", "ubuntu", "com"],
    &["rubygems", "org"],
    &["proxy", "golang", "org"],
];

/// Common folders that do not identify a machine.
const COMMON: &[&str] = &["", "/", "/build", "/home", "/mnt", "/opt", "/repo", "/root", "/src", "/srv", "/tmp"];
const COMMON_BELOW: &[&str] = &["/usr", "/var", "/workspace"];

/// The lock file names its registry by design; this file contains examples.
const EXEMPT: &[&str] = &["Cargo.lock", "xtask/src/tidy/machine_paths.rs"];

/// Finds machine paths and registries in every file.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let root = workspace::root();
    let folders: Vec<String> = [Some(root), root.parent()]
        .into_iter()
        .flatten()
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !is_common(path))
        .collect();
    check_against(&folders, tree)
}

fn is_common(path: &str) -> bool {
    COMMON.contains(&path) || COMMON_BELOW.iter().any(|folder| path.starts_with(folder))
}

fn check_against(folders: &[String], tree: &Tree) -> Vec<Finding> {
    let lines = tree
        .files()
        .filter(|(path, _)| !EXEMPT.contains(path))
        .flat_map(|(path, text)| text.lines().enumerate().map(move |(index, content)| (path, index + 1, content)));
    let found = lines.flat_map(|(path, line, content)| {
        problems(folders, content).into_iter().map(move |(problem, remedy)| Finding::new(path, line, problem, remedy))
    });
    found.collect()
}

/// Returns the problems of one line.
fn problems(folders: &[String], content: &str) -> Vec<(String, &'static str)> {
    let mut problems = Vec::new();
    for folder in folders {
        if content.contains(&format!("{folder}/")) {
            problems.push((
                format!("names `{folder}`, a folder of this machine"),
                "use a path from the root of the repository",
            ));
        }
    }
    if content.match_indices("/root/").any(|(at, _)| starts_a_path(content, at)) {
        problems.push(("names a file of root's home".to_owned(), "use a temporary folder or an example path"));
    }
    for (at, prefix) in content.match_indices("/home/").filter(|(at, _)| starts_a_path(content, *at)) {
        let rest = &content[at + prefix.len()..];
        let name = rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').next().unwrap_or("");
        if !name.is_empty() && !EXAMPLE_HOMES.contains(&name) {
            problems.push((format!("names the home of `{name}`"), "use `/home/you` in an example"));
        }
    }
    for host in REGISTRIES.iter().map(|labels| labels.join(".")).filter(|host| content.contains(host)) {
        problems
            .push((format!("names the package registry `{host}`"), "name the package, and let the machine find it"));
    }
    problems
}

/// Returns whether the slash at `at` begins an absolute path.
fn starts_a_path(content: &str, at: usize) -> bool {
    let before = content[..at].chars().next_back();
    before.is_none_or(|letter| !letter.is_alphanumeric() && !matches!(letter, '_' | '-' | '.' | '}' | '>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found = check_against(&["/data/ann".to_owned()], &Tree::of(&[("a.md", text)]));
        assert_eq!(found.iter().map(|finding| finding.problem.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn machine_paths_are_found() {
        check("see /data/ann/viv/x", &["names `/data/ann`, a folder of this machine"]);
        check("cp /root/.netrc .", &["names a file of root's home"]);
        check("HOME=/home/ann/x", &["names the home of `ann`"]);
    }

    #[test]
    fn examples_and_parts_of_other_paths_pass() {
        check("/data/anna/x, /home/you/x, /home/<name>, $state/root/etc, upper/home/x", &[]);
    }

    #[test]
    fn registries_are_found_except_in_the_lock_file() {
        let host = REGISTRIES[0].join(".");
        check(&format!("curl https://{host}/simple"), &[&format!("names the package registry `{host}`")]);
        let named = format!("registry+https://{host}/x");
        let lock = Tree::of(&[("Cargo.lock", &named)]);
        assert_eq!(check_against(&[], &lock), []);
    }

    #[test]
    fn common_folder_of_a_checkout_passes() {
        assert!(is_common("/tmp") && is_common("/usr/src") && is_common("/workspace"));
        assert!(!is_common("/data/ann"));
    }
}
