//! An LLM serving engine in small: requests arrive as they did in public traces, are batched continuously, share a
//! paged KV cache, and are preempted when it is full. It gives what an engine's page shows, second by second, and the
//! work that was useful.
//!
//! The step time is the toy engine's that the published queue shapes were computed with: 18 ms, 0.12 ms per request
//! in the batch, and a second per 20,000 prompt tokens.

mod arrivals;
mod batch;
pub(crate) mod events;
mod job;
#[cfg(test)]
mod tests;

pub(crate) use arrivals::Arrivals;
pub use arrivals::{Trace, Traffic};
use batch::Batch;
pub(crate) use batch::Totals;
pub(crate) use job::tokens;

use crate::hist::Hist;
use crate::words::float;

/// How an engine is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wedge {
    /// Requests stay in execution, none moves; others queue up.
    Running,
    /// Requests wait and none is admitted.
    Admission,
    /// Nothing runs and the KV cache stays full.
    Kv,
    /// Every number of the page stands still.
    Page,
    /// The page is not answered in time.
    Timeout,
}

impl Wedge {
    /// By its word.
    pub(crate) const ALL: &'static [(&'static str, Self)] = &[
        ("running", Self::Running),
        ("admission", Self::Admission),
        ("kv", Self::Kv),
        ("page", Self::Page),
        ("timeout", Self::Timeout),
    ];
}

/// Histograms of the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    pub(crate) ttft: Hist,
    pub(crate) itl: Hist,
    pub(crate) e2e: Hist,
    pub(crate) queue: Hist,
}

/// What the page shows beside its counters, at the end of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gauges {
    pub(crate) running: f64,
    pub(crate) waiting: f64,
    pub(crate) swapped: f64,
    /// Share of the cache.
    pub(crate) kv: f64,
    /// Share of the second in which a step ran.
    pub(crate) busy: f64,
}

/// An engine and its arrivals.
#[derive(Clone, Debug)]
pub(crate) struct EngineSim {
    arrivals: Arrivals,
    batch: Batch,
    pub(crate) latencies: Latencies,
    gauges: Gauges,
}

impl EngineSim {
    pub(crate) fn new(traffic: &Traffic, seed: u64, second: u64) -> Self {
        Self {
            arrivals: Arrivals::new(traffic, seed, second),
            batch: Batch::new(traffic, float(usize::try_from(second).unwrap_or(0))),
            latencies: Latencies::default(),
            gauges: Gauges::default(),
        }
    }

    pub(crate) const fn swaps(&self) -> bool {
        self.batch.swaps()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.batch.totals
    }

    /// One second passes. `speed` is the share of its speed that the engine has, `demand` a factor on the arrivals.
    pub(crate) fn second(&mut self, second: u64, speed: f64, demand: f64, wedge: Option<Wedge>) -> Gauges {
        let new = self.arrivals.second(second, demand);
        let until = float(usize::try_from(second).unwrap_or(0)) + 1.0;
        match wedge {
            None => {
                let busy = self.batch.run(until, speed, new, &mut self.latencies);
                self.gauges = self.batch.gauges(busy);
            }
            // Nobody gets through to it any more, or nobody sees it.
            Some(Wedge::Page | Wedge::Timeout) => self.batch.skip(until),
            Some(how) => {
                self.batch.queue(until, new);
                let now = self.batch.gauges(0.0);
                let waiting = now.waiting.max(1.0);
                self.gauges = match how {
                    Wedge::Admission => Gauges { running: 0.0, kv: 0.0, waiting: now.waiting + now.running, ..now },
                    Wedge::Kv => Gauges { running: 0.0, kv: 1.0, waiting, ..now },
                    _ => now,
                };
            }
        }
        self.gauges
    }

    /// Drops everything that it holds: it sleeps.
    pub(crate) fn drain(&mut self, second: u64) -> Gauges {
        self.batch.clear(float(usize::try_from(second).unwrap_or(0)) + 1.0);
        self.gauges = Gauges::default();
        self.gauges
    }
}
