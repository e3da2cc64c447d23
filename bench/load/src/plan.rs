//! The plan of a measurement, and its results.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::caller::{Call, Caller, Shape};

/// A measurement of several targets in turns, so that noise on the machine affects all of them alike.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    targets: Vec<Target>,
    shape: Shape,
    /// Number of concurrent callers.
    callers: usize,
    /// Number of further clients that request an endless answer and stop reading.
    idle_readers: usize,
    rounds: usize,
    /// Duration of one round of one target.
    millis: u64,
    /// Ends a round after this many calls.
    calls: Option<usize>,
}

/// A server that answers calls of the Messages API.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) token: String,
}

/// The measurements of one target.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measured {
    /// Time of each call to the end of its answer.
    whole_micros: Vec<u32>,
    /// Time of each call to the first byte of the answer's body.
    first_micros: Vec<u32>,
    /// Calls a second of each round.
    rates: Vec<f64>,
}

impl Plan {
    /// Measures every target, round by round.
    pub(crate) async fn run_plan(&self) -> Result<BTreeMap<String, Measured>, String> {
        let mut measured: BTreeMap<String, Measured> = BTreeMap::new();
        for _ in 0..self.rounds {
            for target in &self.targets {
                let problem = |error| format!("`{}`: {error}", target.name);
                let (calls, took) = self.round(target).await.map_err(problem)?;
                let of_target = measured.entry(target.name.clone()).or_default();
                #[expect(clippy::cast_precision_loss, reason = "there are never so many calls")]
                of_target.rates.push(calls.len() as f64 / took.as_secs_f64());
                of_target.whole_micros.extend(calls.iter().map(|call| micros(call.whole)));
                of_target.first_micros.extend(calls.iter().map(|call| micros(call.first)));
            }
        }
        Ok(measured)
    }

    async fn round(&self, target: &Target) -> Result<(Vec<Call>, Duration), String> {
        let mut idle = Vec::new();
        for _ in 0..self.idle_readers {
            let mut caller = Caller::connect(target, &Shape::endless()).await?;
            caller.begin().await?;
            idle.push(caller);
        }
        let mut callers = JoinSet::new();
        let mut ready = Vec::new();
        for _ in 0..self.callers {
            let mut caller = Caller::connect(target, &self.shape).await?;
            // Not measured: the first call opens the connections behind the target.
            caller.call().await?;
            ready.push(caller);
        }
        let started = Instant::now();
        let deadline = started + Duration::from_millis(self.millis);
        let each = self.calls.map_or(usize::MAX, |calls| calls.div_ceil(self.callers));
        for caller in ready {
            callers.spawn_local(caller.call_until(deadline, each));
        }
        let mut calls = Vec::new();
        while let Some(joined) = callers.join_next().await {
            calls.append(&mut joined.map_err(|error| error.to_string())??);
        }
        drop(idle);
        Ok((calls, started.elapsed()))
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
