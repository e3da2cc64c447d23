//! Asks the linker for what makes a program start sooner: that is a good part of the time that `viv exec` takes.
//!
//! A program of this size has tens of thousands of relocations, all of them read before its first line runs: they are
//! written in the short form, where the loader of this machine reads it. And what unwinds panics comes with it: a library
//! of its own would be looked up, mapped and put right at every start.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The first glibc whose loader reads them.
const SINCE: (u32, u32) = (2, 36);

fn main() {
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

/// Where this machine's C compiler has a library of its own.
fn directory_of(library: &str) -> Option<PathBuf> {
    let output = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // One that it does not know is told as it was asked for.
    path.parent().filter(|directory| directory.is_absolute()).map(Path::to_owned)
}

/// The version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
