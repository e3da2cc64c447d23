//! The keys that are numbers: the smaller one counts.

use crate::key::Key;
use crate::value::{
    BadValue, parse_count, parse_cpus, parse_duration, parse_size, parse_usd, show_cpus, show_duration, show_size,
    show_usd,
};

/// The whole number a limit's text means: thousandths, bytes, counts, milliseconds or pico-dollars.
pub(crate) fn parse(key: Key, text: &str) -> Result<u64, BadValue> {
    let value = match key {
        Key::ProcCpus => parse_cpus(text)?,
        Key::ProcMemory | Key::ProcOutput | Key::ProcDisk => parse_size(text)?,
        Key::ProcTimeout => parse_duration(text)?,
        Key::ModelsBudgetUsd => parse_usd(text)?,
        _ => parse_count(text)?,
    };
    // Several kernel interfaces read 0 as "no limit", the opposite of what was meant.
    if value == 0 && !may_be_zero(key) {
        return Err(BadValue::new(format!("`{key}` must be more than 0")));
    }
    Ok(value)
}

fn may_be_zero(key: Key) -> bool {
    matches!(key, Key::ProcOutput | Key::ModelsBudgetUsd | Key::ModelsMaxRequests)
}

/// How a person would write it.
pub(crate) fn show(key: Key, value: u64) -> String {
    match key {
        Key::ProcCpus => show_cpus(value),
        Key::ProcMemory | Key::ProcOutput | Key::ProcDisk => show_size(value),
        Key::ProcTimeout => show_duration(value),
        Key::ModelsBudgetUsd => show_usd(value),
        _ => value.to_string(),
    }
}
