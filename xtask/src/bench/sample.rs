//! Many measurements of one operation.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// The times of one operation, shortest first.
pub(crate) struct Sample {
    name: String,
    times: Vec<Duration>,
}

impl Sample {
    /// Returns a sample of `times`; fails when there are none.
    pub(crate) fn new(name: &str, mut times: Vec<Duration>) -> Result<Self> {
        ensure!(!times.is_empty(), "`{name}` has no measurements");
        times.sort_unstable();
        Ok(Self { name: name.to_owned(), times })
    }

    /// Measures several operations in turns, so that noise on the machine affects all of them alike.
    pub(crate) fn in_turns(rounds: usize, things: &mut [(&str, &mut dyn FnMut() -> Result<()>)]) -> Result<Vec<Self>> {
        let mut times = vec![Vec::with_capacity(rounds); things.len()];
        for _ in 0..rounds {
            for ((_, thing), times) in things.iter_mut().zip(&mut times) {
                let started = Instant::now();
                thing()?;
                times.push(started.elapsed());
            }
        }
        things.iter().zip(times).map(|((name, _), times)| Self::new(name, times)).collect()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// Returns the time that `percent` of the measurements do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times[rank.min(self.times.len()) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let sample = Sample::new("x", (1..=100).rev().map(Duration::from_millis).collect()).unwrap();
        assert_eq!(sample.median(), Duration::from_millis(50));
        assert_eq!(sample.percentile(99), Duration::from_millis(99));
        assert_eq!(sample.percentile(100), Duration::from_millis(100));
        assert!(Sample::new("x", Vec::new()).is_err());
    }

    #[test]
    fn things_are_measured_in_turns() {
        let order = std::cell::RefCell::new(String::new());
        let note = |letter| {
            order.borrow_mut().push(letter);
            Ok(())
        };
        let (mut first, mut second) = (|| note('a'), || note('b'));
        let samples = Sample::in_turns(3, &mut [("a", &mut first), ("b", &mut second)]).unwrap();
        assert_eq!(order.into_inner(), "ababab");
        assert_eq!(samples.iter().map(Sample::count).collect::<Vec<_>>(), [3, 3]);
    }
}
