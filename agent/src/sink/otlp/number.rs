//! Values as OTLP carries them. A family has one form for life: integers where its quantity has no decimal point,
//! floats where it has one.

pub(super) use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;

use crate::catalogue::Value;
use crate::sink::prometheus;

/// The nearest number of the family's form; nothing for an integer that OTLP cannot carry (2^63 and beyond).
pub(super) fn number(value: Value) -> Option<Number> {
    match value {
        Value::Decimal(value, 0) => i64::try_from(value).ok().map(Number::AsInt),
        // The text of the page, read as every reader of the page reads it: the same bits on both ways.
        Value::Decimal(..) => prometheus::text(value).parse().ok().map(Number::AsDouble),
        Value::Float(value) => Some(Number::AsDouble(value)),
    }
}

pub(super) fn zero(like: Number) -> Number {
    match like {
        Number::AsInt(_) => Number::AsInt(0),
        Number::AsDouble(_) => Number::AsDouble(0.0),
    }
}

pub(super) fn is_zero(value: Value) -> bool {
    match value {
        Value::Decimal(value, _) => value == 0,
        Value::Float(value) => value == 0.0,
    }
}

/// Whether a counter stepped back.
pub(super) fn fell(before: Value, now: Value) -> bool {
    match (before, now) {
        (Value::Decimal(before, _), Value::Decimal(now, _)) => now < before,
        (Value::Float(before), Value::Float(now)) => now < before,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded_twice() {
        assert_eq!(number(Value::Decimal(-40, 0)), Some(Number::AsInt(-40)));
        assert_eq!(number(Value::Decimal(1_500, 3)), Some(Number::AsDouble(1.5)));
        assert_eq!(number(Value::Decimal(2_000_000_000, 9)), Some(Number::AsDouble(2.0)));
        // 104 days in nanoseconds are beyond 2^53: the nearest float, as a reader of the text takes it.
        let long = 9_007_199_254_740_993_000_000_001_i128;
        assert_eq!(number(Value::Decimal(long, 9)), Some(Number::AsDouble(9_007_199_254_740_993.000_000_001)));
        assert_eq!(number(Value::Decimal(i128::from(u64::MAX), 0)), None);
    }
}
