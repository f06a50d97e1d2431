//! How many answers came later than was promised: what is true of a promise, counted by the engine's simulator.

use gpuprod_sim::{Blame, Scenario, Ticks};

use crate::truth::DETECTABLE;

/// Seconds over which a promise is looked at: shorter rushes are chance, for 95 of 100 requests.
const OVER: usize = 120;

/// First tokens of each engine that has promised something, second by second.
#[derive(Debug, Default)]
pub(crate) struct Answers(Vec<Engine>);

#[derive(Debug)]
struct Engine {
    name: String,
    url: String,
    /// First tokens so far, and the late ones, after each second.
    rows: Vec<(f64, f64)>,
}

impl Answers {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let promised = scenario.works.iter().filter(|work| {
            let traffic = work.traffic.as_ref();
            traffic.is_some_and(|traffic| traffic.promised.is_some())
        });
        let engine = |work: &gpuprod_sim::Work| {
            let url = format!("http://127.0.0.1:{}/metrics", work.port?);
            Some(Engine { name: work.name.clone(), url, rows: Vec::new() })
        };
        Self(promised.filter_map(engine).collect())
    }

    /// The second of the last tick; those that the agent missed are as the one before them.
    pub(crate) fn step(&mut self, second: u64, ticks: &Ticks<'_>) {
        let upto = usize::try_from(second).unwrap_or(0);
        for engine in &mut self.0 {
            let now = ticks.computed(&engine.name).map_or((0.0, 0.0), |done| (done.first, done.late));
            let last = engine.rows.last().copied().unwrap_or_default();
            engine.rows.resize(upto, last);
            engine.rows.push(now);
        }
    }

    /// How badly a promise is broken, where a blame is about one: the largest part of two minutes' answers that were late,
    /// and since when that could be seen.
    pub(crate) fn effect(&self, blame: &Blame) -> Option<(Option<f64>, [u64; 2])> {
        if blame.cause != "latency_class_violation" || self.0.is_empty() {
            return None;
        }
        let (from, to) = (blame.from.0 / 1_000_000_000, blame.to.0 / 1_000_000_000);
        let (begin, end) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        let (mut largest, mut seen) = (0.0, None::<usize>);
        for engine in self.0.iter().filter(|engine| blame.object.as_ref().is_none_or(|object| *object == engine.url)) {
            let rows = engine.rows.get(begin..end.min(engine.rows.len())).unwrap_or_default();
            let late = |over: usize| {
                rows.windows(over + 1).map(|rows| {
                    let [(before, early), (after, late)] = [*rows.first()?, *rows.last()?];
                    (after > before).then(|| (late - early) / (after - before))
                })
            };
            largest = late(OVER).flatten().fold(largest, f64::max);
            let first = late(10).position(|share| share.is_some_and(|share| share >= DETECTABLE));
            seen = [seen, first].into_iter().flatten().min();
        }
        let seen = from + seen.map_or(0, |at| u64::try_from(at).unwrap_or(0));
        Some((Some(largest), [seen; 2]))
    }
}
