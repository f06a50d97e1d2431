//! The node around the GPUs: who is short of CPUs or memory, what the network ports do, and how a process comes up.

use std::collections::BTreeMap;

use crate::scenario::{Harm, Scenario, What, Work, towards};
use crate::words::{ParseError, Unit, Words};
use crate::world::Job;

/// CPUs of one socket, and memory.
const CPUS: f64 = 56.0;
pub(crate) const MEMORY: f64 = 1_099_511_627_776.0;
/// What the system itself uses.
const SYSTEM_CPUS: f64 = 2.0;
const SYSTEM_MEMORY: f64 = 100e9;
/// Bytes per second of an RDMA device that a workload has open.
const RDMA_RATE: f64 = 4e9;
/// Notifications of congestion per second on a healthy, busy port.
const QUIET_EVENTS: f64 = 3.0;
/// The same on a congested one, by default.
const CONGESTED_EVENTS: f64 = 20_000.0;
/// Ticks per second in which an InfiniBand port has something to send and may not.
const QUIET_WAIT: f64 = 1e5;

/// A network port of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Device (`mlx5_0`, `eth0`).
    pub name: String,
    /// `infiniband`, `roce` or `ethernet`.
    pub layer: String,
}

/// What happens around the GPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// CPU time runs short.
    Cpu {
        /// Why.
        why: CpuShort,
        /// Whom it slows.
        harm: Harm,
    },
    /// Memory of the node runs short: pages are reclaimed while somebody waits.
    Memory {
        /// Whom it slows.
        harm: Harm,
    },
    /// What was read falls out of the page cache before it is read again.
    Thrash {
        /// The workload.
        who: String,
    },
    /// The kernel kills a process for want of memory.
    OutOfMemory {
        /// In whose cgroup.
        who: String,
    },
    /// Packets wait in the network that a port leads to.
    Congest {
        /// The port.
        port: String,
        /// Notifications per second.
        rate: f64,
        /// Whom it slows.
        harm: Harm,
    },
    /// A port's link goes down, and comes back at the event's end.
    Flap {
        /// The port.
        port: String,
    },
    /// A new process comes up: its page is refused until the event's end.
    Start {
        /// The workload.
        who: String,
        /// What it reads meanwhile, and how fast.
        reads: Option<(String, f64)>,
    },
}

/// Why CPU time is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuShort {
    /// The quota of its cgroup is used up.
    Quota,
    /// It has more to compute than CPUs.
    Own,
    /// Others run on all CPUs.
    Others,
    /// The hypervisor gives less.
    Steal,
    /// Interrupts take it.
    Interrupts,
}

const REASONS: &[(&str, CpuShort)] = &[
    ("quota", CpuShort::Quota),
    ("own", CpuShort::Own),
    ("others", CpuShort::Others),
    ("steal", CpuShort::Steal),
    ("interrupts", CpuShort::Interrupts),
];

/// How the node treats a workload at a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Want {
    /// Share of its time in which a thread waits for a CPU.
    pub(crate) cpu: f64,
    /// Share of quota periods in which it is held.
    pub(crate) throttled: f64,
    /// Share of its time in which a thread waits for memory.
    pub(crate) memory: f64,
    /// It reads anew what was in the page cache.
    pub(crate) thrash: bool,
    /// It comes up.
    pub(crate) starts: bool,
}

/// What the workload keeps in the host's memory, and what its cgroup counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Memory that it made, beyond what it began with.
    pub(crate) grown: f64,
    /// Pages of files that it has mapped.
    pub(crate) mapped: f64,
    /// GPU memory beyond what it began with.
    pub(crate) gpu_grown: f64,
    pub(crate) periods: f64,
    pub(crate) throttled: f64,
    pub(crate) refaults: f64,
    pub(crate) oom_kills: f64,
}

/// The node's own counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) busy: f64,
    pub(crate) interrupts: f64,
    pub(crate) steal: f64,
    pub(crate) ports: BTreeMap<String, PortCounters>,
}

/// A port's counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) sent: f64,
    pub(crate) received: f64,
    pub(crate) congestion: f64,
    pub(crate) waits: f64,
    pub(crate) downs: f64,
    pub(crate) down: bool,
}

pub(crate) fn port(s: &mut Scenario, words: &mut Words) -> Result<(), ParseError> {
    let name = words.take("a port's name (mlx5_0, eth0)")?;
    let layer = if words.is_empty() { "roce".into() } else { words.take("what it speaks")? };
    if !["infiniband", "roce", "ethernet"].contains(&layer.as_str()) {
        return Err(words.error(format!("`{layer}`: a port speaks infiniband, roce or ethernet")));
    }
    s.ports.push(Port { name, layer });
    Ok(())
}

type Read = Result<(String, NodeEvent), ParseError>;

/// `cpu quota slows WHO to SHARE`.
pub(crate) fn cpu(s: &Scenario, words: &mut Words) -> Read {
    let reason = words.take("why CPU time is short")?;
    let Some((_, why)) = REASONS.iter().find(|(name, _)| *name == reason) else {
        let known: Vec<&str> = REASONS.iter().map(|(name, _)| *name).collect();
        return Err(words.error(format!("`{reason}` is no reason; there are {}", known.join(", "))));
    };
    Ok(("cpu".into(), NodeEvent::Cpu { why: *why, harm: harms(s, words)? }))
}

/// `memory slows WHO to SHARE`.
pub(crate) fn memory(s: &Scenario, words: &mut Words) -> Read {
    Ok(("memory".into(), NodeEvent::Memory { harm: harms(s, words)? }))
}

/// `thrash WHO`.
pub(crate) fn thrash(s: &Scenario, words: &mut Words) -> Read {
    let who = s.need_work(words)?;
    Ok((who.clone(), NodeEvent::Thrash { who }))
}

/// `oom WHO`.
pub(crate) fn oom(s: &Scenario, words: &mut Words) -> Read {
    let who = s.need_work(words)?;
    Ok((who.clone(), NodeEvent::OutOfMemory { who }))
}

/// `congest PORT [rate N] [slows WHO to SHARE]`.
pub(crate) fn congest(s: &Scenario, words: &mut Words) -> Read {
    let port = need_port(s, words)?;
    let rate =
        if words.skip("rate") { words.number("notifications per second", Unit::Count)? } else { CONGESTED_EVENTS };
    Ok((port.clone(), NodeEvent::Congest { port, rate, harm: harms(s, words)? }))
}

/// `flap PORT`.
pub(crate) fn flap(s: &Scenario, words: &mut Words) -> Read {
    let port = need_port(s, words)?;
    Ok((port.clone(), NodeEvent::Flap { port }))
}

/// `start WHO [reads DEVICE 2GB/s]`.
pub(crate) fn start(s: &Scenario, words: &mut Words) -> Read {
    let who = s.need_work(words)?;
    let reads = if words.skip("reads") {
        Some((s.need_device(words)?, words.number("the speed", Unit::BytesPerSecond)?))
    } else {
        None
    };
    Ok((who.clone(), NodeEvent::Start { who, reads }))
}

fn need_port(s: &Scenario, words: &mut Words) -> Result<String, ParseError> {
    let name = words.take("a port")?;
    match s.ports.iter().any(|port| port.name == name) {
        true => Ok(name),
        false => Err(words.error(format!("there is no port `{name}` above this line"))),
    }
}

fn harms(s: &Scenario, words: &mut Words) -> Result<Harm, ParseError> {
    let mut harm = Harm::default();
    while words.skip("slows") {
        let who = s.need_work(words)?;
        words.need("to")?;
        harm.slows.push((who, words.number("the share that is left", Unit::Fraction)?));
    }
    Ok(harm)
}

impl Scenario {
    /// What is going on around the GPUs, and the share of its full effect that each has reached.
    fn around(&self, second: u64) -> impl Iterator<Item = (&NodeEvent, f64)> {
        self.events.iter().filter(move |event| event.on(second)).filter_map(move |event| match &event.what {
            What::Node(what) => Some((what, event.grown(second))),
            _ => None,
        })
    }

    /// The share of its speed that the node leaves to a workload, and how it makes it wait.
    pub(crate) fn want(&self, work: &Work, second: u64) -> (f64, Want) {
        let (mut left, mut want) = (1.0, Want::default());
        for (what, grown) in self.around(second) {
            match what {
                NodeEvent::Cpu { why, harm } => {
                    let to = harm.on(&work.name, grown);
                    left *= to;
                    let short = 1.0 - to;
                    // A guest does not see that it waits for the hypervisor.
                    want.cpu += if *why == CpuShort::Steal { 0.0 } else { short * 0.9 };
                    want.throttled += if *why == CpuShort::Quota { short } else { 0.0 };
                }
                NodeEvent::Memory { harm } => {
                    let to = harm.on(&work.name, grown);
                    left *= to;
                    want.memory += (1.0 - to) * 0.9;
                }
                NodeEvent::Congest { harm, .. } => left *= harm.on(&work.name, grown),
                NodeEvent::Thrash { who } if *who == work.name => want.thrash = true,
                NodeEvent::Start { who, .. } if *who == work.name => want.starts = true,
                _ => {}
            }
        }
        (left, want)
    }

    /// What a process that comes up reads.
    pub(crate) fn startup_reads(&self, work: &Work, second: u64) -> Option<(&str, f64)> {
        self.around(second).find_map(|(what, _)| match what {
            NodeEvent::Start { who, reads: Some((device, rate)) } if *who == work.name => {
                Some((device.as_str(), *rate))
            }
            _ => None,
        })
    }

    /// Whether its cgroup ever has a CPU quota: its periods are counted then.
    fn has_quota(&self, work: &Work) -> bool {
        let quota = |what: &What| match what {
            What::Node(NodeEvent::Cpu { why: CpuShort::Quota, harm }) => harm.on(&work.name, 1.0) < 1.0,
            _ => false,
        };
        self.events.iter().any(|event| quota(&event.what))
    }

    fn killed(&self, work: &Work, second: u64) -> usize {
        let kills = |what: &What| matches!(what, What::Node(NodeEvent::OutOfMemory { who }) if *who == work.name);
        self.events.iter().filter(|event| event.at == second && kills(&event.what)).count()
    }

    pub(crate) fn cpus(&self) -> f64 {
        CPUS * if self.gpus.count > 1 { 2.0 } else { 1.0 }
    }
}

impl Host {
    /// One second passes.
    pub(crate) fn step(&mut self, scenario: &Scenario, work: &Work, second: u64, job: &HostKnobs) {
        self.grown += job.ram_grows;
        self.gpu_grown += job.mem_grows;
        self.mapped += job.maps;
        if scenario.has_quota(work) {
            self.periods += 10.0;
            self.throttled += 10.0 * job.want.throttled.min(1.0);
        }
        if job.want.thrash {
            self.refaults += job.read / 4096.0 * 0.8;
        }
        self.oom_kills += crate::words::float(scenario.killed(work, second));
    }
}

/// What of a workload moves its host's numbers, in one second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostKnobs {
    pub(crate) ram_grows: f64,
    pub(crate) mem_grows: f64,
    pub(crate) maps: f64,
    /// Bytes that it reads from devices.
    pub(crate) read: f64,
    pub(crate) want: Want,
}

impl Node {
    /// One second passes.
    pub(crate) fn step(&mut self, scenario: &Scenario, jobs: &[Job], second: u64) {
        let all = scenario.cpus();
        let own: f64 = jobs.iter().filter(|job| job.pace.up).map(|job| job.used_cpus).sum();
        let (mut busy, mut stolen) = ((own + SYSTEM_CPUS).min(all), 0.0);
        let mut interrupts = 0.2;
        for (what, grown) in scenario.around(second) {
            let NodeEvent::Cpu { why, harm } = what else { continue };
            let slowest = harm.slows.iter().map(|(_, to)| *to).fold(1.0, f64::min);
            let short = 1.0 - towards(1.0, slowest, grown);
            match why {
                CpuShort::Others | CpuShort::Own => busy = all * 0.99,
                CpuShort::Steal => stolen = all * short * 0.5,
                CpuShort::Interrupts => interrupts = all * short * 0.5,
                CpuShort::Quota => {}
            }
        }
        self.busy += (busy + interrupts).min(all - stolen);
        self.interrupts += interrupts;
        self.steal += stolen;
        let rdma: f64 = jobs.iter().filter(|job| job.knobs.rdma > 0.0).map(|job| RDMA_RATE * job.pace.speed).sum();
        for port in &scenario.ports {
            let own = self.ports.entry(port.name.clone()).or_default();
            let (mut congested, mut down) = (0.0, false);
            for (what, grown) in scenario.around(second) {
                match what {
                    NodeEvent::Congest { port: name, rate, .. } if *name == port.name => congested += rate * grown,
                    NodeEvent::Flap { port: name } if *name == port.name => down = true,
                    _ => {}
                }
            }
            own.downs += if down && !own.down { 1.0 } else { 0.0 };
            own.down = down;
            let moves = if down {
                0.0
            } else if port.layer == "ethernet" {
                1e6
            } else {
                rdma + 1e4
            };
            own.sent += moves;
            own.received += moves;
            own.congestion += QUIET_EVENTS + congested;
            own.waits += QUIET_WAIT * (1.0 + congested);
        }
    }

    /// Memory that can be had without swapping.
    pub(crate) fn available(scenario: &Scenario, jobs: &[Job]) -> f64 {
        let all = Self::memory(scenario);
        let used: f64 = jobs.iter().map(Job::ram).sum();
        (all - SYSTEM_MEMORY - used).max(all * 0.01)
    }

    pub(crate) fn memory(scenario: &Scenario) -> f64 {
        if scenario.gpus.count > 1 { MEMORY * 2.0 } else { MEMORY }
    }
}
