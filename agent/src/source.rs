//! Where ticks come from: this host, second by second, or a recording ([`crate::recording`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpuprod_collectors::runner::Runner;
use gpuprod_collectors::{Collector, Focus, Host, Tick};
use gpuprod_snapshot::units::Nanos;

use crate::clock::{Clock, boottime};

/// Longest sleep: a stop or a jump of the clock (suspend) is noticed within this.
const LOOK: Nanos = Nanos::from_millis(100);

/// A child that is in no call ends within milliseconds.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// Set when the process was asked to end (SIGTERM, SIGINT).
pub type Stop = Arc<AtomicBool>;

/// Ticks of this host on a fixed grid: tick n is due at start + n x period, whatever the ones before took, so
/// that nothing drifts. What was slept through (suspend, a machine without CPU to spare) is left out, never
/// caught up: the ledger books the gap.
pub struct Live {
    runner: Runner,
    clock: Clock,
    stop: Stop,
    period: Nanos,
    /// Time of a tick in which collectors may answer.
    patience: Nanos,
    start: Nanos,
    /// Number of the tick; every k-th asks a collector of period k.
    number: u64,
    /// Where the tick lies on the grid.
    slot: u64,
    /// The last tick starts before this.
    until: Option<Nanos>,
    known: Tick,
    displaced: Tick,
}

impl Live {
    /// Starts the collectors' threads; the first tick is due at once.
    #[must_use]
    pub fn start(host: Host, collectors: Vec<Box<dyn Collector>>, period: Nanos, patience: Nanos, stop: Stop) -> Self {
        let clock = Clock::new(&host);
        Self {
            runner: Runner::start(host, collectors, boottime),
            clock,
            stop,
            period: period.max(Nanos::from_millis(10)),
            patience,
            start: boottime(),
            number: 0,
            slot: 0,
            until: None,
            known: Tick::default(),
            displaced: Tick::default(),
        }
    }

    /// Ends after this long.
    #[must_use]
    pub fn for_time(mut self, time: Nanos) -> Self {
        self.until = Some(self.start.saturating_add(time));
        self
    }

    /// Ends the collectors; those that can close what they hold get a moment for it.
    pub fn end(self) {
        self.runner.end(LAST_MOMENT);
    }

    /// Puts a collector in the place of the one that reads the same source, from the next tick on.
    pub fn replace(&mut self, collector: Box<dyn Collector>) {
        self.runner.replace(collector);
    }

    /// Sleeps until a tick is due; false when it never will be.
    fn wait(&self, due: Nanos) -> bool {
        if self.until.is_some_and(|until| due > until) {
            return false;
        }
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = due.saturating_sub(boottime());
            if left == Nanos(0) {
                return true;
            }
            std::thread::sleep(Duration::from_nanos(left.min(LOOK).0));
        }
    }

    fn due(&self, slot: u64) -> Nanos {
        self.start.saturating_add(Nanos(self.period.0.saturating_mul(slot)))
    }
}

impl Iterator for Live {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        if !self.wait(self.due(self.slot)) {
            return None;
        }
        let mut tick = Tick { period: self.period, ..Tick::default() };
        self.runner.trigger(self.number, &Focus::of(&self.known));
        self.runner.gather(boottime().saturating_add(self.patience), &mut tick);
        tick.stamp = self.clock.stamp();
        self.known.advance(&mut self.displaced, &tick);
        self.number += 1;
        self.slot = next_slot(self.start, self.period, self.slot, tick.stamp.boottime);
        Some(tick)
    }
}

/// The first slot of the grid after the last one that is still to come.
fn next_slot(start: Nanos, period: Nanos, last: u64, now: Nanos) -> u64 {
    let passed = now.saturating_sub(start).0 / period.0.max(1);
    passed.max(last).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    #[test]
    fn the_grid_neither_drifts_nor_catches_up() {
        let start = Nanos::from_secs(100);
        let at = |millis| start.saturating_add(Nanos::from_millis(millis));
        assert_eq!(next_slot(start, S, 0, at(30)), 1);
        assert_eq!(next_slot(start, S, 1, at(1_600)), 2);
        // A tick that took 3.2 s: slots 2 and 3 are gone, 4 is next.
        assert_eq!(next_slot(start, S, 0, at(3_200)), 4);
        // A clock that stepped back never repeats a slot.
        assert_eq!(next_slot(start, S, 5, at(0)), 6);
    }
}
