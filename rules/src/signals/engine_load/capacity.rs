//! What an engine can do, what it is asked for, and how much more may come at once: the inputs of capacity planning and
//! of its headroom. Capacity is what it did while requests waited for ten seconds and nothing was wrong: then it did all
//! that it could. An engine that was never at its limit has an unknown capacity.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::{EngineLoad, Second};
use crate::baseline::push;

/// Bursts are measured over so long: a replica takes about that long to be there.
pub(crate) const WINDOW: Nanos = Nanos::from_secs(60);
/// Windows that are kept: four hours.
const WINDOWS: usize = 240;
/// Fewer tell no burst: half an hour.
const ENOUGH_WINDOWS: usize = 30;
/// Blocks at the limit that are kept, and how many are needed.
const BLOCKS: usize = 120;
const ENOUGH_BLOCKS: usize = 6;
/// Requests must wait for so long.
const AT_LIMIT: Nanos = Nanos::from_secs(10);

/// Tokens per second: prompt tokens that are computed, and generated ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
}

impl Rates {
    /// What part of `full` it is, by the phase that is nearer to its end.
    pub(crate) fn of(self, full: Self) -> f64 {
        let parts = [part(self.prefill, full.prefill), part(self.decode, full.decode)];
        parts.into_iter().flatten().fold(0.0, f64::max)
    }
}

/// A rate as a part of the most that was seen of it.
pub(crate) fn part(now: f64, full: f64) -> Option<f64> {
    (full > 0.0).then(|| now / full)
}

/// What was learnt of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Capacity {
    /// Rates of blocks at the limit.
    limit: VecDeque<Rates>,
    /// Requests that came, by window.
    windows: VecDeque<u32>,
    /// The window under way: its beginning, and requests that came in it. Fewer than none: clients went away.
    #[serde(rename = "open_ns")]
    open: Option<(Nanos, i64)>,
    /// The 90th percentile of the rates at the limit: the most that it does. None until it was seen there.
    pub(crate) most: Option<Rates>,
    /// How many times its mean a window has in the worst of a hundred; none until half an hour was seen.
    pub(crate) burst: Option<f64>,
    /// Tokens in the cache per request that runs, in the last block.
    pub(crate) held: Option<f64>,
}

impl Capacity {
    /// Takes in a page and the one before it.
    pub(super) fn step(&mut self, before: Second, now: Second) {
        let inside = |second: Second| {
            i64::from(second.running) + i64::from(second.waiting) + i64::from(second.swapped().unwrap_or(0))
        };
        let came = inside(now) - inside(before) + i64::from(now.finished);
        let (since, sum) = self.open.unwrap_or((before.at, 0));
        self.open = Some((since, sum.saturating_add(came)));
        let length = now.at.saturating_sub(since);
        if length < WINDOW {
            return;
        }
        self.open = Some((now.at, 0));
        // A window with a gap in it is none.
        if length < WINDOW.saturating_add(AT_LIMIT) {
            push(&mut self.windows, u32::try_from(sum.saturating_add(came)).unwrap_or(0), WINDOWS);
            self.burst = self.worst_over_mean();
        }
    }

    fn at_limit(&mut self, rates: Rates) {
        push(&mut self.limit, rates, BLOCKS);
        self.most = (self.limit.len() >= ENOUGH_BLOCKS).then(|| Rates {
            prefill: percentile(self.limit.iter().map(|rates| rates.prefill), 90),
            decode: percentile(self.limit.iter().map(|rates| rates.decode), 90),
        });
    }

    /// Requests per second in the last window.
    pub(crate) fn arrivals(&self) -> Option<f64> {
        self.windows.back().map(|came| f64::from(*came) / WINDOW.as_secs_f64())
    }

    fn worst_over_mean(&self) -> Option<f64> {
        let sum: f64 = self.windows.iter().map(|came| f64::from(*came)).sum();
        let mean = sum / to_f64(u64::try_from(self.windows.len()).ok()?.max(1));
        let worst = percentile(self.windows.iter().map(|came| f64::from(*came)), 99);
        (self.windows.len() >= ENOUGH_WINDOWS && mean > 0.0).then(|| (worst / mean).max(1.0))
    }

    /// Another agent goes on: what was learnt stays.
    pub(super) fn rest(&mut self) {
        (self.open, self.held) = (None, None);
    }

    /// Another workload can do other things; what it is asked for goes on.
    pub(super) fn renew(&mut self) {
        (self.limit, self.most, self.held) = (VecDeque::new(), None, None);
    }
}

impl EngineLoad {
    /// Ends a block.
    pub(super) fn limit(&mut self, healthy: bool) {
        let slots = self.slots.map_or(0.0, to_f64);
        let (mut all, mut waited, mut tokens, mut running) = (0_u64, 0_u64, 0.0, 0.0);
        for second in self.last(AT_LIMIT) {
            all += 1;
            waited += u64::from(second.waiting > 0 && second.running > 0);
            tokens += second.kv().map_or(0.0, |kv| kv.as_fraction()) * slots;
            running += f64::from(second.running);
        }
        self.capacity.held = (running > 0.0 && tokens > 0.0).then(|| tokens / running);
        let at_limit = healthy && all > 1 && waited == all;
        if let Some(rates) = self.rates(AT_LIMIT).filter(|_| at_limit) {
            self.capacity.at_limit(rates);
        }
    }

    /// Tokens per second over the last stretch; none while less than half of it was seen.
    pub(crate) fn rates(&self, stretch: Nanos) -> Option<Rates> {
        let (mut prefill, mut decode, mut first) = (0.0, 0.0, None::<&Second>);
        for second in self.last(stretch) {
            // What the first page brought came before it.
            if let Some(later) = first.replace(second) {
                prefill += later.computed;
                decode += f64::from(later.generated);
            }
        }
        let seen = self.seconds.back()?.at.saturating_sub(first?.at);
        let seconds = seen.as_secs_f64();
        (seconds > 0.0 && seen.0.saturating_mul(2) >= stretch.0)
            .then(|| Rates { prefill: prefill / seconds, decode: decode / seconds })
    }
}

/// By rank; 0 of nothing.
fn percentile(values: impl Iterator<Item = f64>, of: usize) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (sorted.len() * of).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}
