//! The start time of a usage query, as users write it: `7d`, `2026-11-15`.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// A start time: a duration before now, or a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinceTime {
    /// Milliseconds before now.
    Ago(i64),
    /// Milliseconds since 1970.
    Moment(i64),
}

/// The text is not a start time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time `{0}`; expected e.g. `7d`, `24h`, `2026-11-15` or `2026-11-15T08:00:00Z`")]
pub struct SinceTimeError(String);

impl SinceTime {
    /// Returns the time in milliseconds since 1970.
    pub fn millisecond(self, now: Timestamp) -> i64 {
        match self {
            Self::Ago(duration) => now.as_millisecond().saturating_sub(duration),
            Self::Moment(moment) => moment,
        }
    }
}

impl FromStr for SinceTime {
    type Err = SinceTimeError;

    fn from_str(text: &str) -> Result<Self, SinceTimeError> {
        let moment = || Some(text.parse::<Timestamp>().ok()?.as_millisecond());
        let day = || Some(text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond());
        let found = parse_duration(text).map(Self::Ago).or_else(|| moment().or_else(day).map(Self::Moment));
        found.ok_or_else(|| SinceTimeError(text.to_owned()))
    }
}

fn parse_duration(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    };
    digits.parse::<u32>().ok().and_then(|amount| i64::from(amount).checked_mul(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_dates_and_timestamps_are_parsed() {
        let read = |text: &str| text.parse::<SinceTime>().ok();
        assert_eq!(read("7d"), Some(SinceTime::Ago(7 * 86_400_000)));
        assert_eq!(read("2h"), Some(SinceTime::Ago(7_200_000)));
        assert_eq!(read("1970-01-02"), Some(SinceTime::Moment(86_400_000)));
        assert_eq!(read("1970-01-01T00:00:01Z"), Some(SinceTime::Moment(1_000)));
        for bad in ["", "d", "7", "-1d", "1.5h", "yesterday", "7y", "99999999999d"] {
            assert_eq!(read(bad), None, "`{bad}` was accepted");
        }
    }
}
