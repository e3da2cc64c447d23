//! Embeds the built Inspector (`web/dist/ui`) into this crate, if it was built. Without it, `/ui/` says how to build it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let given = |name: &str| std::env::var_os(name).ok_or_else(|| format!("cargo did not set {name}"));
    let dist = PathBuf::from(given("CARGO_MANIFEST_DIR")?).join("../../web/dist").canonicalize()?;
    // The folder itself is in the repository, so that cargo does not run this program at every build.
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let (folder, mut files) = (dist.join("ui"), Vec::new());
    if folder.join("index.html").is_file() {
        collect(&folder, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for path in files {
        let name = path.strip_prefix(&folder)?.to_str().ok_or("the name of an asset is not UTF-8")?;
        let packed = PathBuf::from(format!("{}.gz", path.display()));
        let digest = Sha256::digest(std::fs::read(&path)?);
        let (path, packed) = (literal(&path)?, packed.is_file().then(|| literal(&packed)).transpose()?);
        let packed = packed.map_or_else(|| "None".to_owned(), |packed| format!("Some(include_bytes!({packed}))"));
        let tag = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        writeln!(
            table,
            "    Asset {{ path: {name:?}, tag: {tag:?}, bytes: include_bytes!({path}), gzip: {packed} }},"
        )?;
    }
    table.push_str("]\n");
    std::fs::write(PathBuf::from(given("OUT_DIR")?).join("inspector_assets.rs"), table)?;
    Ok(())
}

/// Returns a path as a string literal.
fn literal(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or("the path of an asset is not UTF-8")?;
    Ok(format!("{text:?}"))
}

/// Adds the files of `folder` to `files`, without the compressed copies.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_none_or(|extension| extension != "gz") {
            files.push(path);
        }
    }
    Ok(())
}
