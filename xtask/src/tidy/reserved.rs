//! Calls that may be made in few places only, or nowhere.
//!
//! `unsafe` is in one file of the product, so that one person can review all of it. Processes are started, clocks read,
//! tasks spawned and the environment read in the places listed here; all other code gets a value or a handle. A test
//! waits for a condition and never sleeps for a fixed time. Text reaches the terminal through one file. Unfinished code and disabled tests are nowhere.

use std::ops::Range;

use super::Finding;
use crate::source;
use crate::tree::Tree;

/// The files to which a rule applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Code of the product: `crates/*/src` without its tests.
    Product,
    /// Tests: `tests/` folders and `#[cfg(test)]` blocks.
    Tests,
    Everywhere,
}

/// Words that only some files may use.
struct Reserved {
    words: &'static [&'static str],
    scope: Scope,
    /// Files, and folders with a trailing slash, that may use the words.
    allowed: &'static [&'static str],
    remedy: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        words: &["unsafe"],
        scope: Scope::Everywhere,
        allowed: &["crates/jail/src/sys.rs", "tests/security/src/raw.rs"],
        remedy: "put the system call in crates/jail/src/sys.rs, behind a safe function",
    },
    Reserved {
        words: &["unsafe_code"],
        scope: Scope::Everywhere,
        allowed: &["crates/jail/src/lib.rs", "crates/jail/src/sys.rs", "tests/security/src/raw.rs"],
        remedy: "keep the lint as the workspace sets it",
    },
    Reserved {
        words: &["todo!", "unimplemented!", "dbg!", "#[ignore"],
        scope: Scope::Everywhere,
        allowed: &[],
        remedy: "finish the code, or delete the test",
    },
    Reserved {
        words: &["env::var", "env::var_os", "env::vars", "env::vars_os", "env::temp_dir", "env::home_dir"],
        scope: Scope::Product,
        allowed: &["crates/cli/", "crates/testkit/"],
        remedy: "read the variable in crates/cli and pass the value down",
    },
    Reserved {
        words: &["Command::new"],
        scope: Scope::Product,
        allowed: PROCESS_FILES,
        remedy: "start the process through the sandbox port, or list the file in PROCESS_FILES with a reason",
    },
    Reserved {
        words: &["tokio::spawn", "task::spawn"],
        scope: Scope::Product,
        allowed: &["crates/testkit/"],
        remedy: "spawn on a JoinSet or TaskTracker that its owner drops or awaits",
    },
    Reserved {
        words: &["SystemTime::now", "Timestamp::now", "Utc::now", "Zoned::now"],
        scope: Scope::Product,
        allowed: CLOCK_FILES,
        remedy: "take the time from `store::Clock`, or as an argument",
    },
    Reserved {
        words: &["println!", "eprintln!", "print!", "eprint!", "io::stdout", "io::stderr", "anstream::"],
        scope: Scope::Product,
        // The mock agent speaks its protocol on stdout, inside the sandbox.
        allowed: &["crates/cli/src/output.rs", "crates/cli/src/agent.rs", "crates/mock/", "crates/testkit/"],
        remedy: "print through crates/cli/src/output.rs, which makes every text safe for a terminal",
    },
    Reserved {
        words: &["thread::sleep", "time::sleep"],
        scope: Scope::Tests,
        allowed: &["crates/testkit/"],
        remedy: "wait for the condition itself, with `testkit::wait_until` or a timeout on the event",
    },
];

/// Files of the product that start processes on the host.
const PROCESS_FILES: &[&str] = &[
    "crates/cli/",
    "crates/jail/src/spawner.rs",
    // The mock agent runs commands inside its sandbox.
    "crates/mock/src/program.rs",
    // Settings and ignored paths are asked from the host's git, by commands that only read.
    "crates/sandbox/src/review/classes/host_git.rs",
    // Commits leave a session through git.
    "crates/sandbox/src/review/commits/git.rs",
    "crates/sandbox/src/unconfined.rs",
    // Skills can come from git repositories.
    "crates/session/src/skills/git.rs",
    "crates/testkit/",
];

/// Files of the product that read the wall clock.
const CLOCK_FILES: &[&str] = &[
    "crates/store/src/clock.rs",
    "crates/cli/",
    // These compare with the modification times of files, which the kernel takes from its own clock.
    "crates/sandbox/src/container.rs",
    "crates/sandbox/src/jail_backend.rs",
    "crates/sandbox/src/review/save.rs",
    // Times of API calls and tasks.
    "crates/server/src/audit.rs",
    "crates/server/src/routes/usage.rs",
    "crates/server/src/task_registry.rs",
    "crates/testkit/",
];

/// Finds reserved words in files that may not use them.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let code = source::code(text);
    let tests = source::test_blocks(&code);
    let mut findings = Vec::new();
    for rule in RESERVED.iter().filter(|rule| !is_listed(rule.allowed, path)) {
        for (word, at) in rule.words.iter().flat_map(|word| source::words(&code, word).map(move |at| (word, at))) {
            if applies(rule.scope, path, &tests, at) {
                findings.push(Finding::new(
                    path,
                    source::line(text, at),
                    format!("`{word}` is used here"),
                    rule.remedy,
                ));
            }
        }
    }
    findings
}

fn is_listed(allowed: &[&str], path: &str) -> bool {
    allowed.iter().any(|entry| path == *entry || (entry.ends_with('/') && path.starts_with(entry)))
}

fn applies(scope: Scope, path: &str, test_blocks: &[Range<usize>], at: usize) -> bool {
    let in_test = is_test_file(path) || test_blocks.iter().any(|block| block.contains(&at));
    match scope {
        Scope::Everywhere => true,
        Scope::Tests => in_test,
        Scope::Product => !in_test && path.starts_with("crates/") && path.contains("/src/"),
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').rev().skip(1).any(|folder| folder == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let found: Vec<_> = check_file(path, text).into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unsafe_is_found_outside_its_file() {
        let text = "fn f() { unsafe { g() } }";
        check("crates/jail/src/init.rs", text, &["`unsafe` is used here"]);
        check("crates/jail/src/sys.rs", text, &[]);
        check("tests/security/src/raw.rs", text, &[]);
        check("tests/security/src/main.rs", text, &["`unsafe` is used here"]);
        check("crates/jail/src/init.rs", "// unsafe\nlet s = \"unsafe\";", &[]);
    }

    #[test]
    fn changed_unsafe_lint_is_found() {
        let text = "#[allow(unsafe_code)]\nmod sys;";
        check("crates/store/src/lib.rs", text, &["`unsafe_code` is used here"]);
        check("crates/jail/src/lib.rs", text, &[]);
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = "#[ignore = \"slow\"]\nfn f() { dbg!(1); todo!() }";
        check("a.rs", text, &["`todo!` is used here", "`dbg!` is used here", "`#[ignore` is used here"]);
    }

    #[test]
    fn only_the_command_line_and_tests_read_the_environment() {
        let text = "fn f() { std::env::var(\"X\"); }";
        check("crates/store/src/lib.rs", text, &["`env::var` is used here"]);
        check("crates/cli/src/config.rs", text, &[]);
        check("crates/store/tests/crash.rs", text, &[]);
        check("crates/store/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{ {text} }}"), &[]);
    }

    #[test]
    fn output_that_bypasses_the_terminal_rules_is_found() {
        let text = "fn f() { eprintln!(\"x\"); anstream::print!(\"x\"); std::io::stdout().lock(); }";
        let all = [
            "`eprintln!` is used here",
            "`print!` is used here",
            "`io::stdout` is used here",
            "`anstream::` is used here",
        ];
        check("crates/cli/src/perms.rs", text, &all);
        check("crates/server/src/error.rs", text, &all);
        check("crates/cli/src/output.rs", text, &[]);
        check("crates/cli/tests/e2e/run.rs", text, &[]);
    }

    #[test]
    fn sleeps_are_found_in_tests_only() {
        let text = "fn f() { std::thread::sleep(D); }";
        check("crates/store/tests/crash.rs", text, &["`thread::sleep` is used here"]);
        check("crates/store/src/retry.rs", text, &[]);
    }

    #[test]
    fn processes_clocks_and_tasks_are_found_outside_their_files() {
        let text = "fn f() { Command::new(\"a\"); SystemTime::now(); tokio::spawn(x); }";
        let all = ["`Command::new` is used here", "`tokio::spawn` is used here", "`SystemTime::now` is used here"];
        check("crates/server/src/a.rs", text, &all);
        check("crates/cli/src/a.rs", text, &all[1..2]);
        check("xtask/src/a.rs", text, &[]);
    }
}
