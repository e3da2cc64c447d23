//! The cost of the gateway, measured beside nginx and LiteLLM.
//!
//! The vendor stub, nginx, LiteLLM and two gateways (`durability` normal and full) run at the same time, and every
//! measurement visits them in turns. Our gateway records and bills every call; the peers do neither.
//!
//! The headline is the agent-like call: a request of 76 KB, as Claude Code sends first, with a streamed answer of 200
//! events. Small calls show the fixed cost of a call.

mod drive;
mod goals;
mod peers;

use std::time::Duration;

use anyhow::{Context, Result};

use super::{Report, Sample};
use crate::step::quietly;
use crate::{venv, workspace};
use drive::{Driver, Load, Measured};
use peers::{NGINX, NORMAL, Peers, Target};

/// The number of callers in measurements with many callers.
const MANY: usize = 32;
/// The size of the first request of Claude Code.
const AGENT_PROMPT_BYTES: usize = 76 << 10;

/// All measurements, in the order in which the goals use them.
struct Findings {
    call: Measured,
    stream: Measured,
    large_prompt: Measured,
    agent_call: Measured,
    many_calls: Measured,
    many_streams: Measured,
    many_agent_calls: Measured,
    /// Processor time of one agent-like call with many callers: our gateway, then nginx.
    agent_processor_time: (Duration, Duration),
    /// Peak memory of the gateway in KiB, after all measurements above.
    peak_kib: u64,
    /// Memory of the gateway after 10,000 and after 100,000 calls.
    resident_kib: (u64, u64),
    /// Calls a second without idle readers, and beside them.
    beside_idle_readers: (f64, f64),
}

/// Runs all measurements.
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
    let without_litellm: Vec<&Target> = all.iter().copied().filter(|target| target.name != peers::LITELLM).collect();
    let one = Load { rounds: 8, millis: 400, ..Load::default() };
    let many = Load { callers: MANY, rounds: 5, millis: 1_500, ..Load::default() };
    let agent = |load: Load| Load { stream: true, prompt_bytes: AGENT_PROMPT_BYTES, ..load };

    let call = driver.drive("one caller", &all, one)?;
    let stream = driver.drive("one stream", &all, Load { stream: true, ..one })?;
    let large_prompt = driver.drive("one large prompt", &all, Load { prompt_bytes: AGENT_PROMPT_BYTES, ..one })?;
    let agent_call = driver.drive("one agent-like call", &all, agent(one))?;
    let many_calls = driver.drive("many callers", &all, many)?;
    let many_streams = driver.drive("many streams", &without_litellm, Load { stream: true, ..many })?;
    let before = peers.processor_times()?;
    let many_agent_calls = driver.drive("many agent-like calls", &without_litellm, agent(many))?;
    let after = peers.processor_times()?;
    let agent_processor_time = (
        per_call(after.0.saturating_sub(before.0), &many_agent_calls, NORMAL)?,
        per_call(after.1.saturating_sub(before.1), &many_agent_calls, NGINX)?,
    );
    let peak_kib = peers.gateway_kib("VmHWM")?;
    // Measured before the endless answers below, which the gateway keeps in memory until they are recorded.
    let resident_kib = memory_over_many_calls(driver, peers)?;
    let beside_idle_readers = beside_idle_readers(driver, peers)?;
    Ok(Findings {
        call,
        stream,
        large_prompt,
        agent_call,
        many_calls,
        many_streams,
        many_agent_calls,
        agent_processor_time,
        peak_kib,
        resident_kib,
        beside_idle_readers,
    })
}

/// Returns the processor time of one call to `target`, of `total` for all of them.
fn per_call(total: Duration, measured: &Measured, target: &str) -> Result<Duration> {
    let calls = u32::try_from(measured.whole(target)?.len()).context("too many calls to count")?;
    Ok(total / calls.max(1))
}

/// Returns calls a second without and with clients that read nothing, measured in turns.
fn beside_idle_readers(driver: &Driver, peers: &Peers) -> Result<(f64, f64)> {
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

/// Returns the gateway's memory after 10,000 and after 100,000 calls.
fn memory_over_many_calls(driver: &Driver, peers: &Peers) -> Result<(u64, u64)> {
    let calls = |calls| Load { callers: MANY, rounds: 1, millis: 600_000, calls: Some(calls), ..Load::default() };
    driver.drive("10,000 calls", &[peers.normal()], calls(10_000))?;
    let early = peers.gateway_kib("VmRSS")?;
    driver.drive("90,000 calls", &[peers.normal()], calls(90_000))?;
    Ok((early, peers.gateway_kib("VmRSS")?))
}

/// Returns the times of one caller, the vendor itself first.
fn samples(findings: &Findings) -> Result<Vec<Sample>> {
    let groups = [
        ("a call", &findings.call, false),
        ("first byte of a stream", &findings.stream, true),
        ("a stream of 200 events", &findings.stream, false),
        ("a call of 76 KB", &findings.large_prompt, false),
        ("first byte of an agent-like call", &findings.agent_call, true),
        ("an agent-like call", &findings.agent_call, false),
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
