//! What a sandbox changed is what the next one of the same session begins with.

use std::fs;
use std::os::unix::fs::symlink;

use sandbox::{Sandbox, SavedChanges};

use crate::{Promise, Subject, shell, spec, text};

pub(crate) fn walled() -> Vec<Promise> {
    crate::tests![changes_are_there_again_in_the_next_sandbox, what_the_host_changed_meanwhile_is_a_conflict]
}

const WORK: &str = "echo new > added; echo more >> kept/file; rm gone; chmod 755 kept/file; ln -s kept/file link; \
                    rm -r folder; echo now > folder; rm plain; mkdir -p plain/deep; echo x > plain/deep/x; \
                    mkdir empty; chmod 700 empty; printf odd > '-rf'; printf odd > \"$(printf 'two\\nlines')\"";
const LOOK: &str = "find . -printf '%y %m %p %l\\n' | sort; find . -type f -exec sha256sum {} + | sort";

fn workspace() -> tempfile::TempDir {
    let host = tempfile::tempdir().expect("workspace");
    for directory in ["kept", "folder"] {
        fs::create_dir(host.path().join(directory)).expect("directory");
    }
    for file in ["kept/file", "folder/in", "gone", "plain"] {
        fs::write(host.path().join(file), "before\n").expect("file");
    }
    symlink("gone", host.path().join("old")).expect("link");
    host
}

async fn begin(subject: &Subject, host: &tempfile::TempDir) -> Box<dyn Sandbox> {
    subject.backend.create(spec(subject, Some(host.path().to_owned()))).await.expect("sandbox")
}

async fn save_and_end(sandbox: Box<dyn Sandbox>, into: &tempfile::TempDir) -> SavedChanges {
    let layers = sandbox.layers().expect("layers");
    sandbox.destroy().await.expect("destroy");
    SavedChanges::save_final(&layers, into.path()).expect("save")
}

async fn changes_are_there_again_in_the_next_sandbox(subject: Subject) {
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let first = begin(&subject, &host).await;
    assert_eq!(shell(&*first, WORK).await.exit.code, Some(0));
    let left = text(&shell(&*first, LOOK).await.stdout);
    let saved = save_and_end(first, &kept).await;

    let second = begin(&subject, &host).await;
    saved.restore(&*second).await.expect("restore");
    let found = text(&shell(&*second, LOOK).await.stdout);
    assert_eq!(found, left);
    let again = save_and_end(second, &kept).await;
    let told = |saved: &SavedChanges| -> Vec<_> {
        saved
            .changes()
            .map(|change| (change.path.clone(), change.kind, change.entry.clone(), change.conflict))
            .collect()
    };
    assert_eq!(told(&again), told(&saved));
    assert!(fs::read_to_string(host.path().join("gone")).is_ok(), "the host was changed");
}

async fn what_the_host_changed_meanwhile_is_a_conflict(subject: Subject) {
    let (host, kept) = (workspace(), tempfile::tempdir().expect("kept"));
    let first = begin(&subject, &host).await;
    shell(&*first, "echo theirs > kept/file; echo theirs > fresh; echo theirs > gone").await;
    save_and_end(first, &kept).await;

    fs::write(host.path().join("kept/file"), "ours\n").expect("file");
    fs::write(host.path().join("fresh"), "ours\n").expect("file");
    for _ in 0..2 {
        let next = begin(&subject, &host).await;
        SavedChanges::open(kept.path()).expect("saved").restore(&*next).await.expect("restore");
        let saved = save_and_end(next, &kept).await;
        let conflicts: Vec<_> = saved.changes().filter(|change| change.conflict).map(|change| &change.path).collect();
        assert_eq!(conflicts, ["fresh", "kept/file"].map(std::path::Path::new));
    }
}
