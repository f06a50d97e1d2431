//! Whether what the driver says of a GPU can be believed: counters that stand still, utilization that contradicts
//! everything else, and readings that do not come.

use alloc::collections::VecDeque;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::baseline::room;

/// Blocks whose coverage is kept: ten minutes.
const KEPT: usize = 120;
/// Silicon at work above this, idle below that: between them nobody is called a liar.
const WORKS: f64 = 0.1;
const RESTS: f64 = 0.02;
/// A GPU that is busy by its utilization.
const BUSY: f64 = 0.9;
/// Power above context-idle as a part of the limit, up to which nothing runs (public cases: .10 to .24).
const IDLE_POWER: f64 = 0.35;
/// Memory in use up to which no context is there (a context takes .004 and more).
const NO_CONTEXT: f64 = 0.003;
/// A reading may be missed so long without an end of what was seen.
const BRIDGED: Nanos = Nanos::from_secs(15);

/// What cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lie {
    /// All counters stand still.
    Frozen,
    /// Utilization is zero while the silicon works.
    DeadUtil,
    /// Utilization is full while nobody is there and nothing is drawn.
    Ghost,
}

/// What was seen of one GPU's readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Trust {
    last: Option<Counters>,
    /// It has been read without a break since.
    read_since: Nanos,
    frozen: Seen,
    dead_util: Seen,
    ghost: Seen,
    block: Option<u64>,
    ticks: u32,
    read: u32,
    /// Millesimal coverage of each block, the newest last.
    coverage: Coverage,
}

/// Blocks, and their sum. Its saved form is the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "VecDeque<u32>", into = "VecDeque<u32>")]
struct Coverage {
    blocks: VecDeque<u32>,
    sum: u64,
}

impl From<VecDeque<u32>> for Coverage {
    fn from(blocks: VecDeque<u32>) -> Self {
        let sum = blocks.iter().map(|share| u64::from(*share)).sum();
        Self { blocks, sum }
    }
}

impl From<Coverage> for VecDeque<u32> {
    fn from(coverage: Coverage) -> Self {
        coverage.blocks
    }
}

impl Coverage {
    fn push(&mut self, share: u32) {
        if self.blocks.len() >= KEPT {
            self.sum -= u64::from(self.blocks.pop_front().unwrap_or(0));
        }
        self.sum += u64::from(share);
        room(&mut self.blocks, KEPT);
        self.blocks.push_back(share);
    }
}

/// Since when something is seen, and when it last was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    since: Option<Nanos>,
    last: Nanos,
}

impl Seen {
    fn mark(&mut self, is: bool, from: Nanos, now: Nanos) {
        if now.saturating_sub(self.last) > BRIDGED {
            self.since = None;
        }
        self.since = is.then(|| self.since.unwrap_or(from));
        self.last = now;
    }

    fn lasts(&self, now: Nanos, least: Nanos) -> Option<Nanos> {
        let fresh = now.saturating_sub(self.last) <= BRIDGED;
        self.since.filter(|since| fresh && now.saturating_sub(*since) >= least)
    }
}

/// What cannot stand still on a board that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Counters {
    at: Nanos,
    energy: Option<u64>,
    /// Power, temperature, clock, bytes received, bytes sent.
    others: [Option<u64>; 5],
}

impl Counters {
    fn of(gpu: &Gpu, at: Nanos) -> Self {
        let others = [
            gpu.power.copied().map(|power| power.0),
            gpu.temp.copied().map(|temp| u64::from(temp.0.unsigned_abs())),
            gpu.clock_sm.copied().map(|clock| u64::from(clock.0)),
            gpu.pcie.rx.copied().map(|bytes| bytes.0),
            gpu.pcie.tx.copied().map(|bytes| bytes.0),
        ];
        Self { at, energy: gpu.energy.copied().map(|energy| energy.0), others }
    }

    /// Energy stands still under power; without an energy counter, everything does while the GPU says that it works.
    fn stands_still(&self, before: &Self, gpu: &Gpu) -> bool {
        let draws = gpu.power.copied().is_some_and(|power| power.0 >= 1000);
        match (before.energy, self.energy) {
            (Some(before), Some(now)) => draws && before == now,
            _ => {
                let known = self.others.iter().filter(|value| value.is_some()).count();
                known >= 3 && self.others == before.others && gpu.util.copied().is_some_and(|util| util.0 > 0)
            }
        }
    }
}

impl Trust {
    /// Takes in what the driver said of the GPU; nothing when it said nothing, though it was asked.
    pub(crate) fn read(&mut self, gpu: Option<&Gpu>, now: Nanos) {
        self.ticks = self.ticks.saturating_add(1);
        let Some(gpu) = gpu.filter(|gpu| gpu.util.get().is_some() || gpu.power.get().is_some()) else { return };
        self.read = self.read.saturating_add(1);
        if self.last.is_none_or(|last| now.saturating_sub(last.at) > BRIDGED) {
            self.read_since = now;
        }
        let counters = Counters::of(gpu, now);
        if let Some(before) = self.last {
            self.frozen.mark(counters.stands_still(&before, gpu), before.at, now);
        }
        self.last = Some(counters);
        let util = gpu.util.copied().map(|util| util.as_fraction());
        let silicon = gpu.gpm.get().and_then(|gpm| {
            let shares = [gpm.sm.copied(), gpm.tensor.copied(), gpm.dram.copied()];
            shares.into_iter().flatten().map(|share| share.as_fraction()).reduce(f64::max)
        });
        let dead = util == Some(0.0) && silicon.is_some_and(|silicon| silicon >= WORKS);
        self.dead_util.mark(dead, now, now);
        let alone = gpu.processes.get().is_some_and(alloc::vec::Vec::is_empty) && gpu.instances.is_empty();
        let share = |part: Option<f64>, whole: Option<f64>| {
            part.zip(whole.filter(|whole| *whole > 0.0)).map(|(part, whole)| part / whole)
        };
        let bytes = |reading: Option<gpuprod_snapshot::units::Bytes>| reading.map(|bytes| to_f64(bytes.0));
        let watts = |reading: Option<gpuprod_snapshot::units::Milliwatts>| reading.map(|power| to_f64(power.0));
        let memory = share(bytes(gpu.mem_used.copied()), bytes(gpu.mem_total.copied()));
        let power = share(watts(gpu.power.copied()), watts(gpu.power_limit.copied()));
        let ghost = util.is_some_and(|util| util >= BUSY)
            && alone
            && memory.is_some_and(|memory| memory <= NO_CONTEXT)
            && power.is_some_and(|power| power <= IDLE_POWER)
            && silicon.is_none_or(|silicon| silicon <= RESTS);
        self.ghost.mark(ghost, now, now);
    }

    /// A tick has passed; of blocks in which nobody ticked nothing was read.
    pub(crate) fn tick(&mut self, now: Nanos, policy: &Policy) {
        let block = now.0 / policy.block_ns.0.max(1);
        let Some(open) = self.block.replace(block) else {
            (self.ticks, self.read) = (0, 0);
            return;
        };
        if block == open {
            return;
        }
        // In the second half of a gap nobody ticked either: the blocks between are empty.
        let missed = usize::try_from(block.saturating_sub(open).saturating_sub(1)).unwrap_or(KEPT).min(KEPT);
        let share = self.read.saturating_mul(1000).checked_div(self.ticks).unwrap_or(0);
        for coverage in core::iter::once(share).chain(core::iter::repeat_n(0, missed)) {
            self.coverage.push(coverage.min(1000));
        }
        (self.ticks, self.read) = (0, 0);
    }

    /// Share of the last ten minutes in which the GPU was read, once a minute of them has passed.
    pub(crate) fn coverage(&self) -> Option<f64> {
        let blocks = u64::try_from(self.coverage.blocks.len()).ok().filter(|blocks| *blocks >= 12)?;
        Some(to_f64(self.coverage.sum) / to_f64(blocks) / 1000.0)
    }

    /// What cannot be believed now, and since when.
    pub(crate) fn lie(&self, now: Nanos, policy: &Policy) -> Option<(Lie, Nanos)> {
        let thresholds = &policy.telemetry_degraded;
        let lie = |seen: &Seen, lie, least| seen.lasts(now, least).map(|since| (lie, since));
        lie(&self.frozen, Lie::Frozen, thresholds.frozen_ns)
            .or_else(|| lie(&self.dead_util, Lie::DeadUtil, thresholds.frozen_ns))
            .or_else(|| lie(&self.ghost, Lie::Ghost, thresholds.ghost_ns))
    }

    /// Whether it has been read for so long without a break.
    pub(crate) fn is_read(&self, now: Nanos, least: Nanos) -> bool {
        self.last.is_some() && now.saturating_sub(self.read_since) >= least
    }

    /// Whether something contradicts its readings already, though not for long enough to be told.
    pub(crate) fn is_doubted(&self) -> bool {
        [self.frozen, self.dead_util, self.ghost].iter().any(|seen| seen.since.is_some())
    }

    /// Drops the present.
    pub(crate) fn rest(&mut self) {
        *self = Self::default();
    }
}
