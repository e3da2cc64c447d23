//! The goals of the gateway bench and the measured values.

use std::time::Duration;

use anyhow::Result;

use super::super::{Goal, Sample};
use super::peers::{FULL, LITELLM, NGINX, NORMAL, VENDOR};
use super::{Findings, Measured};

/// Returns every goal with its measured value.
pub(super) fn of(findings: &Findings) -> Result<Vec<Goal>> {
    let micros = Duration::from_micros;
    let mut goals = agent_like_calls(findings)?;
    goals.push(added_beside_nginx(findings)?);
    goals.push(added("added to a call, full", ("≤ 1.5 ms", micros(1_500)), (&findings.call, Measured::whole), FULL)?);
    let first_byte = (&findings.stream, Measured::first as Times);
    goals.push(added("added to the first byte of a stream, normal", ("≤ 300 µs", micros(300)), first_byte, NORMAL)?);
    let calls = &findings.many_calls;
    goals.push(share("calls a second at 32, normal", "≥ 30 % of nginx", calls, (NORMAL, NGINX), 0.3)?);
    goals.push(share("calls a second at 32, normal", "≥ 250 × LiteLLM", calls, (NORMAL, LITELLM), 250.0)?);
    let streams = &findings.many_streams;
    goals.push(share("streams a second at 32, normal", "≥ 80 % of nginx", streams, (NORMAL, NGINX), 0.8)?);
    goals.push(share("streams a second at 32, full", "≥ 70 % of nginx", streams, (FULL, NGINX), 0.7)?);
    goals.push(no_stall(findings)?);
    goals.extend(memory(findings));
    goals.push(beside_idle_readers(findings));
    Ok(goals)
}

/// The headline: a request of 76 KB with a streamed answer of 200 events, recorded and billed.
fn agent_like_calls(findings: &Findings) -> Result<Vec<Goal>> {
    let rate = &findings.many_agent_calls;
    let first_byte = (&findings.agent_call, Measured::first as Times);
    let (ours, nginx) = findings.agent_processor_time;
    let ratio = ours.as_secs_f64() / nginx.as_secs_f64();
    Ok(vec![
        share("agent-like calls a second at 32, normal", "≥ 60 % of nginx", rate, (NORMAL, NGINX), 0.6)?,
        Goal {
            what: "processor time of an agent-like call at 32, normal",
            wanted: "≤ 4 × nginx",
            measured: format!("{} µs, nginx {} µs: {ratio:.2} ×", ours.as_micros(), nginx.as_micros()),
            holds: ratio <= 4.0,
        },
        added(
            "added to the first byte of an agent-like call, normal",
            ("≤ 0.5 ms", Duration::from_micros(500)),
            first_byte,
            NORMAL,
        )?,
    ])
}

/// Selects the times of one target: to the first byte, or to the end of the answer.
type Times = fn(&Measured, &str) -> Result<Vec<Duration>>;

/// Returns the median time that `target` adds to the vendor's own time.
fn added_time((measured, times): (&Measured, Times), target: &str) -> Result<Duration> {
    let median = |name: &str| -> Result<Duration> { Ok(Sample::new(name, times(measured, name)?)?.median()) };
    Ok(median(target)?.saturating_sub(median(VENDOR)?))
}

fn added_beside_nginx(findings: &Findings) -> Result<Goal> {
    let ours = added_time((&findings.call, Measured::whole), NORMAL)?;
    let nginx = added_time((&findings.call, Measured::whole), NGINX)?;
    let ratio = ours.as_secs_f64() / nginx.as_secs_f64();
    Ok(Goal {
        what: "added to a call, normal",
        wanted: "≤ 1.5 × nginx",
        measured: format!("{} µs, nginx {} µs: {ratio:.2} ×", ours.as_micros(), nginx.as_micros()),
        holds: ratio <= 1.5,
    })
}

fn added(
    what: &'static str,
    (wanted, most): (&'static str, Duration),
    times: (&Measured, Times),
    target: &str,
) -> Result<Goal> {
    let (ours, nginx) = (added_time(times, target)?, added_time(times, NGINX)?);
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
    let ours = Sample::new(NORMAL, findings.large_prompt.whole(NORMAL)?)?.percentile(90);
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
    let (alone, together) = findings.beside_idle_readers;
    let ratio = together / alone;
    Goal {
        what: "calls a second of 8 callers beside 8 clients that read nothing",
        wanted: "≥ 80 % of the rate without them",
        measured: format!("{together:.0} of {alone:.0}: {:.0} %", ratio * 100.0),
        holds: ratio >= 0.8,
    }
}
