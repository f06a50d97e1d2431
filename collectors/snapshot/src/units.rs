//! Quantities as integers with their unit in the type. The few conversions to and from floats stand here and
//! nowhere else.

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$meta:meta])* $name:ident($inner:ty), $suffix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The smaller is subtracted from the larger; never below zero.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self { Self(self.0.saturating_sub(other.0)) }
            /// The sum, or the largest value of the type.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self { Self(self.0.saturating_add(other.0)) }
            /// The difference, or nothing when it would be below zero: a counter that stepped back.
            #[must_use]
            pub fn checked_sub(self, other: Self) -> Option<Self> { self.0.checked_sub(other.0).map(Self) }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

unit!(
    /// Nanoseconds. Durations, and instants of CLOCK_BOOTTIME or of the Unix epoch, as the field says.
    Nanos(u64), " ns"
);
unit!(
    /// Bytes.
    Bytes(u64), " B"
);
unit!(
    /// Bytes per second.
    BytesPerSecond(u64), " B/s"
);
unit!(
    /// Millijoules: NVML's unit of energy.
    Millijoules(u64), " mJ"
);
unit!(
    /// Milliwatts: NVML's unit of power.
    Milliwatts(u64), " mW"
);
unit!(
    /// Thousandths, 0 to 1000: NVML's percent times ten.
    Permille(u32), " permille"
);
unit!(
    /// Billionths: fractions that sources print as decimals (cache usage, pressure averages).
    Ppb(u64), " ppb"
);
unit!(
    /// Megahertz.
    MegaHertz(u32), " MHz"
);
unit!(
    /// Thousandths of a gigatransfer per second: a PCIe lane's speed (2.5 GT/s is 2500).
    MegaTransfers(u32), " MT/s"
);

/// Degrees Celsius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Celsius(pub i32);

impl Nanos {
    /// Whole seconds as nanoseconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// Milliseconds as nanoseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
    /// Seconds as a float, for printing and for rates.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        to_f64(self.0) / 1e9
    }
}

impl Ppb {
    /// One.
    pub const ONE: Self = Self(1_000_000_000);

    /// From a fraction that a source printed; nothing when it is negative, not finite, or larger than a billion.
    #[must_use]
    pub fn from_fraction(value: f64) -> Option<Self> {
        from_f64(value * 1e9).map(Self)
    }
    /// As a fraction, for printing and for rules.
    #[must_use]
    pub fn as_fraction(self) -> f64 {
        to_f64(self.0) / 1e9
    }
}

impl Permille {
    /// As a fraction, for rules.
    #[must_use]
    pub fn as_fraction(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

/// An integer as a float: exact up to 2^53, rounded beyond.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "the one place where an integer becomes a float; exact below 2^53")]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

/// A float as the nearest integer; nothing when it is negative, not finite, or beyond the type.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked in the line above")]
pub fn from_f64(value: f64) -> Option<u64> {
    let rounded = value + 0.5;
    (value.is_finite() && value >= 0.0 && rounded < 18_446_744_073_709_551_615.0).then_some(rounded as u64)
}
