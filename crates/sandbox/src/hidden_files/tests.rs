//! Tests of the search, with real git repositories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use policy::{BaseLayer, CeilingLayer, DenyGlobs, PolicySource, effective};

use super::HiddenFiles;

const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIE\n";

fn deny(entries: &str) -> DenyGlobs {
    let source = PolicySource::new("test.yaml", format!("version: 1\nfs:\n  deny_read: [{entries}]\n"));
    effective(&CeilingLayer::built_in().unwrap(), &BaseLayer::read(&source).unwrap(), &[]).fs().deny_read
}

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, content) in files {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

#[track_caller]
fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "core.hooksPath=/dev/null"]);
    command.args(arguments).current_dir(directory);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

#[test]
fn secrets_are_hidden_and_source_is_not() {
    let directory = tree(&[
        (".env", "A=b"),
        (".env.example", "A="),
        ("src/id_map.py", "x"),
        ("tls/server.pem", KEY),
        ("tls/ca.pem", "-----BEGIN CERTIFICATE-----\n"),
        ("deploy_key", KEY),
        (".npmrc", "registry=https://registry.example.com/\n"),
        ("web/.npmrc", "//registry.example.com/:_authToken=abc\n"),
        (".aws/credentials", "x"),
        ("node_modules/a/test.key", KEY),
        ("lib/.ENV", "A=b"),
    ]);
    let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
    assert_eq!(hidden.secrets, paths(&[".aws", ".env", "deploy_key", "lib/.ENV", "tls/server.pem", "web/.npmrc"]));
    assert_eq!(hidden.visible, paths(&[".npmrc", "src/id_map.py", "tls/ca.pem"]));
    assert_eq!(hidden.covers, []);
}

#[test]
fn tracked_files_stay_visible_in_every_index_format() {
    for (format, version) in [("sha1", "2"), ("sha1", "4"), ("sha256", "2")] {
        let directory = tree(&[
            (".env", "A=b"),
            ("tests/server.key", KEY),
            ("tests/server.key.d/x.key", KEY),
            (".ssh/config", "x"),
            (".ssh/id_rsa", KEY),
            ("new/.env", "A=b"),
        ]);
        git(directory.path(), &["init", "-q", &format!("--object-format={format}")]);
        git(directory.path(), &["update-index", "--index-version", version]);
        git(directory.path(), &["add", "-f", ".env", "tests", ".ssh/config"]);
        let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
        assert_eq!(hidden.secrets, paths(&[".ssh/id_rsa", "new/.env"]), "{format} {version}");
        let inside = HiddenFiles::find(&directory.path().join("tests"), &deny("<secrets>")).unwrap();
        assert_eq!(inside.count(), 0, "a workspace in a repository has its tracked files");
    }
}

#[test]
fn files_of_a_nested_repository_are_judged_by_its_index() {
    let directory = tree(&[("sub/.env", "A=b"), ("sub/tests/a.key", KEY), (".env", "A=b")]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["add", "-f", ".env"]);
    git(&directory.path().join("sub"), &["init", "-q"]);
    git(&directory.path().join("sub"), &["add", "-f", "tests"]);
    let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
    assert_eq!(hidden.secrets, paths(&["sub/.env"]));
}

#[test]
fn split_index_is_read_as_a_whole() {
    let directory = tree(&[("a.key", KEY), ("b.key", KEY), ("c.key", KEY)]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["add", "a.key"]);
    git(directory.path(), &["update-index", "--split-index"]);
    git(directory.path(), &["add", "b.key"]);
    let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
    assert_eq!(hidden.secrets, paths(&["c.key"]));
    let named = HiddenFiles::find(directory.path(), &deny("a.key")).unwrap();
    assert_eq!(named.unmarked_index, Some(PathBuf::from(".git/index")));
}

#[test]
fn tracked_file_that_a_glob_hides_is_marked_in_a_copy_of_the_index() {
    for version in ["2", "3", "4"] {
        let directory = tree(&[("a", "1"), ("private/x", "2"), ("private/y/z", "3"), ("private-not", "4"), ("w", "5")]);
        git(directory.path(), &["init", "-q"]);
        git(directory.path(), &["update-index", "--index-version", version]);
        git(directory.path(), &["add", "."]);
        git(directory.path(), &["commit", "-qm", "all"]);
        let hidden = HiddenFiles::find(directory.path(), &deny("'private/**', w")).unwrap();
        let mut tracked = hidden.tracked.clone();
        tracked.sort();
        assert_eq!(tracked, paths(&["private", "w"]));
        let [cover] = &hidden.covers[..] else { panic!("{:?}", hidden.covers) };
        assert_eq!(cover.path, Path::new(".git/index"));
        // A copy of the workspace as the sandbox sees it.
        fs::write(directory.path().join(".git/index"), &cover.content).unwrap();
        fs::remove_dir_all(directory.path().join("private")).unwrap();
        fs::remove_file(directory.path().join("w")).unwrap();
        assert_eq!(git(directory.path(), &["status", "--porcelain"]), "", "version {version}");
        fs::write(directory.path().join("a"), "changed").unwrap();
        git(directory.path(), &["add", "-A"]);
        git(directory.path(), &["commit", "-aqm", "edit"]);
        assert_eq!(git(directory.path(), &["show", "--format=", "--name-status"]), "M\ta\n");
        let kept = git(directory.path(), &["ls-tree", "-r", "--name-only", "HEAD"]);
        assert_eq!(kept, "a\nprivate-not\nprivate/x\nprivate/y/z\nw\n");
    }
}

#[test]
fn links_to_a_secret_do_not_show_it() {
    let directory = tree(&[("envs/production", "A=b"), (".env", "A=b"), ("plain", "x")]);
    symlink("production", directory.path().join("envs/.env")).unwrap();
    symlink("/etc/hostname", directory.path().join("x.env")).unwrap();
    fs::hard_link(directory.path().join(".env"), directory.path().join("notes.txt")).unwrap();
    let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
    assert_eq!(hidden.secrets, paths(&[".env", "envs/.env", "envs/production", "notes.txt", "x.env"]));
}

#[test]
fn credentials_in_a_git_configuration_are_masked() {
    let directory = tree(&[("a", "1"), ("config", "[x]\n")]);
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["remote", "add", "origin", "https://me:hunter2@example.com/a.git"]);
    let hidden = HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap();
    assert_eq!(hidden.masked_configs, paths(&[".git/config"]));
    let content = String::from_utf8(hidden.covers[0].content.clone()).unwrap();
    assert!(content.contains("https://example.com/a.git") && !content.contains("hunter2"), "{content}");
}

#[test]
fn hostile_indexes_are_no_index() {
    let directory = tree(&[(".env", "A=b"), (".git/HEAD", "x")]);
    for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\xff\xff\xff\xff", b"DIRC\0\0\0\x04\0\0\0\x01", &[b'D'; 4096]] {
        fs::write(directory.path().join(".git/index"), bytes).unwrap();
        assert_eq!(HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap().count(), 1);
    }
    fs::remove_file(directory.path().join(".git/index")).unwrap();
    let fifo = directory.path().join(".git/index");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert_eq!(HiddenFiles::find(directory.path(), &deny("<secrets>")).unwrap().count(), 1);
}

#[test]
fn a_hundred_thousand_files_are_searched_quickly() {
    let directory = crate::mask::tests::large_tree();
    let deny = deny("<secrets>");
    let started = Instant::now();
    assert_eq!(HiddenFiles::find(directory.path(), &deny).unwrap().secrets, paths(&["package500/src/.env"]));
    // An unoptimised build on an idle machine takes a tenth of this.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
