//! What a workload turns out in a second: by its knobs, or by the requests that drive it.

use super::{Gauges, Wedge};
use crate::scenario::{Knobs, Work};
use crate::twin::Done;
use crate::world::Job;

/// Tokens per request, where knobs say how fast it is.
const TOKENS: f64 = 200.0;

impl Job {
    /// One second of an engine that requests drive: the share of it that went into useful work at full speed. Work that
    /// preemption lost, and second answers to one request, are not useful. Nothing where no requests drive it.
    pub(crate) fn simulate(&mut self, second: u64, speed: f64, demand: f64, drained: bool) -> Option<f64> {
        let sim = self.sim.as_mut()?;
        let before = sim.totals();
        let gauges = if drained {
            sim.drain(second)
        } else {
            sim.second(second, speed, demand, self.pace.wedge.map(|(how, _)| how))
        };
        let totals = sim.totals();
        (self.generated, self.prompt, self.hits) = (totals.generated, totals.prompt, totals.hits);
        (self.finished, self.preempted) = (totals.finished, totals.preempted);
        self.recomputed = totals.recomputed;
        let latencies = sim.latencies.clone();
        (self.ttft, self.itl, self.e2e, self.queue) = (latencies.ttft, latencies.itl, latencies.e2e, latencies.queue);
        self.swapped = sim.swaps().then_some(gauges.swapped);
        self.show(gauges);
        self.busy = Some(gauges.busy);
        self.knobs.util = gauges.busy;
        Some(gauges.busy * totals.useful_since(before))
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_asked(&self) -> bool {
        self.knobs.waiting > 0.0 || (self.pace.wedge.is_some() && self.knobs.running > 0.0)
    }

    fn show(&mut self, gauges: Gauges) {
        (self.knobs.running, self.knobs.waiting, self.knobs.kv) = (gauges.running, gauges.waiting, gauges.kv);
    }

    /// One second of a training job that counts its steps.
    pub(crate) fn step(&mut self, work: &Work, speed: f64, factor: f64) -> Done {
        let steps = if self.knobs.step > 0.0 { speed / self.knobs.step } else { 0.0 };
        self.steps += steps;
        Done { useful: steps * work.knobs.step, possible: factor }
    }

    /// One second by the knobs.
    pub(crate) fn turn_out(&mut self, speed: f64) {
        let knobs = &mut self.knobs;
        match self.pace.wedge {
            Some((Wedge::Admission, _)) => (knobs.waiting, knobs.running) = (knobs.waiting + knobs.running, 0.0),
            Some((Wedge::Kv, _)) => (knobs.running, knobs.kv) = (0.0, 1.0),
            _ if self.pace.sleeps => (knobs.running, knobs.waiting, knobs.kv) = (0.0, 0.0, 0.0),
            _ => {}
        }
        let rate = knobs.rate * speed;
        self.generated += rate;
        self.prompt += knobs.prompt * speed;
        self.hits += knobs.prompt * speed * knobs.hits.min(1.0);
        let requests = rate / TOKENS;
        self.finished += requests;
        self.preempted += knobs.preemptions * speed;
        if rate > 0.0 {
            let between = knobs.running.max(1.0) / rate;
            let queued = knobs.waiting / requests;
            let first = 0.15 / speed.max(0.05) + queued;
            self.itl.observe(between, rate);
            self.ttft.observe(first, requests);
            self.queue.observe(queued, requests);
            self.e2e.observe(first + TOKENS * between, requests);
        }
    }
}

/// An engine's work, against what it could do: its capacity, or what it does at its start.
pub(crate) fn tokens(work: &Work, knobs: &Knobs, speed: f64, factor: f64) -> Done {
    let of = |now: f64, full: f64| if full > 0.0 { now / full } else { 0.0 };
    let share = match (knobs.capacity, work.knobs.rate) {
        (capacity, _) if capacity > 0.0 => of(knobs.rate, capacity),
        (_, rate) if rate > 0.0 => of(knobs.rate, rate),
        _ if work.knobs.prompt > 0.0 => of(knobs.prompt, work.knobs.prompt),
        // It began with nothing to do: whatever it is asked for, it does.
        _ => f64::from(u8::from(knobs.rate + knobs.prompt > 0.0)),
    };
    let asked = if knobs.capacity > 0.0 { 1.0 } else { share };
    Done { useful: share * speed, possible: asked * factor }
}
