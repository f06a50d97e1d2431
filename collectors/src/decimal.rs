//! Decimal numbers as the kernel prints them, without a detour through floats: `8.5` is exactly 85 tenths.

use gpuprod_snapshot::units::Ppb;

/// `text` times ten to the power of `digits`; further digits are cut. Nothing for signs, exponents, blanks and
/// for what does not fit.
pub(crate) fn scaled(text: &str, digits: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut value: u64 = whole.parse().ok()?;
    let mut fraction = fraction.bytes();
    for _ in 0..digits {
        let digit = fraction.next().map_or(0, |b| u64::from(b - b'0'));
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    Some(value)
}

/// A percentage as a fraction: `0.10` (per cent) is 1,000,000 billionths.
pub(crate) fn percent(text: &str) -> Option<Ppb> {
    scaled(text, 7).map(Ppb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_and_nothing_else_is_a_number() {
        assert_eq!(percent("8.5"), Some(Ppb(85_000_000)));
        assert_eq!(percent("0.10"), Some(Ppb(1_000_000)));
        assert_eq!(percent("100"), Some(Ppb(1_000_000_000)));
        assert_eq!(scaled("127.5", 3), Some(127_500));
        assert_eq!(scaled("1.23456", 2), Some(123));
        for bad in ["", ".", "1.", ".5", "-1", "+1", "1e3", "nan", "1.2.3", "99999999999999999999"] {
            assert_eq!(scaled(bad, 1), None, "{bad}");
        }
        assert_eq!(scaled("18446744073709551615", 1), None, "does not fit and does not wrap");
    }
}
