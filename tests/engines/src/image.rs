//! The test image, made from the Debian packages of this machine without any download.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that the tests use; their dependencies are added.
const PACKAGES: [&str; 7] = ["bash", "coreutils", "dash", "findutils", "grep", "sed", "util-linux"];
/// Directories that are links where `/usr` is merged.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Directories of every root.
const SKELETON: [&str; 10] =
    ["usr", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "home", "tmp", "proc", "dev"];
/// Files that the tests do not need, and files that identify a machine: if they are seen inside, they are the host's.
const LEFT_OUT: [&str; 10] = [
    "etc/debian_version",
    "etc/os-release",
    "usr/lib/os-release",
    "var/lib",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/bash-completion",
    "usr/lib/x86_64-linux-gnu/gconv",
];

/// Returns a tar archive of the root file system.
pub(crate) fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for directory in SKELETON {
        append(&mut archive, Path::new(directory), tar::EntryType::Directory, "", &[], 0o755);
    }
    for name in MERGED {
        append(&mut archive, Path::new(name), tar::EntryType::Symlink, &format!("usr/{name}"), &[], 0o777);
    }
    for (path, source) in files() {
        let Ok(found) = fs::symlink_metadata(&source) else { continue };
        let mode = std::os::unix::fs::MetadataExt::mode(&found) & 0o755;
        if found.is_symlink() {
            let target = fs::read_link(&source).expect("link").display().to_string();
            append(&mut archive, &path, tar::EntryType::Symlink, &target, &[], 0o777);
        } else if found.is_dir() {
            append(&mut archive, &path, tar::EntryType::Directory, "", &[], mode);
        } else {
            let content = fs::read(&source).expect("file of a package");
            append(&mut archive, &path, tar::EntryType::Regular, "", &content, mode);
        }
    }
    archive.into_inner().expect("archive")
}

/// Returns the paths in the image with their sources, directories before their entries.
fn files() -> Vec<(PathBuf, PathBuf)> {
    let listed = output("dpkg", &["-L"], &closure());
    let mut found = BTreeMap::from([(PathBuf::from("usr/bin/sh"), PathBuf::from("/usr/bin/sh"))]);
    for line in listed.lines().filter_map(|line| line.strip_prefix('/')).filter(|line| *line != ".") {
        let first = line.split('/').next().unwrap_or_default();
        let path = if MERGED.contains(&first) { Path::new("usr").join(line) } else { PathBuf::from(line) };
        let is_there = MERGED.contains(&line) || SKELETON.iter().any(|part| path == Path::new(part));
        if !is_there && !LEFT_OUT.iter().any(|part| path.starts_with(part)) {
            found.insert(path, Path::new("/").join(line));
        }
    }
    found.into_iter().collect()
}

/// Returns the packages with all their installed dependencies.
fn closure() -> Vec<String> {
    let (mut known, mut open) = (BTreeSet::new(), PACKAGES.map(str::to_owned).to_vec());
    while let Some(package) = open.pop() {
        let asked = Command::new("dpkg-query").args(["-W", "-f=${Pre-Depends},${Depends}", &package]).output();
        let asked = asked.expect("dpkg-query");
        if !asked.status.success() || !known.insert(package) {
            continue;
        }
        let needs = String::from_utf8_lossy(&asked.stdout).into_owned();
        let names = needs.split([',', '|']).filter_map(|need| need.trim().split([' ', ':']).next());
        open.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    known.into_iter().collect()
}

fn output(program: &str, arguments: &[&str], more: &[String]) -> String {
    let output = Command::new(program).args(arguments).args(more).output().expect("dpkg");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &Path,
    kind: tar::EntryType,
    target: &str,
    content: &[u8],
    mode: u32,
) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    let added = if kind == tar::EntryType::Symlink {
        archive.append_link(&mut header, path, target)
    } else {
        archive.append_data(&mut header, path, content)
    };
    added.expect("append");
}
