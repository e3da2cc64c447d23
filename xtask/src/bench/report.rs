//! The report of a bench: samples with their ratios, and goals with the measured values.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Sample;

/// The samples and goals of one bench.
pub(crate) struct Report {
    /// Ratios are relative to the first sample.
    pub(crate) samples: Vec<Sample>,
    pub(crate) goals: Vec<Goal>,
}

/// A goal with its measured value.
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

impl From<Vec<Sample>> for Report {
    fn from(samples: Vec<Sample>) -> Self {
        Self { samples, goals: Vec::new() }
    }
}

impl Report {
    /// Returns a table of samples with their ratios, and a table of goals.
    pub(crate) fn table(&self) -> Result<String> {
        let base = self.samples.first().context("the bench measured nothing")?;
        let mut text = String::from("| what | n | median | p90 | ratio |\n| --- | ---: | ---: | ---: | ---: |\n");
        for sample in &self.samples {
            let ratio = sample.median().as_secs_f64() / base.median().as_secs_f64();
            let (name, count) = (sample.name(), sample.count());
            let (median, p90) = (milliseconds(sample.median()), milliseconds(sample.percentile(90)));
            writeln!(text, "| {name} | {count} | {median} ms | {p90} ms | {ratio:.2} |")?;
        }
        if !self.goals.is_empty() {
            text.push_str("\n| goal | wanted | measured | |\n| --- | --- | --- | --- |\n");
        }
        for Goal { what, wanted, measured, holds } in &self.goals {
            let verdict = if *holds { "pass" } else { "miss" };
            writeln!(text, "| {what} | {wanted} | {measured} | {verdict} |")?;
        }
        Ok(text)
    }
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_first_sample() {
        let sample = |name, millis: u64| Sample::new(name, vec![Duration::from_millis(millis); 3]).unwrap();
        let text = Report::from(vec![sample("peer", 2), sample("viv", 3)]).table().unwrap();
        assert!(
            text.ends_with("| peer | 3 | 2.000 ms | 2.000 ms | 1.00 |\n| viv | 3 | 3.000 ms | 3.000 ms | 1.50 |\n")
        );
        assert!(Report::from(Vec::new()).table().is_err());
    }

    #[test]
    fn missed_goal_is_shown() {
        let goal = |holds| Goal { what: "speed", wanted: "≥ 2", measured: "1".to_owned(), holds };
        let sample = Sample::new("x", vec![Duration::from_millis(1)]).unwrap();
        let text = Report { samples: vec![sample], goals: vec![goal(true), goal(false)] }.table().unwrap();
        assert!(text.ends_with("| speed | ≥ 2 | 1 | pass |\n| speed | ≥ 2 | 1 | miss |\n"), "{text}");
    }
}
