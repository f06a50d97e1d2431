//! What a GPU-hour costs: by model and class, with dates from which and up to which a price holds.
//!
//! Money is never kept. Ledgers keep time, and a price is put to it when somebody asks: a price that is corrected
//! corrects every report, and rewrites no history.

use std::collections::BTreeMap;

use gpuprod_rules::{Class, UnitJudgement, like};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::config::instant;
use crate::text::clip;

/// Nanoseconds of an hour.
const HOUR_NS: u128 = 3_600_000_000_000;

/// Largest price of an hour, in whole units of any currency.
const MOST: u64 = 1_000_000_000;

/// Money per GPU-hour, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub u64);

impl Price {
    /// Reads `2.5`.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a price; write a number with at most six decimals, for example 2.5");
        let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
        if whole.is_empty() || rest.len() > 6 || !digits(whole) || !digits(rest) {
            return Err(wrong());
        }
        // Digits alone: what is no u64 is too large.
        let whole = whole.parse::<u64>().ok().filter(|whole| *whole < MOST);
        let whole = whole.ok_or_else(|| format!("a price must be below {MOST} an hour, not {text}"))?;
        let rest = format!("{rest:0<6}").parse::<u64>().map_err(|_| wrong())?;
        Ok(Self(whole * 1_000_000 + rest))
    }

    /// Of so much GPU time, in millionths x nanoseconds per hour: sums of it are exact.
    #[must_use]
    pub fn exact(self, gpu_ns: u64) -> u128 {
        u128::from(gpu_ns) * u128::from(self.0)
    }

    /// Of so much GPU time, in millionths, rounded down.
    #[must_use]
    pub fn of(self, gpu_ns: u64) -> u64 {
        millionths(self.exact(gpu_ns))
    }
}

/// A sum of [`Price::exact`], in millionths, rounded down.
#[must_use]
pub fn millionths(exact: u128) -> u64 {
    u64::try_from(exact / HOUR_NS).unwrap_or(u64::MAX)
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// A line of the price list. What it does not name fits everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRule {
    /// Product name of the GPU; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the GPU is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Money per hour of a whole GPU.
    #[serde(deserialize_with = "written")]
    pub per_gpu_hour: Price,
    /// In what money.
    pub currency: String,
    /// Its first instant.
    #[serde(default, with = "instant::maybe", skip_serializing_if = "Option::is_none")]
    pub from: Option<Nanos>,
    /// The first instant after it.
    #[serde(default, with = "instant::maybe", skip_serializing_if = "Option::is_none")]
    pub to: Option<Nanos>,
}

/// A number as it stands in the file; the shortest text of a float is what was written.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
    let number = f64::deserialize(deserializer)?;
    Price::parse(&number.to_string()).map_err(|what| de::Error::custom(format!("per_gpu_hour: {}", clip(&what, 120))))
}

impl PriceRule {
    /// One price for every GPU, in money that nobody has named.
    #[must_use]
    pub const fn flat(per_gpu_hour: Price) -> Self {
        Self { model: None, class: None, per_gpu_hour, currency: String::new(), from: None, to: None }
    }

    fn fits(&self, model: Option<&str>, class: Class, at: Nanos) -> bool {
        let model = self.model.as_ref().is_none_or(|want| model.is_some_and(|model| like(want, model)));
        let class = self.class.is_none_or(|want| want == class);
        model && class && self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at < to)
    }
}

/// The price of a GPU of this model and class at an instant: the first line that fits.
#[must_use]
pub fn at<'a>(list: &'a [PriceRule], model: Option<&str>, class: Class, at: Nanos) -> Option<&'a PriceRule> {
    list.iter().find(|rule| rule.fits(model, class, at))
}

/// A price in force, for a model and class that this node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priced {
    /// The product's name.
    pub model: String,
    /// What it is for.
    pub class: Class,
    /// In what money.
    pub currency: String,
    /// Per hour of a whole GPU, in millionths.
    pub per_gpu_hour_millionths: u64,
}

/// The prices in force for the units of this node.
#[must_use]
pub fn now(list: &[PriceRule], units: &[UnitJudgement], now: Nanos) -> Vec<Priced> {
    let mut found: BTreeMap<(&str, Class), &PriceRule> = BTreeMap::new();
    for unit in units {
        let model = unit.model.as_deref();
        if let Some(rule) = at(list, model, unit.class, now) {
            found.insert((model.unwrap_or_default(), unit.class), rule);
        }
    }
    let priced = |((model, class), rule): ((&str, Class), &PriceRule)| Priced {
        model: model.to_owned(),
        class,
        currency: rule.currency.clone(),
        per_gpu_hour_millionths: rule.per_gpu_hour.0,
    };
    found.into_iter().map(priced).collect()
}

/// What is wrong with a list: which line, and what may stand there.
///
/// # Errors
/// In words.
pub fn sane(list: &[PriceRule]) -> Result<(), String> {
    let first = list.first().map(|rule| rule.currency.as_str());
    for (place, rule) in list.iter().enumerate() {
        let line = place + 1;
        let word = &rule.currency;
        if word.is_empty() || word.len() > 8 || !word.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("line {line}: currency must be a word such as USD"));
        }
        if Some(word.as_str()) != first {
            return Err(format!("line {line}: all prices must be of one currency: sums must add up"));
        }
        if rule.from.zip(rule.to).is_some_and(|(from, to)| to <= from) {
            return Err(format!("line {line}: it ends before it begins"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(model: Option<&str>, class: Option<Class>, price: u64, from: Option<u64>, to: Option<u64>) -> PriceRule {
        let at = |seconds: Option<u64>| seconds.map(Nanos::from_secs);
        PriceRule {
            model: model.map(str::to_owned),
            class,
            per_gpu_hour: Price(price),
            currency: "USD".to_owned(),
            from: at(from),
            to: at(to),
        }
    }

    #[test]
    fn the_first_line_that_fits_is_the_price() {
        let list = [
            rule(Some("*H100*"), Some(Class::Spot), 1, None, None),
            rule(Some("*H100*"), None, 2, None, Some(100)),
            rule(Some("*H100*"), None, 3, Some(100), None),
            rule(None, None, 4, None, None),
        ];
        let price =
            |model, class, seconds| at(&list, model, class, Nanos::from_secs(seconds)).map(|rule| rule.per_gpu_hour.0);
        assert_eq!(price(Some("NVIDIA H100 80GB HBM3"), Class::Spot, 50), Some(1));
        assert_eq!(price(Some("NVIDIA H100 80GB HBM3"), Class::Batch, 99), Some(2));
        assert_eq!(
            price(Some("NVIDIA H100 80GB HBM3"), Class::Batch, 100),
            Some(3),
            "the day of the change has the new price"
        );
        assert_eq!(price(Some("NVIDIA A100"), Class::Batch, 100), Some(4));
        assert_eq!(price(None, Class::Batch, 100), Some(4));
        assert_eq!(at(&list[..3], None, Class::Batch, Nanos(0)), None, "no price is no zero");
    }
}
