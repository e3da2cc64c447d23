//! Tests of archives: packing and unpacking a workspace, and refusing hostile archives.

use std::path::Path;

use protocol::ProblemCode;
use sandbox::{ArchiveLimit, FilesError};
use tar::{Builder, EntryType, Header};
use tokio::io::AsyncReadExt;

use crate::files::{code, over, stream};
use crate::{NamedTest, Subject, make, shell, tests, text};

pub(crate) fn everywhere() -> Vec<NamedTest> {
    tests![
        packed_tree_unpacks_unchanged,
        single_file_is_packed_under_its_name,
        unpacking_replaces_files_and_drops_special_bits,
        hostile_archive_entries_are_refused,
        archive_over_its_limit_is_refused,
        truncated_archive_is_refused,
    ]
}

const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %l %T@\\n' | sed 's/\\.0*$//' | grep -v ' d ' | LC_ALL=C sort; \
                       find . -type f -exec sha256sum {} + | LC_ALL=C sort";

async fn packed_tree_unpacks_unchanged(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["from/a", "from/deep/er/b"]).await;
    let long = "n".repeat(120);
    let line = format!(
        "cd from; chmod 755 a; ln -s ../a deep/link; ln a hard; mkdir empty; echo long > deep/{long}; \
         head -c 300000 /dev/urandom > deep/noise; touch -d @1000000000 a deep/er/b deep/{long} deep/noise; \
         touch -h -d @1000000000 deep/link"
    );
    assert_eq!(shell(&*sandbox, &line).await.exit.code, Some(0));
    let archive = sandbox.files().pack("from".as_ref(), ArchiveLimit::default()).await.expect("pack");
    let done = sandbox.files().unpack("to/here".as_ref(), archive, ArchiveLimit::default()).await.expect("unpack");
    assert!(!done.truncated && done.paths.contains(&"to/here/deep/er/b".into()), "{done:?}");
    let listing = async |directory: &str| text(&shell(&*sandbox, &format!("cd {directory}; {LISTING}")).await.stdout);
    let (before, after) = (listing("from").await, listing("to/here").await);
    // Archives do not keep the times of links.
    let but_links =
        |text: &str| text.lines().filter(|line| !line.contains(" l ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(but_links(&before), but_links(&after));
    assert_eq!(
        text(&shell(&*sandbox, "readlink to/here/deep/link; ls to/here").await.stdout),
        "../a\na\ndeep\nempty\nhard\n"
    );
}

async fn single_file_is_packed_under_its_name(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["dir/file"]).await;
    let mut archive = sandbox.files().pack("dir/file".as_ref(), ArchiveLimit::default()).await.expect("pack");
    let mut bytes = Vec::new();
    archive.read_to_end(&mut bytes).await.expect("read");
    let mut archive = tar::Archive::new(bytes.as_slice());
    let entries: Vec<_> = archive
        .entries()
        .expect("entries")
        .map(|entry| entry.expect("entry").path().expect("path").into_owned())
        .collect();
    assert_eq!(entries, [Path::new("file")]);
    assert_eq!(
        code(sandbox.files().pack("nothing".as_ref(), ArchiveLimit::default()).await),
        ProblemCode::FileNotFound
    );
}

/// Appends an entry as given, even if it is invalid.
fn entry(builder: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, target: &str, content: &[u8]) {
    let mut header = Header::new_old();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o6755);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).expect("append");
}

/// Name, type and link target of an entry.
type ArchiveEntry = (&'static str, EntryType, &'static str);

fn archive(entries: &[ArchiveEntry]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, target) in entries {
        let content: &[u8] = if *kind == EntryType::Regular { b"content\n" } else { b"" };
        entry(&mut builder, name, *kind, target, content);
    }
    builder.into_inner().expect("archive")
}

async fn unpacking_replaces_files_and_drops_special_bits(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["a", "b"]).await;
    assert_eq!(shell(&*sandbox, "ln -s b link").await.exit.code, Some(0));
    let bytes = archive(&[
        ("a", EntryType::Regular, ""),
        ("./link", EntryType::Regular, ""),
        ("twice", EntryType::Link, "a"),
        ("twice", EntryType::Link, "a"),
    ]);
    sandbox.files().unpack("".as_ref(), stream(&bytes), ArchiveLimit::default()).await.expect("unpack");
    let seen = shell(&*sandbox, "ls -A; cat a b link twice; stat -c '%a %h' a; test ! -h link").await;
    assert_eq!(text(&seen.stdout), "a\nb\nlink\ntwice\ncontent\nb\ncontent\ncontent\n755 2\n");
    assert_eq!(seen.exit.code, Some(0));
}

async fn hostile_archive_entries_are_refused(subject: Subject) {
    use EntryType as Kind;
    let sandbox = make(&subject).await;
    assert_eq!(shell(&*sandbox, "mkdir -p full/dir; ln -s /etc planted").await.exit.code, Some(0));
    let escape = "../../../../../../../../../../tmp/viv-escaped";
    let cases: &[(&str, &[ArchiveEntry])] = &[
        ("absolute", &[("/tmp/viv-escaped", Kind::Regular, "")]),
        ("parents", &[(escape, Kind::Regular, "")]),
        ("parents in the middle", &[("a/../../x", Kind::Regular, "")]),
        ("a link out", &[("out", Kind::Symlink, "/etc")]),
        ("a link up", &[("deep/out", Kind::Symlink, "../../../etc")]),
        ("through its own link", &[("in", Kind::Symlink, "full"), ("in/x", Kind::Regular, "")]),
        ("through a link that was there", &[("planted/viv-escaped", Kind::Regular, "")]),
        ("a directory through a link", &[("planted/viv-escaped", Kind::Directory, "")]),
        ("a hard link out", &[("hard", Kind::Link, "/etc/passwd")]),
        ("a hard link up", &[("hard", Kind::Link, "../../../../etc/passwd")]),
        ("a hard link through a link", &[("hard", Kind::Link, "planted/passwd")]),
        ("a hard link to a directory", &[("hard", Kind::Link, "full")]),
        ("a hard link to a link", &[("hard", Kind::Link, "planted")]),
        ("a device", &[("null", Kind::Char, "")]),
        ("a disk", &[("sda", Kind::Block, "")]),
        ("a fifo", &[("fifo", Kind::Fifo, "")]),
        ("no name", &[("./", Kind::Regular, "")]),
        ("a directory's name", &[("full/dir", Kind::Regular, "")]),
    ];
    for (what, entries) in cases {
        let bytes = archive(&[&[("first", Kind::Regular, "")], *entries].concat());
        let done = sandbox.files().unpack("".as_ref(), stream(&bytes), ArchiveLimit::default()).await;
        assert!(matches!(done, Err(FilesError::Archive { .. })), "{what}: {done:?}");
        assert!(!Path::new("/tmp/viv-escaped").exists() && !Path::new("/etc/viv-escaped").exists(), "{what}");
    }
    for name in [".git/hooks/pre-commit", ".env"] {
        let bytes = archive(&[(name, Kind::Regular, "")]);
        let done = sandbox.files().unpack("".as_ref(), stream(&bytes), ArchiveLimit::default()).await;
        assert_eq!(code(done), ProblemCode::PolicyDenied, "{name}");
    }
    let seen = text(&shell(&*sandbox, "find . -type f -o -type p -o -type c -o -type b").await.stdout);
    assert_eq!(seen, "./first\n");
}

async fn archive_over_its_limit_is_refused(subject: Subject) {
    let sandbox = make(&subject).await;
    let two = archive(&[("a", EntryType::Regular, ""), ("b", EntryType::Regular, "")]);
    let unpack = async |bytes: u64, entries: usize| {
        sandbox.files().unpack("".as_ref(), stream(&two), ArchiveLimit { bytes, entries }).await
    };
    assert_eq!(code(unpack(15, 9).await), ProblemCode::FileTooLarge);
    assert_eq!(code(unpack(99, 1).await), ProblemCode::FileTooLarge);
    assert_eq!(unpack(16, 2).await.expect("just fits").bytes, 16);
    for cap in [ArchiveLimit { bytes: 15, entries: 9 }, ArchiveLimit { bytes: 99, entries: 1 }] {
        let mut packed = sandbox.files().pack("".as_ref(), cap).await.expect("pack");
        packed.read_to_end(&mut Vec::new()).await.expect_err("too large");
    }
    // A header may announce more bytes than follow.
    let mut builder = Builder::new(Vec::new());
    entry(&mut builder, "bomb", EntryType::Regular, "", b"x");
    let mut bytes = builder.into_inner().expect("archive");
    let mut header = Header::new_old();
    header.as_old_mut().name[..4].copy_from_slice(b"bomb");
    header.set_mode(0o644);
    header.set_size(1 << 32);
    header.set_cksum();
    bytes[..512].copy_from_slice(header.as_bytes());
    let done = sandbox.files().unpack("".as_ref(), stream(&bytes), ArchiveLimit::default()).await;
    assert!(done.is_err(), "{done:?}");
    assert_eq!(text(&shell(&*sandbox, "ls -A").await.stdout), "a\nb\n");
}

async fn truncated_archive_is_refused(subject: Subject) {
    let sandbox = make(&subject).await;
    let whole = archive(&[("a", EntryType::Regular, ""), ("b", EntryType::Regular, "")]);
    for cut in [700, 1300] {
        let done = sandbox.files().unpack("".as_ref(), stream(&whole[..cut]), ArchiveLimit::default()).await;
        assert!(matches!(done, Err(FilesError::Archive { .. })), "{cut}: {done:?}");
    }
    let done = sandbox.files().unpack("".as_ref(), stream(&[b'x'; 5000]), ArchiveLimit::default()).await;
    assert!(matches!(done, Err(FilesError::Archive { .. })), "{done:?}");
}
