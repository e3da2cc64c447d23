//! Keys with a numeric limit. Of several limits, the smallest applies.

use crate::key::PolicyKey;
use crate::value::{
    InvalidValue, parse_count, parse_cpus, parse_duration, parse_size, parse_usd, show_cpus, show_duration, show_size,
    show_usd,
};

/// The least memory with which the processes that set up a sandbox can run.
const LEAST_MEMORY: u64 = 8 << 20;

/// Parses a limit into its unit: thousandths of a CPU, bytes, a count, milliseconds or pico-dollars.
pub(crate) fn parse(key: PolicyKey, text: &str) -> Result<u64, InvalidValue> {
    let value = match key {
        PolicyKey::ProcCpus => parse_cpus(text)?,
        PolicyKey::ProcMemory | PolicyKey::ProcOutput | PolicyKey::ProcDisk | PolicyKey::ProcSockets => {
            parse_size(text)?
        }
        PolicyKey::ProcTimeout => parse_duration(text)?,
        PolicyKey::ModelsBudgetUsd => parse_usd(text)?,
        _ => parse_count(text)?,
    };
    // Several kernel interfaces read 0 as "no limit", the opposite of a strict limit.
    if value == 0 && !may_be_zero(key) {
        return Err(InvalidValue::new(format!("`{key}` must be greater than 0")));
    }
    if key == PolicyKey::ProcMemory && value < LEAST_MEMORY {
        let least = show_size(LEAST_MEMORY);
        let bad = InvalidValue::new(format!("`{key}` is {value} bytes, and a sandbox needs at least {least}"));
        // A number without a unit counts bytes, which is hardly ever meant.
        let is_number = text.bytes().all(|letter| letter.is_ascii_digit());
        return Err(if is_number { bad.with_help(format!("did you mean `{text}MiB`?")) } else { bad });
    }
    Ok(value)
}

fn may_be_zero(key: PolicyKey) -> bool {
    matches!(
        key,
        PolicyKey::ProcOutput | PolicyKey::ModelsBudgetUsd | PolicyKey::ModelsMaxRequests | PolicyKey::ModelsMaxTokens
    )
}

/// Formats a limit as in a policy file.
pub(crate) fn show(key: PolicyKey, value: u64) -> String {
    match key {
        PolicyKey::ProcCpus => show_cpus(value),
        PolicyKey::ProcMemory | PolicyKey::ProcOutput | PolicyKey::ProcDisk | PolicyKey::ProcSockets => {
            show_size(value)
        }
        PolicyKey::ProcTimeout => show_duration(value),
        PolicyKey::ModelsBudgetUsd => show_usd(value),
        _ => value.to_string(),
    }
}
