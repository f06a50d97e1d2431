//! One run: a scenario through the agent's own pipeline, tick by tick, compared with the truth as it goes.

use std::collections::BTreeMap;

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::{Allocation, Bucket, Part, Policy, UnitJudgement};
use gpuprod_sim::{Running, Scenario, Ticks};
use gpuprod_snapshot::units::{Nanos, to_f64};

use crate::alerts::{Alerts, Asked};
use crate::naive::Naive;
use crate::pages::{Page, Pages, of_trouble};
use crate::promise::Answers;
use crate::truth::{DETECTABLE, Expected, LARGE, mean};
use crate::variant::Variant;

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) seed: Option<u64>,
    pub(crate) drawn: BTreeMap<String, String>,
    /// GPU-seconds played.
    pub(crate) gpu_seconds: u64,
    pub(crate) alerts: Alerts,
    pub(crate) asked: Vec<Asked>,
    pub(crate) pages: Vec<Page>,
    /// Seconds by what was right and what was said.
    pub(crate) states: BTreeMap<(String, String), u64>,
    /// Productive seconds by weight source: true, said, and seconds compared.
    pub(crate) productive: BTreeMap<&'static str, (f64, f64, f64)>,
    pub(crate) causes: Vec<Ranked>,
    pub(crate) naive: Vec<Told>,
}

/// The causes of one unit's loss, as they were booked, largest first.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) right: String,
    pub(crate) said: Vec<String>,
}

/// How one judge did at telling that something is wrong, whatever it calls it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) name: &'static str,
    pub(crate) asked: u64,
    pub(crate) found: u64,
    pub(crate) right: u64,
    pub(crate) wrong: u64,
}

/// The rules' thresholds, without some gates. An unknown gate is an error that says so.
pub(crate) fn policy(without: &[&str]) -> Result<Policy, String> {
    if without.is_empty() {
        return Ok(Policy::default());
    }
    serde_json::from_value(serde_json::json!({ "without": without })).map_err(|error| error.to_string())
}

/// The thresholds, and what the scenario's operator says of the node.
fn told(policy: &Policy, scenario: &Scenario) -> Policy {
    let mut policy = policy.clone();
    let record = |(gpu, owner, standby): &(usize, String, bool)| Allocation {
        gpu: gpu.to_string(),
        owner: owner.clone(),
        standby: *standby,
        ..Allocation::default()
    };
    policy.declared.allocations.extend(scenario.records.iter().map(record));
    let mut promises = scenario.works.iter().filter_map(|work| work.traffic.as_ref()?.promised);
    if let Some(seconds) = promises.next() {
        policy.latency_class_violation.ttft_slo_ns = Nanos::from_secs(seconds);
    }
    policy
}

/// Plays a variant with a seed.
pub(crate) fn play(variant: &Variant, seed: Option<u64>, policy: &Policy) -> Result<Play, String> {
    let scenario = variant.scenario(seed)?;
    let twin = scenario.events.iter().any(|event| event.fault);
    let without = scenario.twin();
    let mut run = Run {
        expected: Expected::of(&scenario),
        compare: twin || scenario.recorded.is_some(),
        twin,
        deficits: vec![Vec::new(); scenario.gpus.count],
        answers: Answers::of(&scenario),
        lost: BTreeMap::new(),
        states: BTreeMap::new(),
        productive: BTreeMap::new(),
    };
    let (mut alerts, mut naive, mut pages) = (Alerts::default(), Naive::all(), Pages::new()?);
    let mut pipeline = Pipeline::new(told(policy, &scenario));
    let (mut ticks, mut healthy) = (scenario.ticks(), without.run());
    let mut second = 0;
    while let Some(tick) = ticks.next() {
        // The twin lives through the seconds that the agent missed.
        while second <= ticks.second() {
            if run.compare {
                healthy.step(second);
            }
            if second < ticks.second() {
                run.deficits.iter_mut().for_each(|row| row.push(0.0));
            }
            second += 1;
        }
        let frame = pipeline.feed(&tick);
        alerts.step(ticks.second(), &frame.judgement.findings);
        pages.step(ticks.second(), &frame.judgement.findings, &tick.stamp);
        run.second(ticks.second(), &ticks, &healthy, &frame.judgement.units);
        run.answers.step(ticks.second(), &ticks);
        naive.iter_mut().for_each(|judge| judge.step(ticks.second(), &tick));
    }
    let effects = scenario.blames.iter().map(|blame| {
        let (from, to) = (blame.from.0 / 1_000_000_000, blame.to.0 / 1_000_000_000);
        run.answers.effect(blame).unwrap_or_else(|| run.effect(&scenario, from, to))
    });
    let asked = alerts.judge(&scenario, &effects.collect::<Vec<_>>(), variant.recorded.is_some());
    let mut told: Vec<Told> = naive.iter().map(|judge| judge.told(&scenario, &asked)).collect();
    told.push(crate::naive::ours(&alerts, &scenario, &asked));
    Ok(Play {
        seed,
        drawn: scenario.drawn.clone(),
        gpu_seconds: scenario.length * u64::try_from(scenario.gpus.count).unwrap_or(1),
        causes: run.ranked(),
        alerts,
        asked,
        pages: of_trouble(pages.sent, &scenario),
        states: run.states,
        productive: run.productive,
        naive: told,
    })
}

/// What is compared while a run goes on.
struct Run {
    expected: Expected,
    /// Useful work is known from the machine itself.
    compare: bool,
    /// There is trouble that can be taken out.
    twin: bool,
    deficits: Vec<Vec<f32>>,
    answers: Answers,
    /// Lost seconds by unit and right cause: how long, and by what was said.
    lost: BTreeMap<(usize, String), (u64, BTreeMap<String, f64>)>,
    states: BTreeMap<(String, String), u64>,
    productive: BTreeMap<&'static str, (f64, f64, f64)>,
}

impl Run {
    fn second(&mut self, second: u64, ticks: &Ticks<'_>, healthy: &Running<'_>, units: &[UnitJudgement]) {
        for gpu in 0..self.deficits.len() {
            let mut w = None;
            if self.compare {
                let (did, could) = (ticks.done(gpu), healthy.done(gpu));
                let share = if could.possible > 1e-9 { (did.useful / could.possible).clamp(0.0, 1.0) } else { 0.0 };
                let deficit = if could.useful > 1e-9 { 1.0 - (did.useful / could.useful).clamp(0.0, 1.0) } else { 0.0 };
                w = Some(share);
                self.expected.step(gpu, second, deficit);
                if self.twin
                    && let Some(row) = self.deficits.get_mut(gpu)
                {
                    row.push(from(deficit));
                }
            }
            let unit = units.iter().enumerate().find(|(at, unit)| {
                unit.index.map_or(*at == gpu, |index| usize::try_from(index).is_ok_and(|index| index == gpu))
            });
            let Some(right) = self.expected.right(gpu, second, self.twin) else { continue };
            let Some((_, unit)) = unit else {
                if right.due {
                    let said = ("none".to_owned(), label(right.state, right.cause.unwrap_or_default()));
                    *self.states.entry((said.1, said.0)).or_default() += 1;
                }
                continue;
            };
            if right.due {
                let reason = if right.cause.is_some() { unit.state.reason() } else { "" };
                let pair = (label(right.state, right.cause.unwrap_or_default()), label(unit.state.as_str(), reason));
                *self.states.entry(pair).or_default() += 1;
            }
            if let Some(w) = right.w.or(w) {
                let share = |bucket: Bucket| -> f64 {
                    unit.split.iter().filter(|(of, _)| *of == bucket).map(|(_, part)| part.as_fraction()).sum()
                };
                let (truth, said, seconds) = self.productive.entry(unit.weight.source.as_str()).or_default();
                (*truth, *said, *seconds) = (*truth + w, *said + share(Bucket::Productive), *seconds + 1.0);
            }
            if let Some(cause) = cause(right.state, right.cause) {
                let (seconds, booked) = self.lost.entry((gpu, cause.to_owned())).or_default();
                *seconds += u64::from(right.due);
                for (bucket, part) in &unit.split {
                    if let Bucket::Lost(cause) = bucket
                        && *part > Part(0)
                    {
                        *booked.entry(cause.as_str().to_owned()).or_default() += part.as_fraction();
                    }
                }
            }
        }
    }

    /// How large a trouble is between two seconds, from which second on it can be seen, and from which on it is large.
    fn effect(&self, scenario: &Scenario, from: u64, to: u64) -> (Option<f64>, [u64; 2]) {
        if scenario.effect.is_some() || !self.twin {
            return (scenario.effect, [from; 2]);
        }
        let (Ok(begin), Ok(end)) = (usize::try_from(from), usize::try_from(to)) else { return (None, [from; 2]) };
        let (mut largest, mut seen) = (0.0, [None::<usize>; 2]);
        for row in &self.deficits {
            let part = row.get(begin.min(row.len())..end.min(row.len())).unwrap_or_default();
            let windows = |over: usize| {
                part.windows(over.min(part.len()).max(1))
                    .map(|part| mean(&part.iter().map(|deficit| f64::from(*deficit)).collect::<Vec<_>>()))
            };
            largest = windows(60).fold(largest, f64::max);
            for (seen, size) in seen.iter_mut().zip([DETECTABLE, LARGE]) {
                if let Some(at) = windows(10).position(|deficit| deficit >= size) {
                    *seen = Some(seen.map_or(at, |known| known.min(at)));
                }
            }
        }
        (Some(largest), seen.map(|seen| from + seen.map_or(0, |at| u64::try_from(at).unwrap_or(0))))
    }

    fn ranked(&mut self) -> Vec<Ranked> {
        let all = std::mem::take(&mut self.lost).into_iter().filter(|(_, (seconds, _))| *seconds >= 30);
        all.map(|((_, right), (_, booked))| {
            // `unexplained` is no answer, unless it is the right one.
            let answers = |cause: &String| right == "unexplained" || cause != "unexplained";
            let mut causes: Vec<(String, f64)> = booked.into_iter().filter(|(cause, _)| answers(cause)).collect();
            causes.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Ranked { right, said: causes.into_iter().map(|(cause, _)| cause).collect() }
        })
        .collect()
    }
}

/// The cause of a loss in a state, as the ledger calls it.
fn cause<'a>(state: &str, cause: Option<&'a str>) -> Option<&'a str> {
    match state {
        "starved" => cause,
        "throttled" => Some("throttle"),
        "stalled" => Some("stall"),
        "squatted" => Some("squat"),
        "faulted" => Some("fault"),
        _ => None,
    }
}

fn label(state: &str, reason: &str) -> String {
    if reason.is_empty() { state.to_owned() } else { format!("{state}{{{reason}}}") }
}

/// A share between 0 and 1, in less room.
fn from(share: f64) -> f32 {
    let millionths = gpuprod_snapshot::units::from_f64(share * 1e6).unwrap_or(0);
    u16::try_from(millionths / 100).map_or(1.0, |hundred| f32::from(hundred) / 1e4)
}

/// Seconds as weeks.
pub(crate) fn weeks(gpu_seconds: u64) -> f64 {
    to_f64(gpu_seconds) / 604_800.0
}
