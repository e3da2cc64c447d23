//! Sizes in bytes: `2GiB`, `512MiB`, `4GB`, or a plain number.

use super::{InvalidValue, LARGEST};

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Parses a size into bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, InvalidValue> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let bad = || InvalidValue::new(format!("`{text}` is not a size"));
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(bad().with_help(unit_help(number, unit))),
    };
    let count =
        number.parse::<u64>().map_err(|_| bad().with_help("write a whole number and a unit, as in `512MiB`"))?;
    match count.checked_mul(factor) {
        Some(bytes) if bytes <= LARGEST => Ok(bytes),
        _ => Err(InvalidValue::new(format!("size `{text}` is too large"))),
    }
}

fn unit_help(number: &str, unit: &str) -> String {
    let likely = unit.chars().next().map(|c| c.to_ascii_uppercase()).filter(|c| "KMGT".contains(*c));
    match likely {
        Some(letter) if !number.is_empty() && !unit.contains('.') => format!("did you mean `{number}{letter}iB`?"),
        _ => "units are B, KB, KiB, MB, MiB, GB, GiB, TB, TiB, as in `512MiB`".to_owned(),
    }
}

/// Formats bytes in the shortest exact form.
pub(crate) fn show_size(bytes: u64) -> String {
    let exact = UNITS.iter().filter(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match exact.max_by_key(|(_, factor)| *factor) {
        Some((unit, factor)) if *factor > 1 => format!("{}{unit}", bytes / factor),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_size, show_size};

    #[test]
    fn sizes_are_parsed_by_unit() {
        assert_eq!(parse_size("2GiB").unwrap(), 2 << 30);
        assert_eq!(parse_size("512 MiB").unwrap(), 512 << 20);
        assert_eq!(parse_size("4GB").unwrap(), 4_000_000_000);
        assert_eq!(parse_size("1024").unwrap(), 1024);
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        for text in ["", "GiB", "-1", "2gib", "1.5GiB", "2 GiB x", "99999999999999999999", "9000000000TiB", "0x10"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formatted_sizes_parse_to_the_same_value() {
        for bytes in [0, 1, 999, 1000, 1024, 1536, 4_000_000_000, 512 << 20, (1 << 40) + 1] {
            assert_eq!(parse_size(&show_size(bytes)).unwrap(), bytes);
        }
        assert_eq!(show_size(512 << 20), "512MiB");
    }
}
