//! One GPU: what is asked of it in which sample, and what is known of it when it does not answer.

use std::collections::BTreeMap;

use gpuprod_snapshot::gpu::{Gpu, GpuEcc, GpuHealth, GpuPcie, MigInstance, Vendor};
use nvml_wrapper_sys::bindings::field_id;

use super::calls::{Code, Device, GPU_IS_LOST, Library, NOT_SUPPORTED, Raw};
use super::gpm::{GpmPair, gpm};
use super::map;
use crate::{Missing, Reading};

/// How often what is read, in samples. What is not read keeps its last reading and is sent again with the next
/// sample: simpler than a second kind of absence, and these values change slowly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cadence {
    /// Lists of processes: the dearest call (4.5 ms were measured on a desktop card).
    pub(super) processes: u64,
    /// Memory errors, row remapping, replays, the driver's recovery action.
    pub(super) errors: u64,
    /// What does not change while a board stays in its slot.
    pub(super) inventory: u64,
    /// How long a call that a board lacks is not repeated.
    pub(super) probe: u64,
}

impl Default for Cadence {
    fn default() -> Self {
        Self { processes: 5, errors: 30, inventory: 60, probe: 600 }
    }
}

/// Fields that are asked together in each sample: id, scope (all links for NVLink), name for the probe.
const FIELDS: [(u32, u32, &str); 5] = [
    (field_id::NVML_FI_DEV_MEMORY_TEMP, 0, "memory temperature"),
    (field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, "pcie tx"),
    (field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, "pcie rx"),
    (field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, u32::MAX, "nvlink tx"),
    (field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, u32::MAX, "nvlink rx"),
];

/// Clock domains, error kinds and counters of nvml.h.
const SM: u32 = 1;
const MEMORY: u32 = 2;
const CORRECTED: u32 = 0;
const UNCORRECTED: u32 = 1;
const VOLATILE: u32 = 0;

/// Profiles by number: 1, 2, 3, 4, 7, 8, 6 slices. More exist, of the same sizes.
const PROFILES: u32 = 7;

/// One GPU as the worker knows it.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// NVML's handle; nothing while it gives none.
    pub(super) device: Option<Device>,
    /// The last reading.
    pub(super) gpu: Gpu,
    /// Calls that the board lacks, and until which sample they are not repeated.
    lacking: BTreeMap<&'static str, u64>,
    /// Samples of the board's units, and of its instances by id.
    gpm: BTreeMap<Option<u32>, GpmPair>,
    gpm_supported: bool,
    instances: Vec<(Device, MigInstance)>,
    /// Time stamp of the newest sample of process activity.
    seen: u64,
}

/// Asks one board, and notes what the answers say of it as a whole.
pub(super) struct Asker<'a> {
    pub(super) library: &'a Library,
    pub(super) device: Device,
    sample: u64,
    probe: u64,
    lacking: &'a mut BTreeMap<&'static str, u64>,
    health: GpuHealth,
}

impl Asker<'_> {
    pub(super) fn ask<T>(&mut self, name: &'static str, call: impl FnOnce(&Library, Device) -> Raw<T>) -> Raw<T> {
        // Each call on a lost board may wait for seconds in the driver: one such answer is enough.
        if self.health == GpuHealth::Lost {
            return Err(GPU_IS_LOST);
        }
        if self.lacks(name) {
            return Err(NOT_SUPPORTED);
        }
        call(self.library, self.device).inspect_err(|code| self.note(name, *code))
    }

    fn lacks(&self, name: &str) -> bool {
        self.lacking.get(name).is_some_and(|until| self.sample < *until)
    }

    fn note(&mut self, name: &'static str, code: Code) {
        if map::lacks(code) {
            self.lacking.insert(name, self.sample.saturating_add(self.probe));
        }
        if let Some(health) = map::health(code) {
            self.health = health;
        }
    }

    /// The newer call, or the older one where the library lacks the newer.
    fn either<T>(
        &mut self,
        newer: (&'static str, impl FnOnce(&Library, Device) -> Raw<T>),
        older: (&'static str, impl FnOnce(&Library, Device) -> Raw<T>),
    ) -> Raw<T> {
        match self.ask(newer.0, newer.1) {
            Err(code) if map::lacks(code) => self.ask(older.0, older.1),
            answer => answer,
        }
    }
}

impl Board {
    /// A board of which only the place in NVML's order is known.
    pub(super) fn unknown(index: u32) -> Self {
        let gpu = Gpu { index, vendor: Vendor::Nvidia.into(), ..Gpu::default() };
        Self { gpu, ..Self::default() }
    }

    /// Whether it answered like a sound board last time.
    pub(super) fn sound(&self) -> bool {
        self.device.is_some() && self.gpu.health.get() == Some(&GpuHealth::Ok)
    }

    /// Reads it once. With `inventory` also what is otherwise read now and then.
    pub(super) fn read(&mut self, library: &Library, sample: u64, cadence: &Cadence, inventory: bool) {
        let Some(device) = self.device else {
            self.lose(GpuHealth::Lost);
            return;
        };
        // What it said while it was sound is what it is, should it be lost in the middle of this sample.
        let before = self.gpu.clone();
        let mut asker =
            Asker { library, device, sample, probe: cadence.probe, lacking: &mut self.lacking, health: GpuHealth::Ok };
        // Spread over the samples, so that eight boards do not give their lists in the same one.
        let turn = sample.saturating_add(self.gpu.index.into());
        if inventory {
            identity(&mut asker, &mut self.gpu);
            self.gpm_supported = asker.ask("gpm", Library::gpm_supported).unwrap_or(false);
            self.instances = instances(&mut asker, self.gpu.mig.copied() == Some(true));
        }
        sensors(&mut asker, &mut self.gpu);
        if inventory || turn.is_multiple_of(cadence.errors) {
            errors(&mut asker, &mut self.gpu.ecc, &mut self.gpu.pcie);
        }
        if inventory || turn.is_multiple_of(cadence.processes) {
            processes(&mut asker, &mut self.gpu, &mut self.seen);
        }
        self.gpu.gpm = gpm(&mut asker, &mut self.gpm, self.gpm_supported, None);
        let supported = self.gpm_supported;
        let pairs = &mut self.gpm;
        self.gpu.instances = self
            .instances
            .iter()
            .map(|(handle, known)| {
                let memory = library.memory(*handle);
                let (mem_total, mem_used, _) = map::memory(memory);
                MigInstance {
                    mem_total,
                    mem_used,
                    gpm: gpm(&mut asker, pairs, supported, Some(known.gi)),
                    ..known.clone()
                }
            })
            .collect();
        match asker.health {
            GpuHealth::Lost => {
                self.gpu = before;
                self.lose(GpuHealth::Lost);
            }
            health => self.gpu.health = Reading::Value(health),
        }
    }

    /// What is left of a board that does not answer: what it is, and that it is gone.
    pub(super) fn lose(&mut self, health: GpuHealth) {
        let old = std::mem::take(&mut self.gpu);
        self.gpu = gone(Gpu::default(), old, health);
        self.device = None;
        self.instances.clear();
        self.lacking.clear();
    }

    /// Gives back what the driver holds for us.
    pub(super) fn close(&mut self, library: &Library) {
        for (_, pair) in std::mem::take(&mut self.gpm) {
            for sample in pair.newest.into_iter().chain([pair.spare]) {
                let _ = library.gpm_free(sample);
            }
        }
    }
}

/// Every sensor gone, the identity kept.
fn gone(mut gpu: Gpu, old: Gpu, health: GpuHealth) -> Gpu {
    let lost = || Missing::Gone;
    gpu.index = old.index;
    gpu.vendor = Vendor::Nvidia.into();
    // Never read: it was gone before it could be.
    gpu.uuid = settle(old.uuid);
    gpu.pci = settle(old.pci);
    gpu.model = settle(old.model);
    gpu.mem_total = settle(old.mem_total);
    gpu.power_limit_default = settle(old.power_limit_default);
    gpu.clock_sm_max = settle(old.clock_sm_max);
    gpu.mig = settle(old.mig);
    gpu.mig_slices = settle(old.mig_slices);
    gpu.pcie.generation_max = settle(old.pcie.generation_max);
    gpu.pcie.width_max = settle(old.pcie.width_max);
    gpu.health = Reading::Value(health);
    macro_rules! take { ($($($field:ident).+;)+) => { $(gpu.$($field).+ = Reading::Missing(lost());)+ } }
    take! {
        util; util_mem; mem_used; mem_reserved; power; power_limit; energy; temp; temp_mem; clock_sm; clock_mem;
        clock_reasons; pstate; pcie.tx; pcie.rx; pcie.replay; pcie.generation; pcie.width; ecc.corrected;
        ecc.uncorrected; ecc.remap_pending; ecc.remap_failed; ecc.recovery_action; nvlink_tx; nvlink_rx; gpm; processes;
    }
    gpu
}

fn settle<T>(reading: Reading<T>) -> Reading<T> {
    match reading {
        Reading::Missing(Missing::NotYet) => Reading::Missing(Missing::Gone),
        reading => reading,
    }
}

fn identity(asker: &mut Asker<'_>, gpu: &mut Gpu) {
    gpu.pci = map::pci(asker.ask("pci", Library::pci));
    gpu.model = map::text(asker.ask("name", Library::name));
    gpu.power_limit_default = map::power(asker.ask("default limit", Library::power_limit_default));
    gpu.clock_sm_max = map::clock(asker.ask("largest clock", |l, d| l.clock_max(d, SM)));
    gpu.pcie.generation_max = map::plain(asker.ask("largest generation", Library::link_generation_max), u32::from);
    gpu.pcie.width_max = map::plain(asker.ask("largest width", Library::link_width_max), u32::from);
    gpu.mig = map::plain(asker.ask("mig", Library::mig), |on| on);
    if gpu.mig.get().is_none() {
        gpu.mig_slices = Reading::Missing(gpu.mig.missing().unwrap_or(Missing::Unsupported));
    } else if gpu.mig_slices.get().is_none() {
        let slices = (0..PROFILES).filter_map(|number| asker.library.profile(asker.device, number).ok());
        let largest = slices.map(|profile| profile.sliceCount).max();
        gpu.mig_slices = Reading::from_option(largest, Missing::Unsupported);
    }
}

fn sensors(asker: &mut Asker<'_>, gpu: &mut Gpu) {
    let rates = asker.ask("utilization", Library::utilization);
    gpu.util = map::percent(rates.map(|rates| rates.gpu));
    gpu.util_mem = map::percent(rates.map(|rates| rates.memory));
    (gpu.mem_total, gpu.mem_used, gpu.mem_reserved) = match asker.ask("memory", Library::memory) {
        Err(code) if map::lacks(code) => map::memory_v1(asker.ask("memory v1", Library::memory_v1)),
        answer => map::memory(answer),
    };
    gpu.power = map::power(asker.ask("power", Library::power));
    gpu.power_limit = map::power(asker.ask("limit", Library::power_limit));
    gpu.energy = map::energy(asker.ask("energy", Library::energy));
    gpu.temp = map::temperature(asker.either(
        ("temperature", |l, d| l.temperature(d).map(i64::from)),
        ("temperature v1", |l, d| l.temperature_v1(d, 0).map(i64::from)),
    ));
    gpu.clock_sm = map::clock(asker.ask("sm clock", |l, d| l.clock(d, SM)));
    gpu.clock_mem = map::clock(asker.ask("memory clock", |l, d| l.clock(d, MEMORY)));
    gpu.clock_reasons = map::plain(
        asker.either(("reasons", Library::clock_reasons), ("reasons old", Library::clock_reasons_old)),
        |reasons| reasons,
    );
    gpu.pstate = map::pstate(asker.ask("pstate", Library::pstate));
    gpu.pcie.generation = map::plain(asker.ask("generation", Library::link_generation), |now| now);
    gpu.pcie.width = map::plain(asker.ask("width", Library::link_width), |now| now);
    fields(asker, gpu);
}

fn fields(asker: &mut Asker<'_>, gpu: &mut Gpu) {
    let asked: Vec<_> = FIELDS.iter().filter(|(.., name)| !asker.lacks(name)).collect();
    let ids: Vec<_> = asked.iter().map(|(id, scope, _)| (*id, *scope)).collect();
    let answers = match ids.is_empty() {
        true => Err(NOT_SUPPORTED),
        false => asker.ask("fields", |l, d| l.fields(d, &ids)),
    };
    let mut value = |wanted: usize| -> Raw<u64> {
        let (.., name) = FIELDS[wanted];
        let place = asked.iter().position(|(.., asked)| *asked == name).ok_or(NOT_SUPPORTED)?;
        let answer = answers.as_ref().map_err(|code| *code)?.get(place).copied();
        answer.unwrap_or(Err(NOT_SUPPORTED)).inspect_err(|code| asker.note(name, *code))
    };
    gpu.temp_mem = map::temperature(value(0).map(|degrees| i64::try_from(degrees).unwrap_or(i64::MAX)));
    gpu.pcie.tx = map::bytes(value(1));
    gpu.pcie.rx = map::bytes(value(2));
    gpu.nvlink_tx = map::kibibytes(value(3));
    gpu.nvlink_rx = map::kibibytes(value(4));
}

fn errors(asker: &mut Asker<'_>, ecc: &mut GpuEcc, pcie: &mut GpuPcie) {
    ecc.corrected = map::plain(asker.ask("corrected", |l, d| l.ecc_errors(d, CORRECTED, VOLATILE)), |n| n);
    ecc.uncorrected = map::plain(asker.ask("uncorrected", |l, d| l.ecc_errors(d, UNCORRECTED, VOLATILE)), |n| n);
    let rows = asker.ask("remapped", Library::remapped);
    ecc.remap_pending = map::plain(rows, |(pending, _)| pending);
    ecc.remap_failed = map::plain(rows, |(_, failed)| failed);
    let action = [(field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)];
    let action =
        asker.ask("recovery action", |l, d| l.fields(d, &action)?.first().copied().unwrap_or(Err(NOT_SUPPORTED)));
    ecc.recovery_action = map::number(action);
    pcie.replay = map::plain(asker.ask("replays", Library::replays), u64::from);
}

fn processes(asker: &mut Asker<'_>, gpu: &mut Gpu, seen: &mut u64) {
    let compute = asker.ask("compute", Library::compute_processes);
    let graphics = asker.ask("graphics", Library::graphics_processes);
    let mps = asker.ask("mps", Library::mps_processes);
    let activity = asker.ask("activity", |l, d| l.process_utilization(d, *seen));
    if let Ok(samples) = &activity {
        *seen = samples.iter().map(|sample| sample.timeStamp).fold(*seen, u64::max);
    }
    gpu.processes = map::processes(compute, graphics, mps, &activity);
}

/// The GPU instances and their handles. Several compute instances may share one: it is listed once.
fn instances(asker: &mut Asker<'_>, on: bool) -> Vec<(Device, MigInstance)> {
    let most = if on { asker.ask("mig devices", Library::mig_count_max).unwrap_or(0) } else { 0 };
    let mut found: Vec<(Device, MigInstance)> = Vec::new();
    for number in 0..most.min(64) {
        // A place without an instance is "not found": the places have holes.
        let Ok(handle) = asker.library.mig_device(asker.device, number) else { continue };
        let Ok(gi) = asker.library.gpu_instance_id(handle) else { continue };
        if found.iter().any(|(_, known)| known.gi == gi) {
            continue;
        }
        let instance = MigInstance {
            uuid: map::text(asker.library.uuid(handle)),
            gi,
            slices: map::plain(asker.library.attributes(handle), |attributes| attributes.gpuInstanceSliceCount),
            ..MigInstance::default()
        };
        found.push((handle, instance));
    }
    found.sort_by_key(|(_, instance)| instance.gi);
    found
}
