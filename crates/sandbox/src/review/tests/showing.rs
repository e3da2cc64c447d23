//! Tests of patches, summaries and JSON.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::fixture::{ReviewFixture, chmod, name};
use crate::review::{SavedChanges, render_diff, render_stat};

fn diff(saved: &SavedChanges, path: &str) -> String {
    saved.diff(Path::new(path)).unwrap().unwrap()
}

#[test]
fn patch_has_gits_format() {
    let fixture = ReviewFixture::new();
    fixture.host_file("edited", "one\ntwo\nthree\n");
    fixture.host_file("gone", "bye\n");
    symlink("edited", fixture.host("link")).unwrap();
    fixture.upper_file("edited", "one\n2\nthree\n");
    chmod(&fixture.upper("edited"), 0o755);
    fixture.whiteout("gone");
    fixture.upper_file("dir/new", "hello");
    fixture.upper_link("link", "dir/new");
    chmod(&fixture.upper("dir"), 0o755);
    let saved = fixture.save();
    assert_eq!(
        diff(&saved, "edited"),
        "diff --git a/edited b/edited\nold mode 100644\nnew mode 100755\n--- a/edited\n+++ b/edited\n\
         @@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    );
    assert_eq!(
        diff(&saved, "gone"),
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
    );
    assert_eq!(
        diff(&saved, "dir/new"),
        "diff --git a/dir/new b/dir/new\nnew file mode 100644\n--- /dev/null\n+++ b/dir/new\n@@ -0,0 +1 @@\n+hello\n\
         \\ No newline at end of file\n"
    );
    assert!(diff(&saved, "link").contains("-edited\n\\ No newline at end of file\n+dir/new\n"));
    assert_eq!(diff(&saved, "dir"), "# dir: new directory\n");
    assert_eq!(saved.diff(Path::new("untouched")).unwrap(), None);
}

#[test]
fn binary_files_show_their_size() {
    let fixture = ReviewFixture::new();
    fs::write(fixture.upper("binary"), b"\0\x01\x02").unwrap();
    fs::write(fixture.upper("latin"), b"caf\xe9\n").unwrap();
    fs::write(fixture.upper("large"), "x\n".repeat(2 << 20)).unwrap();
    let saved = fixture.save();
    for (path, size) in [("binary", 3), ("latin", 5), ("large", 4 << 20)] {
        let line = format!("# 0 bytes before, {size} after\n");
        assert!(diff(&saved, path).ends_with(&line), "{path}");
    }
    assert!(saved.stat().unwrap().iter().all(|stat| stat.lines.binary));
}

#[test]
fn comparison_ends_in_time() {
    let fixture = ReviewFixture::new();
    let lines = |step: usize| (0..150_000).map(|line| (line * step % 7919).to_string()).collect::<Vec<_>>().join("\n");
    fixture.host_file("long", &lines(3));
    fixture.upper_file("long", &lines(5));
    let saved = fixture.save();
    let begun = Instant::now();
    assert!(!diff(&saved, "long").is_empty());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn summary_lists_deletions_first_and_directories_once() {
    let fixture = ReviewFixture::with_host(&["gone", "old/a", "old/deep/b", "quiet", "busy"]);
    fixture.whiteout("gone");
    fixture.whiteout("old");
    fixture.upper_file("quiet", "one\ntwo\n");
    fixture.upper_file("new/file", "a\nb\n");
    fs::write(fixture.upper("image"), b"\0").unwrap();
    let saved = fixture.save();
    assert_eq!(
        render_stat(&saved.stat().unwrap()),
        "D gone      +0 -1\nD old       with 3 below\nA image     binary\nA new\nA new/file  +2 -0\n\
         M quiet     +2 -1\n9 paths changed, +4 -4\n"
    );
    fixture.upper_file("busy", "mine\n");
    let saved = SavedChanges::save(&fixture.layers_since(SystemTime::UNIX_EPOCH), &fixture.saved()).unwrap();
    let stat = render_stat(&saved.stat().unwrap());
    assert!(stat.contains("M busy      +1 -1  conflict: the host changed as well\n"), "{stat}");
}

#[test]
fn control_characters_are_escaped() {
    let fixture = ReviewFixture::new();
    fixture.upper_file("evil", "\u{1b}]0;title\u{7}\r\u{202e}abc\u{9b}31m\tok\n");
    fixture.upper_file(name(b"\x1b[2J\xff"), "x\n");
    let saved = fixture.save();
    let shown = render_diff(&saved, None).unwrap() + &render_stat(&saved.stat().unwrap());
    let harmless = |sign: char| sign == '\n' || sign == '\t' || !sign.is_control() && sign != '\u{202e}';
    assert!(shown.chars().all(harmless), "{shown:?}");
    assert!(shown.contains("+^[]0;title^G^M<U+202E>abc<U+009B>31m\tok\n"), "{shown}");
    assert!(shown.contains(r#""a/\033[2J\377""#), "{shown}");
    let one = render_diff(&saved, Some(&[Path::new("evil")])).unwrap();
    assert!(one.contains("evil") && !one.contains("2J"));
}

#[test]
fn changes_are_serialised_as_json() {
    let fixture = ReviewFixture::new();
    fixture.upper_link("link", "to");
    fixture.upper_file(name(b"\xff"), "x\n");
    let saved = fixture.save();
    let json = serde_json::to_value(saved.changes().collect::<Vec<_>>()).unwrap();
    let link = serde_json::json!({"path": "link", "kind": "added", "entry": {"type": "symlink", "target": "to"}});
    assert_eq!(json[0], link);
    assert_eq!(json[1]["path"], serde_json::json!({"bytes": [255]}));
    assert_eq!(json[1]["entry"]["type"], "regular");
    let stat = serde_json::to_value(saved.stat().unwrap()).unwrap();
    assert_eq!(
        stat[1],
        serde_json::json!({
            "path": {"bytes": [255]}, "kind": "added", "added": 1, "removed": 0, "binary": false, "conflict": false,
            "class": "plain"
        })
    );
}

#[test]
fn a_secret_that_the_host_wrote_later_is_not_shown() {
    let fixture = ReviewFixture::with_host(&["notes", "plain", "same.key"]);
    let key = "-----BEGIN PRIVATE KEY-----\nMIIElater\n";
    fixture.host_file("same.key", key);
    for file in ["notes", "plain", "same.key"] {
        fixture.upper_file(file, "written inside\n");
    }
    let saved = fixture.save();
    fixture.host_file("notes", key);
    fixture.host_file("plain", "written later\n");
    assert!(!diff(&saved, "notes").contains("MIIElater"), "{}", diff(&saved, "notes"));
    assert!(diff(&saved, "notes").contains("Binary files"));
    assert!(diff(&saved, "plain").contains("-written later\n+written inside\n"));
    // A key that the session saw, such as one that git tracks, is part of the review.
    assert!(diff(&saved, "same.key").contains("-MIIElater\n"));
}
