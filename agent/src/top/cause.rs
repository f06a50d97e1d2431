//! The cause line: one sentence that says what is wrong, whose doing it is, since when, and what it costs.

use gpuprod_rules::node::Verdict;
use gpuprod_rules::{
    Bucket, Cause, Class, Finding, RuleId, RuleStatus, Severity, State, UnitId, UnitJudgement, WeightSource,
};
use gpuprod_snapshot::units::{Nanos, to_f64};

use super::words::{clock, lost, span, state, unit_name, wall};
use crate::check::{self, Level};
use crate::pipeline::Frame;
use crate::text;

/// The sentence, and the numbers behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How bad.
    pub level: Level,
    /// The sentence.
    pub sentence: String,
    /// The finding's own summary, or what to do; may be empty.
    pub detail: String,
}

/// Of a frame: the worst finding first, then what the states alone say, then why nothing can be said.
#[must_use]
pub fn line(frame: &Frame<'_>) -> Line {
    let judged = &frame.judgement;
    if let Some(worst) = judged.findings.iter().find(|finding| finding.severity > Severity::Info) {
        return found(worst, frame);
    }
    let say = |level, sentence: String, detail: &str| Line { level, sentence, detail: detail.to_owned() };
    if judged.units.is_empty() {
        let why = check::no_gpu(frame);
        return say(Level::CannotTell, format!("cannot tell: {why}"), "");
    }
    let all = judged.units.len();
    let broken = units(frame, |unit| matches!(unit.state, State::Faulted(_)));
    if let Some(first) = broken.first() {
        let since = wall(&judged.stamp, first.since);
        let what = format!("{} {} since {}", names(frame, &broken), state(first.state), clock(since));
        return say(Level::Critical, what, "do: gpuprod check says what the driver asks for");
    }
    let blind = units(frame, |unit| matches!(unit.state, State::Unknown(_)));
    if let Some(probe) = judged.probes.first() {
        let stuck =
            format!("{} has been stuck in {} for {}", probe.collector, text::clean(&probe.call), span(probe.age));
        let rest = match blind.len() {
            0 => "nothing else is missing: every unit is judged by other sources".to_owned(),
            some => format!("{some} of {all} {} cannot be judged", noun(frame, all)),
        };
        return say(Level::CannotTell, format!("{stuck}: {rest}"), "");
    }
    let losing = units(frame, |unit| lost(unit) >= 0.1 && is_firm(unit));
    if !losing.is_empty() {
        let cost: f64 = losing.iter().map(|unit| lost(unit)).sum();
        let what = format!(
            "{} of {all} {} lose {cost:.1} GPUs of time and no cause is confirmed",
            losing.len(),
            noun(frame, all)
        );
        return say(Level::Warning, what, learning(frame).unwrap_or("what stays so for 30 s becomes a finding"));
    }
    if let Some(first) = blind.first() {
        let what = format!("cannot tell: {} {}", names(frame, &blind), state(first.state));
        return say(Level::CannotTell, what, "do: gpuprod doctor says what mends it");
    }
    let sum: f64 = judged.units.iter().map(|unit| unit.weight.w.as_fraction()).sum();
    let working = units(frame, |unit| matches!(unit.state, State::Productive(_)));
    let what = match working.len() {
        0 => format!("no GPU works; {}", states(frame)),
        some => format!("{some} of {all} {} work, {sum:.1} GPUs productive", noun(frame, all)),
    };
    // A node that takes no more jobs is not well, whatever its GPUs do.
    match unfit(frame) {
        Some((level, why)) => say(level, format!("{why}; nothing costs GPU time now: {what}"), ""),
        None => say(Level::Fine, format!("nothing is wrong: {what}"), learning(frame).unwrap_or("")),
    }
}

/// What keeps jobs from the node although no rule warns; a reason of this moment warns, one that is over is to be known.
fn unfit(frame: &Frame<'_>) -> Option<(Level, String)> {
    let judged = &frame.judgement;
    let fits = [Class::Serving, Class::Batch].into_iter().filter_map(|class| judged.node.fit_for(class));
    let worst = fits.max_by_key(|fit| fit.verdict)?;
    if !matches!(worst.verdict, Verdict::Degraded | Verdict::Unfit) {
        return None;
    }
    let (class, verdict) = (worst.class, worst.verdict.as_str());
    let reason = worst.reasons.iter().find(|reason| reason.verdict > Verdict::CannotTell);
    let (level, why) = match reason {
        Some(reason) => (Level::Warning, text::clean(&reason.says)),
        None => (Level::Fine, "nothing speaks against it any more, and that has to stay so for a while".to_owned()),
    };
    let since = clock(wall(&judged.stamp, worst.since));
    Some((level, format!("the node is {verdict} for {class} jobs since {since}: {why}")))
}

/// Whether a loss may raise a warning before any rule speaks: on the word of the work itself, or by its state. What
/// activity counters alone call lost may be the way this workload is.
fn is_firm(unit: &UnitJudgement) -> bool {
    let works = matches!(unit.weight.source, WeightSource::Tokens | WeightSource::Steps);
    works || matches!(unit.state, State::Stalled | State::Squatted | State::Throttled | State::Starved(_))
}

fn found(worst: &Finding, frame: &Frame<'_>) -> Line {
    let judged = &frame.judgement;
    let victims: Vec<&UnitJudgement> = judged.units.iter().filter(|unit| worst.victims.contains(&unit.unit)).collect();
    let cost = victims.iter().fold(0.0, |sum, unit| sum + lost(unit));
    let since = wall(&judged.stamp, worst.onset);
    let age = judged.stamp.boottime.saturating_sub(worst.onset);
    let mut sentence = format!(
        "{} {} {} since {} ({})",
        who(worst),
        does(worst.cause),
        names(frame, &victims),
        clock(since),
        span(age)
    );
    sentence += &format!(": {cost:.1} of {} {} lost now", judged.units.len(), noun(frame, judged.units.len()));
    if let Some(hours) = booked(worst, frame) {
        sentence += &format!(", {hours} GPU-h so far");
    }
    let more = judged.findings.iter().filter(|finding| finding.severity > Severity::Info).count().saturating_sub(1);
    if more > 0 {
        sentence += &format!(" (+{more} more)");
    }
    let level = if worst.severity == Severity::Critical { Level::Critical } else { Level::Warning };
    Line { level, sentence, detail: text::clean(&worst.summary) }
}

/// Whose doing it is.
fn who(finding: &Finding) -> String {
    let subject = text::clip(&text::clean(&finding.subject), 40);
    match (finding.rule, finding.cause, finding.variant.as_deref()) {
        (RuleId::RaidRebuildImpact, _, Some("recover")) => format!("the rebuild of {subject}"),
        (RuleId::RaidRebuildImpact, _, Some(action)) => format!("the {} of {subject}", text::clean(action)),
        (RuleId::BusyButStarved, Some(Cause::Unexplained) | None, _) => "something that is not visible here".to_owned(),
        (RuleId::BusyButStarved, ..) => format!("slow {subject}"),
        (rule, _, Some(variant)) => format!("{subject} ({rule}, {})", text::clean(variant)),
        (rule, _, None) => format!("{subject} ({rule})"),
    }
}

/// What a cause does to a GPU.
const fn does(cause: Option<Cause>) -> &'static str {
    match cause {
        Some(Cause::Fault) => "takes down",
        Some(Cause::Throttle) => "slows down",
        Some(Cause::Squat) => "sits on",
        Some(Cause::Stall) => "stalls",
        Some(
            Cause::Storage
            | Cause::BackgroundIo
            | Cause::HostMem
            | Cause::HostCpu
            | Cause::PcieNuma
            | Cause::Network
            | Cause::Kv
            | Cause::Peer
            | Cause::Upstream
            | Cause::Unexplained,
        ) => "starves",
        None => "concerns",
    }
}

/// GPU hours that the ledger has booked to this cause on these victims, as text; none below a thousandth.
fn booked(finding: &Finding, frame: &Frame<'_>) -> Option<String> {
    let cause = finding.cause?;
    let of = |unit: &UnitId| frame.ledger.accounts.get(unit).map(|a| a.time_in(|bucket| bucket == Bucket::Lost(cause)));
    let sum: u64 = finding.victims.iter().filter_map(of).fold(0, |sum, time: Nanos| sum.saturating_add(time.0));
    let hours = to_f64(sum) / 3.6e12;
    (hours >= 0.001).then(|| format!("{hours:.3}"))
}

fn units<'a>(frame: &'a Frame<'_>, wanted: impl Fn(&UnitJudgement) -> bool) -> Vec<&'a UnitJudgement> {
    frame.judgement.units.iter().filter(|unit| wanted(unit)).collect()
}

/// `GPUs`, or `units` where some are instances.
fn noun(frame: &Frame<'_>, number: usize) -> &'static str {
    match (frame.judgement.units.iter().any(|unit| unit.gpu.is_some()), number) {
        (true, 1) => "unit",
        (true, _) => "units",
        (false, 1) => "GPU",
        (false, _) => "GPUs",
    }
}

/// `GPU 3`, `GPU 0-7`, `GPU 0 2 5`, `all 8 GPUs`.
fn names(frame: &Frame<'_>, units: &[&UnitJudgement]) -> String {
    let all = frame.judgement.units.len();
    match units.len() {
        0 => "no GPU of this node".to_owned(),
        n if n == all && n > 1 => format!("all {n} {}", noun(frame, n)),
        1..=4 => {
            let names: Vec<String> = units.iter().map(|unit| unit_name(unit, frame)).collect();
            format!("GPU {}", names.join(" "))
        }
        n => format!("{n} of {all} {}", noun(frame, all)),
    }
}

/// `8 idle`, `6 headroom, 2 unallocated`.
fn states(frame: &Frame<'_>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for unit in &frame.judgement.units {
        let word = unit.state.as_str();
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    let parts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    parts.join(", ")
}

/// Whether a rule still waits for its baseline.
fn learning(frame: &Frame<'_>) -> Option<&'static str> {
    let waits = |report: &gpuprod_rules::RuleReport| matches!(&report.status, RuleStatus::Suspended(why) if why.contains("not learnt"));
    frame
        .judgement
        .rules
        .iter()
        .any(waits)
        .then_some("own normals are still being learnt (two and a half healthy minutes): until then nothing is blamed")
}
