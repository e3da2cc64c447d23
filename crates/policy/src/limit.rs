//! Keys with a numeric limit. Of several limits, the smallest applies.

use crate::key::PolicyKey;
use crate::value::{
    InvalidValue, parse_count, parse_cpus, parse_duration, parse_size, parse_usd, show_cpus, show_duration, show_size,
    show_usd,
};

/// Parses a limit into its unit: thousandths of a CPU, bytes, a count, milliseconds or pico-dollars.
pub(crate) fn parse(key: PolicyKey, text: &str) -> Result<u64, InvalidValue> {
    let value = match key {
        PolicyKey::ProcCpus => parse_cpus(text)?,
        PolicyKey::ProcMemory | PolicyKey::ProcOutput | PolicyKey::ProcDisk => parse_size(text)?,
        PolicyKey::ProcTimeout => parse_duration(text)?,
        PolicyKey::ModelsBudgetUsd => parse_usd(text)?,
        _ => parse_count(text)?,
    };
    // Several kernel interfaces read 0 as "no limit", the opposite of a strict limit.
    if value == 0 && !may_be_zero(key) {
        return Err(InvalidValue::new(format!("`{key}` must be greater than 0")));
    }
    Ok(value)
}

fn may_be_zero(key: PolicyKey) -> bool {
    matches!(key, PolicyKey::ProcOutput | PolicyKey::ModelsBudgetUsd | PolicyKey::ModelsMaxRequests)
}

/// Formats a limit as in a policy file.
pub(crate) fn show(key: PolicyKey, value: u64) -> String {
    match key {
        PolicyKey::ProcCpus => show_cpus(value),
        PolicyKey::ProcMemory | PolicyKey::ProcOutput | PolicyKey::ProcDisk => show_size(value),
        PolicyKey::ProcTimeout => show_duration(value),
        PolicyKey::ModelsBudgetUsd => show_usd(value),
        _ => value.to_string(),
    }
}
