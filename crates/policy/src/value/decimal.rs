//! Exact decimal numbers: CPUs in thousandths, dollars in pico-dollars.

use super::{InvalidValue, LARGEST};

const CPU_DIGITS: usize = 3;
const USD_DIGITS: usize = 12;

/// Parses a number of CPUs into thousandths.
pub(crate) fn parse_cpus(text: &str) -> Result<u64, InvalidValue> {
    parse(text, CPU_DIGITS)
        .ok_or_else(|| InvalidValue::new(format!("`{text}` is not a number of CPUs")).with_help("as in `2` or `0.5`"))
}

/// Parses US dollars into pico-dollars (10⁻¹² USD).
pub(crate) fn parse_usd(text: &str) -> Result<u64, InvalidValue> {
    parse(text, USD_DIGITS).ok_or_else(|| {
        InvalidValue::new(format!("`{text}` is not an amount of US dollars")).with_help("as in `2.00`, without a sign")
    })
}

/// Formats thousandths of a CPU, without trailing zeros.
pub(crate) fn show_cpus(millis: u64) -> String {
    show(millis, CPU_DIGITS, 0)
}

/// Formats pico-dollars, with cents.
pub(crate) fn show_usd(picos: u64) -> String {
    show(picos, USD_DIGITS, 2)
}

fn parse(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > digits {
        return None;
    }
    let scaled = format!("{whole}{fraction:0<digits$}").parse::<u64>().ok()?;
    (scaled <= LARGEST).then_some(scaled)
}

fn show(scaled: u64, digits: usize, kept: usize) -> String {
    let factor = 10_u64.pow(u32::try_from(digits).unwrap_or_default());
    let mut fraction = format!("{:0digits$}", scaled % factor);
    while fraction.len() > kept && fraction.ends_with('0') {
        fraction.pop();
    }
    if fraction.is_empty() { (scaled / factor).to_string() } else { format!("{}.{fraction}", scaled / factor) }
}

#[cfg(test)]
mod tests {
    use super::{parse_cpus, parse_usd, show_cpus, show_usd};

    #[test]
    fn decimals_are_exact() {
        assert_eq!(parse_cpus("2.0").unwrap(), 2_000);
        assert_eq!(parse_cpus("0.5").unwrap(), 500);
        assert_eq!(parse_usd("2.00").unwrap(), 2_000_000_000_000);
        assert_eq!(parse_usd("0.000000000001").unwrap(), 1);
        assert_eq!(show_cpus(2_000), "2");
        assert_eq!(show_usd(2_000_000_000_000), "2.00");
        assert_eq!(show_usd(1), "0.000000000001");
    }

    #[test]
    fn invalid_decimals_are_rejected() {
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", ".nan", "inf", "0.0001", "1_000", "$2"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
        assert!(parse_usd("99999999999").is_err());
    }
}
