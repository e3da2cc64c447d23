//! Property tests: after random edits of random trees, the applied host equals the sandbox's view.
//!
//! The upper layer is written from the two trees, the host's and the one the sandbox saw, with every choice
//! overlayfs may make taken at random: copied up or not, merged or opaque.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::fixture::{ReviewFixture, chmod, listed, tree, write};
use crate::review::{ApplyOptions, apply, undo};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(String, u32),
    Link(&'static str),
    Directory(BTreeMap<OsString, Node>, u32),
}

type Names = BTreeMap<OsString, Node>;

/// Few names, so that two trees overlap often; some of them unusual.
fn names() -> impl Strategy<Value = OsString> {
    prop::sample::select(vec![&b"a"[..], b"b", b"c", b"-x", b"\xff\xfe", "ü".as_bytes(), b"new\nline"])
        .prop_map(|name| OsString::from_vec(name.to_vec()))
}

fn nodes() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        4 => ("[xy]{0,3}", prop::sample::select(vec![0o644, 0o755])).prop_map(|(text, mode)| Node::File(text, mode)),
        1 => prop::sample::select(vec!["a", "b/c", "."]).prop_map(Node::Link),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        (prop::collection::btree_map(names(), inner, 1..5), prop::sample::select(vec![0o755, 0o700]))
            .prop_map(|(names, mode)| Node::Directory(names, mode))
    })
}

fn trees() -> impl Strategy<Value = Names> {
    prop::collection::btree_map(names(), nodes(), 0..6)
}

/// Random choices from a seed that proptest can shrink.
struct RandomChoices(Vec<bool>, usize);

impl RandomChoices {
    fn next(&mut self) -> bool {
        self.1 += 1;
        self.0[self.1 % self.0.len()]
    }
}

/// Returns the tree that the sandbox sees: a random mix of the host's tree and another.
fn edit(host: &Names, other: &Names, coin: &mut RandomChoices) -> Names {
    let nothing = Names::new();
    let mut seen = Names::new();
    for name in host.keys().chain(other.keys()) {
        let node = match (host.get(name), other.get(name)) {
            // A directory mostly stays one, so that the trees also overlap further down.
            (Some(Node::Directory(host, mode)), other) if coin.next() || coin.next() => {
                let other = if let Some(Node::Directory(other, _)) = other { other } else { &nothing };
                Some(Node::Directory(edit(host, other, coin), *mode))
            }
            (host, other) => if coin.next() { host } else { other }.cloned(),
        };
        seen.extend(node.map(|node| (name.clone(), node)));
    }
    seen
}

fn build(names: &Names, directory: &Path) {
    for (name, node) in names {
        let path = directory.join(name);
        match node {
            Node::File(content, mode) => {
                write(&path, content.as_bytes());
                chmod(&path, *mode);
            }
            Node::Link(target) => symlink(target, &path).unwrap(),
            Node::Directory(names, mode) => {
                fs::create_dir(&path).unwrap();
                build(names, &path);
                chmod(&path, *mode);
            }
        }
    }
}

/// Writes the layer that turns `host` into `seen`; `host` is `None` where it is hidden.
fn layer(fixture: &ReviewFixture, path: &Path, host: Option<&Names>, seen: &Names, coin: &mut RandomChoices) {
    for (name, node) in seen {
        let (path, below) = (path.join(name), host.and_then(|host| host.get(name)));
        if below == Some(node) && coin.next() {
            continue;
        }
        match node {
            Node::File(content, mode) => {
                fixture.upper_file(&path, content);
                chmod(&fixture.upper(&path), *mode);
            }
            Node::Link(target) => fixture.upper_link(&path, target),
            Node::Directory(names, mode) => {
                let merged = match below {
                    Some(Node::Directory(below, _)) if coin.next() => Some(below),
                    _ => None,
                };
                // A new directory must be opaque only where the host is visible.
                if host.is_some() && merged.is_none() {
                    fixture.opaque(&path);
                } else {
                    fixture.upper_directory(&path);
                }
                layer(fixture, &path, merged, names, coin);
                chmod(&fixture.upper(&path), *mode);
            }
        }
    }
    for name in host.into_iter().flat_map(Names::keys).filter(|name| !seen.contains_key(*name)) {
        fixture.whiteout(path.join(name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applied_host_equals_the_sandboxs_view(
        host in trees(),
        other in trees(),
        coins in prop::collection::vec(any::<bool>(), 61),
    ) {
        let mut coin = RandomChoices(coins, 0);
        let seen = edit(&host, &other, &mut coin);
        let (fixture, picture) = (ReviewFixture::new(), ReviewFixture::new());
        build(&host, &fixture.host(""));
        build(&seen, &picture.host(""));
        layer(&fixture, Path::new(""), Some(&host), &seen, &mut coin);
        let before = tree(&fixture.host(""));
        let mut saved = fixture.save();
        apply(&mut saved, &fixture.host(""), &ApplyOptions::default(), &|_| None).unwrap();
        prop_assert_eq!(tree(&fixture.host("")), tree(&picture.host("")));
        prop_assert_eq!(listed(&fixture.save()), [""; 0]);
        if tree(&fixture.host("")) != before {
            undo(&fixture.saved()).unwrap();
        }
        prop_assert_eq!(tree(&fixture.host("")), before);
    }
}
