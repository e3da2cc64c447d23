//! The version with its commit, and linker options that shorten the start of `viv`, which is a large part of the time of `viv exec`.
//!
//! The loader processes tens of thousands of relocations before `main`. They are written in the packed form if the
//! loader of this machine supports it. The unwinder is linked statically, because the loader would have to find, map and
//! relocate its shared library at every start.

use std::path::{Path, PathBuf};
use std::process::Command;

/// First glibc whose loader supports packed relocations.
const SINCE: (u32, u32) = (2, 36);

fn main() {
    version();
    println!("cargo:rerun-if-changed=build.rs");
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    let is_native = std::env::var("HOST") == std::env::var("TARGET");
    if is_gnu && is_native && glibc().is_some_and(|version| version >= SINCE) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if let (true, Some(directory)) = (is_gnu && is_native, directory_of("libgcc_eh.a")) {
        println!("cargo:rustc-link-search=native={}", directory.display());
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Sets `VIV_VERSION`: the version, with commit and date if the sources are in a git repository.
fn version() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = git(&["log", "-1", "--format=%h %cs"]).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=VIV_VERSION={version}{commit}");
}

/// Returns the directory of a library of the C compiler; `None` if it has none.
fn directory_of(library: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // The compiler prints an unknown name unchanged.
    path.parent().filter(|directory| directory.is_absolute()).map(Path::to_owned)
}

/// Returns the version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
