//! Times and durations for people: local time, age, and duration in two units.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Returns a time in milliseconds since 1970 as local time, to the second: `2026-11-18 14:03:09`.
pub(crate) fn local(millis: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(millis) else { return String::new() };
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns how long ago a time in milliseconds since 1970 was: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(millis: i64, now: Timestamp) -> String {
    let seconds = (now.as_millisecond() - millis).max(0) / 1000;
    match seconds {
        0..MINUTE => format!("{seconds}s"),
        MINUTE..HOUR => format!("{}m", seconds / MINUTE),
        HOUR..DAY => format!("{}h", seconds / HOUR),
        _ => format!("{}d", seconds / DAY),
    }
}

/// Returns a duration in milliseconds: `0.4s`, `12s`, `5m 03s`, `2h 07m`.
pub(crate) fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{seconds}.{}s", millis % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_durations_are_short() {
        let now = Timestamp::from_second(100_000).unwrap();
        for (seconds, shown) in [(100_001, "0s"), (99_988, "12s"), (99_000, "16m"), (90_000, "2h"), (0, "1d")] {
            assert_eq!(age(seconds * 1000, now), shown);
        }
        for (millis, shown) in [(449, "0.4s"), (12_999, "12s"), (303_000, "5m 03s"), (7_620_000, "2h 07m")] {
            assert_eq!(duration(millis), shown);
        }
    }
}
