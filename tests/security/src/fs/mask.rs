//! Attempts to read files that the policy hides (`deny_read`) under another name.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};

use crate::attack::{Attack, Group::Fs, Verdict, program};
use crate::lead::Lead;

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        program(Fs, "fs_mask_read", "read a hidden file", read_hidden),
        program(Fs, "fs_mask_rename_parent", "rename the directory it is in", rename_parent),
        program(Fs, "fs_mask_rename", "rename the file", rename),
        program(Fs, "fs_mask_exchange", "exchange it with a file that is not hidden", exchange),
        program(Fs, "fs_mask_exchange_parent", "exchange its directory with another", exchange_parent),
        program(Fs, "fs_mask_copy", "copy the directory it is in", copy_parent),
        program(Fs, "fs_mask_hard_link", "give it a second name", hard_link),
        program(Fs, "fs_mask_replace", "put a file in its place and remove that again", replace),
        program(Fs, "fs_mask_opaque", "mark its directory as not merged, and merged again", opaque),
        program(Fs, "fs_mask_handle", "open it by file handle", by_handle).shown(crate::attack::Control::Root),
    ]
}

fn read(path: impl AsRef<Path>) -> Verdict {
    match fs::read_to_string(path) {
        Ok(text) => Verdict::Succeeded(text),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn read_hidden(lead: &Lead) -> Verdict {
    Verdict::any([read(lead.work(".env")), read(lead.work("conf/.env")), read(lead.work("conf/../conf/./.env"))])
}

fn rename_parent(lead: &Lead) -> Verdict {
    let moved = fs::rename(lead.work("conf"), lead.work("moved"));
    Verdict::any([read(lead.work("moved/.env")), Verdict::Blocked(format!("rename: {moved:?}"))])
}

fn rename(lead: &Lead) -> Verdict {
    let moved = fs::rename(lead.work("conf/.env"), lead.work("seen"));
    Verdict::any([read(lead.work("seen")), Verdict::Blocked(format!("rename: {moved:?}"))])
}

fn exchange(lead: &Lead) -> Verdict {
    let (hidden, plain) = (lead.work("conf/.env"), lead.work("conf/plain"));
    let done = renameat_with(CWD, &hidden, CWD, &plain, RenameFlags::EXCHANGE);
    // Without a sandbox, the plain name now contains the secret.
    match (done, read(&plain)) {
        (Ok(()), verdict) => verdict,
        (Err(error), _) => Verdict::Blocked(error.to_string()),
    }
}

fn exchange_parent(lead: &Lead) -> Verdict {
    let done = renameat_with(CWD, lead.work("conf"), CWD, lead.work("other"), RenameFlags::EXCHANGE);
    Verdict::any([read(lead.work("other/.env")), Verdict::Blocked(format!("exchange: {done:?}"))])
}

fn copy_parent(lead: &Lead) -> Verdict {
    fs::create_dir(lead.work("copy")).expect("directory");
    for entry in fs::read_dir(lead.work("conf")).expect("directory").flatten() {
        let _ = fs::copy(entry.path(), lead.work("copy").join(entry.file_name()));
    }
    read(lead.work("copy/.env"))
}

fn hard_link(lead: &Lead) -> Verdict {
    let linked = fs::hard_link(lead.work("conf/.env"), lead.work("seen"));
    Verdict::any([read(lead.work("seen")), Verdict::Blocked(format!("link: {linked:?}"))])
}

fn replace(lead: &Lead) -> Verdict {
    let hidden = lead.work("conf/.env");
    if lead.inside {
        fs::write(&hidden, "mine").expect("a name that does not exist can be taken");
        fs::remove_file(&hidden).expect("remove");
        fs::remove_dir_all(lead.work("conf")).expect("remove the directory");
        fs::create_dir(lead.work("conf")).expect("make it again");
    }
    read(hidden)
}

fn opaque(lead: &Lead) -> Verdict {
    let conf = lead.work("conf");
    for name in ["user.overlay.opaque", "trusted.overlay.opaque"] {
        let _ = rustix::fs::setxattr(&conf, name, b"y", XattrFlags::empty());
        let _ = rustix::fs::removexattr(&conf, name);
    }
    read(conf.join(".env"))
}

fn by_handle(lead: &Lead) -> Verdict {
    super::mounts::open_by_handle(&lead.work("conf/plain"), &lead.work("conf/.env"))
}
