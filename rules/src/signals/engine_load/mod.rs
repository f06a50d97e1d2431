//! The load of an engine over the last two minutes, as its page told it second by second: what queues, whether it
//! grows, how full the cache is, whether anything moves. Gathered once per engine, looked at by several rules.

pub(crate) mod capacity;
pub(crate) mod latency;
#[cfg(test)]
mod tests;
pub(crate) mod trend;

use alloc::collections::VecDeque;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading};
use serde::{Deserialize, Serialize};

use crate::baseline::push;
use crate::number::Slim;
use crate::{Part, Policy};
use capacity::Capacity;
use latency::Latencies;
use trend::Trend;

const MINUTE: Nanos = Nanos::from_secs(60);
/// Seconds that are kept.
const SECONDS: usize = 120;
const KEPT: Nanos = Nanos::from_secs(120);

/// What happened between two pages, and what the second one showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Second {
    #[serde(rename = "at_ns")]
    pub(crate) at: Nanos,
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    swapped: Slim,
    /// In millionths.
    kv: Slim,
    pub(crate) generated: u32,
    pub(crate) prompt: u32,
    /// Prompt tokens that the prefix cache did not have.
    #[serde(default)]
    pub(crate) computed: f64,
    pub(crate) finished: u32,
    preempted: Slim,
}

impl Second {
    pub(crate) fn swapped(&self) -> Option<u32> {
        self.swapped.get()
    }

    pub(crate) fn kv(&self) -> Option<Part> {
        self.kv.get().map(Part)
    }

    pub(crate) fn preempted(&self) -> Option<u32> {
        self.preempted.get()
    }

    /// Whether the cache was full in it: at its end, or when a request had to give its place up (none does while there is
    /// room; whoever is sampled after it sees the room that it left).
    fn is_full(&self, policy: &Policy) -> bool {
        let preempted = self.preempted().is_some_and(|preempted| preempted > 0);
        self.kv().is_some_and(|kv| preempted || kv >= policy.kv_saturation.full)
    }
}

/// Since when a thing holds without a break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Since(#[serde(rename = "since_ns")] pub(crate) Option<Nanos>);

impl Since {
    fn mark(&mut self, holds: bool, from: Nanos) {
        self.0 = holds.then(|| self.0.unwrap_or(from));
    }
}

/// One engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct EngineLoad {
    pub(crate) seconds: VecDeque<Second>,
    /// Its process, by its start; when another one was first seen in its place.
    process: Option<Nanos>,
    pub(crate) replaced: Option<Nanos>,
    /// The first page of this process.
    pub(crate) first: Option<Nanos>,
    /// It has given tokens since it was first seen.
    pub(crate) served: bool,
    /// Requests are in execution and no counter moves, nor the cache.
    pub(crate) frozen: Since,
    /// No number of the page moves at all, with requests in it.
    pub(crate) page_frozen: Since,
    /// Requests wait and none is in execution.
    pub(crate) unadmitted: Since,
    /// The cache is full and nothing is in execution.
    pub(crate) dead_full: Since,
    /// The page times out; the last one had requests in it.
    pub(crate) silent: Since,
    /// The cache has been full in most seconds.
    pub(crate) full: Since,
    /// Nothing runs and nothing waits.
    #[serde(default)]
    pub(crate) idle: Since,
    pub(crate) trend: Option<Trend>,
    /// The queue has grown faster and faster, in this episode.
    pub(crate) accelerating: bool,
    pub(crate) growing: Since,
    pub(crate) latencies: Latencies,
    /// What it can do and what it is asked for.
    #[serde(default)]
    pub(crate) capacity: Capacity,
    /// It has had far more room than its bursts take.
    #[serde(default)]
    pub(crate) roomy: Since,
    /// Tokens that its KV cache holds.
    #[serde(default)]
    slots: Option<u64>,
    #[serde(default)]
    pub(crate) lately: Lately,
    #[serde(default)]
    pub(crate) backlog: Option<Backlog>,
}

/// What something that slowed the engine down has left in its queue and cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Backlog {
    /// Requests that waited before.
    waiting: u32,
    /// It has been over since.
    #[serde(rename = "over_since_ns")]
    over: Option<Nanos>,
}

/// What rules ask of the last stretch for each GPU of the engine: worked out once per page. None while less than half of
/// the stretch was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lately {
    /// Part of the last minute in which the cache was full.
    pub(crate) full: Option<Part>,
    /// Part of `preemption_thrash.for_ns` in which requests were swapped out.
    pub(crate) swapped: Option<Part>,
    /// Preemptions per second in the same stretch.
    pub(crate) preempted: Option<f64>,
}

fn held(reading: &Reading<u64>) -> Option<u32> {
    reading.copied().map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

/// Growth of a counter; none when it stepped back, zero when it is not there.
fn grown(before: &Reading<u64>, after: &Reading<u64>) -> Option<u32> {
    match (before.copied(), after.copied()) {
        (Some(before), Some(after)) => Some(u32::try_from(after.checked_sub(before)?).unwrap_or(u32::MAX)),
        _ => Some(0),
    }
}

impl EngineLoad {
    /// Takes in two pages that follow each other. `computed` is the part of the prompts that the prefix cache did not have.
    pub(crate) fn step(&mut self, before: &Engine, after: &Engine, computed: f64, policy: &Policy) {
        let asked = self.seconds.back().is_some_and(|last| last.running > 0 || last.waiting > 0);
        self.silent.mark(after.page.missing() == Some(Missing::TimedOut) && asked, before.at);
        if after.page.get().is_none() {
            return;
        }
        self.identify(after);
        let (Some(running), Some(waiting)) = (held(&after.running), held(&after.waiting)) else { return };
        let (Some(generated), Some(prompt), Some(finished), Some(preempted)) = (
            grown(&before.generation_tokens, &after.generation_tokens),
            grown(&before.prompt_tokens, &after.prompt_tokens),
            grown(&before.requests_success, &after.requests_success),
            grown(&before.preemptions, &after.preemptions),
        ) else {
            // Its counters began anew: another process.
            let mut fresh = self.kept();
            (fresh.process, fresh.replaced) = (self.process, Some(after.at));
            *self = fresh;
            return;
        };
        let kv = after.kv_usage.copied().map(|usage| Part::from_fraction(usage.as_fraction()));
        let last = self.seconds.back().copied();
        let second = Second {
            at: after.at,
            running,
            waiting,
            swapped: held(&after.swapped).into(),
            kv: kv.map(|kv| kv.0).into(),
            generated,
            prompt,
            computed: f64::from(prompt) * computed,
            finished,
            preempted: after.preemptions.get().map(|_| preempted).into(),
        };
        if let Some(last) = last {
            self.capacity.step(last, second);
        }
        self.slots = after.kv_capacity_tokens.copied().or(self.slots);
        self.served |= generated > 0 || finished > 0;
        let counters = after.generation_tokens.get().is_some() || after.prompt_tokens.get().is_some();
        let moved = !counters || generated > 0 || prompt > 0 || finished > 0;
        // A long prompt moves no counter until it is through; the cache that it fills does.
        let still = !moved && last.is_some_and(|last| last.kv() == kv);
        let same = last.is_some_and(|last| last.running == running && last.waiting == waiting);
        let from = last.map_or(after.at, |last| last.at);
        let full = kv.is_some_and(|kv| kv >= policy.kv_saturation.full);
        self.frozen.mark(still && running > 0, from);
        self.page_frozen.mark(still && same && running.saturating_add(waiting) > 0, from);
        self.unadmitted.mark(!moved && running == 0 && waiting > 0, from);
        self.idle.mark(running == 0 && waiting == 0 && !moved, from);
        self.dead_full.mark(!moved && running == 0 && full, from);
        push(&mut self.seconds, second, SECONDS);
        while self.seconds.front().is_some_and(|first| after.at.saturating_sub(first.at) > KEPT) {
            self.seconds.pop_front();
        }
        self.latencies.add(before, after);
        let thrash = policy.preemption_thrash.for_ns;
        self.lately = Lately {
            full: self.share(MINUTE, |second| second.is_full(policy)),
            swapped: self.share(thrash, |second| second.swapped().is_some_and(|swapped| swapped > 0)),
            preempted: self.rate(thrash, |second| second.preempted().unwrap_or(0)),
        };
    }

    fn identify(&mut self, page: &Engine) {
        let started = page.started.copied();
        if let (Some(old), Some(new)) = (self.process, started)
            && old != new
        {
            self.replaced = Some(page.at);
            (self.first, self.served) = (None, false);
        }
        self.process = started.or(self.process);
        self.first = self.first.or(Some(page.at));
    }

    /// Ends a block: what need not be known every second is worked out here.
    /// `slowed`: since when something other than its load has slowed it down, while it does.
    pub(crate) fn close(&mut self, start: Nanos, healthy: bool, slowed: Option<Nanos>, policy: &Policy) {
        self.limit(healthy);
        self.remember(start, slowed, policy);
        let room = crate::serving::room(self, policy);
        self.roomy.mark(room.is_some_and(|room| room.usable > policy.headroom_breach.spare * room.needed), start);
        self.latencies.close(start, healthy, policy);
        let share = self.share(MINUTE, |second| second.is_full(policy));
        self.full.mark(share.is_some_and(|share| share >= policy.kv_saturation.share), start);
        self.trend = trend::of(&self.seconds, policy);
        let growing = self.trend.as_ref().is_some_and(|trend| trend.slope > 0);
        self.growing.mark(growing, start);
        let faster = self.trend.as_ref().is_some_and(|trend| trend.accelerates);
        self.accelerating = growing && (self.accelerating || faster);
    }

    /// Until the queue was as short as before the trouble for a minute, and the cache had room, both are what it left, for a
    /// while.
    fn remember(&mut self, now: Nanos, slowed: Option<Nanos>, policy: &Policy) {
        if let Some(since) = slowed {
            let before = || self.seconds.iter().rfind(|second| second.at <= since).map_or(0, |second| second.waiting);
            let waiting = self.backlog.map_or_else(before, |backlog| backlog.waiting);
            self.backlog = Some(Backlog { waiting, over: None });
        }
        let Some(Backlog { waiting, over }) = self.backlog.filter(|_| slowed.is_none()) else { return };
        let since = over.unwrap_or(now);
        let drained = self.share(MINUTE, |second| second.waiting > waiting || second.is_full(policy)) == Some(Part(0));
        let old = now.saturating_sub(since) >= policy.queue_instability.backlog_ns;
        self.backlog = (!drained && !old).then_some(Backlog { waiting, over: Some(since) });
    }

    /// Another agent goes on: own normals stay, and whose they are, so that an update in the meantime is one.
    pub(crate) fn rest(&mut self) {
        let mut fresh = Self { process: self.process, ..self.kept() };
        fresh.latencies.rest();
        *self = fresh;
    }

    /// Another workload has other latencies, and can do other things; who asks for them is the same.
    pub(crate) fn renew(&mut self) {
        self.latencies = Latencies::default();
        self.capacity.renew();
    }

    /// What another process of the same engine takes over.
    fn kept(&mut self) -> Self {
        let mut capacity = core::mem::take(&mut self.capacity);
        capacity.rest();
        Self { latencies: core::mem::take(&mut self.latencies), capacity, ..Self::default() }
    }

    /// The seconds of the last stretch.
    pub(crate) fn last(&self, stretch: Nanos) -> impl Iterator<Item = &Second> + '_ {
        let end = self.seconds.back().map(|second| second.at);
        self.seconds
            .iter()
            .rev()
            .take_while(move |second| end.is_some_and(|end| end.saturating_sub(second.at) < stretch))
    }

    /// Part of the seconds of the last stretch for which something holds; none while less than half of it was seen.
    pub(crate) fn share(&self, stretch: Nanos, holds: impl Fn(&Second) -> bool) -> Option<Part> {
        let (mut all, mut some, mut first) = (0_u64, 0_u64, None);
        for second in self.last(stretch) {
            all += 1;
            some += u64::from(holds(second));
            first = Some(second.at);
        }
        let seen = self.seconds.back()?.at.saturating_sub(first?);
        (seen.0.saturating_mul(2) >= stretch.0)
            .then(|| Part(u32::try_from(some.saturating_mul(1_000_000) / all.max(1)).unwrap_or(0)))
    }

    /// Sum over the last stretch, per second; none while less than half of it was seen.
    pub(crate) fn rate(&self, stretch: Nanos, of: impl Fn(&Second) -> u32) -> Option<f64> {
        let (mut sum, mut first) = (0_u64, None);
        for second in self.last(stretch) {
            sum = sum.saturating_add(u64::from(of(second)));
            first = Some(second.at);
        }
        let seen = self.seconds.back()?.at.saturating_sub(first?);
        (seen.0 > 0 && seen.0.saturating_mul(2) >= stretch.0)
            .then(|| gpuprod_snapshot::units::to_f64(sum) / seen.as_secs_f64())
    }

    /// How long the queue takes at the pace of the last minute; none when nothing finishes.
    pub(crate) fn drain(&self) -> Option<Nanos> {
        let waiting = self.seconds.back()?.waiting;
        let pace = self.rate(Nanos::from_secs(60), |second| second.finished).filter(|pace| *pace > 0.0)?;
        gpuprod_snapshot::units::from_f64(f64::from(waiting) / pace * 1e9).map(Nanos)
    }

    /// Whether the last page is younger than three seconds' worth of pages.
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.seconds.back().is_some_and(|last| now.saturating_sub(last.at) < Nanos::from_secs(15))
    }
}
