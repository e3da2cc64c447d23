//! What the gateway costs, beside a proxy that only proxies and one that does what ours does.
//!
//! The vendor, nginx, LiteLLM and two gateways (`durability` normal and full) stand at the same time, and every
//! measurement goes through them in turns. Recorder and ledger are on in ours; nothing of the kind is on in the
//! peers.

mod drive;
mod goals;
mod peers;

use anyhow::{Context, Result};

use super::{Report, Sample};
use crate::step::quietly;
use crate::{venv, workspace};
use drive::{Driver, Load, Measured};
use peers::{Peers, Target};

/// Callers at a time, where many call.
const MANY: usize = 32;
/// A first request of Claude Code.
const LARGE_PROMPT: usize = 76 << 10;

/// Everything that was measured, in the order in which the goals name it.
struct Findings {
    one: Measured,
    stream: Measured,
    large: Measured,
    many: Measured,
    many_streams: Measured,
    /// Peak memory of the gateway, in KiB, after all of the above.
    peak_kib: u64,
    /// Memory of the gateway after the first tenth of 100,000 calls, and after all of them.
    resident_kib: (u64, u64),
    /// Calls a second beside nobody, and beside readers that do not read.
    beside: (f64, f64),
}

/// Measures all of it in one run.
pub(super) fn run() -> Result<Report> {
    venv::LITELLM.install()?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "--bin", "viv"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "load"]))?;
    let release = workspace::target_directory()?.join("release");
    let driver = Driver::new(release.join("load"));
    let peers = Peers::start(&release.join("viv"), &release.join("load"))?;
    let findings = measure(&driver, &peers)?;
    Ok(Report { samples: samples(&findings)?, goals: goals::of(&findings)? })
}

fn measure(driver: &Driver, peers: &Peers) -> Result<Findings> {
    let all = peers.targets();
    let quick: Vec<&Target> = all.iter().copied().filter(|target| target.name != peers::LITELLM).collect();
    let one = driver.drive("one caller", &all, Load { rounds: 8, millis: 400, ..Load::default() })?;
    let stream = driver.drive("one stream", &all, Load { stream: true, rounds: 8, millis: 400, ..Load::default() })?;
    let large = Load { prompt_bytes: LARGE_PROMPT, rounds: 5, millis: 400, ..Load::default() };
    let large = driver.drive("a large prompt", &all, large)?;
    let many = Load { callers: MANY, rounds: 5, millis: 1_500, ..Load::default() };
    let many = driver.drive("many callers", &all, many)?;
    let many_streams = Load { stream: true, callers: MANY, rounds: 5, millis: 1_500, ..Load::default() };
    let many_streams = driver.drive("many streams", &quick, many_streams)?;
    let peak_kib = peers.gateway_kib("VmHWM")?;
    // Before anybody asks for answers of megabytes, which are kept whole until they are recorded.
    let resident_kib = endure(driver, peers)?;
    let beside = beside(driver, peers)?;
    Ok(Findings { one, stream, large, many, many_streams, peak_kib, resident_kib, beside })
}

/// Calls a second with and without readers that do not read, in turns.
fn beside(driver: &Driver, peers: &Peers) -> Result<(f64, f64)> {
    let load = Load { callers: 8, rounds: 1, millis: 1_000, ..Load::default() };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        for (idle_readers, rates) in [(0, &mut alone), (8, &mut together)] {
            let measured = driver.drive("idle readers", &[peers.normal()], Load { idle_readers, ..load })?;
            rates.push(measured.rate(peers.normal().name)?);
        }
    }
    Ok((drive::median(alone)?, drive::median(together)?))
}

/// 100,000 calls; the gateway's memory after the first tenth and at the end.
fn endure(driver: &Driver, peers: &Peers) -> Result<(u64, u64)> {
    let calls = |calls| Load { callers: MANY, rounds: 1, millis: 600_000, calls: Some(calls), ..Load::default() };
    driver.drive("10,000 calls", &[peers.normal()], calls(10_000))?;
    let early = peers.gateway_kib("VmRSS")?;
    driver.drive("90,000 calls", &[peers.normal()], calls(90_000))?;
    Ok((early, peers.gateway_kib("VmRSS")?))
}

/// Times of one caller, the vendor itself first.
fn samples(findings: &Findings) -> Result<Vec<Sample>> {
    let groups = [
        ("a call", &findings.one, false),
        ("first byte of a stream", &findings.stream, true),
        ("a stream of 200 events", &findings.stream, false),
        ("a call of 76 KB", &findings.large, false),
    ];
    let mut samples = Vec::new();
    for (what, measured, first) in groups {
        for name in peers::NAMES {
            let times = if first { measured.first(name)? } else { measured.whole(name)? };
            let sample = Sample::new(&format!("{what}: {name}"), times);
            samples.push(sample.with_context(|| format!("`{name}` answered nothing"))?);
        }
    }
    Ok(samples)
}
