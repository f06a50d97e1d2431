//! The node's counters, moved on second by second. Everything that a tick shows is read off from here.

use std::collections::BTreeMap;

use crate::device::Ail;
use crate::effects::Pace;
use crate::engine_sim::{EngineSim, tokens};
use crate::hist::Hist;
use crate::node::{Host, HostKnobs, Node};
use crate::rng::Series;
use crate::scenario::{Fate, Knobs, Scenario, SyncVerb};
use crate::traffic::{Traffic, spread};
use crate::turns;
use crate::twin::Done;

/// Draw of a board without a context, and with one that does nothing (measured on H100 SXM: 69-73 W, 109-137 W).
pub(crate) const IDLE_WATTS: f64 = 70.0;
const CONTEXT_WATTS: f64 = 120.0;
/// Part of the power above context that a GPU draws while its work waits. Measured on an H200 (`tests/recordings/h200`): with
/// halved tokens 327 W of 529 (.02 of it left), with a loader that leaves one second in seven 247 W of 692 (.10): the larger.
const WAITS: f64 = 0.1;
/// Answer of a quiet NFS server on the same network, seconds.
const SHARE_LATENCY: f64 = 0.002;
/// A board that draws no more than this does nothing, whatever its utilization (measured: 118 W at 100 % on an H200).
const SPIN_WATTS: f64 = 160.0;
/// Read latency of a quiet NVMe drive, seconds, and its largest block when md copies.
const NVME_LATENCY: f64 = 0.000_15;
const SYNC_BLOCK: f64 = 524_288.0;

/// A counting device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) reads: f64,
    pub(crate) read_bytes: f64,
    pub(crate) read_seconds: f64,
    pub(crate) writes: f64,
    pub(crate) written_bytes: f64,
    pub(crate) write_seconds: f64,
    pub(crate) busy_seconds: f64,
    pub(crate) in_flight: f64,
}

/// A pressure file's running numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) total: f64,
    pub(crate) averages: [f64; 3],
}

impl Stalls {
    fn step(&mut self, share: f64) {
        let share = share.clamp(0.0, 1.0);
        self.total += share;
        for (average, window) in self.averages.iter_mut().zip([10.0, 60.0, 300.0]) {
            *average += (share - *average) / window;
        }
    }
}

/// A workload's numbers.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) knobs: Knobs,
    pub(crate) pace: Pace,
    /// Which process of this name it is, from 0.
    pub(crate) generation: u64,
    /// Its start, seconds of the scenario; before it for the first one.
    pub(crate) started: i64,
    pub(crate) generated: f64,
    /// Training steps that are done.
    pub(crate) steps: f64,
    pub(crate) prompt: f64,
    pub(crate) finished: f64,
    pub(crate) preempted: f64,
    /// Prompt tokens that the prefix cache had.
    pub(crate) hits: f64,
    /// Tokens that were computed again after a preemption.
    pub(crate) recomputed: f64,
    /// Requests that are swapped out, of an engine that swaps.
    pub(crate) swapped: Option<f64>,
    /// Share of the second in which the engine stepped, where requests drive it.
    pub(crate) busy: Option<f64>,
    pub(crate) cpu: f64,
    /// The same by socket.
    pub(crate) cpu_by_socket: BTreeMap<u32, f64>,
    pub(crate) written: f64,
    pub(crate) cached: f64,
    pub(crate) read: BTreeMap<String, f64>,
    pub(crate) ttft: Hist,
    pub(crate) itl: Hist,
    pub(crate) e2e: Hist,
    pub(crate) queue: Hist,
    pub(crate) io: Stalls,
    pub(crate) cpu_wait: Stalls,
    pub(crate) mem_wait: Stalls,
    pub(crate) host: Host,
    /// CPUs that it kept busy in the last second.
    pub(crate) used_cpus: f64,
    pub(crate) blocked: f64,
    resets: u64,
    /// Work in tokens, for an engine.
    done: Option<Done>,
    noise: Series,
    pub(crate) sim: Option<Box<EngineSim>>,
}

/// A GPU's numbers.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    pub(crate) util: f64,
    pub(crate) work: f64,
    pub(crate) watts: f64,
    pub(crate) joules: f64,
    pub(crate) sent: f64,
    pub(crate) received: f64,
    pub(crate) nvlink: f64,
    pub(crate) replays: f64,
    pub(crate) clock: f64,
    pub(crate) reasons: u64,
    done: Done,
    noise: Series,
}

/// The node since its boot.
#[derive(Debug)]
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) jobs: Vec<Job>,
    pub(crate) boards: Vec<Board>,
    pub(crate) devices: BTreeMap<String, Device>,
    latency: BTreeMap<String, Series>,
    pub(crate) io: Stalls,
    pub(crate) cpu: Stalls,
    pub(crate) node: Node,
    pub(crate) second: u64,
}

impl Job {
    /// Host memory of its own.
    pub(crate) fn ram(&self) -> f64 {
        self.knobs.ram + self.host.grown
    }
}

impl<'a> World<'a> {
    /// A node whose processes started `age` seconds before `second`.
    pub(crate) fn new(scenario: &'a Scenario, second: u64, age: u64) -> Self {
        let seed = scenario.seed.wrapping_add(second);
        let (deviation, memory) = scenario.noise;
        let recorded = scenario.recorded.as_ref();
        let series = |name: &str, share: f64| Series::new(seed, name, deviation * share, memory);
        let started = i64::try_from(second).unwrap_or(0) - i64::try_from(age).unwrap_or(0);
        let jobs = scenario.works.iter().map(|work| Job {
            knobs: work.knobs.clone(),
            pace: Pace::full(),
            generation: 0,
            started,
            generated: 0.0,
            steps: 0.0,
            prompt: 0.0,
            finished: 0.0,
            preempted: 0.0,
            hits: 0.0,
            recomputed: 0.0,
            swapped: None,
            busy: None,
            cpu: 0.0,
            cpu_by_socket: BTreeMap::new(),
            written: 0.0,
            cached: 0.0,
            read: BTreeMap::new(),
            ttft: Hist::default(),
            itl: Hist::default(),
            e2e: Hist::default(),
            queue: Hist::default(),
            io: Stalls::default(),
            cpu_wait: Stalls::default(),
            mem_wait: Stalls::default(),
            host: Host::default(),
            used_cpus: 0.0,
            blocked: 0.0,
            resets: 0,
            done: None,
            noise: series(&work.name, 1.0).of(recorded.map(|pools| &pools.work)),
            sim: work.traffic.as_ref().map(|traffic| Box::new(EngineSim::new(traffic, seed, second))),
        });
        let boards = (0..scenario.gpus.count).map(|gpu| Board {
            util: 0.0,
            work: 0.0,
            watts: IDLE_WATTS,
            joules: 0.0,
            sent: 0.0,
            received: 0.0,
            nvlink: 0.0,
            replays: 0.0,
            clock: 1.0,
            reasons: 1,
            done: Done::default(),
            noise: series(&format!("gpu{gpu}"), 1.0).of(recorded.map(|pools| &pools.board)),
        });
        let names: Vec<&String> = scenario
            .disks
            .iter()
            .map(|disk| &disk.name)
            .chain(scenario.arrays.iter().map(|array| &array.name))
            .chain(scenario.shares.iter().map(|share| &share.name))
            .collect();
        // What was read while booting, so that no device looks as if it had never been used.
        let booted =
            Device { reads: 1000.0, read_bytes: 64e6, read_seconds: 0.25, busy_seconds: 0.25, ..Device::default() };
        Self {
            scenario,
            jobs: jobs.collect(),
            boards: boards.collect(),
            devices: names.iter().map(|name| ((*name).clone(), booted.clone())).collect(),
            // Latency is noisier than throughput.
            latency: names
                .iter()
                .map(|name| ((*name).clone(), series(name, 3.0).of(recorded.map(|pools| &pools.latency))))
                .collect(),
            io: Stalls::default(),
            cpu: Stalls::default(),
            node: Node::default(),
            second,
        }
    }

    /// One second passes.
    pub(crate) fn step(&mut self, second: u64) {
        self.second = second;
        let mut traffic = self.syncs();
        for index in 0..self.jobs.len() {
            self.work(index, &mut traffic);
        }
        self.background(&mut traffic);
        self.devices(&traffic);
        self.boards();
        let worst = self.jobs.iter().map(|job| job.io.averages[0]).fold(0.0, f64::max);
        // System pressure is weighted by all busy CPUs: a few stalled readers are a small part of a large node.
        self.io.step(worst * 0.3);
        self.cpu.step(self.jobs.iter().map(|job| job.pace.want.cpu).fold(0.02, f64::max));
        self.node.step(self.scenario, &self.jobs, second);
    }

    fn work(&mut self, index: usize, traffic: &mut Traffic) {
        let scenario = self.scenario;
        let (Some(job), Some(work)) = (self.jobs.get_mut(index), scenario.works.get(index)) else { return };
        let generation = scenario.restarts(work, self.second);
        if generation != job.generation {
            let fresh = Self::new(scenario, self.second, 0);
            if let Some(fresh) = fresh.jobs.into_iter().nth(index) {
                let noise = job.noise.clone();
                *job = Job { generation, noise, ..fresh };
            }
        }
        let resets = scenario.resets(work, self.second);
        if resets != job.resets {
            job.resets = resets;
            (job.generated, job.prompt, job.finished, job.preempted, job.steps) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for hist in [&mut job.ttft, &mut job.itl, &mut job.e2e, &mut job.queue] {
                *hist = Hist::default();
            }
        }
        let factor = job.noise.factor();
        job.knobs = scenario.knobs(work, self.second);
        job.pace = scenario.pace(work, self.second);
        let moves = job.pace.up && !job.pace.want.starts && !job.pace.sleeps && job.pace.wedge.is_none();
        let speed = if moves { job.pace.speed * factor } else { 0.0 };
        let asleep = job.pace.sleeps || job.pace.fate.is_some() || !job.pace.up || job.pace.want.starts;
        let demand = if job.sim.is_some() { scenario.demand(work, self.second) } else { 1.0 };
        let turned = speed * job.pace.slower_code;
        job.done = match job.simulate(self.second, turned, demand, asleep) {
            Some(share) => Some(Done { useful: share * turned, possible: if job.is_asked() { factor } else { share } }),
            None if work.counts_steps() => Some(job.step(work, turned, factor)),
            None => {
                job.turn_out(turned);
                work.port.map(|_| tokens(work, &job.knobs, turned, factor))
            }
        };
        let knobs = &job.knobs;
        job.used_cpus = match (job.pace.up, &job.pace.fate) {
            (_, Some(_)) => 0.0,
            (true, None) if job.pace.want.throttled > 0.0 => knobs.cpus * job.pace.speed,
            (true, None) => knobs.cpus,
            (false, None) => knobs.cpus * 0.3,
        };
        job.cpu += job.used_cpus;
        for (socket, share) in scenario.runs_on(work, self.second) {
            *job.cpu_by_socket.entry(socket).or_default() += job.used_cpus * share;
        }
        let written = knobs.writes * speed;
        job.written += written;
        job.cached += knobs.cached * speed;
        let mut reads_something = false;
        for reads in scenario.reads.iter().filter(|reads| reads.who == work.name) {
            let bytes = reads.rate * speed;
            *job.read.entry(reads.device.clone()).or_default() += bytes;
            reads_something |= bytes > 0.0;
            spread(scenario, self.second, &reads.device, bytes, reads.block, traffic);
            traffic.write(&reads.device, written);
        }
        let own = scenario.reads.iter().filter(|reads| reads.who == work.name);
        let ahead = own.map(|reads| scenario.latency(&reads.device, self.second)).fold(1.0, f64::max);
        let mut begins = 0.0;
        if let Some((device, rate)) = scenario.startup_reads(work, self.second) {
            begins = rate * job.pace.speed;
            *job.read.entry(device.to_owned()).or_default() += begins;
            spread(scenario, self.second, device, begins, 131_072.0, traffic);
        }
        let Some(job) = self.jobs.get_mut(index) else { return };
        let read: f64 =
            begins + scenario.reads.iter().filter(|r| r.who == work.name).map(|r| r.rate * speed).sum::<f64>();
        let (knobs, want) = (&job.knobs, job.pace.want);
        let moves = HostKnobs { ram_grows: knobs.ram_grows, mem_grows: knobs.mem_grows, maps: knobs.maps, read, want };
        if job.pace.up && job.pace.fate.is_none() {
            job.host.step(scenario, work, self.second, &moves);
        }
        let healthy = if begins > 0.0 {
            0.4
        } else if reads_something {
            0.03
        } else {
            0.0
        };
        let waits = match &job.pace.fate {
            Some(Fate::Block(_)) => 1.0,
            Some(_) => 0.0,
            None => (healthy + ahead * job.knobs.waits + job.pace.storage + (job.knobs.writes / 2e9).min(0.8)) * factor,
        };
        // Requests to a server, and waits for a driver, do not sleep in io_schedule.
        let counted = !matches!(job.pace.fate, Some(Fate::Block(_))) && job.pace.stuck != Some(true);
        job.io.step(if counted { waits } else { 0.0 });
        job.cpu_wait.step((0.02 + want.cpu) * factor);
        job.mem_wait.step(want.memory * factor);
        job.blocked = (waits * 8.0).min(8.0);
    }

    /// Synchronisation is counted on the members, never on the array.
    fn syncs(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for array in &self.scenario.arrays {
            let Some(sync) = self.scenario.sync(&array.name, self.second) else { continue };
            let members = self.scenario.members(array, self.second);
            members.in_sync().for_each(|name| traffic.read(name, sync.speed, SYNC_BLOCK));
            match sync.action {
                SyncVerb::Rebuild => {
                    members.rebuilding.into_iter().for_each(|name| traffic.write(name, sync.speed));
                }
                SyncVerb::Resync => {
                    members.slots.last().into_iter().for_each(|name| traffic.write(name, sync.speed));
                }
                SyncVerb::Check | SyncVerb::Repair => {}
            }
        }
        traffic
    }

    fn background(&self, traffic: &mut Traffic) {
        let names: Vec<&String> = self.devices.keys().collect();
        for name in names {
            let rate = self.scenario.load(name, self.second);
            if rate > 0.0 {
                spread(self.scenario, self.second, name, rate, SYNC_BLOCK, traffic);
            }
        }
    }

    fn devices(&mut self, traffic: &Traffic) {
        for (name, device) in &mut self.devices {
            let noise = self.latency.get_mut(name).map_or(1.0, Series::factor);
            if self.scenario.is_stuck(name, self.second) {
                // What was out stays out, and nobody counts it until it comes back.
                (device.in_flight, device.busy_seconds) = (16.0, device.busy_seconds + 1.0);
                continue;
            }
            let quiet = match name.starts_with("sd") {
                _ if self.scenario.share(name).is_some() => SHARE_LATENCY,
                true => 0.004,
                false => NVME_LATENCY,
            };
            let latency = quiet * self.scenario.latency(name, self.second) * noise;
            let (reads, read, written) = traffic.of(name);
            let writes = written / SYNC_BLOCK;
            device.reads += reads;
            device.read_bytes += read;
            device.read_seconds += reads * latency;
            device.writes += writes;
            device.written_bytes += written;
            device.write_seconds += writes * latency;
            device.in_flight = (reads + writes) * latency;
            device.busy_seconds += device.in_flight.min(1.0);
        }
    }

    /// The useful work of a GPU in the last second.
    pub(crate) fn done(&self, gpu: usize) -> Done {
        self.boards.get(gpu).map_or_else(Done::default, |board| board.done)
    }

    fn boards(&mut self) {
        let limit = self.scenario.gpus.limit;
        for (gpu, board) in self.boards.iter_mut().enumerate() {
            let noise = board.noise.factor();
            let (clock, reasons) = self.scenario.clock(gpu, self.second);
            let owner = turns::owner(self.scenario, &self.jobs, gpu);
            let job = owner.and_then(|index| self.jobs.get(index));
            let lost = self.scenario.is_lost(gpu, self.second);
            board.done = job.filter(|_| !lost).and_then(|job| job.done).unwrap_or_default();
            // What it did counts; what it shows stands still.
            if self.scenario.ails(gpu, self.second).contains(&Ail::Frozen) {
                continue;
            }
            board.clock = clock;
            match job.filter(|job| job.pace.up && !lost) {
                None => (board.util, board.work, board.watts, board.reasons) = (0.0, 0.0, IDLE_WATTS, 1),
                // Whatever ran is over: memory and context stay.
                Some(job) if job.pace.fate.is_some() || job.pace.want.starts => {
                    let watts = job.knobs.power.min(CONTEXT_WATTS);
                    (board.util, board.work, board.watts, board.reasons) = (0.0, 0.0, watts, 1);
                }
                // Stuck, or asleep: whatever is resident does nothing.
                Some(job) if job.pace.wedge.is_some() || job.pace.sleeps => {
                    let spins = matches!(job.pace.wedge, Some((_, true)));
                    let watts = job.knobs.power.min(CONTEXT_WATTS);
                    (board.util, board.work, board.watts) = (if spins { 1.0 } else { 0.0 }, 0.0, watts);
                    board.reasons = u64::from(!spins);
                }
                Some(job) => {
                    let speed = job.pace.speed;
                    // A kernel that waits is still resident: utilization stays, power falls.
                    let works = match job.knobs.work {
                        ..0.0 if job.knobs.power <= SPIN_WATTS => 0.0,
                        ..0.0 => 1.0,
                        share => share,
                    };
                    // A kernel that spins is resident all the time: its utilization does not flicker.
                    let flicker = if works > 0.0 { 1.0 + (noise - 1.0) * 0.5 } else { 1.0 };
                    board.util = (job.knobs.util * flicker).clamp(0.0, 1.0);
                    board.work = (job.knobs.util * works * speed * noise).clamp(0.0, 1.0);
                    if job.done.is_none() {
                        let full = job.knobs.util * works * noise;
                        board.done = Done { useful: full * speed, possible: full };
                    }
                    let above = (job.knobs.power - CONTEXT_WATTS).max(0.0) * job.busy.unwrap_or(1.0);
                    let base = job.knobs.power.min(CONTEXT_WATTS);
                    board.watts = (base + above * (WAITS + (1.0 - WAITS) * speed) * noise).min(limit);
                    board.reasons = if board.util == 0.0 { 1 } else { reasons };
                }
            }
            board.joules += board.watts;
            let up = job.filter(|job| job.pace.up && !lost);
            let copies = up.zip(owner.and_then(|index| self.scenario.works.get(index)));
            let copies = copies.map_or(0.0, |(_, work)| self.scenario.transfers(work, self.second));
            board.received += job.map_or(2e9, |job| job.knobs.h2d) * board.work + copies;
            board.replays += self.scenario.link(gpu, u32::MAX, true, self.second).replays / 60.0;
            board.sent += 5e8 * board.work;
            board.nvlink += 2e10 * board.work;
        }
    }
}
