//! From runs to figures.

use std::collections::BTreeMap;

use gpuprod_snapshot::units::to_f64;

use crate::ablate::Ablation;
use crate::alerts::{Alert, Asked, Beginnings, Verdict, add};
use crate::boot::{Figure, Parts, mean_ratio, quantile, ratio};
use crate::misses;
use crate::options::Options;
use crate::pages::Paged;
use crate::play::{Play, weeks};
use crate::soak::Soak;
use crate::truth::{DETECTABLE, LARGE, mean};
use crate::variant::{Group, Job, Variant};

/// All figures.
#[derive(Default)]
pub(crate) struct Score {
    pub(crate) head: String,
    pub(crate) missing: Vec<String>,
    pub(crate) rules: BTreeMap<String, Rule>,
    pub(crate) groups: Vec<(Group, GroupScore)>,
    pub(crate) precision: Option<Figure>,
    pub(crate) recall: Option<Figure>,
    pub(crate) states: Option<Figure>,
    pub(crate) confusion: Vec<((String, String), u64)>,
    pub(crate) causes: [Option<Figure>; 4],
    pub(crate) latency: Vec<Latency>,
    pub(crate) productive: BTreeMap<&'static str, Productive>,
    pub(crate) effects: Vec<(&'static str, u64, u64)>,
    pub(crate) healthy: Healthy,
    pub(crate) paged: Paged,
    pub(crate) naive: Vec<(String, Option<Figure>, Option<Figure>)>,
    pub(crate) misses: Vec<String>,
    pub(crate) ablations: Vec<Ablation>,
    pub(crate) soak: Option<Soak>,
}

/// One rule, or one word that a scenario blames.
#[derive(Default)]
pub(crate) struct Rule {
    pub(crate) precision: Option<Figure>,
    pub(crate) recall: Option<Figure>,
    pub(crate) latencies: Vec<u64>,
    /// Alerts that no figure counts: a `may` line forgives them.
    pub(crate) allowed: u64,
}

/// A group of variants.
#[derive(Default)]
pub(crate) struct GroupScore {
    pub(crate) runs: u64,
    pub(crate) precision: Option<Figure>,
    pub(crate) recall: Option<Figure>,
    pub(crate) states: Option<Figure>,
    pub(crate) wrong: u64,
}

/// Detection of one kind of trouble, and its target.
pub(crate) struct Latency {
    pub(crate) name: &'static str,
    pub(crate) target: u64,
    pub(crate) p50: Option<u64>,
    pub(crate) p95: Option<u64>,
    pub(crate) n: usize,
}

/// Error of productive seconds on one weight source.
#[derive(Default)]
pub(crate) struct Productive {
    pub(crate) mean: f64,
    /// The variant with the largest mean error.
    pub(crate) worst: (String, f64),
    pub(crate) hours: f64,
}

/// What was said although nothing was wrong.
#[derive(Default)]
pub(crate) struct Healthy {
    pub(crate) weeks: f64,
    pub(crate) alerts: u64,
    pub(crate) critical: u64,
    pub(crate) squatters: u64,
    pub(crate) telemetry: u64,
    pub(crate) informed: Beginnings,
}

/// Kinds of trouble with a target for their detection: the words that scenarios blame, the least effect that counts and
/// is counted from, seconds.
type Kind = (&'static str, &'static [&'static str], f64, u64);
const KINDS: &[Kind] = &[
    ("fatal fault", &["gpu_fault"], 0.0, 2),
    ("stall", &["engine_stall"], 0.0, 20),
    ("throttle", &["silent_throttling"], DETECTABLE, 15),
    ("starvation from .30", STARVATION, LARGE, 45),
    ("starvation from .15", STARVATION, DETECTABLE, 90),
    ("KV", &["kv_saturation"], 0.0, 75),
    ("queue", &["queue_instability"], 0.0, 150),
    ("crashed squatter", &["crashed_holder", "orphan"], 0.0, 125),
    ("hung spin", &["hung_spin"], 0.0, 305),
];
const STARVATION: &[&str] = &[
    "busy_but_starved",
    "raid_rebuild_impact",
    "io_stall",
    "cpu_starved_loader",
    "cross_socket_feeding",
    "shared_uplink_contention",
    "pcie_link_degraded",
    "straggler_local",
];

/// Bounds of effect sizes.
const SIZES: &[(&str, f64, f64)] = &[
    ("below .05", 0.0, 0.05),
    (".05 to .10", 0.05, 0.10),
    (".10 to .15", 0.10, 0.15),
    (".15 to .20", 0.15, 0.20),
    (".20 to .30", 0.20, 0.30),
    (".30 to .45", 0.30, 0.45),
    (".45 and more", 0.45, 2.0),
];

/// Whether a trouble is large enough to be asked for.
pub(crate) fn visible(asked: &Asked) -> bool {
    asked.effect.is_none_or(|effect| effect >= DETECTABLE)
}

/// A run with its variant.
type Ran<'a> = (&'a Variant, &'a Play);

impl Score {
    pub(crate) fn of(variants: &[Variant], jobs: &[Job], plays: &[Play], options: &Options) -> Self {
        let ran: Vec<Ran<'_>> =
            jobs.iter().zip(plays).filter_map(|(job, play)| Some((variants.get(job.variant)?, play))).collect();
        let drawn: Vec<Ran<'_>> = ran.iter().copied().filter(|(variant, _)| variant.recorded.is_some()).collect();
        let mut score = Self {
            head: format!(
                "{} runs of {} variants, {:.1} GPU-days, {} half of {} seeds",
                ran.len(),
                variants.iter().filter(|variant| !variant.missing).count(),
                weeks(plays.iter().map(|play| play.gpu_seconds).sum()) * 7.0,
                options.half.as_str(),
                options.seeds
            ),
            missing: variants.iter().filter(|variant| variant.missing).map(|variant| variant.name.clone()).collect(),
            precision: mean_ratio(&precisions(&drawn)),
            recall: mean_ratio(&recalls(&drawn)),
            states: states(&drawn),
            ..Self::default()
        };
        score.groups = Group::ALL.iter().map(|group| (*group, GroupScore::of(*group, &ran))).collect();
        score.groups.retain(|(_, of)| of.runs > 0);
        score.rules(&drawn);
        score.confusion(&ran);
        score.causes = [(Group::Fault, 1), (Group::Confounder, 1), (Group::Fault, 3), (Group::Confounder, 3)]
            .map(|(group, first)| causes(&drawn, group, first));
        score.latency = KINDS.iter().map(|kind| Latency::of(kind, &drawn)).collect();
        score.productive = productive(&drawn);
        score.effects = effects(&drawn);
        score.healthy = Healthy::of(&drawn);
        let single = drawn.iter().filter(|(variant, _)| variant.group == Group::Fault);
        score.paged = Paged::of(single.map(|(_, play)| play.pages.as_slice()));
        score.naive = naive(&drawn);
        score.misses = ran.iter().flat_map(|(variant, play)| misses::of(variant, play)).collect();
        score
    }

    fn rules(&mut self, ran: &[Ran<'_>]) {
        let mut words: Vec<&str> =
            ran.iter().flat_map(|(_, play)| &play.asked).map(|asked| asked.word.as_str()).collect();
        words.extend(ran.iter().flat_map(|(_, play)| &play.alerts.0).map(|alert| alert.rule.as_str()));
        words.sort_unstable();
        words.dedup();
        for word in words {
            let of = |alert: &&Alert| alert.by(word) && alert.verdict != Verdict::Allowed;
            let right: Vec<(f64, f64)> = ran
                .iter()
                .map(|(_, play)| {
                    let alerts: Vec<&Alert> = play.alerts.0.iter().filter(of).collect();
                    (count(alerts.iter().filter(|alert| alert.verdict == Verdict::Right)), count(alerts.iter()))
                })
                .collect();
            let asked = |play: &Play| -> Vec<Asked> {
                play.asked.iter().filter(|asked| asked.word == word && visible(asked)).cloned().collect()
            };
            let found: Vec<(f64, f64)> = ran
                .iter()
                .map(|(_, play)| {
                    let asked = asked(play);
                    (count(asked.iter().filter(|asked| asked.found)), count(asked.iter()))
                })
                .collect();
            let latencies = ran.iter().flat_map(|(_, play)| asked(play)).filter_map(|asked| asked.latency).collect();
            let alerts = ran.iter().flat_map(|(_, play)| &play.alerts.0);
            let allowed = alerts.filter(|alert| alert.by(word) && alert.verdict == Verdict::Allowed).map(|_| 1).sum();
            let rule = Rule { precision: ratio(&right), recall: ratio(&found), latencies, allowed };
            self.rules.insert(word.to_owned(), rule);
        }
    }

    fn confusion(&mut self, ran: &[Ran<'_>]) {
        let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (pair, seconds) in ran.iter().flat_map(|(_, play)| &play.states).filter(|((right, said), _)| right != said)
        {
            *pairs.entry(pair.clone()).or_default() += seconds;
        }
        self.confusion = pairs.into_iter().collect();
        self.confusion.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }

    /// Every figure that has a floor or a target, by name.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let mut all = BTreeMap::new();
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                all.insert(name.replace(' ', "_"), value);
            }
        };
        let low = |figure: Option<Figure>| figure.map(|figure| figure.low);
        put("precision.macro.low", low(self.precision));
        put("recall.macro.low", low(self.recall));
        put("states.low", low(self.states));
        for (name, figure) in
            ["top1.single.low", "top1.confounded.low", "top3.single.low", "top3.confounded.low"].iter().zip(self.causes)
        {
            put(name, low(figure));
        }
        for latency in &self.latency {
            put(&format!("latency.{}.p95", latency.name), latency.p95.map(to_f64));
        }
        for (source, error) in &self.productive {
            put(&format!("productive.{source}.worst"), Some(error.worst.1));
            put(&format!("productive.{source}.mean"), Some(error.mean));
        }
        let healthy = &self.healthy;
        put("healthy.squatters", Some(to_f64(healthy.squatters)));
        put("healthy.critical", Some(to_f64(healthy.critical)));
        put("healthy.alerts_per_gpu_week", (healthy.weeks > 0.0).then(|| to_f64(healthy.alerts) / healthy.weeks));
        put("telemetry.alerts", Some(to_f64(healthy.telemetry)));
        put("pages.per_trouble", self.paged.per_trouble());
        put("variants.missing", Some(count(self.missing.iter())));
        if let Some(soak) = &self.soak {
            put("soak.pages", Some(to_f64(soak.pages)));
            put("soak.findings_per_gpu_week", Some(to_f64(soak.lesser) / soak.weeks.max(1e-9)));
        }
        // A gate without which nothing gets worse is not worth its place.
        put(
            "gates.worthless",
            self.ablations.split_first().map(|(all, without)| {
                let worse = |less: Option<Figure>, whole: Option<Figure>| {
                    less.zip(whole).is_some_and(|(less, whole)| less.value < whole.value)
                };
                let earns = |gate: &&Ablation| worse(gate.precision, all.precision) || worse(gate.recall, all.recall);
                to_f64(u64::try_from(without.iter().filter(|gate| !earns(gate)).count()).unwrap_or(u64::MAX))
            }),
        );
        // By how much the rules are better than the best of the simple ones.
        put("margin.f1", {
            let f1 = |judge: &(String, Option<Figure>, Option<Figure>)| {
                let (p, r) = (judge.1?.value, judge.2?.value);
                Some(2.0 * p * r / (p + r).max(1e-9))
            };
            let ours = self.naive.iter().filter(|judge| judge.0 == "gpuprod").find_map(f1);
            ours.map(|ours| {
                ours - self.naive.iter().filter(|judge| judge.0 != "gpuprod").filter_map(f1).fold(0.0, f64::max)
            })
        });
        all
    }
}

impl GroupScore {
    fn of(group: Group, ran: &[Ran<'_>]) -> Self {
        let ran: Vec<Ran<'_>> = ran.iter().copied().filter(|(variant, _)| variant.group == group).collect();
        Self {
            runs: u64::try_from(ran.len()).unwrap_or(0),
            precision: mean_ratio(&precisions(&ran)),
            recall: mean_ratio(&recalls(&ran)),
            states: states(&ran),
            wrong: wrong(&ran).map(|_| 1).sum(),
        }
    }
}

/// How long a trouble took to be told, if it is one of a kind and was told.
fn took(asked: &Asked, &(_, words, least, _): &Kind) -> Option<u64> {
    let is = words.contains(&asked.word.as_str()) && asked.effect.is_none_or(|effect| effect >= least);
    if least >= LARGE { asked.latency_large.filter(|_| is) } else { asked.latency.filter(|_| is) }
}

/// Kinds of which a trouble was told later than it should have been: name, seconds, target.
pub(crate) fn late(asked: &Asked) -> impl Iterator<Item = (&'static str, u64, u64)> {
    let late = |kind: &Kind| Some((kind.0, took(asked, kind).filter(|took| *took > kind.3)?, kind.3));
    KINDS.iter().filter_map(late)
}

impl Latency {
    fn of(kind: &Kind, ran: &[Ran<'_>]) -> Self {
        let &(name, .., target) = kind;
        let asked = ran.iter().flat_map(|(_, play)| &play.asked);
        let mut seconds: Vec<u64> = asked.filter_map(|asked| took(asked, kind)).collect();
        let n = seconds.len();
        Self { name, target, p50: quantile(&mut seconds, 500), p95: quantile(&mut seconds, 950), n }
    }
}

impl Healthy {
    fn of(ran: &[Ran<'_>]) -> Self {
        let well: Vec<Ran<'_>> = ran.iter().copied().filter(|(variant, _)| variant.group == Group::Healthy).collect();
        let blind: Vec<Ran<'_>> =
            ran.iter().copied().filter(|(variant, _)| variant.group == Group::Telemetry).collect();
        let mut informed = Beginnings::new();
        well.iter().for_each(|(_, play)| add(&mut informed, &play.alerts.2.of));
        Self {
            weeks: weeks(well.iter().map(|(_, play)| play.gpu_seconds).sum()),
            alerts: wrong(&well).map(|_| 1).sum(),
            critical: wrong(&well).filter(|alert| alert.critical).map(|_| 1).sum(),
            squatters: wrong(&well).filter(|alert| alert.by("squatter")).map(|_| 1).sum(),
            telemetry: wrong(&blind).map(|_| 1).sum(),
            informed,
        }
    }
}

fn wrong<'a>(ran: &'a [Ran<'_>]) -> impl Iterator<Item = &'a Alert> {
    let alerts = ran.iter().flat_map(|(_, play)| &play.alerts.0);
    alerts.filter(|alert| matches!(alert.verdict, Verdict::False | Verdict::Again))
}

/// Per run: right alerts of all that count, by rule.
pub(crate) fn precisions(ran: &[Ran<'_>]) -> Vec<Parts> {
    let of = |play: &Play| {
        let counting = play.alerts.0.iter().filter(|alert| alert.verdict != Verdict::Allowed);
        counting.map(|alert| (key(&alert.rule), f64::from(u8::from(alert.verdict == Verdict::Right)), 1.0)).collect()
    };
    ran.iter().map(|(_, play)| of(play)).collect()
}

/// Per run: troubles that were named of all that could be, by the word that was asked for.
pub(crate) fn recalls(ran: &[Ran<'_>]) -> Vec<Parts> {
    let of = |play: &Play| {
        let asked = play.asked.iter().filter(|asked| visible(asked));
        asked.map(|asked| (key(&asked.word), f64::from(u8::from(asked.found)), 1.0)).collect()
    };
    ran.iter().map(|(_, play)| of(play)).collect()
}

/// A small number per word; variants that are asked for beside their rules share one.
fn key(word: &str) -> usize {
    let rules = gpuprod_rules::RuleId::ALL;
    let causes = gpuprod_rules::Cause::ALL;
    let variants = ["seed_signature", "crashed_holder", "orphan", "hung_spin", "zero_yield"];
    let rule = rules.iter().position(|rule| rule.as_str() == word);
    let cause = || causes.iter().position(|cause| cause.as_str() == word).map(|at| at + rules.len());
    let variant = || variants.iter().position(|name| *name == word).map(|at| at + rules.len() + causes.len());
    rule.or_else(cause).or_else(variant).unwrap_or(rules.len() + causes.len() + variants.len())
}

/// Every trouble once: one that is asked for by its rule and then by its variant is not two.
fn once(asked: &[Asked]) -> impl Iterator<Item = &Asked> {
    let causes = gpuprod_rules::RuleId::ALL.len() + gpuprod_rules::Cause::ALL.len();
    asked.iter().enumerate().filter_map(move |(at, it)| {
        let again = key(&it.word) >= causes && asked.iter().take(at).any(|before| before.from == it.from);
        (!again).then_some(it)
    })
}

fn states(ran: &[Ran<'_>]) -> Option<Figure> {
    let of = |play: &Play| {
        let right = play.states.iter().filter(|((right, said), _)| right == said).map(|(_, seconds)| seconds).sum();
        (to_f64(right), to_f64(play.states.values().sum()))
    };
    ratio(&ran.iter().map(|(_, play)| of(play)).collect::<Vec<_>>())
}

fn causes(ran: &[Ran<'_>], group: Group, first: usize) -> Option<Figure> {
    let of = |play: &Play| {
        let right =
            play.causes.iter().filter(|ranked| ranked.said.iter().take(first).any(|said| *said == ranked.right));
        (count(right), count(play.causes.iter()))
    };
    ratio(&ran.iter().filter(|(variant, _)| variant.group == group).map(|(_, play)| of(play)).collect::<Vec<_>>())
}

fn productive(ran: &[Ran<'_>]) -> BTreeMap<&'static str, Productive> {
    let mut errors: BTreeMap<&'static str, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    let mut hours: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (variant, play) in ran {
        for (source, (truth, said, seconds)) in play.productive.iter().filter(|(_, sums)| sums.2 >= 60.0) {
            let error = (said - truth).abs() / base(*truth, *seconds);
            errors.entry(source).or_default().entry(&variant.name).or_default().push(error);
            *hours.entry(source).or_default() += seconds / 3600.0;
        }
    }
    let of = |(source, by): (&'static str, BTreeMap<&str, Vec<f64>>)| {
        let means: Vec<(&str, f64)> = by.iter().map(|(name, errors)| (*name, mean(errors))).collect();
        let worst = means.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(("", 0.0), |worst| *worst);
        let all: Vec<f64> = means.iter().map(|mean| mean.1).collect();
        let hours = hours.get(source).copied().unwrap_or(0.0);
        (source, Productive { mean: mean(&all), worst: (worst.0.to_owned(), worst.1), hours })
    };
    errors.into_iter().map(of).collect()
}

/// What an error of productive seconds is a share of: the truth, or the stretch where next to nothing was done in it.
pub(crate) fn base(truth: f64, seconds: f64) -> f64 {
    if truth >= 0.1 * seconds { truth } else { seconds }
}

/// Found and asked, by the size of the effect.
fn effects(ran: &[Ran<'_>]) -> Vec<(&'static str, u64, u64)> {
    let all = ran.iter().flat_map(|(_, play)| once(&play.asked)).filter(|asked| asked.measured);
    let asked: Vec<(&Asked, f64)> = all.filter_map(|asked| Some((asked, asked.effect?))).collect();
    let sizes = SIZES.iter().map(|(name, from, to)| {
        let of = asked.iter().filter(|(_, effect)| (*from..*to).contains(effect));
        let found = of.clone().filter(|(asked, _)| asked.found);
        (*name, found.map(|_| 1).sum(), of.map(|_| 1).sum())
    });
    sizes.collect()
}

fn naive(ran: &[Ran<'_>]) -> Vec<(String, Option<Figure>, Option<Figure>)> {
    let judges = ran.first().map_or(0, |(_, play)| play.naive.len());
    let of = |at: usize| {
        let told: Vec<_> = ran.iter().filter_map(|(_, play)| play.naive.get(at)).collect();
        let right: Vec<_> = told.iter().map(|told| (to_f64(told.right), to_f64(told.right + told.wrong))).collect();
        let found: Vec<_> = told.iter().map(|told| (to_f64(told.found), to_f64(told.asked))).collect();
        (told.first().map_or(String::new(), |told| told.name.to_owned()), ratio(&right), ratio(&found))
    };
    (0..judges).map(of).collect()
}

fn count(items: impl Iterator) -> f64 {
    to_f64(u64::try_from(items.count()).unwrap_or(u64::MAX))
}
