//! The cost of the egress proxy, compared with two forward proxies of Debian and with no proxy.
//!
//! All proxies run at the same time in front of one host, and every measurement visits them in turns. Our proxy reads
//! the ClientHello and records each tunnel; the others log nothing and allow everything.

mod peers;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Goal, Report, Sample};
use crate::step::quietly;
use crate::workspace;
use peers::{NONE, Peers, SQUID, TINYPROXY, VIV};

/// The number of tunnels in measurements with many tunnels.
const MANY: usize = 500;
/// The bytes sent through one tunnel.
const BULK: u64 = 256 << 20;

/// Runs all measurements.
pub(super) fn run() -> Result<Report> {
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "load"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "egress", "--example", "bench_proxy"]))?;
    let release = workspace::target_directory()?.join("release");
    let load = release.join("load");
    let peers = Peers::start(&load, &release.join("examples/bench_proxy"))?;
    let measure = |what: &str, rounds: usize, setups: usize, bulk_bytes: u64, parallel: usize| {
        println!("  {what}");
        drive(
            &load,
            &json!({
                "targets": peers.targets(), "rounds": rounds, "setups": setups, "bulk_bytes": bulk_bytes, "parallel": parallel,
            }),
        )
    };
    let setup = measure("one tunnel after another", 10, 100, 0, 0)?;
    let bulk = measure("many bytes through one tunnel", 5, 0, BULK, 0)?;
    let many = measure("many tunnels at once", 1, 0, 0, MANY)?;
    let early = peers.viv_kib()?;
    let many_again = measure("the same, again and again", 9, 0, 0, MANY)?;
    let findings = Findings { setup, bulk, many: [many, many_again], resident_kib: (early, peers.viv_kib()?) };
    Ok(Report { samples: findings.samples()?, goals: findings.goals()? })
}

/// Runs the load generator (`bench/load`) for one measurement, and returns its report.
fn drive(load: &std::path::Path, plan: &Value) -> Result<Value> {
    // Each tunnel needs a file descriptor.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 4096; exec \"$0\" tunnel"]).arg(load);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the load generator")?;
    child.stdin.take().context("the load generator has no standard input")?.write_all(plan.to_string().as_bytes())?;
    let output = child.wait_with_output().context("cannot wait for the load generator")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("the report of the load generator is not JSON")
}

/// All measurements.
struct Findings {
    setup: Value,
    bulk: Value,
    many: [Value; 2],
    /// Memory of our proxy after the first and after the tenth burst of many tunnels.
    resident_kib: (u64, u64),
}

impl Findings {
    fn sample(&self, kind: &str, name: &str) -> Result<Sample> {
        let (what, field, values) = match kind {
            "setup" => ("a tunnel, to the host's first bytes", "setup", vec![&self.setup]),
            "bulk" => ("256 MiB through one", "bulk", vec![&self.bulk]),
            _ => ("500 at once, 64 KiB each", "parallel", self.many.iter().collect()),
        };
        let times = values.into_iter().flat_map(|value| value[name][field].as_array().into_iter().flatten());
        let times = times.filter_map(Value::as_u64).map(Duration::from_micros).collect();
        Sample::new(&format!("{what}: {name}"), times)
    }

    fn samples(&self) -> Result<Vec<Sample>> {
        let kinds = ["setup", "bulk", "many"].into_iter();
        kinds.flat_map(|kind| [NONE, TINYPROXY, SQUID, VIV].map(|name| self.sample(kind, name))).collect()
    }

    fn goals(&self) -> Result<Vec<Goal>> {
        let (early, late) = self.resident_kib;
        let setup = self.ratio("setup")?;
        let speed = 1.0 / self.ratio("bulk")?;
        let many = self.ratio("many")?;
        Ok(vec![
            Goal {
                what: "a tunnel, to the host's first bytes",
                wanted: "≤ 1.2 × the faster of the two",
                measured: format!("{setup:.2} ×"),
                holds: setup <= 1.2,
            },
            Goal {
                what: "bytes a second through one tunnel",
                wanted: "≥ 90 % of the faster of the two",
                measured: format!("{:.0} %", speed * 100.0),
                holds: speed >= 0.9,
            },
            Goal {
                what: "500 tunnels at once",
                wanted: "all of them, ≤ 1.2 × the faster of the two",
                measured: format!("{many:.2} ×"),
                holds: many <= 1.2,
            },
            Goal {
                what: "memory over ten times 500 tunnels",
                wanted: "flat",
                measured: format!("{} MB after the first, {} MB after the tenth", early >> 10, late >> 10),
                holds: late <= early + early / 10,
            },
        ])
    }

    /// Returns our median as a multiple of the faster peer's median.
    fn ratio(&self, kind: &str) -> Result<f64> {
        let median = |name: &str| -> Result<f64> { Ok(self.sample(kind, name)?.median().as_secs_f64()) };
        Ok(median(VIV)? / median(TINYPROXY)?.min(median(SQUID)?))
    }
}
