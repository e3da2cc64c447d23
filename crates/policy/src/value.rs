//! Values with a unit: sizes, durations, CPUs, dollars.
//!
//! All become integers (bytes, milliseconds, thousandths, pico-dollars). Limits are compared and added, and with
//! floating point the result would depend on rounding.

mod decimal;
mod duration;
mod size;

pub(crate) use decimal::{parse_cpus, parse_usd, show_cpus, show_usd};
pub(crate) use duration::{parse_duration, show_duration};
pub(crate) use size::{parse_size, show_size};

/// The reason why a value is invalid, with advice how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidValue {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl InvalidValue {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Parses a size such as `512MiB` into bytes. The error says how to write one.
pub fn size_from_text(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|invalid| match invalid.help {
        Some(help) => format!("{}; {help}", invalid.message),
        None => invalid.message,
    })
}

/// Formats bytes as a size in the shortest exact form.
pub fn size_to_text(bytes: u64) -> String {
    show_size(bytes)
}

/// The largest limit that can be written. "No limit" is larger.
pub(crate) const LARGEST: u64 = i64::MAX as u64;

/// Parses a count.
pub(crate) fn parse_count(text: &str) -> Result<u64, InvalidValue> {
    match text.parse::<u64>() {
        Ok(count) if count <= LARGEST && text.bytes().all(|b| b.is_ascii_digit()) => Ok(count),
        _ => {
            Err(InvalidValue::new(format!("`{text}` is not a whole number"))
                .with_help("write digits only, as in `256`"))
        }
    }
}
