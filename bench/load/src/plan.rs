//! What is to be measured, and what was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::caller::{Call, Caller, Shape};

/// A measurement of several targets in turns, so that a noisy moment hits all of them.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    targets: Vec<Target>,
    shape: Shape,
    /// How many call at a time.
    callers: usize,
    /// How many more ask for an endless answer, read its beginning and then nothing.
    idle_readers: usize,
    rounds: usize,
    /// How long a round lasts for one target.
    millis: u64,
    /// Ends a round early.
    calls: Option<usize>,
}

/// Something that answers Messages calls.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) token: String,
}

/// What one target did.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Measured {
    /// Of each call, until the end of its answer.
    whole_micros: Vec<u32>,
    /// Of each call, until the first byte of its answer's body.
    first_micros: Vec<u32>,
    /// Calls a second, a round each.
    rates: Vec<f64>,
}

impl Plan {
    /// Measures every target, round by round.
    pub(crate) async fn carry_out(&self) -> Result<BTreeMap<String, Measured>, String> {
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
            // The first call pays for connections behind the target; it is not what is measured.
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
