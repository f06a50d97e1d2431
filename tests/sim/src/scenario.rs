//! What a scenario says, as data. The text form is read in `parse`; `docs/scenarios.md` is its page.

use std::collections::BTreeMap;

use gpuprod_snapshot::Source;
use gpuprod_snapshot::units::to_f64;

use crate::device::Ail;
use crate::engine_sim::{Traffic, Wedge};
use crate::node::{NodeEvent, Port};
use crate::pcie::{PcieEvent, Wiring};
use crate::series::Recorded;
use crate::truth::{Blame, Truth};

/// A node, its work, and what happens to it. Times are whole seconds from the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// Name, also the node's.
    pub name: String,
    /// The story in a sentence.
    pub about: String,
    /// Seed of all noise.
    pub seed: u64,
    /// Length in seconds.
    pub length: u64,
    /// Relative deviation of every measured quantity, and its correlation from second to second.
    pub noise: (f64, f64),
    /// The GPUs.
    pub gpus: Gpus,
    /// Who uses them.
    pub works: Vec<Work>,
    /// Disks that were named, in order: by `disk` or as members of arrays.
    pub disks: Vec<Disk>,
    /// Arrays.
    pub arrays: Vec<Array>,
    /// Network file systems.
    pub shares: Vec<Share>,
    /// Network ports.
    pub ports: Vec<Port>,
    /// Slots and switches.
    pub wiring: Wiring,
    /// Who reads what.
    pub reads: Vec<Reads>,
    /// The scheduler's records: a GPU, who has it, and whether it is to stand by. Whoever judges is told of them.
    pub records: Vec<(usize, String, bool)>,
    /// What happens, in the order of the file.
    pub events: Vec<Event>,
    /// The author's ground truth.
    pub expects: Vec<Truth>,
    /// Who must be blamed.
    pub blames: Vec<Blame>,
    /// Who may be blamed: right when said, no miss when not.
    pub may: Vec<Blame>,
    /// Words (rules or causes) that must not be blamed; `all` is everything.
    pub silent: Vec<String>,
    /// Size of the effect (0 to 1) as the author states it, where the useful work does not show it.
    pub effect: Option<f64>,
    /// What was drawn for this seed, by name.
    pub drawn: BTreeMap<String, String>,
    /// Residuals of real series that the noise is made of; without them it is heavy-tailed and remembers.
    pub recorded: Option<Recorded>,
}

/// Boards of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpus {
    /// How many.
    pub count: usize,
    /// Product name.
    pub model: String,
    /// Enforced limit in watts.
    pub limit: f64,
    /// Whether they have GPM.
    pub gpm: bool,
}

/// A process that holds GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Name; its unit is `NAME.service`.
    pub name: String,
    /// Its GPUs.
    pub gpus: Vec<usize>,
    /// Port of its metrics page, for an engine or a job that counts its steps.
    pub port: Option<u16>,
    /// Name of the served model.
    pub model: String,
    /// Its cgroup, where that is not a unit of its own name.
    pub cgroup: Option<String>,
    /// A port on which it listens without a metrics page.
    pub listens: Option<u16>,
    /// The requests that drive it, for an engine that is not described by its knobs.
    pub traffic: Option<Traffic>,
    /// What it does at the start.
    pub knobs: Knobs,
}

impl Work {
    /// Whether it is a job whose page counts its steps.
    #[must_use]
    pub fn counts_steps(&self) -> bool {
        self.port.is_some() && self.knobs.step > 0.0
    }
}

/// What can be set of a workload, also later by `at … set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Generated tokens per second, all GPUs together.
    pub rate: f64,
    /// Prompt tokens per second.
    pub prompt: f64,
    /// Share of them that the prefix cache has.
    pub hits: f64,
    /// Requests running.
    pub running: f64,
    /// Requests waiting.
    pub waiting: f64,
    /// Share of the KV cache in use.
    pub kv: f64,
    /// GPU utilization that NVML shows.
    pub util: f64,
    /// Watts per GPU at full speed.
    pub power: f64,
    /// Bytes of GPU memory per GPU.
    pub mem: f64,
    /// CPUs that it keeps busy.
    pub cpus: f64,
    /// Preemptions per second.
    pub preemptions: f64,
    /// Share of the utilization in which the silicon works; below zero: as the power says.
    pub work: f64,
    /// Bytes per second written to files.
    pub writes: f64,
    /// Bytes per second read from the page cache.
    pub cached: f64,
    /// Connections with other hosts.
    pub peers: f64,
    /// RDMA devices open.
    pub rdma: f64,
    /// Generated tokens per second that it could do, where that is more than it is asked for; 0: what it does.
    pub capacity: f64,
    /// Bytes of host memory of its own.
    pub ram: f64,
    /// Bytes by which that grows in a second.
    pub ram_grows: f64,
    /// Bytes of host memory that its cgroup may have; zero: no limit.
    pub ram_limit: f64,
    /// Bytes of files that it maps in a second.
    pub maps: f64,
    /// Bytes by which its memory on each GPU grows in a second.
    pub mem_grows: f64,
    /// Seconds that a training step takes at full speed; zero: it makes none. A job that has it at the start serves a page
    /// that counts its steps.
    pub step: f64,
    /// Bytes per second that its work at full speed copies to each GPU.
    pub h2d: f64,
    /// Share of the time in which readers in its background wait for I/O while the devices answer as ever: it grows with
    /// their latency and costs no progress.
    pub waits: f64,
}

/// A disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// Kernel name.
    pub name: String,
    /// Mount point, for a disk of its own.
    pub mount: Option<String>,
}

/// An md array.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Kernel name.
    pub name: String,
    /// `raid0`, `raid1`, `raid5`, `raid6`, `raid10`.
    pub level: String,
    /// Members by slot.
    pub members: Vec<String>,
    /// Spares.
    pub spares: Vec<String>,
    /// Bytes of one member.
    pub size: f64,
    /// Mount point; without one the device itself is read.
    pub mount: Option<String>,
}

/// A network file system.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Its name here; its source is `NAME:/export`.
    pub name: String,
    /// Type (`nfs4`).
    pub fs: String,
    /// Mount point.
    pub mount: String,
}

/// Somebody reads a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Reads {
    /// The workload.
    pub who: String,
    /// The array or disk.
    pub device: String,
    /// Bytes per second at full speed.
    pub rate: f64,
    /// Bytes per read.
    pub block: f64,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: u64,
    /// Until when; the end of the scenario if nothing ends it.
    pub until: u64,
    /// How long it takes to come to its full effect.
    pub over: u64,
    /// The trouble itself: the machine that the useful work is compared with does not have it.
    pub fault: bool,
    /// What `end` calls it.
    pub subject: String,
    /// What.
    pub what: What,
}

impl Event {
    /// Whether it goes on at a second.
    #[must_use]
    pub fn on(&self, second: u64) -> bool {
        self.at <= second && second < self.until
    }

    /// The share of its full effect that it has at a second.
    #[must_use]
    pub fn grown(&self, second: u64) -> f64 {
        if self.over == 0 {
            return 1.0;
        }
        let age = second.saturating_sub(self.at).saturating_add(1);
        (to_f64(age) / to_f64(self.over)).min(1.0)
    }
}

/// How an event acts.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An array synchronises: `rebuild`, `check`, `resync`, `repair`.
    Sync {
        /// The array.
        array: String,
        /// Verb.
        action: SyncVerb,
        /// Bytes per second and member.
        speed: f64,
        /// Share done at the start.
        done: f64,
        /// What it does to others.
        harm: Harm,
    },
    /// Other I/O on a device, by nobody who holds a GPU.
    Load {
        /// The device.
        device: String,
        /// Bytes per second.
        rate: f64,
        /// What it does to others.
        harm: Harm,
    },
    /// A workload slows for reasons outside of the node.
    Slow {
        /// The workload.
        who: String,
        /// To this share of its speed.
        to: f64,
    },
    /// A device or a server answers nothing any more.
    Stuck {
        /// The device or share.
        device: String,
    },
    /// A workload's process ends or halts in one of several ways.
    Fate {
        /// The workload.
        who: String,
        /// How.
        fate: Fate,
    },
    /// The reader is held down by a limit of its own: it waits, and the device does not.
    Limit {
        /// The workload.
        who: String,
        /// To this share of its speed.
        to: f64,
    },
    /// An engine is stuck.
    Wedge {
        /// The engine.
        who: String,
        /// In which way.
        how: Wedge,
        /// Whether a kernel spins on its GPUs.
        spins: bool,
    },
    /// An engine sleeps: its memory is given back, its page answers.
    Sleep {
        /// The engine.
        who: String,
    },
    /// More or fewer requests come.
    Demand {
        /// The engine.
        who: String,
        /// Factor on what its traffic says.
        to: f64,
    },
    /// An engine gives less from as much work of its GPUs.
    Fallback {
        /// The engine.
        who: String,
        /// Share that is left.
        to: f64,
    },
    /// A workload's page is refused while its process goes on.
    Mute {
        /// The workload.
        who: String,
    },
    /// A workload changes what it does.
    Set {
        /// The workload.
        who: String,
        /// Name and value of each change.
        changes: Vec<(String, f64)>,
    },
    /// A workload's process ends and starts again; its page is refused until the end of the event.
    Restart {
        /// The workload.
        who: String,
    },
    /// An NVML call does not come back.
    HangNvml {
        /// The call.
        call: String,
    },
    /// GPUs fall off the bus.
    Lose {
        /// Which.
        gpus: Vec<usize>,
    },
    /// The driver prints an error.
    Xid {
        /// Which GPU.
        gpu: usize,
        /// The code.
        code: u32,
    },
    /// The driver says that something is wrong with GPUs.
    Ail {
        /// Which.
        gpus: Vec<usize>,
        /// What.
        ail: Ail,
    },
    /// Another driver is installed.
    Driver {
        /// Its version.
        version: String,
    },
    /// Clocks are held down.
    Throttle {
        /// Which GPUs.
        gpus: Vec<usize>,
        /// To this share of the full clock.
        to: f64,
        /// NVML's bit.
        reason: u64,
    },
    /// Something around the GPUs: CPUs, memory, network, a process that comes up.
    Node(NodeEvent),
    /// Something on the way between GPUs and the host.
    Pcie(PcieEvent),
    /// The agent does not run.
    Gap,
    /// The host sleeps.
    Suspend,
    /// The host boots.
    Reboot,
    /// Samples are lost on their way.
    Drop {
        /// Which share of them.
        share: f64,
        /// Of one source; of all if none is named.
        source: Option<Source>,
    },
    /// A source answers with an error.
    Fail {
        /// Which.
        source: Source,
    },
    /// The counters of a workload's page begin anew while its process goes on.
    Reset {
        /// The workload.
        who: String,
    },
    /// The wall clock steps, seconds.
    Clock {
        /// By so much.
        by: i64,
    },
}

/// What became of a process. Its memory on the GPU stays in use in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A zombie.
    Crash,
    /// Gone from the process table; the driver still lists it.
    Vanish,
    /// Its parent died; it does nothing more.
    Orphan,
    /// Stopped by a signal.
    Stop,
    /// Threads are blocked in this function of the kernel.
    Block(String),
}

/// Which synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncVerb {
    /// A member is replaced by a spare.
    Rebuild,
    /// A scrub that reads.
    Check,
    /// After an unclean stop.
    Resync,
    /// A scrub that writes.
    Repair,
}

/// What a device's extra work does to those who read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Harm {
    /// Workloads and the share of their speed that is left.
    pub slows: Vec<(String, f64)>,
    /// Factor on the device's latency; by default what the slowest reader explains.
    pub latency: Option<f64>,
}

impl Harm {
    /// Latency factor when a share of the effect is there: a reader with a fixed number of requests in flight that is
    /// down to a share f sees 1/f.
    #[must_use]
    pub fn latency(&self, grown: f64) -> f64 {
        let slowest = self.slows.iter().map(|(_, to)| *to).fold(1.0, f64::min);
        match self.latency {
            Some(latency) => towards(1.0, latency, grown),
            None if slowest < 1.0 => 1.0 / towards(1.0, slowest, grown).max(0.01),
            None => 1.05,
        }
    }

    /// The share that is left to a workload.
    #[must_use]
    pub fn on(&self, who: &str, grown: f64) -> f64 {
        let left = self.slows.iter().filter(|(name, _)| name == who).map(|(_, to)| *to).fold(1.0, f64::min);
        towards(1.0, left, grown)
    }
}

/// On the way from one value to another.
pub(crate) fn towards(from: f64, to: f64, share: f64) -> f64 {
    from + (to - from) * share
}
