//! A finding in words, the same wherever it is told: readings, what was rejected, since when and how sure, and what
//! it has cost so far. Foreign text comes as it is: whoever shows it cleans it.

use gpuprod_rules::{Evidence, Finding, Micro, Rejected};
use gpuprod_snapshot::units::Nanos;

use crate::cost::Cost;
use crate::text;

/// A reading with its own normal.
#[must_use]
pub fn reading(evidence: &Evidence) -> String {
    let Evidence { what, of, value, unit, normal } = evidence;
    let normal = normal.map(|n| format!(", normal {} +- {} (n {}, z {})", n.median, n.spread, n.n, n.z));
    format!("{what} of {of} is {value} {unit}{}", normal.unwrap_or_default())
}

/// What it is not.
#[must_use]
pub fn rejected(rejected: &Rejected) -> String {
    let of = if rejected.of.is_empty() { String::new() } else { format!(" ({})", rejected.of) };
    format!("not {}{of}: {}", rejected.cause, rejected.why)
}

/// How long before its confirmation it began: an estimate, to the block.
#[must_use]
pub fn before(finding: &Finding) -> Nanos {
    finding.since.saturating_sub(finding.onset)
}

/// Since when, and how long that was before it was confirmed: `2026-11-28T02:06:50Z, 25.0 s before it was confirmed`.
#[must_use]
pub fn began(finding: &Finding) -> String {
    let before = before(finding);
    let at = text::utc(finding.since_realtime.saturating_sub(before));
    if before.0 == 0 { at } else { format!("{at}, {} before it was confirmed", text::duration(before)) }
}

/// How sure: `0.91`.
#[must_use]
pub fn sure(finding: &Finding) -> String {
    format!("{:.2}", finding.confidence.as_fraction())
}

/// What it has cost since it was confirmed: GPU time, and money where there is a price. None while that is nothing.
#[must_use]
pub fn lost(finding: &Finding, cost: Option<&Cost>) -> Option<String> {
    let seconds = Micro::from_f64(finding.lost.as_secs_f64());
    let mut said = Vec::new();
    if finding.lost.0 > 0 {
        let money = cost.map_or_else(String::new, |cost| format!(", {}", cost.so_far()));
        said.push(format!("{seconds} GPU-s so far{money}"));
    }
    said.extend(cost.and_then(Cost::ahead).map(|ahead| format!("{ahead} until its wall limit, if nobody ends it")));
    (!said.is_empty()).then(|| said.join("; "))
}
