//! What was learnt of engines: how fast they go for their batch size, and how that stands to their own normal.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::exact::Exact;
use super::work::{Prefix, work};
use super::{ENOUGH_SECONDS, Signals, Suspect};
use crate::baseline::{Track, Worse};
use crate::fingerprint::Fingerprint;
use crate::window::Window;
use crate::{Policy, entries};

/// The weight of a tick looks back so far: single seconds of a healthy engine are noisy.
const TRAIL: Nanos = Nanos::from_secs(10);
/// Below this part of the utilization that it has at work, an engine pauses between requests.
const PAUSES: f64 = 0.75;

/// What was learnt about an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineSignals {
    /// What the baselines were learnt on. (Flat, so that what an older version has saved keeps its model.)
    #[serde(flatten)]
    pub(crate) print: Box<Fingerprint>,
    /// Work per second (generated tokens, and computed prompt tokens at their discount), by batch: the power of two
    /// below the number of running requests. One sequence is slower than sixteen, and both are healthy.
    #[serde(with = "entries")]
    reference: BTreeMap<u32, Box<Track>>,
    /// Progress as a part of the reference.
    pub(crate) ratio: Track,
    /// The last seconds: end, length in seconds, ratio if there is a reference, work.
    trail: VecDeque<(Nanos, f64, Option<f64>, f64)>,
    /// What is booked of it.
    #[serde(default)]
    exact: Exact,
    /// What its prefix cache spares it.
    #[serde(default)]
    prefix: Prefix,
    /// Utilization of its GPUs in the blocks that taught.
    #[serde(default)]
    busy: f64,
    /// Its GPUs are far less busy than then: demand sets its pace.
    #[serde(default)]
    pauses: bool,
    /// The batch size at hand has no normal: that of its neighbour stands in.
    #[serde(default)]
    guessed: bool,
}

impl Signals {
    pub(super) fn engines(&mut self, window: &Window, suspect: &Suspect, policy: &Policy) {
        let Some((old, new, _)) = window.pair(|tick| &tick.engine) else {
            return;
        };
        for engine in new.engines.iter().filter(|engine| !engine.trains()) {
            let Some(before) = old.engines.iter().find(|before| before.url == engine.url) else {
                continue;
            };
            let signals = match self.engines.get_mut(&engine.url) {
                Some(known) => known,
                None => self.engines.entry(engine.url.clone()).or_insert_with(|| Box::new(EngineSignals::new())),
            };
            let load = match self.load.get_mut(&engine.url) {
                Some(known) => known,
                None => self.load.entry(engine.url.clone()).or_default(),
            };
            if signals.print.see(engine, suspect.seen(&engine.url, window)) {
                signals.renew();
                load.renew();
            }
            signals.step(before, engine, suspect.silicon.get(&engine.url).copied(), policy);
            load.step(before, engine, signals.computed(), policy);
        }
    }
}

impl EngineSignals {
    fn new() -> Self {
        Self {
            print: Box::default(),
            reference: BTreeMap::new(),
            ratio: Track::new(Worse::Lower, ENOUGH_SECONDS),
            trail: VecDeque::new(),
            exact: Exact::default(),
            prefix: Prefix::default(),
            busy: 0.0,
            pauses: false,
            guessed: false,
        }
    }

    /// Another workload has another normal.
    pub(super) fn renew(&mut self) {
        *self = Self { print: core::mem::take(&mut self.print), ..Self::new() };
    }

    /// Ends a block. `busy` is the utilization of its GPUs in it: while they pause, the pace is the demand's, and tells
    /// nothing of what a batch size can do that was never seen at work.
    pub(super) fn close(&mut self, start: Nanos, healthy: bool, busy: Option<f64>, policy: &Policy) {
        self.pauses = busy.is_some_and(|busy| busy < PAUSES * self.busy);
        let mut taught = false;
        for track in self.reference.values_mut() {
            let teaches = !self.pauses || track.mature(policy);
            track.teach(start, healthy && teaches, policy);
            taught |= track.mature(policy);
        }
        if let Some(busy) = busy.filter(|_| healthy && taught) {
            self.busy = self.busy.max(busy);
        }
        self.ratio.close(start, healthy, policy);
    }

    /// Ends a block of its fingerprint, after its own. Whether its normals are too old.
    pub(super) fn ages(&mut self, now: Nanos, healthy: bool) -> bool {
        self.print.close(now, self.ratio.latest().map(|_| healthy))
    }

    /// What stands in for the normal of a batch size that has none: that of the nearest one. A step of fewer sequences
    /// takes as long (decode is bound by memory), so that fewer of them make less in proportion, unless the GPU pauses.
    /// Also whether the batch is larger than that one.
    fn neighbour(&self, running: u64, policy: &Policy) -> Option<(f64, bool)> {
        let batch = running.checked_ilog2()?;
        let known = self
            .reference
            .iter()
            .filter_map(|(batch, track)| Some((*batch, track.normal(policy).filter(|normal| *normal > 0.0)?)));
        let (at, normal) = known.min_by_key(|(known, _)| (known.abs_diff(batch), core::cmp::Reverse(*known)))?;
        if at < batch || self.pauses {
            return Some((normal, at < batch));
        }
        let sequences = 1.5 * to_f64(1_u64.checked_shl(at).unwrap_or(u64::MAX));
        Some((normal * (to_f64(running) / sequences).min(1.0), false))
    }

    /// Its progress is measured against another batch size: nobody is blamed on that.
    pub(crate) const fn is_guessed(&self) -> bool {
        self.guessed
    }

    /// Its GPUs pause between requests, at a batch size that was never seen at work.
    pub(crate) const fn pauses(&self) -> bool {
        self.guessed && self.pauses
    }

    /// Keeps the own normal and drops the present.
    pub(super) fn rest(&mut self) {
        self.reference.values_mut().for_each(|track| track.rest());
        self.ratio.rest();
        self.trail.clear();
        self.exact.rest();
        self.print.rest();
    }

    /// Books what the pages have told until now.
    pub(super) fn book(&mut self, now: Nanos) {
        let fresh = self.is_fresh(now);
        self.exact.book(now, fresh);
    }

    /// `silicon`: how hard its silicon works, as a part of its normal.
    fn step(&mut self, before: &Engine, after: &Engine, silicon: Option<f64>, policy: &Policy) {
        let Some(seconds) = after.at.checked_sub(before.at).filter(|dt| dt.0 > 0).map(Nanos::as_secs_f64) else {
            return;
        };
        while self.trail.front().is_some_and(|(at, ..)| after.at.saturating_sub(*at) >= TRAIL) {
            self.trail.pop_front();
        }
        self.prefix.see(before, after, seconds);
        let Some(work) = work(before, after, self.prefix) else {
            // The counters are gone or began anew: nothing can be said of this step.
            return;
        };
        let rate = work / seconds;
        let running = after.running.copied();
        let ratio = running.filter(|running| *running > 0).and_then(|running| {
            let batch = running.checked_ilog2().unwrap_or(0);
            let reference = self.reference.entry(batch);
            let reference = reference.or_insert_with(|| Box::new(Track::new(Worse::Lower, ENOUGH_SECONDS)));
            reference.add(work, seconds);
            if reference.mature(policy) {
                self.ratio.seed(reference);
            }
            reference.normal(policy).filter(|normal| *normal > 0.0).map(|normal| rate / normal)
        });
        let guess = running.filter(|_| ratio.is_none()).and_then(|running| self.neighbour(running, policy));
        // A batch that grew beyond all that was seen, over silicon that does less in the same time: it grew because the
        // engine is slow, and how slow its silicon says.
        let slow = silicon.filter(|silicon| *silicon < 1.0 && guess.is_some_and(|(_, larger)| larger));
        let ratio = ratio.or(slow);
        self.guessed = ratio.is_none() && guess.is_some();
        if let Some(ratio) = ratio {
            self.ratio.add(ratio * seconds, seconds);
        }
        let ratio = ratio.or_else(|| guess.map(|(normal, _)| rate / normal));
        self.exact.page(ratio, seconds, self.ratio.spread());
        self.trail.push_back((after.at, seconds, ratio, work));
    }

    /// Progress of the last seconds as a part of the own normal; nothing without a reference, or when the last
    /// page is older than the trail.
    pub(crate) fn progress(&self, now: Nanos) -> Option<f64> {
        let (sum, seconds) = self
            .trail
            .iter()
            .filter_map(|(_, seconds, ratio, _)| ratio.map(|ratio| (ratio * seconds, seconds)))
            .fold((0.0, 0.0), |(sum, all), (part, seconds)| (sum + part, all + seconds));
        (self.is_fresh(now) && seconds > 0.0).then(|| sum / seconds)
    }

    /// The part of the prompts that the prefix cache did not have lately.
    pub(crate) fn computed(&self) -> f64 {
        self.prefix.computed()
    }

    /// Whether a page came within the trail.
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.trail.back().is_some_and(|(at, ..)| now.saturating_sub(*at) < TRAIL)
    }

    /// The productive part of the tick at hand, exact over time; nothing without a reference.
    pub(crate) fn exact(&self) -> Option<f64> {
        self.exact.w()
    }

    /// Healthy blocks of the batch size that is known best.
    pub(crate) fn blocks(&self) -> u32 {
        self.reference.values().map(|track| track.blocks()).max().unwrap_or(0)
    }

    /// Work per second over the last seconds.
    pub(crate) fn rate(&self) -> Option<f64> {
        let (work, seconds) =
            self.trail.iter().fold((0.0, 0.0), |(work, all), (_, seconds, _, part)| (work + part, all + seconds));
        (seconds > 0.0).then(|| work / seconds)
    }

    /// The same over no more than so long; nothing when no page came in it.
    pub(crate) fn lately(&self, now: Nanos, span: Nanos) -> Option<f64> {
        let pages = self.trail.iter().filter(|(at, ..)| now.saturating_sub(*at) < span);
        let (work, seconds) = pages.fold((0.0, 0.0), |(work, all), (_, seconds, _, part)| (work + part, all + seconds));
        (seconds > 0.0).then(|| work / seconds)
    }

    /// Ordinary scatter of the ratio: progress within two of these is the normal itself.
    pub(crate) fn scatter(&self) -> f64 {
        self.ratio.spread().max(0.02)
    }
}
