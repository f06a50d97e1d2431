//! Durations as people write them: `500ms`, `10s`, `5m`, `24h`, `7d`.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Suffix and nanoseconds, longest suffix first where one ends with another.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Reads a whole number with a unit.
///
/// # Errors
/// In words, for a flag's or a config line's message.
pub fn parse(text: &str) -> Result<Nanos, String> {
    let wrong = || {
        format!(
            "{text:?} is not a duration; write a whole number and a unit (ns us ms s m h d), for example 10s or 500ms"
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, suffix) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let (_, unit) = UNITS.iter().find(|(name, _)| *name == suffix).ok_or_else(wrong)?;
    number.checked_mul(*unit).map(Nanos).ok_or_else(wrong)
}

/// The shortest exact form.
#[must_use]
pub fn print(value: Nanos) -> String {
    let (suffix, unit) = UNITS
        .iter()
        .rev()
        .find(|(_, unit)| value.0 != 0 && value.0.is_multiple_of(*unit))
        .unwrap_or(&("s", 1_000_000_000));
    format!("{}{suffix}", value.0 / unit)
}

/// For `#[serde(with)]`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&print(*value))
}

/// For `#[serde(with)]`.
///
/// # Errors
/// When the text is no duration.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_or_refused() {
        assert_eq!(parse("90s"), Ok(Nanos::from_secs(90)));
        assert_eq!(parse("250ms"), Ok(Nanos::from_millis(250)));
        assert_eq!(parse("2m"), Ok(Nanos::from_secs(120)));
        for wrong in ["", "10", "s", "1.5s", "-1s", "1 s", "99999999999d", "1y"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for text in ["1s", "600ms", "2m", "7d", "0s", "1ns"] {
            assert_eq!(print(parse(text).unwrap()), text);
        }
    }
}
