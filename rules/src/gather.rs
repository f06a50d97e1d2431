//! Gathers the facts of every unit from the window and the shared tables.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::gpu::{Gpu, Gpus};
use gpuprod_snapshot::host::{Pressure, Pressures, Process, Psi};
use gpuprod_snapshot::storage::{Block, Md};
use gpuprod_snapshot::tenant::{Cgroup, JobNote};
use gpuprod_snapshot::units::Nanos;

use crate::facts::device::{self, DeviceFacts};
use crate::facts::host::{self as ties, UnitHost};
use crate::facts::pcie::UnitPcie;
use crate::facts::trainer::Trainer;
use crate::facts::work::Work;
use crate::facts::{Demand, UnitFacts, peers};
use crate::join;
use crate::reading::dead;
use crate::signals::device::Lie;
use crate::signals::own::Lesson;
use crate::signals::{EngineSignals, Signals};
use crate::tenancy::Tenancy;
use crate::unit::{Unit, Units, nameless};
use crate::window::Window;
use crate::{Policy, UnitId, Weight, WeightSource, weight};
use crate::{holders, kin};

/// The readings of this tick that facts are made of.
pub(crate) struct Gather<'a> {
    pub(crate) window: &'a Window,
    pub(crate) signals: &'a Signals,
    pub(crate) now: Nanos,
    gpus: Option<&'a Gpus>,
    pub(crate) engines: &'a [Engine],
    pub(crate) processes: BTreeMap<u32, &'a Process>,
    /// The processes of the sample before.
    pub(crate) before: BTreeMap<u32, &'a Process>,
    /// Whether the process table could be read at all.
    pub(crate) looked: bool,
    pub(crate) cgroups: BTreeMap<&'a str, &'a Cgroup>,
    pub(crate) notes: &'a [JobNote],
    pub(crate) tenancy: &'a Tenancy,
    pub(crate) block: Option<&'a Block>,
    pub(crate) devices: Option<join::Devices<'a>>,
    pub(crate) md: Option<&'a Md>,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(window: &'a Window, signals: &'a Signals, tenancy: &'a Tenancy) -> Self {
        let engines = window.value(Source::Engine, |tick| &tick.engine).get().map(|engines| engines.engines.as_slice());
        let processes = window.value(Source::Proc, |tick| &tick.proc).get().map(|all| all.processes.as_slice());
        let all = window.value(Source::Cgroup, |tick| &tick.cgroup).get().copied();
        let cgroups = all.map(|all| all.cgroups.as_slice());
        let block = window.value(Source::Block, |tick| &tick.block).get().copied();
        Self {
            window,
            signals,
            now: window.last.stamp.boottime,
            gpus: window.value(Source::Gpu, |tick| &tick.gpu).get().copied(),
            engines: engines.unwrap_or_default(),
            before: window.pair(|tick| &tick.proc).map(|(old, ..)| join::by_pid(&old.processes)).unwrap_or_default(),
            looked: processes.is_some(),
            processes: join::by_pid(processes.unwrap_or_default()),
            cgroups: cgroups.unwrap_or_default().iter().map(|cgroup| (cgroup.path.as_str(), cgroup)).collect(),
            notes: all.map(|all| all.notes.as_slice()).unwrap_or_default(),
            tenancy,
            block,
            devices: block.map(join::by_name),
            md: window.value(Source::Md, |tick| &tick.md).get().copied(),
        }
    }

    /// The facts of all units. What a unit remembers (its deficit, its power normal) is brought up to date.
    pub(crate) fn all(&self, units: &mut Units, policy: &Policy) -> Vec<UnitFacts<'a>> {
        let (works, places) = self.works(units);
        let mut facts: Vec<UnitFacts<'a>> = Vec::with_capacity(places.len());
        for ((id, unit), place) in units.iter_mut().zip(places) {
            let Some(work) = works.get(place) else { continue };
            facts.push(self.unit(id, unit, work, policy));
        }
        kin::introduce(&mut facts);
        device::tell(&mut facts);
        peers::tell(&mut facts, self.now, policy);
        for ((_, unit), facts) in units.iter_mut().zip(&mut facts) {
            unit.waits.step(facts);
        }
        facts
    }

    /// The workloads of the node, and which of them each unit has: those of the same processes have the same.
    fn works(&self, units: &Units) -> (Vec<Rc<Work<'a>>>, Vec<usize>) {
        let lines = join::lines(&self.processes);
        let mut listed: Vec<(Vec<u32>, usize)> = Vec::new();
        let mut families: Vec<BTreeSet<u32>> = Vec::new();
        let mut places = Vec::new();
        for (_, unit) in units.iter() {
            let pids = unit.pids(self.gpus);
            let known = listed.iter().find(|(known, _)| *known == pids).map(|(_, place)| *place);
            places.push(known.unwrap_or_else(|| {
                let family = join::family(&pids, &lines);
                let place = families.iter().position(|other| *other == family).unwrap_or(families.len());
                if place == families.len() {
                    families.push(family);
                }
                listed.push((pids, place));
                place
            }));
        }
        let sole = families.iter().filter(|family| !family.is_empty()).count() == 1;
        (families.into_iter().map(|family| Rc::new(self.work(family, sole))).collect(), places)
    }

    fn work(&self, family: BTreeSet<u32>, sole: bool) -> Work<'a> {
        let page = |trains| join::engine_of(&family, &self.processes, self.engines, trains, sole);
        let engine = if family.is_empty() { None } else { page(false) };
        let block = self.block.zip(self.devices.as_ref());
        let path = block.map(|block| join::storage_of(&family, &self.processes, block, self.md));
        let path = path.unwrap_or_default();
        let disks = || path.disks.iter();
        Work {
            engine,
            page: if family.is_empty() || engine.is_some() { None } else { page(true) },
            number: self.number(&family),
            in_flight: disks().filter_map(|disk| self.signals.disks.get(disk)?.in_flight.latest()).sum(),
            path,
            mounts: self.mounts(&family),
            io_by_device: self.io_by_device(&family),
            rates: self.rates(&family),
            io_some: self.pressure(&family, |pressures| &pressures.io),
            cpu_some: self.pressure(&family, |pressures| &pressures.cpu).map(|(some, _)| some),
            blocked: self.blocked(&family),
            owner: self.owner(&family),
            interactive: self.interactive(&family),
            ties: ties::of(self, &family),
            family,
        }
    }

    fn unit(&self, id: &UnitId, unit: &mut Unit, work: &Rc<Work<'a>>, policy: &Policy) -> UnitFacts<'a> {
        let gpu = unit.gpu(self.gpus);
        // While the driver hangs, nobody lists processes: the engine that was last seen on the unit stays its own.
        let remembered = || self.engines.iter().find(|engine| Some(&engine.url) == unit.engine.as_ref());
        let engine = work.engine.or_else(|| if gpu.is_none() { remembered() } else { None });
        if work.engine.is_some() || gpu.is_some() {
            let url = engine.map(|engine| &engine.url);
            if unit.engine.as_ref() != url {
                unit.engine = url.cloned();
            }
        }
        let signals = engine.and_then(|engine| self.signals.engines.get(&engine.url)).map(|engine| &**engine);
        let trainer = if engine.is_none() { self.trainer(unit, work.page, policy) } else { Trainer::default() };
        let steps = trainer.signals.and_then(|steps| steps.rate(self.now, policy));
        let counted = signals.map_or(steps, |engine| engine.lately(self.now, policy.block_ns));
        if let Some(gpu) = gpu {
            // A page that has not told yet may count.
            let paged = engine.is_some() || trainer.page.is_some();
            unit.power.learn_context(gpu, counted.map_or(paged, |rate| rate > 0.0));
        }
        let mut device = self.device(unit, &work.family, policy);
        // What cannot be believed is as if it had not been read.
        let believed = gpu.filter(|_| !device.is(Lie::Frozen));
        let mig = unit.gi.is_some();
        let board = believed.filter(|_| !mig && !device.is(Lie::DeadUtil));
        let own = unit.power.references(policy);
        let weight = if mig {
            unit.instance(self.gpus)
                .filter(|_| believed.is_some())
                .and_then(|instance| weight::gpm(instance.gpm.get()?, own))
                .map(|w| Weight { w: crate::Part::from_fraction(w), source: WeightSource::Gpm })
        } else {
            None
        };
        // A page that counts work while the GPU below it rests speaks of another GPU, or lies.
        let rests = unit.usage.block.rests() && signals.and_then(EngineSignals::rate).is_some_and(|rate| rate > 0.0);
        let silicon = if mig { unit.instance(self.gpus).and_then(|instance| instance.gpm.get()) } else { None };
        let silicon = silicon.or_else(|| believed.filter(|_| !mig)?.gpm.get()).filter(|_| believed.is_some());
        unit.own.read(self.now, weight::pace(silicon, board), policy);
        let weight = weight
            .or_else(|| weight::of((silicon.filter(|_| !mig), board), signals.filter(|_| !rests), own, self.now))
            .unwrap_or(Weight::NONE);
        let (silicon_weight, exact, slower) = self.pace(unit, &device, weight, policy);
        let (weight, exact) = match trainer.weight(self.now, policy) {
            Some(steps) => (steps, trainer.exact()),
            None => (silicon_weight, exact),
        };
        let demand = if rests { Demand::Unknown } else { demand(engine) };
        let floor = unit.floor(policy);
        let known = match weight.source {
            WeightSource::Tokens => {
                matches!(demand, Demand::Present { .. }) && !signals.is_some_and(EngineSignals::is_guessed)
            }
            _ => engine.is_none() && exact.is_some(),
        };
        // What the clock explains nobody else is asked for.
        let w = (weight.w.as_fraction() / (1.0 - slower).max(0.01)).min(1.0);
        let deficit = known && !trainer.evaluates && 1.0 - w >= floor.as_fraction();
        // A step after a stop ends no deficit yet: steps that take many times as long look like stops.
        let resumes = trainer.signals.is_some_and(|steps| steps.resumes(self.now, policy));
        let since = unit.deficit_since.or_else(|| deficit.then_some(self.now));
        unit.deficit_since = since.filter(|_| deficit || (resumes && !trainer.evaluates));
        let mut readings = self.readings(unit, believed, signals, work);
        readings.steps = steps;
        readings.dead = dead(unit, (believed, &readings), counted, policy);
        if device.lie.is_some() {
            readings.util = None;
        }
        device.conflict = unit.conflict(&readings, believed, (signals, &trainer), self.now, policy);
        let holders = self.holders(unit, gpu, readings.memory, policy);
        holders::remember(unit, &holders, engine, readings.memory, policy);
        let refused = self.refused(unit);
        let job = self.job(&holders.pids());
        let over = job.as_ref().is_some_and(|job| job.over.is_some());
        let life = holders::life(unit, &holders, (refused, over), readings.memory, policy);
        let usage = Arc::make_mut(&mut unit.usage);
        usage.step(self.now, &readings, &life, policy);
        if holders.stopped() {
            usage.stopped = Some(self.now);
        }
        let (open, block, well) =
            (unit.usage.opened(), unit.usage.block, unit.is_well() && unit.deficit_since.is_none());
        let workload = unit.workload(work.number, signals, &trainer);
        let ill = self.looks_ill(unit, silicon, believed.filter(|_| !mig), &work.path, policy);
        let doubt = unit.doubts(ill, workload, self.now);
        // Its own pace is what a unit has longest: once that is known, a bad hour is a bad hour.
        let certain = !doubt || unit.own.is_known(policy);
        let well = well && certain;
        Arc::make_mut(&mut unit.usage).calm.learn(open, &block, workload, well);
        unit.power.learn(open, &block, workload, well);
        unit.activity.learn(open, &block, workload, well, policy);
        let sound = unit.is_well() && device.conflict.is_none();
        let full = unit.deficit_since.is_none() && certain;
        let lesson = Lesson { workload, util: block.util, well: sound, full };
        unit.own.learn(self.now, lesson, policy);
        if engine.is_some() {
            unit.silicon.step(self.now, (silicon, believed.filter(|_| !mig)), lesson, policy);
        }
        let alone = engine.is_none().then(|| silicon_weight.w.as_fraction().min(trainer.exact().unwrap_or(1.0)));
        let blamed = unit.is_starved();
        let checkpoint =
            unit.checkpoints.step(self.now, (readings.written, alone), blamed, policy.io_stall.checkpoint_ns);
        let pause = trainer.signals.and_then(|steps| steps.pause(self.now, policy));
        unit.evals.step(self.now, pause, block.evaluates(), unit.checkpoints.writes());
        let ownership = self.ownership(unit, gpu, self.tenancy);
        let throttled = device.signals.is_some_and(|signals| signals.clocks.throttled());
        unit.look(gpu, self.now);
        let record = unit.record(id, &policy.declared.allocations);
        let mut facts = UnitFacts {
            id: id.clone(),
            name: unit.name(id),
            gpu,
            util: gpu.filter(|_| device.lie.is_none()).and_then(|gpu| gpu.util.copied()).map(|util| util.as_fraction()),
            engine,
            signals,
            demand,
            weight,
            deviation: match engine {
                Some(_) => signals.and_then(|signals| signals.ratio.deviation(policy)),
                None if unit.evals.on() => None,
                None => trainer.deviation(unit.own.deviation(policy), policy),
            },
            trainer: Trainer { evaluates: unit.evals.on(), ..trainer },
            exact,
            slower,
            silicon: engine.and_then(|_| unit.silicon.ratio(policy)),
            doubt,
            deficit_since: unit.deficit_since,
            work: Rc::clone(work),
            throttled,
            mig,
            rest: unit.is_rest(),
            usage: unit.usage.clone(),
            age: holders
                .found
                .iter()
                .filter_map(|process| Some(self.now.saturating_sub(process.start.copied()?)))
                .min(),
            listens: holders
                .found
                .iter()
                .find_map(|process| process.listens.get()?.iter().find(|port| Some(**port) != trainer.port()).copied()),
            elsewhere: holders.elsewhere(),
            holders,
            vacant_since: unit.vacant_since,
            declared: record.is_some(),
            standby: record.is_some_and(|record| record.standby),
            checkpoint,
            ownership,
            job,
            kin: Vec::new(),
            activity: unit.activity.deviation(policy).filter(|_| !mig),
            resident: unit.activity.util(policy).filter(|_| !mig),
            peers: peers::Peers::default(),
            device,
            host: UnitHost::default(),
            pcie: UnitPcie::of(gpu, &self.signals.pcie),
        };
        let loads = crate::unit::loading(&facts);
        Arc::make_mut(&mut unit.loads).step(self.now, unit.engine.as_ref(), loads, facts.age, readings.io);
        facts.host.loads = unit.loads.clone();
        let (sharers, serves) = ties::sharers(self, &facts);
        facts.host.sharers = unit.sharing.step(open, &sharers, well, policy);
        facts.host.serves = serves;
        unit.before.note(&facts, self.now);
        facts
    }

    /// The weight by the unit's own pace, where that is known and nothing better is; what is booked of it; and the part of
    /// its clock that is held back, by which no activity of silicon can tell how much is done.
    fn pace(
        &self,
        unit: &Unit,
        device: &DeviceFacts<'_>,
        weight: Weight,
        policy: &Policy,
    ) -> (Weight, Option<f64>, f64) {
        let clocks = device.signals.map(|signals| &signals.clocks).filter(|clocks| clocks.throttled());
        let slower = clocks.and_then(|clocks| clocks.deficit(self.now, policy)).unwrap_or(0.0);
        if matches!(weight.source, WeightSource::Tokens | WeightSource::Steps | WeightSource::None) {
            return (weight, None, slower);
        }
        let left = |w: f64| w.min(1.0 - slower);
        let own = unit.own.weight(policy).filter(|(source, _)| *source == weight.source);
        let w = own.map_or(weight.w.as_fraction(), |(_, w)| w);
        let exact = own.and_then(|_| unit.own.exact()).map(left);
        (Weight { w: crate::Part::from_fraction(left(w)), source: weight.source }, exact, slower)
    }

    fn device(&self, unit: &mut Unit, family: &BTreeSet<u32>, policy: &Policy) -> DeviceFacts<'a> {
        let signals = self.signals.devices.get(unit.device());
        let fault = unit.fault(self.gpus, signals.map(|signals| &signals.errors));
        let gone = fault.is_some() && family.is_empty();
        let before = gone.then(|| (unit.before.clone(), self.now.saturating_sub(unit.before.seen)));
        let dead = || unit.usage.dead.lasts(self.now, policy.telemetry_degraded.frozen_ns);
        let lie = signals.and_then(|signals| signals.trust.lie(self.now, policy));
        let lie = lie.or_else(|| dead().map(|since| (Lie::DeadUtil, since)));
        DeviceFacts { signals, fault, broken_peer: None, lie, conflict: None, before }
    }

    /// Share of the last interval in which some task of the workload waited: of its own cgroup where it has
    /// one, else of the whole system.
    pub(crate) fn pressure(
        &self,
        family: &BTreeSet<u32>,
        which: fn(&Pressures) -> &gpuprod_snapshot::Reading<Pressure>,
    ) -> Option<(f64, &'static str)> {
        let (old, new, between) = self.window.pair(|tick| &tick.psi)?;
        let own = family.iter().find_map(|pid| {
            let path = self.processes.get(pid)?.cgroup.get().filter(|path| path.as_str() != "/")?;
            let find =
                |psi: &'a Psi| psi.cgroups.iter().find(|cgroup| &cgroup.path == path).map(|cgroup| &cgroup.pressures);
            Some((find(old)?, find(new)?, "the workload's cgroup"))
        });
        let (old, new, of) = own.unwrap_or((&old.system, &new.system, "the whole system"));
        let waited = which(new).get()?.some.total.checked_sub(which(old).get()?.some.total)?;
        Some(((waited.as_secs_f64() / between.as_secs_f64()).min(1.0), of))
    }

    pub(crate) fn blocked(&self, family: &BTreeSet<u32>) -> Option<(u32, Option<String>)> {
        let mut known = false;
        let (mut threads, mut place) = (0_u32, None);
        for process in family.iter().filter_map(|pid| self.processes.get(pid)) {
            if let Some(blocked) = process.threads_blocked.copied() {
                known = true;
                threads = threads.saturating_add(blocked);
                place = place.or_else(|| process.wchan.get().filter(|_| blocked > 0).cloned());
            }
        }
        known.then_some((threads, place))
    }
}

fn demand(engine: Option<&Engine>) -> Demand {
    let Some(engine) = engine else {
        return Demand::Unknown;
    };
    match (engine.running.copied(), engine.waiting.copied()) {
        (None, None) => Demand::Unknown,
        (running, waiting) => {
            let (running, waiting) = (running.unwrap_or(0), waiting.unwrap_or(0));
            if running > 0 || waiting > 0 { Demand::Present { running, waiting } } else { Demand::Met }
        }
    }
}

/// Names that nearly every node does with: they are asked for every second.
const FIRST: [&str; 8] = ["GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"];

/// `GPU-3` for people.
pub(crate) fn display(index: Option<u32>, id: &UnitId) -> String {
    let Some(index) = index else { return id.0.to_string() };
    let first = usize::try_from(index).ok().and_then(|index| FIRST.get(index));
    first.map_or_else(|| format!("GPU-{index}"), ToString::to_string)
}

/// The device with this UUID, or, when its UUID cannot be read, at this address.
pub(crate) fn find<'a>(
    gpus: Option<&'a Gpus>,
    uuid: &str,
    pci: Option<gpuprod_snapshot::topology::PciAddress>,
) -> Option<&'a Gpu> {
    let devices = &gpus?.devices;
    let by_uuid = devices.iter().find(|gpu| gpu.uuid.get().is_some_and(|own| own == uuid));
    let by_place = || devices.iter().find(|gpu| gpu.uuid.get().is_none() && pci.is_some() && gpu.pci.copied() == pci);
    let by_index = || {
        devices.iter().find(|gpu| gpu.uuid.get().is_none() && gpu.pci.get().is_none() && nameless(gpu.index) == uuid)
    };
    by_uuid.or_else(by_place).or_else(by_index)
}
