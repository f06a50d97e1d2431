//! Numbers of verdicts: fixed point, the same bits and the same text on every machine.

use core::fmt;

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
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let decimals = match magnitude {
            0..10_000_000 => 3,
            10_000_000..1_000_000_000 => 1,
            _ => 0,
        };
        let unit = 10_u64.pow(6 - decimals);
        let rounded = magnitude.saturating_add(unit / 2) / unit;
        let scale = 10_u64.pow(decimals);
        let (mut whole, mut rest) = (rounded / scale, rounded % scale);
        let mut width = decimals as usize;
        while width > 0 && rest % 10 == 0 {
            rest /= 10;
            width -= 1;
        }
        if decimals == 0 {
            whole = rounded;
        }
        if width == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{rest:0width$}") }
    }
}
