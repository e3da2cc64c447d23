//! Asks the linker for the short form of relocations, where the loader of this machine reads it.
//!
//! A program of this size has tens of thousands of them, and reads them all before its first line runs: in the long form
//! that is more than a megabyte, and a good part of the time that `viv exec` takes.

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
}

/// The version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
