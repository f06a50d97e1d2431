//! What a unit did lately, and since when it has stood still, spun, waited, or been held by the dead.
//!
//! Readings are gathered into blocks, as everywhere: the mean of a block decides, never a single reading. A block
//! with too few readings says nothing; it neither ends a spell nor makes it longer, and after two of them the
//! spell is forgotten: what nobody saw is not held against anybody.

use alloc::collections::BTreeMap;
use alloc::string::String;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::signals::checkpoints;
use crate::signals::waits::Waits;
use crate::{Policy, entries};

/// So many blocks without a reading are bridged.
const BRIDGED: u64 = 2;
/// Holders that are remembered: to know a dead one, one must have seen it alive.
const MOST_HOLDERS: usize = 64;

/// Since when something has held without a break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spell {
    since: Option<Nanos>,
    seen: Nanos,
}

impl Spell {
    pub(crate) fn mark(&mut self, holds: Option<bool>, from: Nanos, now: Nanos, slack: Nanos) {
        if now < self.seen || now.saturating_sub(self.seen) > slack {
            self.since = None;
        }
        match holds {
            Some(true) => {
                self.since.get_or_insert(from);
                self.seen = now;
            }
            Some(false) => self.since = None,
            None => {}
        }
    }

    pub(crate) const fn since(&self) -> Option<Nanos> {
        self.since
    }

    /// Whether it has lasted so long, and since when.
    pub(crate) fn lasts(&self, now: Nanos, least: Nanos) -> Option<Nanos> {
        self.since.filter(|since| now.saturating_sub(*since) >= least)
    }
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    n: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value;
            self.n = self.n.saturating_add(1);
        }
    }

    /// Of a block with so many ticks: half of them must have spoken.
    fn of(self, ticks: u32) -> Option<f64> {
        (self.n > 0 && self.n.saturating_mul(2) >= ticks).then(|| self.sum / f64::from(self.n))
    }
}

/// One value per signal.
macro_rules! signals {
    ($($(#[$meta:meta])* $field:ident),+ $(,)?) => {
        /// The readings of one tick, or the means of one block.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub(crate) struct Readings { $($(#[$meta])* pub(crate) $field: Option<f64>,)+ }

        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        struct Means { $($field: Mean,)+ }

        impl Means {
            fn add(&mut self, readings: &Readings) { $(self.$field.add(readings.$field);)+ }
            fn of(&self, ticks: u32) -> Readings { Readings { $($field: self.$field.of(ticks),)+ } }
        }
    };
}

signals! {
    /// Utilization; of a MIG instance there is none.
    util,
    /// SMs with a warp.
    sm,
    /// Tensor pipes.
    tensor,
    /// DRAM interface.
    dram,
    /// Board power as a part of the limit in force.
    power,
    /// SM clock as a part of the largest.
    clock,
    /// Bytes per second over PCIe and NVLink.
    links,
    /// Memory in use, as a part of what a workload can have.
    memory,
    /// Bytes per second that the workload reads and writes, page cache included.
    io,
    /// Bytes per second that the workload writes.
    written,
    /// CPUs that the workload keeps busy.
    cpus,
    /// Work per second of the engine.
    work,
    /// Steps per second of the training job.
    steps,
    /// Share of time in which some task of the workload waited for I/O.
    io_some,
    /// One when threads of the workload are blocked in an I/O path, else zero.
    blocked,
    /// One when they are blocked in a network file system's path, else zero.
    blocked_remote,
    /// One when utilization reads 0 while the page counts work and the board draws the power of work, else zero.
    dead,
}

/// How a holder's end showed. In the order in which it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum End {
    /// It is a zombie, or it is gone.
    Dead,
    /// Its cgroup was removed: the job is over.
    CgroupGone,
    /// The site's scheduler says that its job has ended.
    JobOver,
    /// The engine that it served answers no more.
    EngineGone,
    /// Its parent died.
    Reparented,
}

/// What is known of a holder of the unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) start: Option<Nanos>,
    /// The parent that it had first.
    pub(crate) parent: Option<u32>,
}

/// What the processes that hold the unit tell, at one tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Life {
    /// How the holders ended, if all of them did; nothing when they cannot be looked at.
    pub(crate) end: Option<Option<End>>,
    /// A holder is blocked in the driver.
    pub(crate) wedged: Option<bool>,
    /// The page of the engine that the unit served is refused.
    pub(crate) refused: Option<bool>,
}

/// What a unit remembers of its use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    open: Option<u64>,
    ticks: u32,
    means: Means,
    /// The last block.
    pub(crate) block: Readings,
    /// How much it waits for I/O when nothing is wrong.
    pub(crate) calm: Waits,
    /// Nothing runs, nothing moves.
    pub(crate) still: Spell,
    /// File I/O and CPUs of the minute under way while the GPU is still, and its blocks.
    minute: (f64, f64, u32),
    /// CPUs that its workload kept busy in the last such minute.
    pub(crate) computes: Option<f64>,
    /// Kernels are resident and do nothing.
    pub(crate) spins: Spell,
    spin_low: f64,
    spin_high: f64,
    /// The GPU has little to do.
    pub(crate) hungry: Spell,
    /// The workload waits for I/O.
    pub(crate) waits: Spell,
    /// The workload waits for a network file system.
    pub(crate) waits_remote: Spell,
    /// The workload writes at a rate of checkpoints.
    pub(crate) writes: Spell,
    /// All holders have ended.
    pub(crate) ended: Spell,
    pub(crate) end: Option<End>,
    /// A holder hangs in the driver.
    pub(crate) wedged: Spell,
    pub(crate) refused: Spell,
    /// Near its power limit without use.
    pub(crate) hot: Spell,
    /// Utilization reads 0 in every block, and everything else says that it works.
    pub(crate) dead: Spell,
    /// Holders that were seen in the process table.
    #[serde(with = "entries")]
    pub(crate) seen: BTreeMap<u32, Seen>,
    /// The engine that answered for the present holders, and when it last did.
    pub(crate) served: Option<String>,
    pub(crate) answered: Option<Nanos>,
    /// When a holder was last seen stopped.
    pub(crate) stopped: Option<Nanos>,
}

impl Usage {
    /// The number of the block that is open: another one means that `block` is new.
    pub(crate) const fn opened(&self) -> Option<u64> {
        self.open
    }

    /// Takes in a tick.
    pub(crate) fn step(&mut self, now: Nanos, readings: &Readings, life: &Life, policy: &Policy) {
        let length = policy.block_ns.0.max(1);
        let block = now.0 / length;
        let slack = Nanos(length.saturating_mul(BRIDGED + 1));
        match self.open {
            Some(open) if open != block => {
                self.close(
                    Nanos(open.saturating_mul(length)),
                    Nanos(open.saturating_add(1).saturating_mul(length)),
                    slack,
                    policy,
                );
                self.open = Some(block);
            }
            None => self.open = Some(block),
            Some(_) => {}
        }
        self.ticks = self.ticks.saturating_add(1);
        self.means.add(readings);
        let end = life.end.map(|end| end.is_some());
        self.ended.mark(end, now, now, slack);
        if let Some(end) = life.end {
            self.end = end;
        }
        self.wedged.mark(life.wedged, now, now, slack);
        self.refused.mark(life.refused, now, now, slack);
    }

    fn close(&mut self, from: Nanos, to: Nanos, slack: Nanos, policy: &Policy) {
        let block = self.means.of(self.ticks);
        (self.means, self.ticks) = (Means::default(), 0);
        let rising = match (self.block.memory, block.memory) {
            (Some(before), Some(after)) => after - before >= MEMORY_RISES,
            _ => false,
        };
        let is = block.judge(policy);
        let still = self.quiet(is.still.map(|still| still && !rising), &block, policy);
        self.still.mark(still, from, to, slack);
        self.spin(is.spins, block.util, from, to, slack);
        self.hungry.mark(is.hungry, from, to, slack);
        self.waits.mark(is.waits, from, to, slack);
        self.waits_remote.mark(
            block.blocked_remote.map(|share| share >= policy.io_stall.wait_blocked.as_fraction()),
            from,
            to,
            slack,
        );
        self.writes.mark(block.written.map(|rate| rate >= checkpoints::RATE), from, to, slack);
        self.hot.mark(block.power_share().map(|share| share >= NEAR_LIMIT), from, to, slack);
        self.dead.mark(block.dead.map(|share| share >= 1.0), from, to, slack);
        self.block = block;
    }

    /// Whether a GPU that is still is of a workload that moves no files: over a minute, since who loads or saves does it in
    /// bursts.
    fn quiet(&mut self, still: Option<bool>, block: &Readings, policy: &Policy) -> Option<bool> {
        if still == Some(false) {
            (self.minute, self.computes) = ((0.0, 0.0, 0), None);
        }
        if still != Some(true) {
            return still;
        }
        let (io, cpus, blocks) = self.minute;
        let (io, cpus, blocks) = (io + block.io.unwrap_or(0.0), cpus + block.cpus.unwrap_or(0.0), blocks + 1);
        self.minute = (io, cpus, blocks);
        if policy.block_ns.0.saturating_mul(u64::from(blocks)) < MINUTE.0 {
            return still;
        }
        self.minute = (0.0, 0.0, 0);
        self.computes = Some(cpus / f64::from(blocks));
        Some(io / f64::from(blocks) < policy.squatter.io_bytes)
    }

    /// A spin is flat: its utilization never leaves a band of three points.
    fn spin(&mut self, spins: Option<bool>, util: Option<f64>, from: Nanos, to: Nanos, slack: Nanos) {
        self.spins.mark(spins, from, to, slack);
        let Some(util) = util else { return };
        if self.spins.since() == Some(from) || self.spins.since().is_none() {
            (self.spin_low, self.spin_high) = (util, util);
        }
        (self.spin_low, self.spin_high) = (self.spin_low.min(util), self.spin_high.max(util));
        if self.spin_high - self.spin_low > SPIN_BAND {
            self.spins.mark(Some(false), from, to, slack);
            self.spins.mark(spins, from, to, slack);
            (self.spin_low, self.spin_high) = (util, util);
        }
    }

    /// Notes which engine answers for the holders.
    pub(crate) fn serve(&mut self, url: &String) {
        if self.served.as_ref() != Some(url) {
            self.served = Some(url.clone());
        }
    }

    /// Notes the holders that can be looked at, and drops those that are no holders any more.
    pub(crate) fn meet(&mut self, pid: u32, start: Option<Nanos>, parent: Option<u32>) {
        let known = self.seen.get(&pid).is_some_and(|seen| seen.start == start);
        if !known && (self.seen.len() < MOST_HOLDERS || self.seen.contains_key(&pid)) {
            self.seen.insert(pid, Seen { start, parent });
        }
    }
}

/// Memory that grows by this part of the whole from block to block is being filled (5 s at 1 % per second).
const MEMORY_RISES: f64 = 0.05;
/// What a workload moves and computes while its GPU is still is taken over so long.
const MINUTE: Nanos = Nanos::from_secs(60);
/// A spin keeps its utilization within this.
const SPIN_BAND: f64 = 0.03;
/// From this share of the span between bare idle and limit on, power is near its limit.
pub(crate) const NEAR_LIMIT: f64 = 0.6;
/// Bare idle as a part of the limit (A100 .13, H100 .10, H200 .11 measured).
const BARE: f64 = 0.1;
/// Utilization and activity of a GPU on which nothing runs, and its power between bare idle and limit with a context
/// held (H100 and H200: .07 measured).
const RESTS: f64 = 0.01;
const NO_LOAD: f64 = 0.12;
/// Activity from which it works, whatever it works at; a spin shows a tenth at most. Without measured activity: power as
/// a part of the span, well above that of a spin.
const WORKS: f64 = 0.15;
const EVALUATES: f64 = 0.35;
/// Clocks above this part of the largest are up.
const CLOCK_UP: f64 = 0.7;

/// What a block was.
struct Is {
    still: Option<bool>,
    spins: Option<bool>,
    hungry: Option<bool>,
    waits: Option<bool>,
}

impl Readings {
    /// Where power stands between bare idle and the limit.
    pub(crate) fn power_share(&self) -> Option<f64> {
        self.power.map(|power| (power - BARE) / (1.0 - BARE))
    }

    /// The largest of what says that the silicon works; none where nothing can.
    pub(crate) fn silicon(&self) -> Option<f64> {
        [self.sm, self.tensor, self.dram].into_iter().flatten().reduce(f64::max)
    }

    /// Nothing runs on it, by two witnesses.
    pub(crate) fn rests(&self) -> bool {
        let idle = |value: f64| value <= RESTS;
        self.util.is_some_and(idle)
            && self.silicon().map_or_else(|| self.power_share().is_some_and(|p| p < NO_LOAD), idle)
    }

    /// Whether it works as an evaluation would, by the last block: activity where it is measured, else power.
    pub(crate) fn evaluates(&self) -> Option<bool> {
        let works = |value: f64| value >= WORKS;
        self.silicon().map(works).or_else(|| Some(self.util? >= WORKS && self.power_share()? >= EVALUATES))
    }

    fn judge(&self, policy: &Policy) -> Is {
        let above = |value: Option<f64>, limit: f64| value.is_some_and(|value| value > limit);
        let quiet = policy.squatter.util.as_fraction();
        let flows = above(self.links, policy.squatter.quiet_link_bytes);
        let progress = above(self.work, 0.0);
        // Utilization or the silicon must have spoken, and whoever speaks must say the same.
        let spoken = self.util.or(self.silicon());
        let still = spoken.map(|_| !above(self.util, quiet) && !above(self.silicon(), quiet) && !flows && !progress);
        let empty = match (self.sm, self.power_share(), self.clock) {
            (Some(sm), ..) => Some(
                sm <= policy.squatter.spin_sm.as_fraction()
                    && !above(self.dram, policy.squatter.spin_dram.as_fraction())
                    && !above(self.tensor, policy.squatter.spin_dram.as_fraction()),
            ),
            (None, Some(power), Some(clock)) => {
                Some(power <= policy.squatter.spin_power.as_fraction() && clock >= CLOCK_UP)
            }
            _ => None,
        };
        let spins = self
            .util
            .zip(empty)
            .map(|(util, empty)| util >= policy.squatter.spin_util.as_fraction() && empty && !flows && !progress)
            // A small job that steps is no hang.
            .map(|spins| spins && !above(self.steps, 0.0));
        // A kernel that waits for data is resident all the same: where the silicon is measured, it decides.
        let hungry = self.silicon().or(self.util).map(|activity| {
            activity <= policy.io_stall.hungry_util.as_fraction() && !above(self.power_share(), NEAR_LIMIT)
        });
        let some = self.io_some.map(|some| some >= policy.io_stall.wait_some.as_fraction());
        let blocked = self.blocked.map(|share| share >= policy.io_stall.wait_blocked.as_fraction());
        let waits = match (some, blocked) {
            (None, None) => None,
            (some, blocked) => Some(some == Some(true) || blocked == Some(true)),
        };
        Is { still, spins, hungry, waits }
    }
}
