//! Durations: `30m`, `10s`, `500ms`, `1h30m`.

use super::{InvalidValue, LARGEST};

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration into milliseconds.
pub(crate) fn parse_duration(text: &str) -> Result<u64, InvalidValue> {
    let bad = || InvalidValue::new(format!("`{text}` is not a duration"));
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len());
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let Ok(count) = number.parse::<u64>() else { return Err(bad().with_help(HELP)) };
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let help =
                if unit.is_empty() { format!("the unit is missing: `{number}s` or `{number}m`?") } else { HELP.into() };
            return Err(bad().with_help(help));
        };
        total = count.checked_mul(*factor).and_then(|millis| total.checked_add(millis)).unwrap_or(u64::MAX);
        rest = tail;
    }
    match total {
        _ if text.is_empty() => Err(bad().with_help(HELP)),
        millis if millis <= LARGEST => Ok(millis),
        _ => Err(InvalidValue::new(format!("duration `{text}` is too long"))),
    }
}

const HELP: &str = "units are d, h, m, s, ms, as in `30m` or `1h30m`";

/// Formats milliseconds in the shortest exact form.
pub(crate) fn show_duration(millis: u64) -> String {
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut rest = millis;
    let parts = UNITS.iter().filter_map(|(unit, factor)| {
        let count = rest / factor;
        rest %= factor;
        (count > 0).then(|| format!("{count}{unit}"))
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::{parse_duration, show_duration};

    #[test]
    fn durations_are_parsed_by_unit() {
        assert_eq!(parse_duration("30m").unwrap(), 1_800_000);
        assert_eq!(parse_duration("10s").unwrap(), 10_000);
        assert_eq!(parse_duration("1h30m").unwrap(), 5_400_000);
        assert_eq!(parse_duration("500ms").unwrap(), 500);
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in ["", "30", "m", "-1s", "1.5h", "10 s", "30min", "99999999999999999999d", "9223372036854775807d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formatted_durations_parse_to_the_same_value() {
        for millis in [0, 1, 999, 1_000, 90_000, 1_800_000, 86_400_001] {
            assert_eq!(parse_duration(&show_duration(millis)).unwrap(), millis);
        }
        assert_eq!(show_duration(1_800_000), "30m");
    }
}
