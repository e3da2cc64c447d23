//! Values people write with a unit: sizes, durations, processors, dollars.
//!
//! All become whole numbers (bytes, milliseconds, thousandths, pico-dollars): a limit is compared and
//! added up, and floating point would make the smaller of two limits depend on rounding.

mod decimal;
mod duration;
mod size;

pub(crate) use decimal::{parse_cpus, parse_usd, show_cpus, show_usd};
pub(crate) use duration::{parse_duration, show_duration};
pub(crate) use size::{parse_size, show_size};

/// Why a written value has no meaning: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadValue {
    pub(crate) why: String,
    pub(crate) help: Option<String>,
}

impl BadValue {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Limits stay below this, so that "no limit" is larger than any limit that can be written.
pub(crate) const LARGEST: u64 = i64::MAX as u64;

/// A plain count.
pub(crate) fn parse_count(text: &str) -> Result<u64, BadValue> {
    match text.parse::<u64>() {
        Ok(count) if count <= LARGEST && text.bytes().all(|b| b.is_ascii_digit()) => Ok(count),
        _ => Err(BadValue::new(format!("`{text}` is not a whole number")).with_help("write digits only, as in `256`")),
    }
}
