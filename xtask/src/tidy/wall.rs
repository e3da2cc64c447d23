//! What may stand in one place only, or nowhere.
//!
//! `unsafe` is in one file of the product, so that one person can read all of it, and in one of the attacks on
//! it. Unfinished code and switched-off tests are nowhere. Only the command line reads the environment:
//! everything below gets values.

use super::Finding;
use crate::source;
use crate::tree::Tree;

/// The one file with `unsafe`.
const UNSAFE_FILE: &str = "crates/jail/src/sys.rs";
/// The attacker's; it makes calls that no program of ours ever does.
const UNSAFE_ATTACKS: &str = "tests/security/src/raw.rs";
/// The file that lets the compiler accept it.
const UNSAFE_PARENT: &str = "crates/jail/src/lib.rs";

/// What is never left in, and why.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "finish it"),
    ("unimplemented!", "finish it, or return an error"),
    ("dbg!", "remove it"),
    ("#[ignore", "make the test run, or delete it"),
];

/// How the environment is read.
const ENVIRONMENT: &[&str] =
    &["env::var", "env::var_os", "env::vars", "env::vars_os", "env::temp_dir", "env::home_dir"];

/// Finds what stands where it may not.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let code = source::code(text);
    let at = |at, what: String, mend: &str| Finding::new(path, source::line(text, at), what, mend);
    let mut findings = Vec::new();
    if path != UNSAFE_FILE && path != UNSAFE_ATTACKS {
        let mend = format!("put the system call in {UNSAFE_FILE}, behind a safe function");
        findings
            .extend(source::words(&code, "unsafe").map(|place| at(place, "`unsafe` outside its file".into(), &mend)));
        if path != UNSAFE_PARENT {
            let allowed = source::words(&code, "unsafe_code");
            findings.extend(allowed.map(|place| at(place, "the lint `unsafe_code` is changed here".into(), &mend)));
        }
    }
    for (word, mend) in UNFINISHED {
        findings.extend(source::words(&code, word).map(|place| at(place, format!("`{word}` is left in"), mend)));
    }
    if !may_read_environment(path) {
        let tests = source::test_blocks(&code);
        let reads = ENVIRONMENT.iter().flat_map(|word| source::words(&code, word).map(move |place| (*word, place)));
        let outside = reads.filter(|(_, place)| !tests.iter().any(|block| block.contains(place)));
        let mend = "read it in crates/cli and pass the value down";
        findings.extend(outside.map(|(word, place)| at(place, format!("`{word}` reads the environment"), mend)));
    }
    findings
}

fn may_read_environment(path: &str) -> bool {
    let in_folder = |name: &str| path.split('/').rev().skip(1).any(|folder| folder == name);
    path.starts_with("crates/cli/")
        || path.starts_with("xtask/")
        || path.ends_with("build.rs")
        || in_folder("tests")
        || in_folder("benches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let found: Vec<_> = check_file(path, text).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unsafe_is_found_outside_its_file() {
        let text = "fn f() { unsafe { g() } }";
        check("crates/jail/src/init.rs", text, &["`unsafe` outside its file"]);
        check(UNSAFE_FILE, text, &[]);
        check(UNSAFE_ATTACKS, text, &[]);
        check("tests/security/src/main.rs", text, &["`unsafe` outside its file"]);
        check("crates/jail/src/init.rs", "// unsafe\nlet s = \"unsafe\";", &[]);
    }

    #[test]
    fn the_lint_is_switched_off_for_that_file_alone() {
        let text = "#[allow(unsafe_code)]\nmod sys;";
        check("crates/store/src/lib.rs", text, &["the lint `unsafe_code` is changed here"]);
        check(UNSAFE_PARENT, text, &[]);
    }

    #[test]
    fn unfinished_code_is_found() {
        check(
            "a.rs",
            "#[ignore = \"slow\"]\nfn f() { dbg!(1); todo!() }\nfn g() { unimplemented!(\"x\") }",
            &["`todo!` is left in", "`unimplemented!` is left in", "`dbg!` is left in", "`#[ignore` is left in"],
        );
    }

    #[test]
    fn the_environment_is_read_by_the_command_line_and_by_tests_alone() {
        let text = "fn f() { std::env::var(\"X\"); }";
        check("crates/store/src/lib.rs", text, &["`env::var` reads the environment"]);
        check("crates/cli/src/config.rs", text, &[]);
        check("crates/store/tests/crash.rs", text, &[]);
        check("crates/store/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{ {text} }}"), &[]);
    }
}
