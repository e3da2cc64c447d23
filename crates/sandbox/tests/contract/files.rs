//! Files of a workspace, from outside: what is seen, who owns it, and what nobody gets at.

use std::io;
use std::path::{Path, PathBuf};

use protocol::ProblemCode;
use sandbox::{
    ArchiveLimit, ByteRange, ByteStream, FileKind, FilesError, OnExisting, RemovalDepth, Sandbox, SandboxSpec,
    WorkspaceFiles,
};
use tokio::io::AsyncReadExt;

use crate::{Promise, Subject, make, policy, shell, shell_spec, spec, tests, text};

pub(crate) fn everywhere() -> Vec<Promise> {
    tests![
        what_is_written_outside_is_the_own_file_of_whoever_is_inside,
        a_file_is_replaced_whole_or_not_at_all,
        a_part_of_a_file_can_be_read,
        a_directory_is_listed_by_name_with_what_each_is,
        directories_are_made_with_those_they_are_in,
        moving_keeps_what_is_there_unless_told_otherwise,
        a_directory_that_was_there_before_moves_with_all_it_holds,
        removing_a_directory_needs_to_be_asked_for,
        no_path_and_no_link_leads_out,
        links_inside_are_followed,
        a_link_that_is_swapped_meanwhile_leads_nowhere_else,
        a_fifo_is_seen_and_never_waited_for,
        a_file_larger_than_any_disk_is_read_as_far_as_asked,
        what_is_hidden_is_not_read_under_any_name,
        what_must_not_change_does_not,
        after_destroy_there_are_no_files,
    ]
}

pub(crate) fn walled() -> Vec<Promise> {
    tests![
        the_one_who_asks_has_no_more_rights_than_the_user_inside,
        a_full_workspace_is_told_apart,
        a_workspace_that_cannot_be_written_names_the_rule,
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

/// A sandbox over a directory of the host that holds `files`.
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

/// Runs a line that must succeed.
async fn does(sandbox: &dyn Sandbox, line: &str) -> String {
    let result = shell(sandbox, line).await;
    assert_eq!(result.exit.code, Some(0), "{line}: {}", text(&result.stderr));
    text(&result.stdout)
}

async fn what_is_written_outside_is_the_own_file_of_whoever_is_inside(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["lower/old"]).await;
    let files = sandbox.files();
    assert_eq!(write(files, "new/deep/file", "hello\n").await.expect("write"), 6);
    write(files, "/workspace/lower/old", "other\n").await.expect("replace");
    let line = "cat new/deep/file lower/old; for f in new new/deep new/deep/file lower/old; do test -O $f; done; \
                test \"$(stat -c %u new/deep/file)\" = \"$(id -u)\"; echo more >> new/deep/file; stat -c %a new/deep/file";
    assert_eq!(does(&*sandbox, &format!("set -e; {line}")).await, "hello\nother\n644\n");
    assert_eq!(read(files, "new/deep/file").await.expect("read"), "hello\nmore\n");
    does(&*sandbox, "chmod 700 new/deep/file").await;
    write(files, "new/deep/file", "x").await.expect("again");
    assert_eq!(does(&*sandbox, "stat -c %a new/deep/file").await, "700\n");
}

/// Gives something, then breaks.
struct Breaking(bool);

impl tokio::io::AsyncRead for Breaking {
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

async fn a_file_is_replaced_whole_or_not_at_all(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    write(files, "file", "before").await.expect("write");
    assert_eq!(
        code(files.write("file".as_ref(), stream(&vec![b'x'; 100_000]), 99_999).await),
        ProblemCode::FileTooLarge
    );
    let broken = files.write("file".as_ref(), Box::new(Breaking(false)), 100).await;
    assert!(matches!(broken, Err(FilesError::Content(_))));
    {
        // Whoever asked went away in the middle.
        let (_held, never) = tokio::io::duplex(8);
        let mut write = files.write("file".as_ref(), Box::new(never), 100);
        let names = || async { files.list("".as_ref(), 10).await.expect("list").entries.len() };
        tokio::select! {
            _ = &mut write => panic!("nothing was given"),
            () = async { while names().await < 2 { tokio::task::yield_now().await; } } => {}
        }
    }
    assert_eq!(read(files, "file").await.expect("read"), "before");
    assert_eq!(does(&*sandbox, "ls -A").await, "file\n");
    files.write("file".as_ref(), stream(&vec![b'x'; 100_000]), 100_000).await.expect("just fits");
    assert_eq!(does(&*sandbox, "wc -c < file").await.trim(), "100000");
    assert_eq!(code(write(files, "file/below", "x").await), ProblemCode::FileWrongKind);
    does(&*sandbox, "mkdir dir").await;
    assert_eq!(code(write(files, "dir", "x").await), ProblemCode::FileWrongKind);
}

async fn a_part_of_a_file_can_be_read(subject: Subject) {
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

async fn a_directory_is_listed_by_name_with_what_each_is(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["b", "c/in"]).await;
    does(&*sandbox, "ln -s c a; touch -d @1000000000 b; mkfifo d").await;
    let listing = sandbox.files().list("".as_ref(), 100).await.expect("list");
    let seen: Vec<_> =
        listing.entries.iter().map(|entry| (text(entry.name.as_encoded_bytes()), entry.stat.kind)).collect();
    let mut expected =
        vec![("a", FileKind::Link), ("b", FileKind::File), ("c", FileKind::Directory), ("d", FileKind::Special)];
    // A pipe of another kernel is no file of the host's.
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

async fn directories_are_made_with_those_they_are_in(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    files.make_directory("a/b/c".as_ref()).await.expect("make");
    files.make_directory("a/b/c".as_ref()).await.expect("again");
    files.make_directory("".as_ref()).await.expect("the workspace is there");
    write(files, "a/file", "x").await.expect("write");
    assert_eq!(code(files.make_directory("a/file".as_ref()).await), ProblemCode::FileWrongKind);
    assert_eq!(code(files.make_directory("a/file/x".as_ref()).await), ProblemCode::FileWrongKind);
    assert_eq!(does(&*sandbox, "stat -c %a a a/b/c").await, "755\n755\n");
}

async fn moving_keeps_what_is_there_unless_told_otherwise(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["one", "two", "dir/in", "full/in"]).await;
    let files = sandbox.files();
    let rename = |from: &'static str, to: &'static str, existing| files.rename(from.as_ref(), to.as_ref(), existing);
    assert_eq!(code(rename("one", "two", OnExisting::Keep).await), ProblemCode::FileExists);
    assert_eq!(read(files, "two").await.expect("read"), "two\n");
    rename("one", "two", OnExisting::Replace).await.expect("replace");
    rename("two", "far/away/three", OnExisting::Keep).await.expect("move");
    assert_eq!(does(&*sandbox, "cat far/away/three; ls").await, "one\ndir\nfar\nfull\n");
    assert_eq!(code(rename("one", "x", OnExisting::Keep).await), ProblemCode::FileNotFound);
    assert_eq!(code(rename("dir", "dir/in/itself", OnExisting::Keep).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("", "x", OnExisting::Keep).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("far", "full", OnExisting::Replace).await), ProblemCode::FileWrongKind);
    assert_eq!(code(rename("far", "dir/in", OnExisting::Replace).await), ProblemCode::FileWrongKind);
}

/// Everything about a tree, and what is in two of its files.
const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %l\\n' | LC_ALL=C sort; stat -c %Y a; cat a deep/b";

async fn a_directory_that_was_there_before_moves_with_all_it_holds(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["old/a", "old/deep/b", "old/deep/c"]).await;
    does(&*sandbox, "ln -s a old/link; chmod 700 old/deep/b; chmod 711 old/deep; touch -d @1000000000 old/a").await;
    let before = does(&*sandbox, &format!("cd old; {LISTING}")).await;
    sandbox.files().rename("old".as_ref(), "new/name".as_ref(), OnExisting::Keep).await.expect("move");
    assert_eq!(does(&*sandbox, &format!("test ! -e old; cd new/name; {LISTING}")).await, before);
    assert_eq!(does(&*sandbox, "ls -A . new").await, ".:\nnew\n\nnew:\nname\n");
}

async fn removing_a_directory_needs_to_be_asked_for(subject: Subject) {
    let (host, sandbox) = over(&subject, &["kept", "dir/a/b", "dir/c"]).await;
    let outside = tempfile::tempdir().expect("outside");
    std::fs::write(outside.path().join("precious"), "x").expect("file");
    let files = sandbox.files();
    std::os::unix::fs::symlink(outside.path(), host.path().join("dir/out")).expect("link");
    assert_eq!(code(files.remove("dir".as_ref(), RemovalDepth::Single).await), ProblemCode::FileWrongKind);
    files.remove("dir/c".as_ref(), RemovalDepth::Single).await.expect("file");
    files.remove("dir".as_ref(), RemovalDepth::Recursive).await.expect("all");
    does(&*sandbox, "test ! -e dir; mkdir empty").await;
    files.remove("empty".as_ref(), RemovalDepth::Single).await.expect("an empty one");
    if !subject.has_own_kernel() {
        does(&*sandbox, "mkfifo fifo").await;
        files.remove("fifo".as_ref(), RemovalDepth::Recursive).await.expect("a fifo");
    }
    assert_eq!(code(files.remove("dir".as_ref(), RemovalDepth::Recursive).await), ProblemCode::FileNotFound);
    assert_eq!(code(files.remove("".as_ref(), RemovalDepth::Recursive).await), ProblemCode::FileWrongKind);
    assert_eq!(does(&*sandbox, "ls -A").await, "kept\n");
    assert!(outside.path().join("precious").exists());
}

async fn no_path_and_no_link_leads_out(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    does(&*sandbox, "ln -s /etc etc; ln -s /etc/passwd passwd; ln -s ../../../../../.. up; ln -s /proc/self/root root")
        .await;
    let ways = ["..", "../x", "a/../../x", "/etc/passwd", "/", "/workspace/../etc/passwd", "etc/passwd", "passwd"];
    for path in ways.into_iter().chain(["up/etc/passwd", "root/etc/passwd"]) {
        assert_eq!(code(read(files, path).await), ProblemCode::FileOutsideWorkspace, "read {path}");
        assert_eq!(code(write(files, path, "x").await), ProblemCode::FileOutsideWorkspace, "write {path}");
        assert_eq!(code(files.list(path.as_ref(), 9).await), ProblemCode::FileOutsideWorkspace, "list {path}");
        assert_eq!(code(files.make_directory(path.as_ref()).await), ProblemCode::FileOutsideWorkspace, "make {path}");
        let packed = files.pack(path.as_ref(), ArchiveLimit::default()).await;
        let told = match packed {
            Err(error) => error.code() == ProblemCode::FileOutsideWorkspace,
            Ok(mut archive) => archive.read_to_end(&mut Vec::new()).await.is_err(),
        };
        assert!(told, "pack {path}");
    }
    for path in ["..", "/etc/hostname", "etc/hostname", "up/etc/hostname"] {
        assert_eq!(
            code(files.remove(path.as_ref(), RemovalDepth::Recursive).await),
            ProblemCode::FileOutsideWorkspace,
            "{path}"
        );
        let moved = files.rename(path.as_ref(), "mine".as_ref(), OnExisting::Keep).await;
        assert_eq!(code(moved), ProblemCode::FileOutsideWorkspace, "{path}");
    }
}

async fn links_inside_are_followed(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["real/file"]).await;
    does(&*sandbox, "ln -s real in; ln -s ../real/file real/self; ln -s a b; ln -s b a").await;
    assert_eq!(read(sandbox.files(), "in/self").await.expect("read"), "real/file\n");
    write(sandbox.files(), "in/self", "new\n").await.expect("write");
    assert_eq!(does(&*sandbox, "cat real/file; readlink real/self").await, "new\n../real/file\n");
    assert_eq!(code(read(sandbox.files(), "a").await), ProblemCode::FileOutsideWorkspace);
    sandbox.files().remove("in".as_ref(), RemovalDepth::Recursive).await.expect("the link alone");
    assert_eq!(does(&*sandbox, "ls real").await, "file\nself\n");
}

async fn a_link_that_is_swapped_meanwhile_leads_nowhere_else(subject: Subject) {
    let sandbox = make(&subject).await;
    let line = "ln -s /etc evil; mkdir way; echo good > way/passwd; echo on; \
                while :; do mv way good; mv evil way; mv way evil; mv good way; done";
    let mut attack = sandbox.exec(shell_spec(line)).await.expect("exec");
    attack.stdout.read_exact(&mut [0; 3]).await.expect("it is on");
    let (mut taken, mut refused) = (0, 0);
    while taken < 20 || refused < 20 {
        match read(sandbox.files(), "way/passwd").await {
            Ok(found) => {
                assert_eq!(found, "good\n");
                taken += 1;
            }
            Err(FilesError::Outside(_)) => refused += 1,
            // Nothing has the name for a moment.
            Err(_) => {}
        }
    }
    (attack.kill)();
    attack.exit.await.expect("exit");
}

async fn a_fifo_is_seen_and_never_waited_for(subject: Subject) {
    let sandbox = make(&subject).await;
    does(&*sandbox, "mkfifo fifo").await;
    if subject.has_own_kernel() {
        return assert_eq!(code(sandbox.files().stat("fifo".as_ref()).await), ProblemCode::FileNotFound);
    }
    assert_eq!(sandbox.files().stat("fifo".as_ref()).await.expect("stat").kind, FileKind::Special);
    assert_eq!(code(read(sandbox.files(), "fifo").await), ProblemCode::FileWrongKind);
    assert_eq!(code(write(sandbox.files(), "fifo", "x").await), ProblemCode::FileWrongKind);
    let mut archive = sandbox.files().pack("".as_ref(), ArchiveLimit::default()).await.expect("pack");
    let mut bytes = Vec::new();
    archive.read_to_end(&mut bytes).await.expect("an archive without it");
    assert_eq!(tar::Archive::new(bytes.as_slice()).entries().expect("entries").count(), 0);
}

async fn a_file_larger_than_any_disk_is_read_as_far_as_asked(subject: Subject) {
    let sandbox = make(&subject).await;
    does(&*sandbox, "truncate -s 1T huge").await;
    let mut content =
        sandbox.files().read("huge".as_ref(), ByteRange { offset: 1 << 39, limit: 5 }).await.expect("read");
    let mut bytes = Vec::new();
    content.bytes.read_to_end(&mut bytes).await.expect("bytes");
    assert_eq!((bytes, content.stat.size), (vec![0; 5], 1 << 40));
    let mut archive = sandbox.files().pack("huge".as_ref(), ArchiveLimit::default()).await.expect("pack");
    assert!(archive.read_to_end(&mut Vec::new()).await.expect_err("too large").to_string().contains("too large"));
}

async fn what_is_hidden_is_not_read_under_any_name(subject: Subject) {
    let (_host, sandbox) = over(&subject, &[".env", "sub/.env", "sub/open"]).await;
    let files = sandbox.files();
    let refused = [ProblemCode::FileNotFound, ProblemCode::PolicyDenied];
    for path in [".env", "sub/.env", "sub/./.env"] {
        assert!(refused.contains(&code(read(files, path).await)), "{path}");
        let renamed = files.rename(path.as_ref(), "open".as_ref(), OnExisting::Keep).await;
        assert!(refused.contains(&code(renamed)), "{path}");
    }
    does(&*sandbox, "ln -s sub/.env open").await;
    assert!(refused.contains(&code(read(files, "open").await)));
    let moved = files.rename("sub".as_ref(), "elsewhere".as_ref(), OnExisting::Keep).await;
    if let Err(error) = moved {
        assert_eq!(error.code(), ProblemCode::PolicyDenied);
    }
    let mut archive = files.pack("".as_ref(), ArchiveLimit::default()).await.expect("pack");
    let mut bytes = Vec::new();
    archive.read_to_end(&mut bytes).await.expect("read");
    assert!(text(&bytes).contains("sub/open\n") && !text(&bytes).contains(".env\n"));
}

async fn what_must_not_change_does_not(subject: Subject) {
    let (_host, sandbox) = over(&subject, &[".git/config", ".git/HEAD", ".git/hooks/sample", "mine"]).await;
    let files = sandbox.files();
    for path in [".git/hooks/pre-commit", ".git/config", ".envrc", ".env"] {
        let Err(FilesError::Denied { rule, .. }) = write(files, path, "x").await else { panic!("{path} was written") };
        assert!(rule.text.contains("deny_"), "{rule:?}");
        let moved = files.rename("mine".as_ref(), path.as_ref(), OnExisting::Replace).await;
        assert_eq!(code(moved), ProblemCode::PolicyDenied, "{path}");
    }
    assert_eq!(code(files.make_directory(".vscode/x".as_ref()).await), ProblemCode::PolicyDenied);
    assert_eq!(code(files.remove(".git".as_ref(), RemovalDepth::Recursive).await), ProblemCode::PolicyDenied);
    let moved = files.rename(".git".as_ref(), "git".as_ref(), OnExisting::Keep).await;
    assert_eq!(code(moved), ProblemCode::PolicyDenied);
    write(files, "plan/hooks/pre-commit", "x").await.expect("an ordinary directory");
    let moved = files.rename("plan".as_ref(), ".git".as_ref(), OnExisting::Replace).await;
    assert_eq!(code(moved), ProblemCode::PolicyDenied);
    does(&*sandbox, "ln -s .git/hooks way").await;
    assert_eq!(code(write(files, "way/pre-commit", "x").await), ProblemCode::PolicyDenied);
    assert_eq!(
        does(&*sandbox, "find .git -type f | LC_ALL=C sort; cat mine").await,
        ".git/HEAD\n.git/config\n.git/hooks/sample\nmine\n"
    );
}

async fn after_destroy_there_are_no_files(subject: Subject) {
    let sandbox = make(&subject).await;
    write(sandbox.files(), "file", "x").await.expect("write");
    sandbox.destroy().await.expect("destroy");
    assert_eq!(code(read(sandbox.files(), "file").await), ProblemCode::SandboxGone);
    assert_eq!(code(write(sandbox.files(), "file", "x").await), ProblemCode::SandboxGone);
}

async fn the_one_who_asks_has_no_more_rights_than_the_user_inside(subject: Subject) {
    let sandbox = make(&subject).await;
    does(&*sandbox, "echo x > closed; chmod 0 closed; mkdir dir; echo x > dir/in; chmod 0 dir").await;
    assert_eq!(code(read(sandbox.files(), "closed").await), ProblemCode::FilePermissionDenied);
    assert_eq!(code(read(sandbox.files(), "dir/in").await), ProblemCode::FilePermissionDenied);
    assert_eq!(code(write(sandbox.files(), "dir/new", "x").await), ProblemCode::FilePermissionDenied);
}

async fn a_full_workspace_is_told_apart(subject: Subject) {
    let mut small: SandboxSpec = spec(&subject, None);
    small.policy = policy(&subject, &[("disk: 4GiB", "disk: 1MiB")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let written = sandbox.files().write("big".as_ref(), stream(&vec![b'x'; 2 << 20]), 1 << 30).await;
    assert_eq!(code(written), ProblemCode::WorkspaceFull);
    assert_eq!(does(&*sandbox, "ls -A").await, "");
}

async fn a_workspace_that_cannot_be_written_names_the_rule(subject: Subject) {
    let (host, _) = over(&subject, &["file"]).await;
    let mut readonly = spec(&subject, Some(host.path().to_owned()));
    readonly.policy = policy(&subject, &[("workspace: overlay", "workspace: readonly")]);
    let sandbox = subject.backend.create(readonly).await.expect("sandbox");
    assert_eq!(read(sandbox.files(), "file").await.expect("read"), "file\n");
    let Err(FilesError::Denied { rule, .. }) = write(sandbox.files(), "file", "x").await else { panic!("written") };
    assert!(rule.text.contains("readonly"), "{rule:?}");
    assert_eq!(code(sandbox.files().remove("file".as_ref(), RemovalDepth::Single).await), ProblemCode::PolicyDenied);
}
