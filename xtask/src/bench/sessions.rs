//! The cost of sessions: starting the server, creating a session, sending messages, idle memory, reading events.
//!
//! "Agent in process" means that the mock agent is a task of the server (`bench/sessions`): API, journal and index are
//! those of `viv serve`, without a sandbox. The peer is the server of the npm package `sandbox-agent`. Its API no longer
//! has sessions or a mock agent, so only start time and idle memory are compared.

mod goals;
mod load;
mod peer;
mod start;

use std::path::Path;

use anyhow::Result;

use super::{Folder, Report, Sample};
use crate::family;
use crate::step::quietly;
use crate::workspace;

pub(crate) use load::Load;
pub(crate) use start::serve;

const SESSIONS: u64 = 10_000;
const LISTED: u64 = 100_000;
const EVENTS: u64 = 1_000_000;

/// All measurements, in the order in which the goals use them.
struct Findings {
    cold: Vec<Sample>,
    /// Memory of idle servers in KiB: ours with its child processes, and the peer.
    idle_kib: (u64, u64),
    create: Sample,
    create_in_sandbox: Sample,
    first_event: Sample,
    /// Additional memory and descriptors of the server with 10,000 sessions.
    session_bytes: u64,
    session_descriptors: usize,
    list: Sample,
    /// A page of the slowest filter.
    filtered: Sample,
    page: Sample,
    /// Nanoseconds for one append, at a thousand records and at a million.
    append_nanos: (u64, u64),
    /// Number of readers, events that each one saw, and the duration.
    readers: (u64, u64, u64),
    /// Total events, and the delay of the slowest session in milliseconds.
    steady: (u64, u64),
}

/// Runs all measurements.
pub(super) fn run() -> Result<Report> {
    let peer = peer::install()?;
    for arguments in [["--bin", "viv"], ["-p", "sessions-load"]] {
        quietly(workspace::cargo(&["build", "--locked", "--release"]).args(arguments))?;
    }
    let release = workspace::target_directory()?.join("release");
    let findings = measure(&release.join("viv"), &Load::new(release.join("sessions-load")), &peer)?;
    let goals = goals::of(&findings);
    let Findings { cold, create, create_in_sandbox, first_event, list, filtered, page, .. } = findings;
    let samples = cold.into_iter().chain([create, create_in_sandbox, first_event, list, filtered, page]).collect();
    Ok(Report { samples, goals })
}

fn measure(viv: &Path, load: &Load, peer: &Path) -> Result<Findings> {
    let folder = Folder::make(&[])?;
    let cold = start::cold(viv, peer, &folder)?;
    let idle_kib = start::idle(viv, peer, &folder)?;
    let (create, session_bytes, session_descriptors, list) = many_sessions(load, &folder)?;
    let create_in_sandbox = {
        let (server, address) = serve(viv, &folder.fresh("sandboxed")?)?;
        let times = load.micros(&["create", &address, "40"])?;
        drop(server);
        Sample::new("a session, agent in a sandbox", times)?
    };
    let (server, address) = load.serve(&folder.fresh("talk")?)?;
    let first_event = Sample::new("message to first event", load.micros(&["first-event", &address, "1000"])?)?;
    drop(server);
    let (server, address) = load.serve(&folder.fresh("long")?)?;
    let page = load.micros(&["page", &address, &EVENTS.to_string(), "2000"])?;
    let page = Sample::new("a page of 10 of 1,000,000 events", page)?;
    drop(server);
    Ok(Findings {
        cold,
        idle_kib,
        create,
        create_in_sandbox,
        first_event,
        session_bytes,
        session_descriptors,
        list,
        filtered: filtered(load, &folder)?,
        page,
        append_nanos: append(load, &folder)?,
        readers: readers(load, &folder)?,
        steady: steady(load, &folder)?,
    })
}

/// Creates 10,000 sessions on one server, and measures creation, memory and a page of the list.
fn many_sessions(load: &Load, folder: &Folder) -> Result<(Sample, u64, usize, Sample)> {
    let (server, address) = load.serve(&folder.fresh("many")?)?;
    let kib = || family::memory_kib(server.id());
    // The first call makes the server initialise lazily.
    load.ask(&["list", &address, "100"])?;
    let (memory, descriptors) = (kib()?, family::descriptors(server.id())?);
    let create = load.micros(&["create", &address, &SESSIONS.to_string()])?;
    let bytes = kib()?.saturating_sub(memory) * 1024 / SESSIONS;
    let descriptors = family::descriptors(server.id())?.saturating_sub(descriptors);
    let list = load.micros(&["list", &address, "100"])?;
    let create = Sample::new("a session, agent in process", create)?;
    Ok((create, bytes, descriptors, Sample::new("100 of 10,000 sessions", list)?))
}

/// Asks for pages of filtered lists of 100,000 sessions.
fn filtered(load: &Load, folder: &Folder) -> Result<Sample> {
    let directory = folder.fresh("filtered")?;
    // The data directory that the server below opens.
    load.ask(&["fill", &directory.to_string_lossy(), &LISTED.to_string()])?;
    let (_server, address) = load.serve(&directory)?;
    Sample::new("100 of 100,000 sessions, slowest filter", load.micros(&["filter", &address, "50"])?)
}

/// Returns the fastest thousand of the first and of the last fifty thousand appends, to exclude noise.
fn append(load: &Load, folder: &Folder) -> Result<(u64, u64)> {
    let measured = load.ask(&["append", &folder.fresh("append")?.to_string_lossy(), &EVENTS.to_string()])?;
    let nanos: Vec<u64> =
        measured["nanos"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).collect();
    let least = |part: &[u64]| part.iter().min().copied().unwrap_or_default();
    Ok((least(&nanos[1..50.min(nanos.len())]), least(&nanos[nanos.len().saturating_sub(50)..])))
}

fn readers(load: &Load, folder: &Folder) -> Result<(u64, u64, u64)> {
    let (_server, address) = load.serve(&folder.fresh("readers")?)?;
    let measured = load.ask(&["readers", &address, "1000", "10000"])?;
    let number = |key: &str| measured[key].as_u64().unwrap_or_default();
    Ok((number("readers"), number("events"), number("millis")))
}

fn steady(load: &Load, folder: &Folder) -> Result<(u64, u64)> {
    let (_server, address) = load.serve(&folder.fresh("steady")?)?;
    let measured = load.ask(&["rate", &address, "100", "100", "10"])?;
    let late = measured["late_millis"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).max();
    Ok((measured["events"].as_u64().unwrap_or_default(), late.unwrap_or(u64::MAX)))
}
