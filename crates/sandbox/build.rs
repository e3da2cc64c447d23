//! Builds the init of containers, linked statically, and embeds it in this crate, so that `viv` stays one file.

use std::path::PathBuf;
use std::process::Command;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let given = |name: &str| std::env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"));
    let (target, out) = (given("TARGET")?, PathBuf::from(given("OUT_DIR")?));
    let jail = PathBuf::from(given("CARGO_MANIFEST_DIR")?).join("../jail");
    for path in [jail.join("src"), jail.join("Cargo.toml"), jail.join("../base"), jail.join("../../Cargo.lock")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let mut cargo = Command::new(given("CARGO")?);
    cargo.args(["build", "--locked", "--quiet", "--profile", "inside", "--bin", "viv-inside", "--manifest-path"]);
    // A separate target directory, because cargo has locked the outer one.
    cargo.arg(jail.join("Cargo.toml")).arg("--target-dir").arg(out.join("inside")).arg("--target").arg(&target);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    // Clippy and other compiler wrappers must not be applied to this build.
    for name in ["RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        cargo.env_remove(name);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("cannot build the init of containers: {status}").into());
    }
    let built = out.join("inside").join(&target).join("inside/viv-inside");
    std::fs::copy(built, out.join("viv-inside"))?;
    Ok(())
}
