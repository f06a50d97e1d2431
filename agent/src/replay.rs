//! A recording through the pipeline: the findings as they come and go, and the ledger at the end. The same
//! recording gives the same bytes, on any machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuprod_rules::ledger::Total;
use gpuprod_rules::{Finding, Ledger, Policy, UnitJudgement};
use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;

use crate::cost::{self, Cost};
use crate::pipeline::Pipeline;
use crate::prices::PriceRule;
use crate::recording::{Error, Header, Recording};
use crate::{tell, text};

/// What a recording says.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The recording's own header.
    pub recording: Header,
    /// Ticks that were read.
    pub ticks: u64,
    /// The first tick's time.
    pub from: Option<Stamp>,
    /// The last tick's time.
    pub to: Option<Stamp>,
    /// Every finding, in the order in which they were confirmed.
    pub findings: Vec<Episode>,
    /// The accounts at the end.
    pub ledger: Ledger,
}

/// A finding, from confirmation to clearing.
#[derive(Debug, Serialize)]
pub struct Episode {
    /// As it stood at its worst: the last form of the highest severity.
    #[serde(flatten)]
    pub finding: Finding,
    /// Wall-clock time of the tick at which it was gone; none while it stands.
    pub cleared_realtime: Option<Nanos>,
    /// What it had cost by then; absent without a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// At most so many findings are kept: a recording is foreign input.
const EPISODES: usize = 100_000;

/// Judges all of a recording. The note says what was torn off its end.
///
/// # Errors
/// When the recording cannot be read.
pub fn replay(recording: Recording, policy: Policy) -> Result<(Report, Option<String>), Error> {
    priced(recording, policy, &[])
}

/// The same with a price list: findings say what they cost.
///
/// # Errors
/// When the recording cannot be read.
pub fn priced(recording: Recording, policy: Policy, prices: &[PriceRule]) -> Result<(Report, Option<String>), Error> {
    let mut recording = recording;
    let mut pipeline = Pipeline::new(policy);
    let mut log = Log { prices, episodes: Vec::new(), active: BTreeMap::new() };
    let mut report = Report {
        recording: recording.header().clone(),
        ticks: 0,
        from: None,
        to: None,
        findings: Vec::new(),
        ledger: Ledger::default(),
    };
    for tick in recording.by_ref() {
        let tick = tick?;
        report.ticks += 1;
        report.from.get_or_insert_with(|| tick.stamp.clone());
        let judged = pipeline.feed(&tick).judgement.into_owned();
        log.note(judged.findings, &judged.units, tick.stamp.realtime);
        report.to = Some(tick.stamp);
    }
    report.findings = log.episodes;
    report.ledger = pipeline.ledger().clone();
    Ok((report, recording.torn().map(str::to_owned)))
}

struct Log<'a> {
    prices: &'a [PriceRule],
    episodes: Vec<Episode>,
    /// Rule, subject and confirmation of what is active now, and its place in the list.
    active: BTreeMap<(&'static str, String, Nanos), usize>,
}

impl Log<'_> {
    /// Takes in the findings of a tick, and the time at which those that are not among them any more were gone.
    fn note(&mut self, findings: Vec<Finding>, units: &[UnitJudgement], realtime: Nanos) {
        if self.active.is_empty() && findings.is_empty() {
            return;
        }
        let prices = self.prices;
        let cost = |finding: &Finding| cost::of(finding, units, prices, realtime);
        let mut still = BTreeMap::new();
        for finding in findings {
            let key = (finding.rule.as_str(), finding.subject.clone(), finding.since);
            if let Some(place) = self.active.remove(&key) {
                if let Some(episode) = self.episodes.get_mut(place)
                    && finding.severity >= episode.finding.severity
                {
                    episode.cost = cost(&finding);
                    episode.finding = finding;
                }
                still.insert(key, place);
            } else if self.episodes.len() < EPISODES {
                still.insert(key, self.episodes.len());
                let cost = cost(&finding);
                self.episodes.push(Episode { finding, cleared_realtime: None, cost });
            }
        }
        for place in std::mem::replace(&mut self.active, still).into_values() {
            if let Some(episode) = self.episodes.get_mut(place) {
                episode.cleared_realtime = Some(realtime);
            }
        }
    }
}

/// As text.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let at = |stamp: &Option<Stamp>| stamp.as_ref().map_or_else(|| "-".to_owned(), |stamp| text::utc(stamp.realtime));
    let _ = writeln!(
        out,
        "recording of {}: {} ticks of {}, {} to {}",
        text::clean(&report.recording.host),
        report.ticks,
        text::duration(report.recording.period_ns),
        at(&report.from),
        at(&report.to)
    );
    let _ = writeln!(out, "\nfindings: {}", report.findings.len());
    for episode in &report.findings {
        finding(&mut out, episode);
    }
    out.push_str("\nledger\n");
    ledger(&mut out, &report.ledger);
    out
}

/// One finding with its evidence.
fn finding(out: &mut String, episode: &Episode) {
    let finding = &episode.finding;
    let until =
        episode.cleared_realtime.map_or_else(|| "still active".to_owned(), |at| format!("until {}", text::utc(at)));
    let variant = finding.variant.as_deref().map(|variant| format!("/{variant}")).unwrap_or_default();
    let _ = writeln!(
        out,
        "{} {} {}{variant} {}: {} ({until})",
        text::utc(finding.since_realtime),
        finding.severity.as_str(),
        finding.rule,
        text::clean(&finding.subject),
        text::clean(&finding.summary)
    );
    let victims: Vec<&str> = finding.victims.iter().map(|unit| &*unit.0).collect();
    let _ = writeln!(out, "    victims: {}", text::clean(&victims.join(" ")));
    for line in told(finding, episode.cost.as_ref()) {
        let _ = writeln!(out, "    {line}");
    }
}

/// What stands behind a finding, line by line: since when and how sure, readings, what was rejected, what it has cost,
/// what to do.
#[must_use]
pub fn told(finding: &Finding, cost: Option<&Cost>) -> Vec<String> {
    let mut lines = vec![format!("began: {}; confidence {}", tell::began(finding), tell::sure(finding))];
    if !finding.also.is_empty() {
        let also: Vec<&str> = finding.also.iter().map(|rule| rule.as_str()).collect();
        lines.push(format!("seen by: {} too", also.join(", ")));
    }
    lines
        .extend(finding.evidence.iter().map(|evidence| format!("evidence: {}", text::clean(&tell::reading(evidence)))));
    lines.extend(finding.rejected.iter().map(|rejected| text::clean(&tell::rejected(rejected))));
    lines.extend(tell::lost(finding, cost).map(|lost| format!("lost: {lost}")));
    if !finding.advice.is_empty() {
        lines.push(format!("do: {}", text::clean(&finding.advice)));
    }
    lines
}

/// Seconds of a whole GPU per unit, bucket and weight source: exact, from integers.
pub fn ledger(out: &mut String, ledger: &Ledger) {
    for (unit, account) in &ledger.accounts {
        let _ = writeln!(out, "{}  observed {} s", text::clean(&unit.0), seconds(account.observed_gpu().0));
        for Total { bucket, source, time } in account.totals() {
            let name = match bucket.reason() {
                "" => bucket.as_str().to_owned(),
                reason => format!("{}{{{reason}}}", bucket.as_str()),
            };
            let _ = writeln!(out, "    {name:<28}{:<8}{:>20} s", source.as_str(), seconds(time.0));
        }
    }
    if ledger.accounts.is_empty() {
        out.push_str("    no unit was seen\n");
    }
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
