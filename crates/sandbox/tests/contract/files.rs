//! Tests of file access from outside: reading, writing, listing, renaming and removing.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ProblemCode;
use sandbox::{ByteRange, ByteStream, FileKind, FilesError, OnExisting, RemovalDepth, Sandbox, WorkspaceFiles};
use tokio::io::AsyncReadExt;

use crate::{NamedTest, Subject, make, shell, spec, tests, text};

pub(crate) fn everywhere() -> Vec<NamedTest> {
    tests![
        written_files_belong_to_the_sandbox_user,
        file_is_replaced_completely_or_not_at_all,
        range_of_a_file_can_be_read,
        directory_is_listed_by_name_with_file_types,
        directories_are_made_with_their_parents,
        rename_keeps_an_existing_file_by_default,
        directory_of_the_lower_layer_is_renamed_with_its_entries,
        directory_is_removed_only_recursively,
    ]
}

pub(crate) fn stream(bytes: &[u8]) -> ByteStream {
    Box::new(io::Cursor::new(bytes.to_vec()))
}

pub(crate) async fn write(files: &dyn WorkspaceFiles, path: &str, content: &str) -> Result<u64, FilesError> {
    files.write(path.as_ref(), stream(content.as_bytes()), 1 << 20).await
}

pub(crate) async fn read(files: &dyn WorkspaceFiles, path: &str) -> Result<String, FilesError> {
    let mut content = files.read(path.as_ref(), ByteRange::first(1 << 20)).await?;
    let mut bytes = Vec::new();
    content.bytes.read_to_end(&mut bytes).await.expect("read");
    assert_eq!(bytes.len() as u64, content.length);
    Ok(text(&bytes))
}

pub(crate) fn code<T>(result: Result<T, FilesError>) -> ProblemCode {
    result.err().expect("a refusal").code()
}

/// Makes a sandbox over a host directory with `files`.
pub(crate) async fn over(subject: &Subject, files: &[&str]) -> (tempfile::TempDir, Box<dyn Sandbox>) {
    let host = tempfile::tempdir().expect("host");
    for file in files {
        let path = host.path().join(file);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("dir");
        std::fs::write(path, format!("{file}\n")).expect("file");
    }
    let sandbox = subject.backend.create(spec(subject, Some(host.path().to_owned()))).await.expect("sandbox");
    (host, sandbox)
}

/// Runs a shell line that must succeed; returns its output.
pub(crate) async fn run_ok(sandbox: &dyn Sandbox, line: &str) -> String {
    let result = shell(sandbox, line).await;
    assert_eq!(result.exit.code, Some(0), "{line}: {}", text(&result.stderr));
    text(&result.stdout)
}

async fn written_files_belong_to_the_sandbox_user(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["lower/old"]).await;
    let files = sandbox.files();
    assert_eq!(write(files, "new/deep/file", "hello\n").await.expect("write"), 6);
    write(files, "/workspace/lower/old", "other\n").await.expect("replace");
    let line = "cat new/deep/file lower/old; for f in new new/deep new/deep/file lower/old; do test -O $f; done; \
                test \"$(stat -c %u new/deep/file)\" = \"$(id -u)\"; echo more >> new/deep/file; stat -c %a new/deep/file";
    assert_eq!(run_ok(&*sandbox, &format!("set -e; {line}")).await, "hello\nother\n644\n");
    assert_eq!(read(files, "new/deep/file").await.expect("read"), "hello\nmore\n");
    run_ok(&*sandbox, "chmod 700 new/deep/file").await;
    write(files, "new/deep/file", "x").await.expect("again");
    assert_eq!(run_ok(&*sandbox, "stat -c %a new/deep/file").await, "700\n");
}

/// A stream that fails after its first bytes.
struct BrokenStream(bool);

impl tokio::io::AsyncRead for BrokenStream {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buffer.put_slice(b"half");
        std::task::Poll::Ready(Ok(()))
    }
}

async fn file_is_replaced_completely_or_not_at_all(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    write(files, "file", "before").await.expect("write");
    assert_eq!(
        code(files.write("file".as_ref(), stream(&vec![b'x'; 100_000]), 99_999).await),
        ProblemCode::FileTooLarge
    );
    let broken = files.write("file".as_ref(), Box::new(BrokenStream(false)), 100).await;
    assert!(matches!(broken, Err(FilesError::Content(_))));
    {
        // The caller stops in the middle of a write.
        let (_held, never) = tokio::io::duplex(8);
        let mut write = files.write("file".as_ref(), Box::new(never), 100);
        let names = || async { files.list("".as_ref(), 10).await.expect("list").entries.len() };
        tokio::select! {
            _ = &mut write => panic!("nothing was given"),
            () = async { while names().await < 2 { tokio::task::yield_now().await; } } => {}
        }
    }
    assert_eq!(read(files, "file").await.expect("read"), "before");
    assert_eq!(run_ok(&*sandbox, "ls -A").await, "file\n");
    files.write("file".as_ref(), stream(&vec![b'x'; 100_000]), 100_000).await.expect("just fits");
    assert_eq!(run_ok(&*sandbox, "wc -c < file").await.trim(), "100000");
    assert_eq!(code(write(files, "file/below", "x").await), ProblemCode::FileWrongKind);
    run_ok(&*sandbox, "mkdir dir").await;
    assert_eq!(code(write(files, "dir", "x").await), ProblemCode::FileWrongKind);
}

async fn range_of_a_file_can_be_read(subject: Subject) {
    let sandbox = make(&subject).await;
    write(sandbox.files(), "file", "0123456789").await.expect("write");
    for (offset, limit, expected) in [(0, 3, "012"), (8, 100, "89"), (10, 5, ""), (99, 5, ""), (4, 0, "")] {
        let mut content = sandbox.files().read("file".as_ref(), ByteRange { offset, limit }).await.expect("read");
        let mut found = String::new();
        content.bytes.read_to_string(&mut found).await.expect("bytes");
        assert_eq!((found.as_str(), content.length, content.stat.size), (expected, expected.len() as u64, 10));
    }
    assert_eq!(code(read(sandbox.files(), "nothing").await), ProblemCode::FileNotFound);
    assert_eq!(code(read(sandbox.files(), "").await), ProblemCode::FileWrongKind);
}

async fn directory_is_listed_by_name_with_file_types(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["b", "c/in"]).await;
    run_ok(&*sandbox, "ln -s c a; touch -d @1000000000 b; mkfifo d").await;
    let listing = sandbox.files().list("".as_ref(), 100).await.expect("list");
    let seen: Vec<_> =
        listing.entries.iter().map(|entry| (text(entry.name.as_encoded_bytes()), entry.stat.kind)).collect();
    let mut expected =
        vec![("a", FileKind::Link), ("b", FileKind::File), ("c", FileKind::Directory), ("d", FileKind::Special)];
    // A pipe made in gVisor is not visible on the host.
    expected.truncate(if subject.has_own_kernel() { 3 } else { 4 });
    let expected: Vec<_> = expected.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect();
    assert_eq!(seen, expected);
    assert!(!listing.truncated);
    let file = sandbox.files().stat("/workspace/b".as_ref()).await.expect("stat");
    let age = file.modified.duration_since(std::time::SystemTime::UNIX_EPOCH).expect("age");
    assert_eq!((file.path.as_path(), file.size, age.as_secs()), (Path::new("b"), 2, 1_000_000_000));
    assert_eq!(sandbox.files().stat("a".as_ref()).await.expect("stat").target, Some(PathBuf::from("c")));
    assert_eq!(sandbox.files().stat("".as_ref()).await.expect("stat").kind, FileKind::Directory);
    let through = sandbox.files().list("a".as_ref(), 100).await.expect("list");
    assert_eq!(through.entries[0].stat.path, Path::new("c/in"));
    let some = sandbox.files().list("".as_ref(), 2).await.expect("list");
    assert_eq!((some.entries.len(), some.truncated), (2, true));
    assert_eq!(code(sandbox.files().list("b".as_ref(), 2).await), ProblemCode::FileWrongKind);
}

async fn directories_are_made_with_their_parents(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    files.make_directory("a/b/c".as_ref()).await.expect("make");
    files.make_directory("a/b/c".as_ref()).await.expect("again");
    files.make_directory("".as_ref()).await.expect("the workspace is there");
    write(files, "a/file", "x").await.expect("write");
    assert_eq!(code(files.make_directory("a/file".as_ref()).await), ProblemCode::FileWrongKind);
    assert_eq!(code(files.make_directory("a/file/x".as_ref()).await), ProblemCode::FileWrongKind);
    assert_eq!(run_ok(&*sandbox, "stat -c %a a a/b/c").await, "755\n755\n");
}

async fn rename_keeps_an_existing_file_by_default(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["one", "two", "dir/in", "full/in"]).await;
    let files = sandbox.files();
    let rename = |from: &'static str, to: &'static str, existing| files.rename(from.as_ref(), to.as_ref(), existing);
    assert_eq!(code(rename("one", "two", OnExisting::Keep).await), ProblemCode::FileExists);
    assert_eq!(read(files, "two").await.expect("read"), "two\n");
    rename("one", "two", OnExisting::Replace).await.expect("replace");
    rename("two", "far/away/three", OnExisting::Keep).await.expect("move");
    assert_eq!(run_ok(&*sandbox, "cat far/away/three; ls").await, "one\ndir\nfar\nfull\n");
    assert_eq!(code(rename("one", "x", OnExisting::Keep).await), ProblemCode::FileNotFound);
    assert_eq!(code(rename("dir", "dir/in/itself", OnExisting::Keep).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("", "x", OnExisting::Keep).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("far", "full", OnExisting::Replace).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("far", "dir/in", OnExisting::Replace).await), ProblemCode::FileWrongKind);
}

/// Lists a tree with its metadata, and the content of two files.
const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | LC_ALL=C sort; stat -c %Y a; cat a deep/b";

async fn directory_of_the_lower_layer_is_renamed_with_its_entries(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["old/a", "old/deep/b", "old/deep/c"]).await;
    run_ok(&*sandbox, "ln -s a old/link; chmod 700 old/deep/b; chmod 711 old/deep; touch -d @1000000000 old/a").await;
    let before = run_ok(&*sandbox, &format!("cd old; {LISTING}")).await;
    sandbox.files().rename("old".as_ref(), "new/name".as_ref(), OnExisting::Keep).await.expect("move");
    assert_eq!(run_ok(&*sandbox, &format!("test ! -e old; cd new/name; {LISTING}")).await, before);
    assert_eq!(run_ok(&*sandbox, "ls -A . new").await, ".:\nnew\n\nnew:\nname\n");
}

async fn directory_is_removed_only_recursively(subject: Subject) {
    let (host, sandbox) = over(&subject, &["kept", "dir/a/b", "dir/c"]).await;
    let outside = tempfile::tempdir().expect("outside");
    std::fs::write(outside.path().join("precious"), "x").expect("file");
    let files = sandbox.files();
    std::os::unix::fs::symlink(outside.path(), host.path().join("dir/out")).expect("link");
    assert_eq!(code(files.remove("dir".as_ref(), RemovalDepth::Single).await), ProblemCode::FileWrongKind);
    files.remove("dir/c".as_ref(), RemovalDepth::Single).await.expect("file");
    files.remove("dir".as_ref(), RemovalDepth::Recursive).await.expect("all");
    run_ok(&*sandbox, "test ! -e dir; mkdir empty").await;
    files.remove("empty".as_ref(), RemovalDepth::Single).await.expect("an empty one");
    if !subject.has_own_kernel() {
        run_ok(&*sandbox, "mkfifo fifo").await;
        files.remove("fifo".as_ref(), RemovalDepth::Recursive).await.expect("a fifo");
    }
    assert_eq!(code(files.remove("dir".as_ref(), RemovalDepth::Recursive).await), ProblemCode::FileNotFound);
    assert_eq!(code(files.remove("".as_ref(), RemovalDepth::Recursive).await), ProblemCode::FileWrongKind);
    assert_eq!(run_ok(&*sandbox, "ls -A").await, "kept\n");
    assert!(outside.path().join("precious").exists());
}
