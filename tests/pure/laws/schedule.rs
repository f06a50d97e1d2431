//! Random schedules: what befalls a node, told twice. Once as judgements, the way the ledger hears of it; once as
//! the plain truth, the way the oracle books it. The second is never derived from the first.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_rules::{
    Bucket, Cause, Class, Fault, Judgement, Loading, Overhead, Part, Progress, State, UnitId, UnitJudgement, Unknown,
    Weight, WeightSource,
};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Stamp};

use super::owners::{Owned, Owners};

const MS: u64 = 1_000_000;
const SEC: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SEC;
const WEEK: u64 = 7 * 24 * HOUR;

/// Splitmix64: the same numbers everywhere, from one seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Below `n`, which is above zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.below(i as u64 + 1)).unwrap_or(0);
            items.swap(i, j);
        }
    }
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    Gap,
    Restart,
    Reboot,
    BootIdUnreadable,
    Suspend,
    BoottimeBack,
    MonotonicBack,
    WallJump,
    Vanish,
    Lost,
    Appear,
    Repartition,
    OddSplit,
}

impl Trouble {
    pub(crate) const ALL: [Self; 13] = [
        Self::Gap,
        Self::Restart,
        Self::Reboot,
        Self::BootIdUnreadable,
        Self::Suspend,
        Self::BoottimeBack,
        Self::MonotonicBack,
        Self::WallJump,
        Self::Vanish,
        Self::Lost,
        Self::Appear,
        Self::Repartition,
        Self::OddSplit,
    ];
}

/// What a stretch of time really was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// Nobody could speak.
    Is(Unknown),
    /// The agent was there all along; its verdict stands if the stretch is short enough.
    Seen,
}

/// What becomes of a unit at a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// New, or back after it was replaced: its time starts at the end of this beat.
    Begins,
    /// Judged.
    Lives,
    /// Nobody speaks for it.
    Absent,
    /// Replaced by other units of its GPU.
    Ends,
}

/// One tick, and what happened since the tick before.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    /// As the ledger hears of it.
    pub(crate) judgement: Judgement,
    /// How the time since the last charged instant was spent, in ns.
    pub(crate) truth: Vec<(Truth, u64)>,
    /// Every unit that is there or should be.
    pub(crate) fates: Vec<(UnitId, Fate)>,
    /// A new process took over before this tick.
    pub(crate) restart: bool,
    /// The ledger is saved and loaded before this tick, as if nothing had happened.
    pub(crate) cut: bool,
}

/// A node's story.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) beats: Vec<Beat>,
    /// Whether units have owners.
    pub(crate) peopled: bool,
    /// What went wrong in it, at least once each.
    pub(crate) troubles: BTreeSet<Trouble>,
}

/// One GPU of the node.
struct Gpu {
    name: String,
    /// Sizes of its MIG instances; empty: a whole GPU of one slice. The rest of seven slices is its own unit.
    instances: Vec<u32>,
    mig: bool,
    absent_for: u64,
    lost: bool,
}

impl Gpu {
    /// Its units: id, slices, slices of the whole.
    fn units(&self) -> Vec<(UnitId, u32, u32)> {
        if !self.mig {
            return vec![(UnitId(self.name.as_str().into()), 1, 1)];
        }
        let used: u32 = self.instances.iter().sum();
        let mut units = vec![(UnitId(format!("{}/rest", self.name).into()), 7 - used, 7)];
        for (i, slices) in self.instances.iter().enumerate() {
            units.push((UnitId(format!("MIG-{i}-of-{}", self.name).into()), *slices, 7));
        }
        units
    }
}

/// A whole GPU's id is its name; a part's id ends in it, or begins with it before the slash.
pub(crate) fn gpu_of(id: &UnitId) -> &str {
    let whole = id.0.strip_suffix("/rest").unwrap_or(&id.0);
    whole.split("-of-").last().unwrap_or(whole)
}

struct Node {
    rng: Rng,
    gpus: Vec<Gpu>,
    stamp: Stamp,
    period: u64,
    boots: u64,
    /// How far boottime is behind its own past.
    debt: u64,
    /// The wall clock at the last charged instant.
    charged_realtime: u64,
    /// A new process took over and has not charged any time yet.
    absent: bool,
    /// Units that are booked.
    known: BTreeSet<UnitId>,
    owners: Owners,
}

impl Schedule {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut kinds = Trouble::ALL;
        rng.shuffle(&mut kinds);
        let count = 3 + usize::try_from(rng.below(8)).unwrap_or(0);
        let kinds = &kinds[..count];
        let beats = 50 + rng.below(12);
        let mut node = Node::new(rng, Owners::new(seed));
        let (peopled, troubles) = (node.owners.any(), kinds.iter().copied().collect());
        let mut schedule = Self { seed, beats: vec![node.first()], peopled, troubles };
        for i in 1..beats {
            // Each kind once for sure, then at random.
            let sure = (i % 3 == 0).then(|| usize::try_from(i / 3 - 1).ok());
            let sure = sure.flatten().and_then(|at| kinds.get(at)).copied();
            let trouble = match sure {
                None if node.rng.one_in(5) => Some(node.rng.pick(kinds)),
                sure => sure,
            };
            schedule.beats.push(node.beat(trouble));
        }
        schedule
    }
}

impl Node {
    fn new(mut rng: Rng, owners: Owners) -> Self {
        let gpu = |i| Gpu { name: format!("GPU-{i}"), instances: Vec::new(), mig: false, absent_for: 0, lost: false };
        let gpus = (0..1 + rng.below(3)).map(gpu).collect();
        let boottime = HOUR + rng.below(HOUR);
        Self {
            gpus,
            stamp: Stamp {
                boot_id: BootId("boot-0".into()),
                boottime: Nanos(boottime),
                monotonic: Nanos(boottime - rng.below(HOUR / 2)),
                realtime: Nanos(1_790_000_000 * SEC + rng.below(SEC)),
            },
            period: rng.pick(&[SEC, SEC, SEC, SEC / 2, 5 * SEC, 15 * SEC, SEC - 1]),
            boots: 0,
            debt: 0,
            charged_realtime: 0,
            absent: false,
            known: BTreeSet::new(),
            owners,
            rng,
        }
    }

    fn first(&mut self) -> Beat {
        self.finish(Vec::new(), false, false)
    }

    fn pass(&mut self, boottime: u64, monotonic: u64) {
        self.stamp.boottime.0 += boottime;
        self.stamp.monotonic.0 += monotonic;
        self.stamp.realtime.0 += boottime;
    }

    /// Time passes on all clocks: first what boottime is behind, then `asleep`, then `seen`.
    fn live(&mut self, asleep: u64, seen: u64) -> Vec<(Truth, u64)> {
        let debt = std::mem::take(&mut self.debt);
        self.pass(debt + asleep + seen, debt + seen);
        let awake = if std::mem::take(&mut self.absent) { Truth::Is(Unknown::AgentDown) } else { Truth::Seen };
        vec![(Truth::Is(Unknown::Suspended), asleep), (awake, seen)]
    }

    /// An ordinary tick's time, with its jitter.
    fn plain(&mut self) -> Vec<(Truth, u64)> {
        let jitter = self.rng.below(self.period / 16);
        let length = match self.rng.below(16) {
            0 => 0,
            1 => self.period * 5 / 2,
            n if n % 2 == 0 => self.period + jitter,
            _ => self.period - jitter,
        };
        let paid = length.min(self.debt);
        if paid < length {
            // Clocks are read one after the other: up to 100 ms apart is no suspend.
            let apart = self.rng.pick(&[0, 0, 0, 1, 40 * MS, 100 * MS]).min(length - paid);
            let truth = self.live(0, length - paid);
            self.stamp.monotonic.0 -= apart;
            truth
        } else {
            self.debt -= paid;
            self.pass(length, length);
            Vec::new()
        }
    }

    fn beat(&mut self, trouble: Option<Trouble>) -> Beat {
        let mut restart = false;
        let mut odd = false;
        let unreadable = self.stamp.boot_id.0.is_empty();
        if unreadable {
            self.stamp.boot_id = BootId(format!("boot-{}", self.boots));
        }
        let mut truth = match trouble {
            Some(Trouble::Gap) => {
                let (p, odd_ns) = (self.period, self.rng.below(HOUR));
                let lengths = [p * 5 / 2 + 1, 3 * p, 10 * SEC, 10 * SEC + 1, 9 * SEC, odd_ns];
                let length = self.rng.pick(&lengths);
                self.live(0, length)
            }
            Some(Trouble::Restart) => {
                restart = true;
                self.absent = true;
                let length = self.rng.pick(&[0, 1, self.period, 20 * SEC, 9 * 24 * HOUR + 7]);
                if length == 0 { self.plain() } else { self.live(0, length) }
            }
            Some(Trouble::Reboot) => {
                restart = !self.rng.one_in(8);
                self.boots += 1;
                let boot_id = format!("boot-{}", self.boots);
                self.reboot(boot_id)
            }
            Some(Trouble::BootIdUnreadable) => self.reboot(String::new()),
            Some(Trouble::Suspend) => {
                let odd_ns = self.rng.below(10 * HOUR);
                let asleep = self.rng.pick(&[100 * MS + 1, SEC, 600 * SEC, odd_ns]);
                let asleep = asleep.max(100 * MS + 1);
                let seen = self.rng.pick(&[0, 1, self.period, 3 * self.period]);
                self.live(asleep, seen)
            }
            Some(Trouble::BoottimeBack) => {
                let back = 1 + self.rng.below(4 * self.period);
                let back = back.min(self.stamp.boottime.0).min(self.stamp.monotonic.0);
                self.stamp.boottime.0 -= back;
                self.stamp.monotonic.0 -= back;
                self.debt += back;
                Vec::new()
            }
            Some(Trouble::MonotonicBack) => {
                let length = self.period;
                let truth = self.live(0, length);
                // So far that it stands before the last charged instant.
                let back = length + 101 * MS + self.rng.below(SEC);
                self.stamp.monotonic.0 = self.stamp.monotonic.0.saturating_sub(back);
                truth
            }
            Some(Trouble::WallJump) => {
                let truth = self.plain();
                let by = self.rng.below(2 * HOUR);
                let wall = self.stamp.realtime.0;
                self.stamp.realtime.0 = if self.rng.one_in(2) { wall + by } else { wall - by };
                truth
            }
            Some(Trouble::Vanish) => {
                let (at, ticks) = (self.any_gpu(), 1 + self.rng.below(6));
                self.gpus[at].absent_for = ticks;
                self.plain()
            }
            Some(Trouble::Lost) => {
                let at = self.any_gpu();
                self.gpus[at].lost = true;
                self.plain()
            }
            Some(Trouble::Appear) => {
                let name = format!("GPU-{}", self.gpus.len());
                if self.gpus.len() < 5 {
                    self.gpus.push(Gpu { name, instances: Vec::new(), mig: false, absent_for: 0, lost: false });
                }
                self.plain()
            }
            Some(Trouble::Repartition) => {
                let at = self.any_gpu();
                let layouts: &[&[u32]] = &[&[], &[3], &[3, 2], &[4, 3], &[1, 1, 1, 1], &[7]];
                self.gpus[at].instances = self.rng.pick(layouts).to_vec();
                self.gpus[at].mig = !self.gpus[at].mig || self.rng.one_in(2);
                self.plain()
            }
            Some(Trouble::OddSplit) => {
                odd = true;
                self.plain()
            }
            None => self.plain(),
        };
        if unreadable {
            truth = self.wall_only();
        }
        self.finish(truth, restart, odd)
    }

    fn any_gpu(&mut self) -> usize {
        usize::try_from(self.rng.below(self.gpus.len() as u64)).unwrap_or(0)
    }

    /// The counting clocks start anew, or cannot be matched with their past: only the wall clock tells.
    fn reboot(&mut self, boot_id: String) -> Vec<(Truth, u64)> {
        let odd_ns = self.rng.below(HOUR);
        let down = self.rng.pick(&[SEC, 90 * SEC, odd_ns, WEEK, WEEK + 1, 9 * 24 * HOUR]);
        let rtc_back = self.rng.pick(&[0, 0, 0, 600 * SEC, HOUR]);
        let unreadable = boot_id.is_empty();
        self.stamp.boot_id = BootId(boot_id);
        if !unreadable {
            self.stamp.boottime.0 = HOUR + self.rng.below(HOUR);
            self.stamp.monotonic.0 = self.stamp.boottime.0 - self.rng.below(20 * SEC);
        }
        self.stamp.realtime.0 = (self.stamp.realtime.0 + down).saturating_sub(rtc_back);
        self.wall_only()
    }

    fn wall_only(&mut self) -> Vec<(Truth, u64)> {
        (self.debt, self.absent) = (0, false);
        let gap = self.stamp.realtime.0.saturating_sub(self.charged_realtime);
        vec![(Truth::Is(Unknown::HostDown), gap.min(WEEK))]
    }

    fn finish(&mut self, truth: Vec<(Truth, u64)>, restart: bool, odd: bool) -> Beat {
        if self.debt == 0 {
            self.absent = false;
            self.charged_realtime = self.stamp.realtime.0;
        }
        let mut units = Vec::new();
        let mut there = BTreeMap::new();
        for at in 0..self.gpus.len() {
            let gpu = &mut self.gpus[at];
            let (lost, absent) = (gpu.lost, gpu.absent_for > 0);
            gpu.absent_for = gpu.absent_for.saturating_sub(1);
            let name = UnitId(gpu.name.as_str().into());
            let mig = gpu.mig;
            let parts = gpu.units();
            if lost && self.rng.one_in(6) {
                self.gpus[at].lost = false;
            }
            for (id, slices, slices_whole) in parts {
                if absent {
                    continue;
                }
                there.insert(id.clone(), name.clone());
                let (state, weight, split) = verdict(&mut self.rng, lost, odd);
                let Owned { tenant, tenants, external } = self.owners.beat(&id);
                units.push(UnitJudgement {
                    unit: id,
                    gpu: mig.then(|| name.clone()),
                    index: None,
                    slices,
                    slices_whole,
                    state,
                    since: self.stamp.boottime,
                    weight,
                    split,
                    cumulative: self.rng.one_in(2),
                    class: Class::Unspecified,
                    class_inferred: false,
                    tenant,
                    tenants,
                    model: None,
                    external,
                    meter: None,
                });
            }
        }
        let fates = self.fates(&there);
        self.rng.shuffle(&mut units);
        let judgement =
            Judgement { stamp: self.stamp.clone(), period: Nanos(self.period), units, ..Judgement::default() };
        let cut = self.rng.one_in(32);
        Beat { judgement, truth, fates, restart, cut }
    }

    /// Compares who is there with who is booked.
    fn fates(&mut self, there: &BTreeMap<UnitId, UnitId>) -> Vec<(UnitId, Fate)> {
        let mut fates = Vec::new();
        for id in &self.known {
            let fate = if there.contains_key(id) {
                Fate::Lives
            } else if there.values().any(|gpu| *gpu.0 == *gpu_of(id)) {
                Fate::Ends
            } else {
                Fate::Absent
            };
            fates.push((id.clone(), fate));
        }
        let new = there.keys().filter(|id| !self.known.contains(*id));
        fates.extend(new.map(|id| (id.clone(), Fate::Begins)));
        self.known.extend(there.keys().cloned());
        for (id, fate) in &fates {
            if *fate == Fate::Ends {
                self.known.remove(id);
            }
        }
        fates
    }
}

/// What a judge could say. `Lost(Fault)` and the unknown buckets are never a part of something else, so that
/// their sums can be told exactly.
fn verdict(rng: &mut Rng, lost: bool, odd: bool) -> (State, Weight, Vec<(Bucket, Part)>) {
    let source = rng.pick(&WeightSource::ALL[..5]);
    if lost {
        let split = vec![(Bucket::Lost(Cause::Fault), Part::ONE)];
        return (State::Faulted(Fault::Lost), Weight::NONE, split);
    }
    if odd {
        return odd_verdict(rng, source);
    }
    let whole = |state, bucket| (state, Weight::NONE, vec![(bucket, Part::ONE)]);
    match rng.below(12) {
        10 => whole(State::Squatted, Bucket::Lost(Cause::Squat)),
        11 => whole(State::Stalled, Bucket::Lost(Cause::Stall)),
        0 => whole(State::Idle, Bucket::Idle),
        1 => whole(State::Headroom, Bucket::Headroom),
        2 => whole(State::Unallocated, Bucket::Unallocated),
        3 => whole(State::Unknown(Unknown::Hung), Bucket::Unknown(Unknown::Hung)),
        4 => whole(State::Loading(Loading::Weights), Bucket::Overhead(Overhead::Loading)),
        kind => {
            let million = 1 + u32::try_from(rng.below(999_999)).unwrap_or(0);
            let w = Part(rng.pick(&[0, 1, 333_333, 500_000, 999_999, 1_000_000, million, million]));
            let mut split = vec![(Bucket::Productive, w)];
            let mut left = w.rest().0;
            if kind > 7 {
                for cause in [Cause::Storage, Cause::HostCpu, Cause::Kv] {
                    let part = u32::try_from(rng.below(u64::from(left) + 1)).unwrap_or(0);
                    split.push((Bucket::Lost(cause), Part(part)));
                    left -= part;
                }
            } else if kind > 6 {
                split.push((Bucket::Idle, Part(left / 2)));
                split.push((Bucket::Headroom, Part(left / 2)));
                left -= left / 2 * 2;
            }
            split.push((Bucket::Lost(Cause::Unexplained), Part(left)));
            rng.shuffle(&mut split);
            let causes = [Cause::Storage, Cause::BackgroundIo, Cause::Network, Cause::Peer];
            let state = if kind > 7 { State::Starved(rng.pick(&causes)) } else { State::Productive(Progress::Decode) };
            (state, Weight { w, source }, split)
        }
    }
}

/// What no judge should say.
fn odd_verdict(rng: &mut Rng, source: WeightSource) -> (State, Weight, Vec<(Bucket, Part)>) {
    let w = Part(rng.pick(&[0, 700_000, 1_000_001, 1_500_000, u32::MAX]));
    let mut split = vec![(Bucket::Productive, w)];
    match rng.below(4) {
        0 => split.clear(),
        1 => split.push((Bucket::Productive, Part(600_000))),
        2 => split.push((Bucket::Idle, Part(rng.pick(&[1, 299_999, 300_001, 1_000_000])))),
        _ => {}
    }
    rng.shuffle(&mut split);
    (State::Productive(Progress::Train), Weight { w, source }, split)
}
