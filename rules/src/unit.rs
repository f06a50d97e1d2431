//! The accounting units: which there are, and what each remembers. In which state each is: `settle`.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth, GpuProcess, Gpus, MigInstance};
use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::attribution::far;
use crate::facts::UnitFacts;
use crate::facts::device::Before;
use crate::facts::host::Loads;
use crate::facts::owner::Ownership;
use crate::facts::peers::Waits;
use crate::facts::trainer::Trainer;
use crate::gather::{display, find};
use crate::policy::Allocation;
use crate::signals::EngineSignals;
use crate::signals::activity::Activity;
use crate::signals::busy::{Normals, References};
use crate::signals::checkpoints::Checkpoints;
use crate::signals::device::{Errors, Lie};
use crate::signals::evals::Evals;
use crate::signals::own::Own;
use crate::signals::sharing::Sharing;
use crate::signals::silicon::Silicon;
use crate::usage::{Readings, Spell, Usage};
use crate::{Fault, Part, Policy, Progress, State, UnitId, entries, weight};

mod partition;
mod settle;

use partition::Piece;

pub(crate) use settle::{loading, settle};

/// No node has more; a hostile recording must not cost more than a node can.
const MOST_UNITS: usize = 1024;
/// How the name of a board begins that has given neither UUID nor address yet.
const NAMELESS: &str = "index-";

/// All units ever seen: a lost GPU stays owned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Units {
    #[serde(with = "entries")]
    units: BTreeMap<UnitId, Box<Unit>>,
}

/// What a unit remembers from tick to tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unit {
    /// UUID of the GPU that it is, or is a part of.
    gpu: UnitId,
    /// What it was called while it had no identity: that account ends with this unit's first judgement.
    formerly: Option<UnitId>,
    pci: Option<PciAddress>,
    index: Option<u32>,
    /// GPU instance, for a MIG unit.
    pub(crate) gi: Option<u32>,
    /// The unpartitioned rest of a GPU under MIG.
    rest: bool,
    slices: u32,
    slices_whole: u32,
    pub(crate) engine: Option<String>,
    pub(crate) power: Normals,
    /// Its own pace, where no page tells its progress.
    #[serde(default)]
    pub(crate) own: Own,
    /// The pace of its silicon below an engine.
    #[serde(default)]
    pub(crate) silicon: Silicon,
    /// Since when it has looked ill before it was ever known to be well, and with which workload.
    #[serde(default)]
    pub(crate) doubt: Option<(Option<u64>, Nanos)>,
    /// How often the normals of its page have begun anew.
    #[serde(default)]
    pub(crate) rounds: u32,
    #[serde(default)]
    pub(crate) activity: Activity,
    /// For which rank it has waited lately.
    #[serde(default)]
    pub(crate) waits: Waits,
    #[serde(default)]
    pub(crate) sharing: Sharing,
    #[serde(default)]
    pub(crate) checkpoints: Checkpoints,
    #[serde(default)]
    pub(crate) evals: Evals,
    pub(crate) deficit_since: Option<Nanos>,
    /// The driver lists no process on it, and nothing runs on it, since.
    #[serde(default)]
    pub(crate) vacant_since: Option<Nanos>,
    #[serde(default)]
    pub(crate) usage: Arc<Usage>,
    /// Loads of its engine.
    #[serde(default)]
    pub(crate) loads: Arc<Loads>,
    recovered_since: Option<Nanos>,
    /// Whose it was when its processes were last listed.
    #[serde(default)]
    pub(crate) before: Before,
    /// Tokens and GPM have contradicted each other since.
    #[serde(default)]
    conflict: Spell,
    state: Option<(State, Nanos)>,
    /// Whose it was when the driver last said who holds it.
    #[serde(default)]
    pub(crate) ownership: Arc<Ownership>,
    /// The product's name, for prices.
    #[serde(default)]
    model: Option<String>,
}

impl Units {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&UnitId, &Unit)> {
        self.units.iter().map(|(id, unit)| (id, &**unit))
    }
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&UnitId, &mut Unit)> {
        self.units.iter_mut().map(|(id, unit)| (id, &mut **unit))
    }

    /// Adds what is new, and drops what a repartitioning replaced.
    pub(crate) fn discover(&mut self, tick: &Tick) {
        if let Some(gpus) = tick.gpu.as_ref().and_then(|sample| sample.value.get()) {
            let mut whole = self.all_whole();
            for gpu in &gpus.devices {
                if !self.goes_on(gpu, whole) {
                    self.device(gpu);
                    whole = self.all_whole();
                }
            }
        }
    }

    /// Whether every unit is the only one of its board, and has its name from it.
    fn all_whole(&self) -> bool {
        self.units.iter().all(|(id, unit)| unit.gpu == *id && !id.0.starts_with(NAMELESS))
    }

    /// Whether it is a whole GPU that was there before, the only unit of its board: at nearly every tick all are.
    fn goes_on(&mut self, gpu: &Gpu, all_whole: bool) -> bool {
        let (Some(uuid), false) = (gpu.uuid.get(), gpu.mig.copied() == Some(true)) else { return false };
        let others =
            |(id, unit): (&UnitId, &Unit)| id.0.starts_with(NAMELESS) || (*unit.gpu.0 == **uuid && *id.0 != **uuid);
        if !all_whole && self.iter().any(others) {
            return false;
        }
        let Some(unit) = self.units.get_mut(uuid.as_str()).filter(|unit| unit.gi.is_none() && !unit.rest) else {
            return false;
        };
        let whole = partition::whole(gpu, Some(unit.slices_whole));
        unit.meet(gpu, whole, whole);
        true
    }

    fn device(&mut self, gpu: &Gpu) {
        let uuid = UnitId(identity(gpu).into());
        let nameless = UnitId(nameless(gpu.index).into());
        let formerly = if uuid == nameless { None } else { self.units.remove(&nameless).map(|_| nameless) };
        let Some((pieces, whole)) = partition::pieces(gpu, &uuid, self) else {
            for unit in self.units.values_mut().filter(|unit| unit.gpu == uuid) {
                unit.meet(gpu, unit.slices, unit.slices_whole);
            }
            return;
        };
        let mut present: Vec<UnitId> = Vec::new();
        for Piece { id, gi, rest, slices } in pieces {
            if self.units.len() >= MOST_UNITS && !self.units.contains_key(&id) {
                continue;
            }
            let unit = self.units.entry(id.clone()).or_insert_with(|| {
                Box::new(Unit {
                    gpu: uuid.clone(),
                    formerly: formerly.clone(),
                    pci: None,
                    index: None,
                    gi,
                    rest,
                    slices,
                    slices_whole: whole,
                    engine: None,
                    power: Normals::default(),
                    activity: Activity::default(),
                    rounds: 0,
                    waits: Waits::default(),
                    sharing: Sharing::default(),
                    own: Own::default(),
                    silicon: Silicon::default(),
                    doubt: None,
                    checkpoints: Checkpoints::default(),
                    evals: Evals::default(),
                    deficit_since: None,
                    vacant_since: None,
                    usage: Arc::default(),
                    loads: Arc::default(),
                    recovered_since: None,
                    before: Before::default(),
                    conflict: Spell::default(),
                    state: None,
                    ownership: Arc::default(),
                    model: None,
                })
            });
            unit.meet(gpu, slices, whole);
            present.push(id);
        }
        // Another partition of the same GPU: its old units ended with the tick before.
        self.units.retain(|id, unit| unit.gpu != uuid || present.contains(id));
    }
}

impl Unit {
    /// Takes the board as it is now.
    fn meet(&mut self, gpu: &Gpu, slices: u32, whole: u32) {
        if let Some(model) = gpu.model.get().filter(|model| self.model.as_ref() != Some(model)) {
            self.model = Some(model.clone());
        }
        self.pci = gpu.pci.copied().or(self.pci);
        self.index = Some(gpu.index);
        (self.slices, self.slices_whole) = (slices, whole);
    }

    pub(crate) fn gpu<'a>(&self, gpus: Option<&'a Gpus>) -> Option<&'a Gpu> {
        // It nearly always stands at its index.
        let place = self.index.and_then(|index| gpus?.devices.get(usize::try_from(index).ok()?));
        let there = place.filter(|gpu| gpu.uuid.get().is_some_and(|uuid| **uuid == *self.gpu.0));
        there.or_else(|| find(gpus, &self.gpu.0, self.pci))
    }

    pub(crate) fn instance<'a>(&self, gpus: Option<&'a Gpus>) -> Option<&'a MigInstance> {
        let gi = self.gi?;
        self.gpu(gpus)?.instances.iter().find(|instance| instance.gi == gi)
    }

    /// The unpartitioned rest of a GPU under MIG.
    pub(crate) const fn is_rest(&self) -> bool {
        self.rest
    }

    /// Pids with a context on the unit.
    pub(crate) fn pids(&self, gpus: Option<&Gpus>) -> Vec<u32> {
        let processes = self.gpu(gpus).and_then(|gpu| gpu.processes.get());
        let own = processes.into_iter().flatten().filter(|process| self.gi.is_none() || process.gi == self.gi);
        if self.rest { Vec::new() } else { own.map(|process| process.pid).collect() }
    }

    /// The same on a device that was found already.
    pub(crate) fn pids_on(&self, gpu: Option<&Gpu>) -> Vec<u32> {
        if self.rest { Vec::new() } else { gpu.map_or_else(Vec::new, |gpu| self.pids_of(gpu)) }
    }

    /// Takes note of whether anybody is on it. While the driver says nothing, nothing changes.
    pub(crate) fn look(&mut self, gpu: Option<&Gpu>, now: Nanos) {
        let Some(gpu) = gpu else { return };
        let listed = gpu.processes.get().is_some() && !self.rest;
        let works = self.gi.is_none() && gpu.util.copied().is_some_and(|util| util.0 > 0);
        let vacant = listed && self.processes_of(gpu).next().is_none() && !works;
        self.vacant_since = vacant.then(|| self.vacant_since.unwrap_or(now));
    }

    /// Whether a record says that somebody has it.
    pub(crate) fn record<'a>(&self, id: &UnitId, records: &'a [Allocation]) -> Option<&'a Allocation> {
        if records.is_empty() {
            return None;
        }
        let index = self.index.filter(|_| self.gi.is_none() && !self.rest).map(|index| format!("{index}"));
        records.iter().find(|record| *record.gpu == *id.0 || index.as_ref() == Some(&record.gpu))
    }

    pub(crate) fn name(&self, id: &UnitId) -> String {
        display(self.index, id)
    }

    /// Whether it did its work when it was last judged: what is learnt from trouble is no normal.
    pub(crate) const fn is_well(&self) -> bool {
        matches!(self.state, Some((State::Productive(progress), _)) if !matches!(progress, Progress::Checkpoint | Progress::Eval))
    }

    /// The deficit from which it has one. Whoever is starved stays so down to the lower one, also after a dip of some
    /// seconds: what is over for good is no state any more.
    pub(crate) const fn floor(&self, policy: &Policy) -> Part {
        let starved = self.deficit_since.is_some() || matches!(self.state, Some((State::Starved(_), _)));
        if starved { policy.starved_clear } else { policy.starved_warn }
    }

    /// Whether somebody or something named kept it from its work at the tick before.
    pub(crate) const fn is_starved(&self) -> bool {
        matches!(self.state, Some((State::Starved(cause), _)) if !matches!(cause, crate::Cause::Unexplained))
    }

    /// The GPU that it is, or is a part of.
    pub(crate) fn device(&self) -> &str {
        &self.gpu.0
    }

    /// Since when its engine's tokens, or its job's steps, and its own activity contradict each other by more than four
    /// tenths, whatever the references are: no progress beside a silicon at work, or progress beside one that rests. A
    /// job that does not step may evaluate; one that steps as ever while its GPU does far less than ever is not believed.
    pub(crate) fn conflict(
        &mut self,
        readings: &Readings,
        gpu: Option<&Gpu>,
        (engine, trainer): (Option<&EngineSignals>, &Trainer<'_>),
        now: Nanos,
        policy: &Policy,
    ) -> Option<Nanos> {
        if trainer.page.is_some() {
            let steps =
                trainer.claims().zip(readings.silicon()).map(|(claims, silicon)| claims >= 0.5 && silicon <= 0.01);
            let pace = self.own.weight(policy).zip(self.own.deviation(policy));
            let less = pace.map(|((_, pace), own)| trainer.counts && 1.0 - pace >= 0.4 && far(&own, policy));
            let sound = trainer.signals.and_then(|steps| steps.weight(now, policy)).is_none_or(|w| w >= 0.95);
            let conflict = match (steps, less) {
                // A counter that contradicts everything else accuses nobody.
                _ if self.usage.dead.since().is_some() => None,
                (None, None) => None,
                (steps, less) => Some(steps == Some(true) || (less == Some(true) && sound)),
            };
            self.conflict.mark(conflict, now, now, Nanos::from_secs(15));
            return self.conflict.since();
        }
        let progress = engine.and_then(|engine| engine.progress(now));
        let activity =
            gpu.and_then(|gpu| weight::gpm(gpu.gpm.get()?, References::default())).map(|activity| activity.min(1.0));
        let conflict = progress.zip(activity).zip(readings.silicon()).map(|((progress, activity), silicon)| {
            (progress <= 0.1 && activity >= 0.5) || (progress >= 0.5 && silicon <= 0.01)
        });
        self.conflict.mark(conflict, now, now, Nanos::from_secs(15));
        self.conflict.since()
    }

    /// Whether they have contradicted each other for so long.
    pub(crate) fn contradicted(&self, now: Nanos, least: Nanos) -> bool {
        self.conflict.lasts(now, least).is_some()
    }

    /// Whether it is broken, and how.
    pub(crate) fn fault(&self, gpus: Option<&Gpus>, errors: Option<&Errors>) -> Option<Fault> {
        let xid = errors.is_some_and(|errors| errors.fatal.is_some()).then_some(Fault::Xid);
        // Without an answer of the driver nothing is said of the device, but by the kernel log.
        let Some(gpus) = gpus else { return xid };
        let Some(gpu) = self.gpu(Some(gpus)) else { return Some(Fault::Lost) };
        match gpu.health.get() {
            Some(GpuHealth::Lost) => return Some(Fault::Lost),
            Some(GpuHealth::ResetRequired) => return Some(Fault::Reset),
            _ => {}
        }
        let is = |broken: fn(&Errors) -> bool, fault| errors.is_some_and(broken).then_some(fault);
        xid.or(is(|errors| errors.uncorrected.is_some(), Fault::Ecc)).or(is(Errors::wants_reset, Fault::Reset)).or((gpu
            .ecc
            .remap_failed
            .copied()
            == Some(true))
        .then_some(Fault::Remap))
    }

    /// Whether anybody holds it; nothing when that cannot be told.
    fn allocated(&self, facts: &UnitFacts<'_>) -> Option<bool> {
        let gpu = facts.gpu?;
        if self.rest {
            return Some(false);
        }
        // Utilization that nobody makes holds nothing.
        let busy = gpu.util.copied().is_some_and(|util| util.0 > 0) && !facts.device.is(Lie::Ghost);
        match gpu.processes.get() {
            // Nobody on the list and yet at work: processes of another pid namespace. Whose it is cannot be told.
            Some(_) if self.processes_of(gpu).next().is_none() => {
                return if busy && self.gi.is_none() { None } else { Some(false) };
            }
            Some(_) => return Some(true),
            None => {}
        }
        let used = gpu.mem_used.copied().zip(gpu.mem_total.copied()).map(|(used, total)| used.0 > total.0 / 20);
        used.or_else(|| gpu.util.copied().map(|util| util.0 > 0))
    }

    fn pids_of(&self, gpu: &Gpu) -> Vec<u32> {
        self.processes_of(gpu).map(|process| process.pid).collect()
    }

    fn processes_of<'a>(&self, gpu: &'a Gpu) -> impl Iterator<Item = &'a GpuProcess> {
        let gi = self.gi;
        gpu.processes.get().into_iter().flatten().filter(move |process| gi.is_none() || process.gi == gi)
    }
}

/// What a GPU is called: its UUID, else its place. A board that was lost before anybody looked has neither, and is
/// there all the same.
pub(crate) fn identity(gpu: &Gpu) -> Cow<'_, str> {
    let placed = || gpu.pci.get().map_or_else(|| nameless(gpu.index), |pci| format!("pci-{pci}"));
    gpu.uuid.get().map_or_else(|| Cow::Owned(placed()), |uuid| Cow::Borrowed(uuid.as_str()))
}

/// The name of a board that has given neither UUID nor address yet.
pub(crate) fn nameless(index: u32) -> String {
    format!("{NAMELESS}{index}")
}
