//! Tests of file access that must not leave the workspace, wait, or pass a denial.

use protocol::ProblemCode;
use sandbox::{ArchiveLimit, ByteRange, FileKind, FilesError, OnExisting, RemovalDepth, SandboxSpec};
use tokio::io::AsyncReadExt;

use crate::files::{code, over, read, run_ok, stream, write};
use crate::{NamedTest, Subject, make, policy, shell_spec, spec, tests, text};

pub(crate) fn everywhere() -> Vec<NamedTest> {
    tests![
        no_path_and_no_link_leaves_the_workspace,
        links_within_the_workspace_are_followed,
        concurrently_swapped_link_does_not_leave_the_workspace,
        fifo_is_listed_and_never_opened,
        range_of_a_huge_file_is_read,
        hidden_files_are_not_read_under_any_name,
        write_denied_files_are_not_changed,
        file_access_fails_after_destroy,
    ]
}

pub(crate) fn confined() -> Vec<NamedTest> {
    tests![
        file_access_has_the_rights_of_the_sandbox_user,
        full_workspace_is_reported,
        read_only_workspace_names_the_rule,
    ]
}

async fn no_path_and_no_link_leaves_the_workspace(subject: Subject) {
    let sandbox = make(&subject).await;
    let files = sandbox.files();
    run_ok(
        &*sandbox,
        "ln -s /etc etc; ln -s /etc/passwd passwd; ln -s ../../../../../.. up; ln -s /proc/self/root root",
    )
    .await;
    let ways = ["..", "../x", "a/../../x", "/etc/passwd", "/", "/workspace/../etc/passwd", "etc/passwd", "passwd"];
    for path in ways.into_iter().chain(["up/etc/passwd", "root/etc/passwd"]) {
        assert_eq!(code(read(files, path).await), ProblemCode::FileOutsideWorkspace, "read {path}");
        assert_eq!(code(write(files, path, "x").await), ProblemCode::FileOutsideWorkspace, "write {path}");
        assert_eq!(code(files.list(path.as_ref(), 9).await), ProblemCode::FileOutsideWorkspace, "list {path}");
        assert_eq!(code(files.make_directory(path.as_ref()).await), ProblemCode::FileOutsideWorkspace, "make {path}");
        let packed = files.pack(path.as_ref(), ArchiveLimit::default()).await;
        let message = match packed {
            Err(error) => error.code() == ProblemCode::FileOutsideWorkspace,
            Ok(mut archive) => archive.read_to_end(&mut Vec::new()).await.is_err(),
        };
        assert!(message, "pack {path}");
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

async fn links_within_the_workspace_are_followed(subject: Subject) {
    let (_host, sandbox) = over(&subject, &["real/file"]).await;
    run_ok(&*sandbox, "ln -s real in; ln -s ../real/file real/self; ln -s a b; ln -s b a").await;
    assert_eq!(read(sandbox.files(), "in/self").await.expect("read"), "real/file\n");
    write(sandbox.files(), "in/self", "new\n").await.expect("write");
    assert_eq!(run_ok(&*sandbox, "cat real/file; readlink real/self").await, "new\n../real/file\n");
    assert_eq!(code(read(sandbox.files(), "a").await), ProblemCode::FileOutsideWorkspace);
    sandbox.files().remove("in".as_ref(), RemovalDepth::Recursive).await.expect("the link alone");
    assert_eq!(run_ok(&*sandbox, "ls real").await, "file\nself\n");
}

async fn concurrently_swapped_link_does_not_leave_the_workspace(subject: Subject) {
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
            // The name does not exist for a moment.
            Err(_) => {}
        }
    }
    (attack.kill)();
    attack.exit.await.expect("exit");
}

async fn fifo_is_listed_and_never_opened(subject: Subject) {
    let sandbox = make(&subject).await;
    run_ok(&*sandbox, "mkfifo fifo").await;
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

async fn range_of_a_huge_file_is_read(subject: Subject) {
    let sandbox = make(&subject).await;
    run_ok(&*sandbox, "truncate -s 1T huge").await;
    let mut content =
        sandbox.files().read("huge".as_ref(), ByteRange { offset: 1 << 39, limit: 5 }).await.expect("read");
    let mut bytes = Vec::new();
    content.bytes.read_to_end(&mut bytes).await.expect("bytes");
    assert_eq!((bytes, content.stat.size), (vec![0; 5], 1 << 40));
    let mut archive = sandbox.files().pack("huge".as_ref(), ArchiveLimit::default()).await.expect("pack");
    assert!(archive.read_to_end(&mut Vec::new()).await.expect_err("too large").to_string().contains("too large"));
}

async fn hidden_files_are_not_read_under_any_name(subject: Subject) {
    let (_host, sandbox) = over(&subject, &[".env", "sub/.env", "sub/open"]).await;
    let files = sandbox.files();
    let refused = [ProblemCode::FileNotFound, ProblemCode::PolicyDenied];
    for path in [".env", "sub/.env", "sub/./.env"] {
        assert!(refused.contains(&code(read(files, path).await)), "{path}");
        let renamed = files.rename(path.as_ref(), "open".as_ref(), OnExisting::Keep).await;
        assert!(refused.contains(&code(renamed)), "{path}");
    }
    run_ok(&*sandbox, "ln -s sub/.env open").await;
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

async fn write_denied_files_are_not_changed(subject: Subject) {
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
    run_ok(&*sandbox, "ln -s .git/hooks way").await;
    assert_eq!(code(write(files, "way/pre-commit", "x").await), ProblemCode::PolicyDenied);
    assert_eq!(
        run_ok(&*sandbox, "find .git -type f | LC_ALL=C sort; cat mine").await,
        ".git/HEAD\n.git/config\n.git/hooks/sample\nmine\n"
    );
}

async fn file_access_fails_after_destroy(subject: Subject) {
    let sandbox = make(&subject).await;
    write(sandbox.files(), "file", "x").await.expect("write");
    sandbox.destroy().await.expect("destroy");
    assert_eq!(code(read(sandbox.files(), "file").await), ProblemCode::SandboxGone);
    assert_eq!(code(write(sandbox.files(), "file", "x").await), ProblemCode::SandboxGone);
}

async fn file_access_has_the_rights_of_the_sandbox_user(subject: Subject) {
    let sandbox = make(&subject).await;
    run_ok(&*sandbox, "echo x > closed; chmod 0 closed; mkdir dir; echo x > dir/in; chmod 0 dir").await;
    assert_eq!(code(read(sandbox.files(), "closed").await), ProblemCode::FilePermissionDenied);
    assert_eq!(code(read(sandbox.files(), "dir/in").await), ProblemCode::FilePermissionDenied);
    assert_eq!(code(write(sandbox.files(), "dir/new", "x").await), ProblemCode::FilePermissionDenied);
}

async fn full_workspace_is_reported(subject: Subject) {
    let mut small: SandboxSpec = spec(&subject, None);
    small.policy = policy(&subject, &[("disk: 4GiB", "disk: 1MiB")]);
    let sandbox = subject.backend.create(small).await.expect("sandbox");
    let written = sandbox.files().write("big".as_ref(), stream(&vec![b'x'; 2 << 20]), 1 << 30).await;
    assert_eq!(code(written), ProblemCode::WorkspaceFull);
    assert_eq!(run_ok(&*sandbox, "ls -A").await, "");
}

async fn read_only_workspace_names_the_rule(subject: Subject) {
    let (host, _) = over(&subject, &["file"]).await;
    let mut readonly = spec(&subject, Some(host.path().to_owned()));
    readonly.policy = policy(&subject, &[("workspace: overlay", "workspace: readonly")]);
    let sandbox = subject.backend.create(readonly).await.expect("sandbox");
    assert_eq!(read(sandbox.files(), "file").await.expect("read"), "file\n");
    let Err(FilesError::Denied { rule, .. }) = write(sandbox.files(), "file", "x").await else { panic!("written") };
    assert!(rule.text.contains("readonly"), "{rule:?}");
    assert_eq!(code(sandbox.files().remove("file".as_ref(), RemovalDepth::Single).await), ProblemCode::PolicyDenied);
}
