//! The recording that an agent on the scenario's node would have made.

use gpuprod_snapshot::units::{Nanos, from_f64, to_f64};
use gpuprod_snapshot::{BootId, Hung, Missing, Part, Reading, Sample, Source, Stamp, Tick};

use crate::parts::{engine, gpus, host, node, storage, topology};
use crate::rng::Rng;
use crate::scenario::{Scenario, What};
use crate::truth::Computed;
use crate::twin::Done;
use crate::world::World;

/// 2026-03-01T02:00:00Z: a Sunday, the first of its month, when scheduled scrubs run.
const START: u64 = 1_772_330_400;
/// The host has been up for ten days, its processes for an hour.
const UPTIME: u64 = 864_000;
pub(crate) const AGE: u64 = 3600;
/// After a boot: seconds since the kernel started, and since the processes did.
const BOOTED: u64 = 45;
/// The agent calls a source hung after three seconds.
const PATIENCE: u64 = 3;

impl Scenario {
    /// The ticks, one per second in which the agent ran. The same scenario gives the same ticks.
    #[must_use]
    pub fn ticks(&self) -> Ticks<'_> {
        Ticks {
            scenario: self,
            world: World::new(self, 0, AGE),
            second: 0,
            number: 0,
            boot: 0,
            booted: UPTIME,
            boot_second: 0,
            slept: 0,
            slept_before_boot: 0,
            log: 1000,
            dark: false,
            jitter: Rng::new(self.seed, "jitter"),
        }
    }
}

/// The ticks of a scenario.
#[derive(Debug)]
pub struct Ticks<'a> {
    scenario: &'a Scenario,
    world: World<'a>,
    second: u64,
    number: u64,
    boot: u64,
    /// Time since boot at `boot_second`.
    booted: u64,
    boot_second: u64,
    slept: u64,
    slept_before_boot: u64,
    log: u64,
    dark: bool,
    jitter: Rng,
}

/// What the node did in a second.
enum Second {
    Ran,
    Unseen,
    Asleep,
    Down,
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        while self.second < self.scenario.length {
            let second = self.second;
            self.second += 1;
            match self.what(second) {
                Second::Down => self.dark = true,
                Second::Asleep => self.slept += 1,
                Second::Unseen => {
                    // The agent that starts afterwards reads every source with its first tick.
                    self.number = 0;
                    self.up(second);
                    self.world.step(second);
                }
                Second::Ran => {
                    self.up(second);
                    self.world.step(second);
                    let tick = self.tick(second);
                    self.number += 1;
                    return Some(tick);
                }
            }
        }
        None
    }
}

impl Ticks<'_> {
    /// The second of the scenario that the last tick stands for, whatever the wall clock did.
    #[must_use]
    pub fn second(&self) -> u64 {
        self.second.saturating_sub(1)
    }

    /// The useful work of a GPU in the second of the last tick.
    #[must_use]
    pub fn done(&self, gpu: usize) -> Done {
        self.world.done(gpu)
    }

    /// What the engine of a name has computed up to the last tick; none where no requests drive it.
    #[must_use]
    pub fn computed(&self, name: &str) -> Option<Computed> {
        let at = self.scenario.works.iter().position(|work| work.name == name)?;
        let totals = self.world.jobs.get(at)?.sim.as_ref()?.totals();
        let all = totals.prompt - totals.hits + totals.generated + totals.recomputed;
        let (again, duplicate) = (totals.recomputed, totals.duplicate);
        Some(Computed { all, again, duplicate, first: totals.first, late: totals.late })
    }

    fn what(&self, second: u64) -> Second {
        let events = self.scenario.events.iter().filter(|event| event.on(second));
        events.fold(Second::Ran, |what, event| match event.what {
            What::Reboot => Second::Down,
            What::Suspend => Second::Asleep,
            What::Gap => Second::Unseen,
            _ => what,
        })
    }

    /// The first second after a boot: all counters are new.
    fn up(&mut self, second: u64) {
        if std::mem::take(&mut self.dark) {
            self.boot += 1;
            self.boot_second = second;
            self.booted = BOOTED;
            self.slept_before_boot = self.slept;
            self.log = 500;
            self.number = 0;
            self.world = World::new(self.scenario, second, BOOTED - 15);
        }
    }

    fn stamp(&self, second: u64) -> Stamp {
        let boottime = Nanos::from_secs(self.booted + second - self.boot_second);
        let slept = Nanos::from_secs(self.slept - self.slept_before_boot);
        Stamp {
            boot_id: BootId(format!(
                "51b00000-0000-4000-8000-{:04x}{:08x}",
                self.boot,
                self.scenario.seed & 0xffff_ffff
            )),
            boottime,
            monotonic: boottime.saturating_sub(slept),
            realtime: self.unix(i64::try_from(second).unwrap_or(0), self.scenario.clock_step(second)),
        }
    }

    fn unix(&self, second: i64, step: i64) -> Nanos {
        let unix = i64::try_from(START).unwrap_or(0).saturating_add(second).saturating_add(step);
        Nanos::from_secs(u64::try_from(unix).unwrap_or(0))
    }

    /// A second of the scenario as time since the boot, on the grid of clock ticks.
    fn since_boot(&self, second: i64) -> Nanos {
        let base = i64::try_from(self.booted).unwrap_or(0) - i64::try_from(self.boot_second).unwrap_or(0);
        Nanos::from_secs(u64::try_from(base.saturating_add(second)).unwrap_or(0))
    }

    fn tick(&mut self, second: u64) -> Tick {
        let stamp = self.stamp(second);
        let mut tick = Tick { stamp: stamp.clone(), period: Nanos::from_secs(1), ..Tick::default() };
        for source in Source::ALL {
            if !self.number.is_multiple_of(u64::from(source.period_ticks())) {
                continue;
            }
            // Reads end some milliseconds before the tick is put together; the time is the sample's own.
            let took = Nanos(from_f64(1e6 + self.jitter.unit() * 2e6).unwrap_or(0));
            let before = Nanos(from_f64(1e6 + self.jitter.unit() * 2e7).unwrap_or(0));
            let at = stamp.boottime.saturating_sub(before);
            let Some(part) = self.part(*source, &stamp, at) else { continue };
            if let Part::Engine(engines) = &part
                && engines.engines.is_empty()
            {
                let why = "no engine URL is configured: unsupported; --engine URL".to_owned();
                tick.put_missing(
                    *source,
                    Sample { at, took, value: Reading::Missing(Missing::Unsupported), why, hung: None },
                );
                continue;
            }
            let (lost, failed) = self.scenario.trouble(*source, second);
            if lost > 0.0 && self.jitter.unit() < lost {
                continue;
            }
            if failed {
                let why = format!("collector {}: the source answers with an error", source.as_str());
                let value = Reading::Missing(Missing::Malformed);
                tick.put_missing(*source, Sample { at, took, value, why, hung: None });
                continue;
            }
            if *source == Source::Gpu
                && let Some((call, since)) = self.scenario.nvml_hangs(second)
            {
                self.hang(&mut tick, call, since, second);
                continue;
            }
            tick.put(Sample { at, took, value: Reading::Value(part), why: String::new(), hung: None });
        }
        tick
    }

    fn part(&mut self, source: Source, stamp: &Stamp, at: Nanos) -> Option<Part> {
        let (world, second) = (&self.world, self.world.second);
        let step = self.scenario.clock_step(second);
        Some(match source {
            Source::Gpu => Part::Gpu(gpus::gpus(world, self.boot)),
            Source::Xid => Part::Xid(gpus::xids(self.scenario, second, stamp.monotonic, &mut self.log)),
            Source::Engine => Part::Engine(engine::engines(world, at, |second| self.unix(second, step))),
            Source::Md => Part::Md(storage::md(self.scenario, second)),
            Source::Block => Part::Block(storage::block(world)),
            Source::Fs => Part::Fs(storage::fs(world)),
            Source::Psi => Part::Psi(host::psi(world)),
            Source::Cpu => Part::Cpu(node::cpu(world)),
            Source::Net => Part::Net(node::net(world)),
            Source::Pci => Part::Pci(topology::pci(world)),
            Source::Numa => Part::Numa(topology::numa(self.scenario.gpus.count)),
            Source::Proc => Part::Proc(host::processes(world, self.boot, |second| self.since_boot(second))),
            Source::Cgroup => Part::Cgroup(host::cgroups(world)),
            _ => return None,
        })
    }

    /// What the agent says of a source that does not come back: nothing at first, then that it is stuck.
    fn hang(&self, tick: &mut Tick, call: &str, since: u64, second: u64) {
        if second < since + PATIENCE {
            return;
        }
        let boottime = tick.stamp.boottime;
        let took = Nanos::from_secs(second - since);
        tick.put_missing(
            Source::Gpu,
            Sample {
                at: boottime,
                took,
                value: Reading::Missing(Missing::TimedOut),
                why: format!("collector gpu has been in {call} for {:.1} s", to_f64(second - since)),
                hung: Some(Hung { call: call.to_owned(), since: boottime.saturating_sub(took) }),
            },
        );
    }
}
