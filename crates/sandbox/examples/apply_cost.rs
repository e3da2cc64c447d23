//! Measures an apply of 50,000 files and 20,000 links. Prints JSON with a list of microseconds.
//!
//! The links lead to directories of packages, as package managers make them. `cargo xtask bench sandbox` runs this. An
//! argument divides the numbers, for a quick look.
//!
//! All rounds keep their files until the end. ext4 does not reuse inodes that were deleted in the last seconds, and
//! searches for others: a round after a deletion would measure that search.
#![allow(clippy::expect_used, reason = "a measurement that fails has no result")]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Instant, SystemTime};

use policy::{BaseLayer, CeilingLayer, Preset};
use sandbox::{ApplyOptions, OverlayLayers, SavedChanges, apply, denying_rule};
use tempfile::TempDir;

const FILES: usize = 50_000;
const LINKS: usize = 20_000;
const FILES_IN_PACKAGE: usize = 25;
const ROUNDS: usize = 3;

fn main() {
    let divisor = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a number"));
    let directory = rounds_directory();
    let times: Vec<u64> = (0..ROUNDS)
        .map(|number| round(&directory.path().join(number.to_string()), FILES / divisor, LINKS / divisor))
        .collect();
    println!("{}", serde_json::to_string(&times).expect("report"));
}

/// Returns a directory beside this program, which is in the target directory. `/tmp` may be in memory.
fn rounds_directory() -> TempDir {
    let program = std::env::current_exe().expect("path of this program");
    tempfile::tempdir_in(program.parent().expect("directory of this program")).expect("directory")
}

/// Returns the microseconds of one apply, in the new directory `directory`.
fn round(directory: &Path, files: usize, links: usize) -> u64 {
    fs::create_dir(directory).expect("directory");
    let place = |name: &str| directory.canonicalize().expect("path").join(name);
    for name in ["host", "upper"] {
        fs::create_dir(place(name)).expect("directory");
    }
    write_packages(&place("upper"), files, links);
    let base = BaseLayer::preset(Preset::Balanced).expect("preset");
    let policy = policy::effective(&CeilingLayer::built_in().expect("ceiling"), &base, &[]);
    let upper = OwnedFd::from(fs::File::open(place("upper")).expect("upper"));
    let layers = OverlayLayers::new(upper, place("host"), SystemTime::now(), policy.file_denials());
    let mut saved = SavedChanges::save_final(&layers, &place("saved")).expect("save");
    let options = ApplyOptions { denials: policy.file_denials(), ..ApplyOptions::default() };
    let started = Instant::now();
    let report = apply(&mut saved, &place("host"), &options, &|path| denying_rule(&policy, path)).expect("apply");
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    assert!(report.changes.len() >= files + links, "{} changes", report.changes.len());
    micros
}

/// Writes packages with files, and links to packages from other packages.
fn write_packages(root: &Path, files: usize, links: usize) {
    let packages = files.div_ceil(FILES_IN_PACKAGE);
    for number in 0..files {
        let package = root.join(format!("store/package{}/lib", number / FILES_IN_PACKAGE));
        fs::create_dir_all(&package).expect("directory");
        fs::write(package.join(format!("file{number}.js")), number.to_string()).expect("file");
    }
    for number in 0..links {
        let modules = root.join(format!("store/package{}/modules", number % packages));
        fs::create_dir_all(&modules).expect("directory");
        let target = format!("../../package{}/lib", number * 7 % packages);
        symlink(target, modules.join(format!("dependency{number}"))).expect("link");
    }
}
