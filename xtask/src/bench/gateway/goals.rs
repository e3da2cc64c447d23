//! What the gateway is to reach, and what it reached.

use std::time::Duration;

use anyhow::Result;

use super::super::{Goal, Sample};
use super::peers::{FULL, LITELLM, NGINX, NORMAL, VENDOR};
use super::{Findings, Measured};

/// Every goal there is.
pub(super) fn of(findings: &Findings) -> Result<Vec<Goal>> {
    let mut goals = vec![added_beside_nginx(findings)?];
    let wanted = Duration::from_micros(1_500);
    goals.push(added("added to a call, durability full", "≤ 1.5 ms", &findings.one, Measured::whole, FULL, wanted)?);
    let wanted = Duration::from_micros(300);
    let what = "added to the first byte of a stream, durability normal";
    goals.push(added(what, "≤ 300 µs", &findings.stream, Measured::first, NORMAL, wanted)?);
    goals.push(share("calls a second at 32, normal", "≥ 70 % of nginx", &findings.many, (NORMAL, NGINX), 0.7)?);
    goals.push(share("calls a second at 32, full", "≥ 50 % of nginx", &findings.many, (FULL, NGINX), 0.5)?);
    goals.push(share("calls a second at 32, normal", "≥ 100 × LiteLLM", &findings.many, (NORMAL, LITELLM), 100.0)?);
    let streams = &findings.many_streams;
    goals.push(share("streams a second at 32, normal", "≥ 80 % of nginx", streams, (NORMAL, NGINX), 0.8)?);
    goals.push(share("streams a second at 32, full", "≥ 70 % of nginx", streams, (FULL, NGINX), 0.7)?);
    goals.push(no_stall(findings)?);
    goals.extend(memory(findings));
    goals.push(beside_idle_readers(findings));
    Ok(goals)
}

/// What a target adds to what the vendor takes.
fn added_micros(
    measured: &Measured,
    times: fn(&Measured, &str) -> Result<Vec<Duration>>,
    target: &str,
) -> Result<Duration> {
    let median = |name: &str| -> Result<Duration> { Ok(Sample::new(name, times(measured, name)?)?.median()) };
    Ok(median(target)?.saturating_sub(median(VENDOR)?))
}

fn added_beside_nginx(findings: &Findings) -> Result<Goal> {
    let ours = added_micros(&findings.one, Measured::whole, NORMAL)?;
    let nginx = added_micros(&findings.one, Measured::whole, NGINX)?;
    let ratio = ours.as_secs_f64() / nginx.as_secs_f64();
    Ok(Goal {
        what: "added to a call, durability normal",
        wanted: "≤ 1.5 × nginx",
        measured: format!("{} µs, nginx {} µs: {ratio:.2} ×", ours.as_micros(), nginx.as_micros()),
        holds: ratio <= 1.5,
    })
}

fn added(
    what: &'static str,
    wanted: &'static str,
    measured: &Measured,
    times: fn(&Measured, &str) -> Result<Vec<Duration>>,
    target: &str,
    most: Duration,
) -> Result<Goal> {
    let (ours, nginx) = (added_micros(measured, times, target)?, added_micros(measured, times, NGINX)?);
    let measured = format!("{} µs, nginx {} µs", ours.as_micros(), nginx.as_micros());
    Ok(Goal { what, wanted, measured, holds: ours <= most })
}

fn share(
    what: &'static str,
    wanted: &'static str,
    measured: &Measured,
    (ours, peer): (&str, &str),
    least: f64,
) -> Result<Goal> {
    let (ours, peer) = (measured.rate(ours)?, measured.rate(peer)?);
    let ratio = ours / peer;
    let ratio_text = if least < 1.0 { format!("{:.0} %", ratio * 100.0) } else { format!("{ratio:.0} ×") };
    Ok(Goal { what, wanted, measured: format!("{ours:.0} of {peer:.0}: {ratio_text}"), holds: ratio >= least })
}

fn no_stall(findings: &Findings) -> Result<Goal> {
    let ours = Sample::new(NORMAL, findings.large.whole(NORMAL)?)?.percentile(90);
    let measured = format!("90 % within {} ms", super::super::report::milliseconds(ours));
    Ok(Goal { what: "a call of 76 KB", wanted: "no 40 ms stall", measured, holds: ours < Duration::from_millis(20) })
}

fn memory(findings: &Findings) -> [Goal; 2] {
    let (early, late) = findings.resident_kib;
    [
        Goal {
            what: "peak memory with 32 streams",
            wanted: "≤ 40 MB",
            measured: format!("{} MB", findings.peak_kib >> 10),
            holds: findings.peak_kib <= 40 << 10,
        },
        Goal {
            what: "memory over 100,000 calls",
            wanted: "flat",
            measured: format!("{} MB after 10,000, {} MB after 100,000", early >> 10, late >> 10),
            holds: late <= early + early / 10,
        },
    ]
}

fn beside_idle_readers(findings: &Findings) -> Goal {
    let (alone, together) = findings.beside;
    let ratio = together / alone;
    Goal {
        what: "calls a second of 8 beside 8 readers that do not read",
        wanted: "as without them (≥ 80 %)",
        measured: format!("{together:.0} of {alone:.0}: {:.0} %", ratio * 100.0),
        holds: ratio >= 0.8,
    }
}
