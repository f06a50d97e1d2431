//! Numbers of verdicts: fixed point, the same bits and the same text on every machine.

use core::fmt;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// A part of one, in millionths: 0 to 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Part(pub u32);

impl Part {
    /// The whole.
    pub const ONE: Self = Self(1_000_000);

    /// From a fraction, held between 0 and 1; what is not a number is 0.
    #[must_use]
    pub fn from_fraction(value: f64) -> Self {
        let held = if value > 0.0 { value.min(1.0) } else { 0.0 };
        let millionths = gpuprod_snapshot::units::from_f64(held * 1e6).unwrap_or(0);
        Self(u32::try_from(millionths).unwrap_or(0))
    }
    /// As a fraction.
    #[must_use]
    pub fn as_fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }
    /// What is left of the whole.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(1_000_000_u32.saturating_sub(self.0))
    }
}

/// A whole number that may be missing, in four bytes where an option takes eight: for rings that keep many. The largest
/// number of all is held one lower. Its saved form is that of an option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<u32>", into = "Option<u32>")]
pub(crate) struct Slim(Option<NonZeroU32>);

impl From<Option<u32>> for Slim {
    fn from(value: Option<u32>) -> Self {
        // Turned round, so that zero, which is frequent, is not the number that stands for none.
        Self(value.and_then(|value| NonZeroU32::new(!value.min(u32::MAX - 1))))
    }
}

impl From<Slim> for Option<u32> {
    fn from(slim: Slim) -> Self {
        slim.get()
    }
}

impl Slim {
    pub(crate) fn get(self) -> Option<u32> {
        self.0.map(|turned| !turned.get())
    }
}

/// A number in millionths: evidence is printed from this, the same on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micro(pub i64);

impl Micro {
    /// As a float.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        let magnitude = gpuprod_snapshot::units::to_f64(self.0.unsigned_abs()) / 1e6;
        if self.0 < 0 { -magnitude } else { magnitude }
    }
    /// From a float; out of range or not a number is the nearest end or 0.
    #[must_use]
    pub fn from_f64(value: f64) -> Self {
        let magnitude = if value.is_nan() {
            0
        } else {
            gpuprod_snapshot::units::from_f64(libm::fabs(value) * 1e6).unwrap_or(u64::MAX)
        };
        let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
        Self(if value < 0.0 { -magnitude } else { magnitude })
    }
}

impl fmt::Display for Micro {
    /// Three significant decimals at most, without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let decimals = match magnitude {
            0..10_000_000 => 3,
            10_000_000..1_000_000_000 => 1,
            _ => 0,
        };
        let unit = 10_u64.pow(6 - decimals);
        let rounded = magnitude.saturating_add(unit / 2) / unit;
        let scale = 10_u64.pow(decimals);
        let (whole, rest) = (rounded / scale, rounded % scale);
        // From its last digit to its first: evidence has hundreds of these in a second.
        let mut text = Text::default();
        let mut left = rest;
        for _ in 0..decimals {
            if left % 10 != 0 || text.len > 0 {
                text.digit(left);
            }
            left /= 10;
        }
        if text.len > 0 {
            text.put(b'.');
        }
        left = whole;
        loop {
            text.digit(left);
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if self.0 < 0 {
            text.put(b'-');
        }
        f.write_str(text.as_str())
    }
}

/// A number that is written from its end.
#[derive(Default)]
struct Text {
    bytes: [u8; 24],
    len: usize,
}

impl Text {
    fn put(&mut self, byte: u8) {
        self.len += 1;
        if let Some(place) = self.bytes.len().checked_sub(self.len).and_then(|at| self.bytes.get_mut(at)) {
            *place = byte;
        }
    }

    /// The last digit of a number.
    fn digit(&mut self, number: u64) {
        self.put(b'0' + u8::try_from(number % 10).unwrap_or(0));
    }

    fn as_str(&self) -> &str {
        let written = self.bytes.len().saturating_sub(self.len);
        self.bytes.get(written..).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn three_significant_decimals_and_no_trailing_zeros() {
        for (millionths, text) in [
            (0, "0"),
            (1, "0"),
            (499, "0"),
            (500, "0.001"),
            (-500, "-0.001"),
            (1_000_000, "1"),
            (1_500_000, "1.5"),
            (9_999_499, "9.999"),
            (9_999_999, "10"),
            (10_040_000, "10"),
            (10_050_000, "10.1"),
            (-84_250_000, "-84.3"),
            (999_949_999, "999.9"),
            (1_000_000_000, "1000"),
            (1_000_499_999, "1000"),
            (1_000_500_000, "1001"),
            (i64::MAX, "9223372036855"),
            (i64::MIN, "-9223372036855"),
            (-1, "-0"),
        ] {
            assert_eq!(Micro(millionths).to_string(), text, "{millionths}");
        }
    }

    #[test]
    fn a_slim_number_is_saved_as_an_option() {
        assert_eq!(size_of::<Slim>(), 4);
        for value in [None, Some(0), Some(7), Some(u32::MAX - 1)] {
            let slim = Slim::from(value);
            let saved = serde_json::to_string(&slim).unwrap();
            assert_eq!((slim.get(), &saved), (value, &serde_json::to_string(&value).unwrap()));
            assert_eq!(serde_json::from_str::<Slim>(&saved).unwrap(), slim);
        }
        assert_eq!(Slim::from(Some(u32::MAX)).get(), Some(u32::MAX - 1));
    }
}
