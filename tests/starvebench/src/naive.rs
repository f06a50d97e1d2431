//! What people use instead: four judges that are as simple as they look. None of them names a cause, so all that is
//! asked of them is whether something is wrong with the node, at the right time. Ours is asked the same.

use gpuprod_sim::{Blame, Scenario};
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::to_f64;

use crate::alerts::{Alerts, Asked, Verdict};
use crate::play::Told;
use crate::truth::DETECTABLE;

/// An alert that comes so long after the trouble does not count for it.
const LINGERS: u64 = 75;

/// A judge that says of each GPU whether it is bad now.
pub(crate) struct Naive {
    name: &'static str,
    /// It must be bad for so long.
    hold: u64,
    bad: fn(&mut Learnt, &Gpu, &Engine) -> bool,
    gpus: Vec<State>,
    engine: Engine,
    alerts: Vec<(u64, u64)>,
}

#[derive(Default)]
struct State {
    learnt: Learnt,
    since: Option<u64>,
    alert: Option<usize>,
}

/// The mean and spread of the first five minutes, for the judge that knows statistics.
#[derive(Default)]
struct Learnt {
    n: f64,
    values: [(f64, f64); 3],
}

/// What the first engine's page says.
#[derive(Clone, Copy, Debug, Default)]
struct Engine {
    kv: f64,
    waiting: f64,
    running: f64,
    tokens: f64,
    rate: f64,
}

impl Naive {
    /// All of them.
    pub(crate) fn all() -> Vec<Self> {
        let judge =
            |name, hold, bad| Self { name, hold, bad, gpus: Vec::new(), engine: Engine::default(), alerts: Vec::new() };
        vec![
            // The signatures of the queue-instability report, ANDed as printed there.
            judge("fixed thresholds", 60, |_, gpu, engine| {
                let held = share(gpu.mem_used.get().map(|m| m.0), gpu.mem_total.get().map(|m| m.0));
                let squats = util(gpu).is_some_and(|util| util <= 0.05) && held.is_some_and(|held| held > 0.95);
                let full = engine.kv >= 0.999 && engine.waiting > 0.0;
                squats || full || (engine.waiting > 0.0 && engine.running < 1.0)
            }),
            judge("utilization only", 60, |_, gpu, _| util(gpu).is_some_and(|util| util < 0.5)),
            judge("power only", 60, |_, gpu, _| {
                let watts = share(gpu.power.get().map(|p| p.0), gpu.power_limit.get().map(|p| p.0));
                watts.is_some_and(|watts| watts < 0.5)
            }),
            judge("z-score only", 30, |learnt, gpu, engine| {
                let power = gpu.power.get().map_or(0.0, |power| to_f64(power.0));
                learnt.far([util(gpu).unwrap_or(0.0), power, engine.rate])
            }),
        ]
    }

    /// Looks at a tick.
    pub(crate) fn step(&mut self, second: u64, tick: &Tick) {
        if let Some(engines) = tick.engine.as_ref().and_then(|sample| sample.value.get())
            && let Some(engine) = engines.engines.first()
        {
            let count = |value: Option<&u64>| value.map_or(0.0, |value| to_f64(*value));
            let tokens = count(engine.generation_tokens.get());
            self.engine = Engine {
                kv: engine.kv_usage.get().map_or(0.0, |kv| kv.as_fraction()),
                waiting: count(engine.waiting.get()),
                running: count(engine.running.get()),
                rate: (tokens - self.engine.tokens).max(0.0),
                tokens,
            };
        }
        let Some(gpus) = tick.gpu.as_ref().and_then(|sample| sample.value.get()) else { return };
        self.gpus.resize_with(self.gpus.len().max(gpus.devices.len()), State::default);
        for (state, gpu) in self.gpus.iter_mut().zip(&gpus.devices) {
            let bad = (self.bad)(&mut state.learnt, gpu, &self.engine);
            state.since = bad.then_some(state.since.unwrap_or(second));
            match (state.since, state.alert) {
                (Some(since), None) if second >= since + self.hold => {
                    state.alert = Some(self.alerts.len());
                    self.alerts.push((second, second));
                }
                (Some(_), Some(at)) => {
                    if let Some(alert) = self.alerts.get_mut(at) {
                        alert.1 = second;
                    }
                }
                (None, _) => state.alert = None,
                _ => {}
            }
        }
    }

    /// How it did.
    pub(crate) fn told(&self, scenario: &Scenario, asked: &[Asked]) -> Told {
        told(self.name, &self.alerts, scenario, asked)
    }
}

/// How the rules did at the same.
pub(crate) fn ours(alerts: &Alerts, scenario: &Scenario, asked: &[Asked]) -> Told {
    let spans: Vec<(u64, u64)> = alerts.0.iter().map(|alert| (alert.from, alert.to)).collect();
    let mut told = told("gpuprod", &spans, scenario, asked);
    // Ours says more than that something is wrong, and may be wrong in it.
    told.wrong = count(alerts.0.iter().filter(|alert| alert.verdict == Verdict::False));
    told.right = count(alerts.0.iter().filter(|alert| alert.verdict == Verdict::Right));
    told
}

fn told(name: &'static str, spans: &[(u64, u64)], scenario: &Scenario, asked: &[Asked]) -> Told {
    let span = |blame: &Blame| (blame.from.0 / 1_000_000_000, blame.to.0 / 1_000_000_000);
    let meets = |alert: &(u64, u64), blame: &Blame| {
        let (from, to) = span(blame);
        alert.0 < to + LINGERS && alert.1 >= from
    };
    let visible = scenario.blames.iter().zip(asked).filter(|(_, asked)| asked.effect.is_none_or(|e| e >= DETECTABLE));
    // Rules that share a stretch share a trouble.
    let mut troubles: Vec<&Blame> = visible.map(|(blame, _)| blame).collect();
    troubles.dedup_by_key(|blame| (blame.from, blame.to));
    let allowed: Vec<&Blame> = scenario.blames.iter().chain(&scenario.may).collect();
    let right = |alert: &&(u64, u64)| allowed.iter().any(|blame| meets(alert, blame));
    Told {
        name,
        asked: count(troubles.iter()),
        found: count(troubles.iter().filter(|blame| spans.iter().any(|alert| meets(alert, blame)))),
        right: count(spans.iter().filter(right)),
        wrong: count(spans.iter().filter(|alert| !right(alert))),
    }
}

fn count(items: impl Iterator) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}

fn util(gpu: &Gpu) -> Option<f64> {
    gpu.util.get().map(|util| f64::from(util.0) / 1000.0)
}

fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (to_f64(part?), to_f64(whole?));
    (whole > 0.0).then_some(part / whole)
}

impl Learnt {
    /// Whether any of the values is four deviations from its mean.
    fn far(&mut self, values: [f64; 3]) -> bool {
        if self.n < 300.0 {
            self.n += 1.0;
            for ((mean, square), value) in self.values.iter_mut().zip(values) {
                let before = value - *mean;
                *mean += before / self.n;
                *square += before * (value - *mean);
            }
            return false;
        }
        self.values.iter().zip(values).any(|((mean, square), value)| {
            let deviation = (square / self.n).sqrt().max(mean.abs() * 0.01);
            deviation > 0.0 && ((value - mean) / deviation).abs() > 4.0
        })
    }
}
