//! A load test: 64 clients create, use, read and end sandboxed sessions on a real `viv serve`, and check every answer.
//!
//! Memory and descriptors of the server are sampled every second. At the end they must be back to the values after
//! warm-up, no session process may be left, and after the server has stopped no process at all.

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
/// Duration of the short run in `cargo xtask test`.
const BRIEF_SECONDS: u64 = 20;
/// How much memory and how many descriptors the server may gain after warm-up.
const MORE_MEMORY_PERCENT: u64 = 20;
const MORE_MEMORY_KIB: u64 = 8 << 10;
const MORE_DESCRIPTORS: usize = 16;
/// The time within which a stopped sandbox must be gone.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `cargo xtask load [--minutes=N] [--debug]`: a release build, whose figures are saved, or with `--debug` the
/// build of the tests.
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
        let report = run_clients(&built.join("viv"), &built.join("sessions-load"), minutes * 60)?;
        if profile == "release" {
            bench::save("load", &report.table(minutes * 60))?;
        }
        Ok(report.note())
    })?;
    steps.finish();
    Ok(())
}

/// Runs the short load test of `cargo xtask test`.
pub(crate) fn brief(viv: &Path) -> Result<String> {
    quietly(&mut cargo(&["build", "--locked", "-p", "sessions-load"]))?;
    let load = workspace::target_directory()?.join("debug/sessions-load");
    Ok(run_clients(viv, &load, BRIEF_SECONDS)?.note())
}

/// The measurements of a successful run.
struct LoadReport {
    counts: Value,
    warm: ServerSample,
    last: ServerSample,
    most_descriptors: usize,
}

/// One sample of the server.
#[derive(Debug, Clone, Copy)]
struct ServerSample {
    kib: u64,
    descriptors: usize,
}

impl ServerSample {
    fn at(server: u32) -> Result<Self> {
        let kib = family::proportional_kib(server).context("the server has ended")?;
        Ok(Self { kib, descriptors: family::descriptors(server)? })
    }
}

impl LoadReport {
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

/// Runs the clients for some seconds, and checks the server.
fn run_clients(viv: &Path, program: &Path, seconds: u64) -> Result<LoadReport> {
    let (folder, load) = (Folder::make(&[])?, Load::new(program.to_owned()));
    let (server, address) = serve(viv, &folder.fresh("data")?)?;
    // Warm-up before the first sample: it creates the server's threads, caches and connections.
    let idle = family::family(server.id()).len();
    let warm_up = (seconds / 10).max(3).to_string();
    load.ask(&["crowd", &address, &CLIENTS.to_string(), &warm_up])?;
    settle(server.id(), idle)?;
    let warm = ServerSample::at(server.id())?;
    let (counts, most_descriptors) =
        watched(server.id(), || load.ask(&["crowd", &address, &CLIENTS.to_string(), &seconds.to_string()]))?;
    settle(server.id(), idle)?;
    let last = ServerSample::at(server.id())?;
    let all = family::family(server.id());
    drop(server);
    let left: Vec<u32> = all.into_iter().filter(|id| is_alive(*id)).collect();
    ensure!(left.is_empty(), "the server left {left:?}");
    let report = LoadReport { counts, warm, last, most_descriptors };
    report.check()?;
    Ok(report)
}

impl LoadReport {
    fn check(&self) -> Result<()> {
        let Self { warm, last, .. } = self;
        let most = warm.kib + (warm.kib * MORE_MEMORY_PERCENT / 100).max(MORE_MEMORY_KIB);
        ensure!(last.kib <= most, "memory grew from {} KiB to {} KiB", warm.kib, last.kib);
        let (before, after) = (warm.descriptors, last.descriptors);
        ensure!(after <= before + MORE_DESCRIPTORS, "descriptors grew from {before} to {after}");
        Ok(())
    }
}

/// Runs `work` and samples the server meanwhile; returns the highest number of descriptors.
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

/// Waits until the server has no more processes than before the first call.
fn settle(server: u32, idle: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let now = family::family(server).len();
        if now <= idle {
            return Ok(());
        }
        ensure!(started.elapsed() < STOP_TIMEOUT, "{} processes of ended sessions are left", now - idle);
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

    fn report(kib: u64, descriptors: usize) -> LoadReport {
        let warm = ServerSample { kib: 20_000, descriptors: 30 };
        LoadReport { counts: Value::Null, warm, last: ServerSample { kib, descriptors }, most_descriptors: 0 }
    }

    #[test]
    fn growth_is_reported() {
        assert!(report(22_000, 31).check().is_ok());
        assert!(report(40_000, 31).check().is_err());
        assert!(report(22_000, 94).check().is_err());
    }

    #[test]
    fn minutes_must_be_a_number() {
        for bad in ["--minutes=", "--minutes=0", "--minutes=x", "--fast"] {
            assert!(run(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
