//! The goals of the sessions bench and the measured values.

use std::time::Duration;

use super::{EVENTS, Findings, SESSIONS};
use crate::bench::report::milliseconds;
use crate::bench::{Goal, Sample};

/// Returns every goal with its measured value.
pub(super) fn of(findings: &Findings) -> Vec<Goal> {
    let mut goals = times(findings);
    goals.extend(sizes(findings));
    goals.extend(flows(findings));
    goals
}

fn times(findings: &Findings) -> Vec<Goal> {
    let median = |what, wanted, sample: &Sample, most: Duration| Goal {
        what,
        wanted,
        measured: format!("{} ms", milliseconds(sample.median())),
        holds: sample.median() <= most,
    };
    let page = "a page of 10 of 1,000,000 events, p50";
    let late = findings.create.percentile(99);
    let mut goals = vec![
        median("a session with its journal, in process, p50", "≤ 0.4 ms", &findings.create, micros(400)),
        Goal {
            what: "a session with its journal, in process, p99",
            wanted: "≤ 5 ms",
            measured: format!("{} ms", milliseconds(late)),
            holds: late <= micros(5_000),
        },
        median("message to first event, p50", "≤ 0.5 ms", &findings.first_event, micros(500)),
        median("a page of the list of 10,000 sessions, p50", "≤ 10 ms", &findings.list, micros(10_000)),
        median(
            "a filtered list of 100,000 sessions, slowest filter, p50",
            "≤ 10 ms",
            &findings.filtered,
            micros(10_000),
        ),
        median(page, "≤ 1 ms", &findings.page, micros(1_000)),
    ];
    if let [peer, ours] = findings.cold.as_slice() {
        let beside = format!("{} ms, peer {} ms", milliseconds(ours.median()), milliseconds(peer.median()));
        let holds = ours.median() <= micros(60_000);
        goals.insert(0, Goal { what: "cold start to healthy, p50", wanted: "≤ 60 ms", measured: beside, holds });
    }
    goals
}

fn sizes(findings: &Findings) -> Vec<Goal> {
    let (ours, peer) = findings.idle_kib;
    vec![
        Goal {
            what: "idle memory of the server and all it started",
            wanted: "≤ 15 MB",
            measured: format!("{:.1} MB, peer {:.1} MB", megabytes(ours), megabytes(peer)),
            holds: ours * 1024 <= 15_000_000,
        },
        Goal {
            what: "memory of an idle session, of 10,000",
            wanted: "≤ 10 kB",
            measured: format!("{} bytes", findings.session_bytes),
            holds: findings.session_bytes <= 10_000,
        },
        Goal {
            what: "descriptors of 10,000 idle sessions",
            wanted: "none",
            measured: findings.session_descriptors.to_string(),
            // The database may open another file in the meantime.
            holds: (findings.session_descriptors as u64) < SESSIONS / 1_000,
        },
    ]
}

fn flows(findings: &Findings) -> Vec<Goal> {
    let (first, last) = findings.append_nanos;
    let (readers, seen, millis) = findings.readers;
    let (events, late) = findings.steady;
    vec![
        Goal {
            what: "an append at 1,000,000 events, beside one at 1,000",
            wanted: "within 20 %",
            measured: format!("{last} ns beside {first} ns: {} %", last * 100 / first.max(1)),
            holds: last * 100 <= first * 120 && EVENTS > 0,
        },
        Goal {
            what: "1,000 readers of one session of 10,000 events",
            wanted: "all of them, in order",
            measured: format!("{readers} readers saw {seen} events each, in {millis} ms"),
            holds: readers == 1_000 && seen >= 10_000,
        },
        Goal {
            what: "100 sessions at 100 events a second, for 10 s",
            wanted: "not falling behind (≤ 1 s late)",
            measured: format!("{events} events, the slowest session {late} ms late"),
            holds: events >= 100_000 && late <= 1_000,
        },
    ]
}

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

#[expect(clippy::cast_precision_loss, reason = "memory is never so large")]
fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1_000_000.0
}
