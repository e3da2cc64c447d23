//! Sixty-four clients against a real `viv serve`: sessions in sandboxes are made, talked to, read and ended, and no
//! answer is anything but what is due.
//!
//! Memory and descriptors of the server are looked at every second: what it holds at the end must be what it held
//! when everything had happened once. When the clients are gone no process of a session is left, and when the server
//! is gone nothing is.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench;
use crate::bench::Folder;
use crate::bench::sessions::{Load, serve};
use crate::family;
use crate::step::{Steps, quietly};
use crate::workspace::{self, cargo};

const CLIENTS: u64 = 64;
const MINUTES: u64 = 10;
/// How long the run of `cargo xtask test` is.
const BRIEF_SECONDS: u64 = 20;
/// What the server may hold at the end over what it held when it was warm. Lists of ended sessions are on disk.
const MORE_MEMORY_PERCENT: u64 = 20;
const MORE_MEMORY_KIB: u64 = 8 << 10;
const MORE_DESCRIPTORS: usize = 16;
/// A sandbox that was told to end is gone within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Carries out `cargo xtask load [--minutes=N] [--debug]`: a release build whose figures are kept, or with `--debug` the
/// programs that the tests have, whose figures say little.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut minutes, mut profile) = (MINUTES, "release");
    for argument in arguments {
        match argument.strip_prefix("--minutes=").map(str::parse) {
            Some(Ok(number)) if number > 0 => minutes = number,
            None if argument == "--debug" => profile = "debug",
            _ => bail!("usage: cargo xtask load [--minutes=N] [--debug]"),
        }
    }
    let mut steps = Steps::start();
    for what in [["--bin", "viv"], ["-p", "sessions-load"]] {
        let mut build = cargo(&["build", "--locked"]);
        build.args((profile == "release").then_some("--release")).args(what);
        steps.command(&format!("build {}", what[1]), build)?;
    }
    let built = workspace::target_directory()?.join(profile);
    steps.step("load", || {
        let held = hold(&built.join("viv"), &built.join("sessions-load"), minutes * 60)?;
        if profile == "release" {
            bench::keep("load", &held.table(minutes * 60))?;
        }
        Ok(held.note())
    })?;
    steps.finish();
    Ok(())
}

/// The short run that `cargo xtask test` has, with programs as the tests have them.
pub(crate) fn brief(viv: &Path) -> Result<String> {
    quietly(&mut cargo(&["build", "--locked", "-p", "sessions-load"]))?;
    let load = workspace::target_directory()?.join("debug/sessions-load");
    Ok(hold(viv, &load, BRIEF_SECONDS)?.note())
}

/// What was seen of a server that held.
struct Held {
    counts: Value,
    warm: Look,
    last: Look,
    most_descriptors: usize,
}

/// One look at the server.
#[derive(Debug, Clone, Copy)]
struct Look {
    kib: u64,
    descriptors: usize,
}

impl Look {
    fn at(server: u32) -> Result<Self> {
        let kib = family::proportional_kib(server).context("the server is gone")?;
        Ok(Self { kib, descriptors: family::descriptors(server)? })
    }
}

impl Held {
    fn note(&self) -> String {
        let count = |what: &str| self.counts[what].as_u64().unwrap_or_default();
        let Self { warm, last, .. } = self;
        format!(
            "{} sessions, {} turns, {} → {} KiB, {} → {} descriptors",
            count("sessions"),
            count("turns"),
            warm.kib,
            last.kib,
            warm.descriptors,
            last.descriptors
        )
    }

    fn table(&self, seconds: u64) -> String {
        let count = |what: &str| self.counts[what].as_u64().unwrap_or_default();
        let rows = [
            (format!("sessions of {CLIENTS} clients in {seconds} s"), count("sessions").to_string()),
            ("turns, each read to its end".to_owned(), count("turns").to_string()),
            ("permissions answered".to_owned(), count("permissions").to_string()),
            ("refusals that were due".to_owned(), count("due refusals").to_string()),
            ("any other answer".to_owned(), "0".to_owned()),
            (
                "memory of the server, warm and idle, then at the end".to_owned(),
                format!("{} KiB, {} KiB", self.warm.kib, self.last.kib),
            ),
            (
                "descriptors of the server, warm and idle, at most, at the end".to_owned(),
                format!("{}, {}, {}", self.warm.descriptors, self.most_descriptors, self.last.descriptors),
            ),
            ("processes left, of sessions and of the server".to_owned(), "0".to_owned()),
        ];
        let rows: Vec<String> = rows.iter().map(|(what, found)| format!("| {what} | {found} |\n")).collect();
        format!("| what | found |\n| --- | ---: |\n{}", rows.concat())
    }
}

/// Lets the clients at a server for some seconds, and holds it to everything.
fn hold(viv: &Path, program: &Path, seconds: u64) -> Result<Held> {
    let (folder, load) = (Folder::make(&[])?, Load::new(program.to_owned()));
    let (server, address) = serve(viv, &folder.fresh("data")?)?;
    // Everything happens once before the first look: threads, caches and connections of the server are there then.
    let idle = family::family(server.id()).len();
    let warm_up = (seconds / 10).max(3).to_string();
    load.ask(&["crowd", &address, &CLIENTS.to_string(), &warm_up])?;
    settle(server.id(), idle)?;
    let warm = Look::at(server.id())?;
    let (counts, most_descriptors) =
        watched(server.id(), || load.ask(&["crowd", &address, &CLIENTS.to_string(), &seconds.to_string()]))?;
    settle(server.id(), idle)?;
    let last = Look::at(server.id())?;
    let all = family::family(server.id());
    drop(server);
    let left: Vec<u32> = all.into_iter().filter(|id| is_alive(*id)).collect();
    ensure!(left.is_empty(), "the server left {left:?}");
    let held = Held { counts, warm, last, most_descriptors };
    held.check()?;
    Ok(held)
}

impl Held {
    fn check(&self) -> Result<()> {
        let Self { warm, last, .. } = self;
        let most = warm.kib + (warm.kib * MORE_MEMORY_PERCENT / 100).max(MORE_MEMORY_KIB);
        ensure!(last.kib <= most, "memory grew from {} KiB to {} KiB", warm.kib, last.kib);
        let (before, after) = (warm.descriptors, last.descriptors);
        ensure!(after <= before + MORE_DESCRIPTORS, "descriptors grew from {before} to {after}");
        Ok(())
    }
}

/// Does `work` and looks at the server meanwhile; the most descriptors it had.
fn watched<T>(server: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(family::descriptors(server).unwrap_or_default());
                std::thread::sleep(Duration::from_millis(200));
            }
            most
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        let most = watch.join().map_err(|_| anyhow::anyhow!("the watch broke"))?;
        Ok((done?, most))
    })
}

/// Waits until the server has no more processes than when nobody had called it.
fn settle(server: u32, idle: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let now = family::family(server).len();
        if now <= idle {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "{} processes of ended sessions are left", now - idle);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(kib: u64, descriptors: usize) -> Held {
        let warm = Look { kib: 20_000, descriptors: 30 };
        Held { counts: Value::Null, warm, last: Look { kib, descriptors }, most_descriptors: 0 }
    }

    #[test]
    fn what_grows_does_not_hold() {
        assert!(held(22_000, 31).check().is_ok());
        assert!(held(40_000, 31).check().is_err());
        assert!(held(22_000, 94).check().is_err());
    }

    #[test]
    fn minutes_are_a_number() {
        for bad in ["--minutes=", "--minutes=0", "--minutes=x", "--fast"] {
            assert!(run(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
