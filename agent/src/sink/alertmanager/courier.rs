//! What is due at one Alertmanager. Pure: instants come in, posts go out; delivery says how they fared.

use std::collections::BTreeMap;

use gpuprod_snapshot::units::Nanos;

use super::body::{Item, Postable};

/// After a failure: at first so long, then twice as long each time.
const FIRST: Nanos = Nanos::from_secs(1);
/// Never longer than this.
const LONGEST: Nanos = Nanos::from_secs(60);
/// A firing alert runs out after so many repeats: it survives failures in between, and a node that dies does not
/// leave it standing for long.
const REPEATS: u64 = 4;

/// An instant on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Measures time.
    pub boottime: Nanos,
    /// Is written into alerts.
    pub realtime: Nanos,
}

/// Remembers what one Alertmanager was told.
#[derive(Debug)]
pub struct Courier {
    repeat: Nanos,
    told: BTreeMap<BTreeMap<&'static str, String>, Told>,
    /// Failures in a row.
    failures: u32,
    not_before: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    over: bool,
    at: Nanos,
}

impl Courier {
    /// Has told nothing yet.
    #[must_use]
    pub fn new(repeat: Nanos) -> Self {
        Self { repeat, told: BTreeMap::new(), failures: 0, not_before: Nanos(0) }
    }

    /// What must be posted now: everything, when anything is due, so that one beat serves all. Empty: nothing.
    #[must_use]
    pub fn due(&self, items: &[Item], now: Now) -> Vec<Postable> {
        let due = now.boottime >= self.not_before && items.iter().any(|item| self.due_at(item) <= now.boottime);
        if !due {
            return Vec::new();
        }
        let valid = Nanos(self.repeat.0.saturating_mul(REPEATS));
        items.iter().map(|item| item.postable(now.realtime, valid)).collect()
    }

    /// How long to wait for the next beat, unless the list changes before.
    #[must_use]
    pub fn wait(&self, items: &[Item], now: Now) -> Nanos {
        let next = items.iter().map(|item| self.due_at(item)).min();
        let next = next.map_or(self.repeat, |at| at.max(self.not_before).saturating_sub(now.boottime));
        next.clamp(Nanos::from_millis(100), LONGEST)
    }

    /// They were taken.
    pub fn taken(&mut self, items: &[Item], now: Now) {
        let told = |item: &Item| (item.labels.clone(), Told { over: item.ended_at.is_some(), at: now.boottime });
        self.told = items.iter().map(told).collect();
        self.failures = 0;
        self.not_before = Nanos(0);
    }

    /// They were not.
    pub fn failed(&mut self, now: Now) {
        let wait = FIRST.0.saturating_mul(1 << self.failures.min(6)).min(LONGEST.0);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.boottime.saturating_add(Nanos(wait));
    }

    fn due_at(&self, item: &Item) -> Nanos {
        match self.told.get(&item.labels) {
            Some(told) if told.over == item.ended_at.is_some() => told.at.saturating_add(self.repeat),
            _ => Nanos(0),
        }
    }
}
