//! What a finding has cost: the GPU time that its cause took, at the price of the victims.

use gpuprod_rules::{Finding, RuleId, UnitJudgement, WeightSource};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::prices::{self, PriceRule};

/// Money of one finding. It is never kept with the finding itself: the price list is the site's, and may be corrected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Which rule found it.
    pub rule: RuleId,
    /// About what.
    pub subject: String,
    /// In what money; empty for a price without a currency.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub currency: String,
    /// Lost so far, in millionths: what is sure of it. 0 where the loss rests on the proxy of power and utilization.
    pub least_millionths: u64,
    /// The same, at most.
    pub most_millionths: u64,
    /// What it will cost until the job's wall limit, in millionths, if nobody ends it; absent where no limit is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_millionths: Option<u64>,
}

/// The prices of the victims, from the least to the most; none where one of them has none, and none in two currencies:
/// what is lost is one sum of time, and nobody has said how much of it is in which (a config refuses such a list).
fn span(finding: &Finding, units: &[UnitJudgement], list: &[PriceRule], now: Nanos) -> Option<(Span, String)> {
    let mut span: Option<(Span, String)> = None;
    for victim in &finding.victims {
        let unit = units.iter().find(|unit| unit.unit == *victim)?;
        let rule = prices::at(list, unit.model.as_deref(), unit.class, now)?;
        let firm = match unit.weight.source {
            WeightSource::Tokens | WeightSource::Steps | WeightSource::Gpm | WeightSource::None => true,
            WeightSource::Proxy => false,
            // Utilization alone is no ground for money.
            WeightSource::Util => return None,
        };
        let price = rule.per_gpu_hour;
        let (so_far, currency) =
            span.get_or_insert_with(|| (Span { least: price, most: price, firm }, rule.currency.clone()));
        if *currency != rule.currency {
            return None;
        }
        so_far.least = so_far.least.min(price);
        so_far.most = so_far.most.max(price);
        so_far.firm &= firm;
    }
    span
}

#[derive(Clone, Copy)]
struct Span {
    least: prices::Price,
    most: prices::Price,
    firm: bool,
}

/// Of one finding; none where no price is known, or where nothing was lost and nothing is ahead.
#[must_use]
pub fn of(finding: &Finding, units: &[UnitJudgement], list: &[PriceRule], now: Nanos) -> Option<Cost> {
    let ahead = finding.ahead();
    if list.is_empty() || finding.lost.0 == 0 && ahead.is_none() {
        return None;
    }
    let (span, currency) = span(finding, units, list, now)?;
    Some(Cost {
        rule: finding.rule,
        subject: finding.subject.clone(),
        currency,
        least_millionths: if span.firm { span.least.of(finding.lost.0) } else { 0 },
        most_millionths: span.most.of(finding.lost.0),
        ahead_millionths: ahead.map(|time| span.least.of(time.0)),
    })
}

/// Of all findings.
#[must_use]
pub fn all(findings: &[Finding], units: &[UnitJudgement], list: &[PriceRule], now: Nanos) -> Vec<Cost> {
    findings.iter().filter_map(|finding| of(finding, units, list, now)).collect()
}

/// That of a finding among all.
#[must_use]
pub fn find<'a>(costs: &'a [Cost], finding: &Finding) -> Option<&'a Cost> {
    costs.iter().find(|cost| cost.rule == finding.rule && cost.subject == finding.subject)
}

impl Cost {
    /// `1.26 USD`, `0.80 to 1.26 USD`, `at most 1.26 USD`.
    #[must_use]
    pub fn so_far(&self) -> String {
        let most = money(self.most_millionths);
        let sum = match self.least_millionths {
            least if least == self.most_millionths => most,
            0 => format!("at most {most}"),
            least => format!("{} to {most}", money(least)),
        };
        self.with_currency(sum)
    }

    /// What it will cost, if that is known.
    #[must_use]
    pub fn ahead(&self) -> Option<String> {
        self.ahead_millionths.map(|ahead| self.with_currency(money(ahead)))
    }

    fn with_currency(&self, sum: String) -> String {
        if self.currency.is_empty() { sum } else { format!("{sum} {}", self.currency) }
    }
}

/// Money with two decimals, cut; small sums with six, so that what is not nothing is not shown as nothing.
#[must_use]
pub fn money(millionths: u64) -> String {
    if (1..10_000).contains(&millionths) {
        return format!("0.{millionths:06}");
    }
    let cents = millionths / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use gpuprod_rules::{Class, Part, Severity, State, UnitId, Weight};

    use super::*;
    use crate::prices::Price;

    fn unit(id: &str, class: Class) -> UnitJudgement {
        UnitJudgement {
            unit: UnitId(id.into()),
            gpu: None,
            index: None,
            slices: 1,
            slices_whole: 1,
            state: State::Idle,
            since: Nanos(0),
            weight: Weight { w: Part::ONE, source: WeightSource::Tokens },
            split: Vec::new(),
            cumulative: true,
            class,
            class_inferred: false,
            tenant: None,
            tenants: Vec::new(),
            model: None,
            external: Vec::new(),
            meter: None,
        }
    }

    #[test]
    fn no_sum_is_made_of_two_currencies() {
        let units = [unit("a", Class::Serving), unit("b", Class::Batch)];
        let line = |class, currency: &str| PriceRule {
            class: Some(class),
            currency: currency.to_owned(),
            ..PriceRule::flat(Price(2_000_000))
        };
        let finding = Finding {
            rule: RuleId::IoStall,
            variant: None,
            severity: Severity::Warn,
            subject: "nvme0n1".into(),
            victims: units.iter().map(|unit| unit.unit.clone()).collect(),
            onset: Nanos(0),
            since: Nanos(0),
            since_realtime: Nanos(0),
            confidence: Part::ONE,
            cause: None,
            summary: String::new(),
            evidence: Vec::new(),
            rejected: Vec::new(),
            lost: Nanos::from_secs(3_600),
            also: Vec::new(),
            advice: String::new(),
            holders: Vec::new(),
        };
        let cost = |currency| {
            let list = [line(Class::Serving, "USD"), line(Class::Batch, currency)];
            of(&finding, &units, &list, Nanos(0)).map(|cost| (cost.most_millionths, cost.currency))
        };
        assert_eq!(cost("USD"), Some((2_000_000, "USD".to_owned())));
        assert_eq!(cost("EUR"), None);
    }
}
