//! Our patches are given to the real `git apply`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;

use super::fixture::{ReviewFixture, chmod, name, write};
use crate::review::render_diff;

/// A file or link.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaf {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

/// The files and links of a tree. Directories have no patches.
type Leaves = BTreeMap<PathBuf, Leaf>;

const NAMES: [&[u8]; 14] = [
    b"plain",
    b"with space",
    b" leading",
    b"quo\"te",
    b"back\\slash",
    b"tab\there",
    b"new\nline",
    b"escape\x1b[2J",
    b"latin\xe9",
    "\u{fc}ber".as_bytes(),
    b"dir",
    b"dir/one",
    b"dir/sub dir/two",
    b"other/\xff/three",
];

const CONTENTS: [&[u8]; 14] = [
    b"",
    b"\n",
    b"no newline",
    b"one\n",
    b"one\ntwo\nthree\n",
    b"one\n2\nthree\n",
    b"one\ntwo\nthree",
    b"windows\r\nlines\r\n",
    b"lone\rreturn\n",
    b"ends with return\r",
    b"escape \x1b[2J \xe2\x80\xae\n",
    b"binary\0\x01\x02",
    b"latin \xe9\n",
    b"-- a\n+++ b\ndiff --git a/x b/x\n# note\n",
];

fn leaves() -> impl Strategy<Value = Leaves> {
    let content = prop::sample::select(&CONTENTS[..]).prop_map(<[u8]>::to_vec);
    let leaf = prop_oneof![
        4 => (content, any::<bool>()).prop_map(|(content, executable)| Leaf::File { content, executable }),
        1 => prop::sample::select(vec![&b"plain"[..], b"dir/one", b"a\xffb", b"a\x1bb"]).prop_map(|to| Leaf::Link(to.to_vec())),
    ];
    let named = prop::sample::select(&NAMES[..]).prop_map(|bytes| PathBuf::from(name(bytes)));
    prop::collection::btree_map(named, leaf, 0..8).prop_map(|mut leaves| {
        // A path cannot be a file and a directory.
        let parents: Vec<PathBuf> =
            leaves.keys().flat_map(|path| path.ancestors().skip(1).map(Path::to_owned)).collect();
        leaves.retain(|path, _| !parents.contains(path));
        // `git apply` cannot look below a link to itself, even in a patch that git made.
        let is_loop =
            |path: &Path, leaf: &Leaf| matches!(leaf, Leaf::Link(to) if Path::new(&name(to)).starts_with(path));
        leaves.retain(|path, leaf| !is_loop(path, leaf));
        leaves
    })
}

fn place(at: &Path, leaf: &Leaf) {
    match leaf {
        Leaf::File { content, executable } => {
            write(at, content);
            chmod(at, if *executable { 0o755 } else { 0o644 });
        }
        Leaf::Link(target) => {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(name(target), at).unwrap();
        }
    }
}

/// Writes the layer that turns `before` into `after`.
fn write_upper(fixture: &ReviewFixture, before: &Leaves, after: &Leaves) {
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        let becomes_directory = after.keys().any(|other| other.starts_with(path));
        let is_below_file = path.ancestors().skip(1).any(|parent| after.contains_key(parent));
        if becomes_directory {
            fixture.opaque(path);
        } else if !is_below_file {
            fixture.whiteout(path);
        }
    }
    for (path, leaf) in after.iter().filter(|(path, leaf)| before.get(*path) != Some(leaf)) {
        place(&fixture.upper(path), leaf);
    }
}

fn read_leaves(root: &Path) -> Leaves {
    let mut leaves = Leaves::new();
    for (path, (letter, mode, content)) in super::fixture::tree(root) {
        match letter {
            '-' => drop(leaves.insert(path, Leaf::File { content, executable: mode & 0o100 != 0 })),
            'l' => drop(leaves.insert(path, Leaf::Link(content))),
            _ => {}
        }
    }
    leaves
}

fn git_apply(directory: &Path, patch: &str) -> Output {
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn", "--allow-empty", "-"]).current_dir(directory);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap());
    let mut running = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), patch.as_bytes()).unwrap();
    running.wait_with_output().unwrap()
}

fn check(before: &Leaves, after: &Leaves) -> Result<(), TestCaseError> {
    let fixture = ReviewFixture::new();
    for (path, leaf) in before {
        place(&fixture.host(path), leaf);
    }
    write_upper(&fixture, before, after);
    let patch = render_diff(&fixture.save(), None).unwrap();
    let printable = |sign: char| matches!(sign, '\n' | '\t' | '\r') || base::is_plain(sign);
    prop_assert!(patch.chars().all(printable), "{patch:?}");
    let output = git_apply(&fixture.host(""), &patch);
    prop_assert!(output.status.success(), "{}\n{patch}", String::from_utf8_lossy(&output.stderr));
    prop_assert_eq!(&read_leaves(&fixture.host("")), after, "{}", patch);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn git_applies_every_patch((before, after) in (leaves(), leaves())) {
        check(&before, &after)?;
    }
}

#[test]
fn git_applies_new_directories_empty_files_and_deletions() {
    let file = |content: &str| Leaf::File { content: content.as_bytes().to_vec(), executable: false };
    let before = [("gone/deep/file", file("x\n")), ("empty", file("")), ("mode", file("run\n"))];
    let run = Leaf::File { content: b"run\n".to_vec(), executable: true };
    let after = [("new/deep/dir/file", file("y\n")), ("new/empty", file("")), ("mode", run)];
    let leaves = |list: &[(&str, Leaf)]| list.iter().map(|(path, leaf)| (path.into(), leaf.clone())).collect();
    check(&leaves(&before), &leaves(&after)).unwrap();
}

#[test]
fn a_binary_file_that_is_too_large_is_refused_by_name() {
    let fixture = ReviewFixture::new();
    fs::write(fixture.upper("large.bin"), vec![0; 1 << 20]).unwrap();
    let patch = render_diff(&fixture.save(), None).unwrap();
    let output = git_apply(&fixture.host(""), &patch);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("large.bin"), "{said}");
}
