//! The closed vocabulary of verdicts: states, buckets, causes, weights, rules. Names are series labels too.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Part;

/// Declares an enum of words: its JSON form, its label and its order are one list.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "some variants say no more than their word")]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
            /// The word in JSON, series and text.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $(Self::$variant => $word,)+ } }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }
    };
}

pub(crate) use words;

words! {
    /// Why a GPU counts as broken.
    Fault {
        /// A fatal error line of the driver.
        Xid = "xid",
        /// Memory errors beyond repair.
        Ecc = "ecc",
        /// Off the bus.
        Lost = "lost",
        /// A row remap failed or waits for a reset.
        Remap = "remap",
        /// The driver asks for a reset.
        Reset = "reset",
    }
}

words! {
    /// Why nothing can be said of a stretch of time.
    Unknown {
        /// The agent was not running.
        AgentDown = "agent_down",
        /// The host was not running.
        HostDown = "host_down",
        /// The agent ran and missed it (paused, starved of CPU).
        Missed = "missed",
        /// The host was suspended.
        Suspended = "suspended",
        /// The driver did not answer.
        Hung = "hung",
        /// The driver answered with an error.
        NvmlError = "nvml_error",
        /// The operator asked us to let go of the device.
        Released = "released",
        /// The last reading is too old.
        Stale = "stale",
        /// The device is there and no source can measure its activity (MIG before Hopper).
        Unsupported = "unsupported",
    }
}

words! {
    /// What starved a GPU, or took its time otherwise. The order is the order in which losses are split.
    Cause {
        /// A broken GPU.
        Fault = "fault",
        /// Clocks held down.
        Throttle = "throttle",
        /// Held by a process that will not use it.
        Squat = "squat",
        /// Work outstanding, nothing moves.
        Stall = "stall",
        /// Local storage, an array's rebuild included.
        Storage = "storage",
        /// Somebody else's I/O on the same device.
        BackgroundIo = "background_io",
        /// Memory of the host.
        HostMem = "host_mem",
        /// CPU of the host.
        HostCpu = "host_cpu",
        /// The way between host and GPU.
        PcieNuma = "pcie_numa",
        /// The network.
        Network = "network",
        /// Room in the KV cache.
        Kv = "kv",
        /// Another GPU of the job.
        Peer = "peer",
        /// What feeds the engine.
        Upstream = "upstream",
        /// Work was there, it was not done, and the evidence ends.
        Unexplained = "unexplained",
    }
}

words! {
    /// Time spent on what the work needs and nobody asked for.
    Overhead { Loading = "loading", Checkpoint = "checkpoint", Eval = "eval" }
}

words! {
    /// What a GPU is loading.
    Loading { Weights = "weights", Warmup = "warmup", Compile = "compile", Restore = "restore", SleepWake = "sleep_wake" }
}

words! {
    /// What kind of useful work.
    Progress {
        Train = "train", Prefill = "prefill", Decode = "decode",
        /// A checkpoint is being written.
        Checkpoint = "checkpoint",
        /// A training job evaluates.
        Eval = "eval",
        Other = "other",
    }
}

words! {
    /// Where the weight of a stretch comes from, best first.
    WeightSource {
        /// Tokens of the engine against its own normal rate.
        Tokens = "tokens",
        /// Steps of a training loop.
        Steps = "steps",
        /// GPM activity.
        Gpm = "gpm",
        /// Utilization times power above context-idle.
        Proxy = "proxy",
        /// Utilization alone: never priced.
        Util = "util",
        /// No weight applies (the state decides alone).
        None = "none",
    }
}

impl WeightSource {
    /// How far a verdict on this weight can be trusted, in parts of [`Part::ONE`] (facts: .95 .95 .8 .5 .2).
    #[must_use]
    pub const fn confidence(self) -> Part {
        Part(match self {
            Self::Tokens | Self::Steps => 950_000,
            Self::Gpm => 800_000,
            Self::Proxy => 500_000,
            Self::Util => 200_000,
            Self::None => 0,
        })
    }
}

words! {
    /// What the GPU is for.
    Class { Serving = "serving", Batch = "batch", Spot = "spot", Dev = "dev", Unspecified = "unspecified" }
}

#[expect(clippy::derivable_impls, reason = "the list of words has no place for the mark of a default")]
impl Default for Class {
    fn default() -> Self {
        Self::Unspecified
    }
}

words! {
    /// What a verdict has to pass, and what the bench can take out to see what it is worth.
    Gate {
        /// A cause does not begin after its effect.
        Order = "order",
        /// Units that do not use the resource did not lose as much.
        Counterfactual = "counterfactual",
        /// The victim hangs on the resource.
        Link = "link",
        /// Who answers, or shows another sign of life, is no squatter.
        Liveness = "liveness",
        /// What a unit is for decides what its idle time is.
        Class = "class",
    }
}

words! {
    /// Every rule of the family. A name is for ever: it is a label, a config key and a table's key.
    RuleId {
        GpuFault = "gpu_fault",
        TelemetryDegraded = "telemetry_degraded",
        Squatter = "squatter",
        SilentThrottling = "silent_throttling",
        RaidRebuildImpact = "raid_rebuild_impact",
        IoStall = "io_stall",
        CpuStarvedLoader = "cpu_starved_loader",
        MemoryLeak = "memory_leak",
        CrossSocketFeeding = "cross_socket_feeding",
        SharedUplinkContention = "shared_uplink_contention",
        PcieLinkDegraded = "pcie_link_degraded",
        FabricCongestion = "fabric_congestion",
        KvSaturation = "kv_saturation",
        QueueInstability = "queue_instability",
        PreemptionThrash = "preemption_thrash",
        EngineStall = "engine_stall",
        LoadingSlow = "loading_slow",
        StragglerLocal = "straggler_local",
        NoisyNeighbour = "noisy_neighbour",
        LatencyClassViolation = "latency_class_violation",
        HeadroomBreach = "headroom_breach",
        ThroughputRegression = "throughput_regression",
        StrandedCapacity = "stranded_capacity",
        NodeFit = "node_fit",
        AllocatedWithoutProcess = "allocated_without_process",
        BusyButStarved = "busy_but_starved",
    }
}

/// The state of a unit: exactly one per tick; the order is the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason")]
pub enum State {
    /// The kernel log, the PCI inventory or NVML says that it is broken.
    #[serde(rename = "faulted")]
    Faulted(Fault),
    /// No source can speak.
    #[serde(rename = "unknown")]
    Unknown(Unknown),
    /// Nobody has it.
    #[serde(rename = "unallocated")]
    Unallocated,
    /// Weights are coming in.
    #[serde(rename = "loading")]
    Loading(Loading),
    /// Work outstanding, nothing moves.
    #[serde(rename = "stalled")]
    Stalled,
    /// Held without use.
    #[serde(rename = "squatted")]
    Squatted,
    /// Clocks held down.
    #[serde(rename = "throttled")]
    Throttled,
    /// Starved, by what.
    #[serde(rename = "starved")]
    Starved(Cause),
    /// It does useful work.
    #[serde(rename = "productive")]
    Productive(Progress),
    /// Serving, nothing to do, ready.
    #[serde(rename = "headroom")]
    Headroom,
    /// Allocated, nothing going on.
    #[serde(rename = "idle")]
    Idle,
}

impl State {
    /// The state's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Faulted(_) => "faulted",
            Self::Unknown(_) => "unknown",
            Self::Unallocated => "unallocated",
            Self::Loading(_) => "loading",
            Self::Stalled => "stalled",
            Self::Squatted => "squatted",
            Self::Throttled => "throttled",
            Self::Starved(_) => "starved",
            Self::Productive(_) => "productive",
            Self::Headroom => "headroom",
            Self::Idle => "idle",
        }
    }
    /// The reason's word; empty for states that have none.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Faulted(fault) => fault.as_str(),
            Self::Unknown(unknown) => unknown.as_str(),
            Self::Loading(loading) => loading.as_str(),
            Self::Starved(cause) => cause.as_str(),
            Self::Productive(progress) => progress.as_str(),
            Self::Unallocated | Self::Stalled | Self::Squatted | Self::Throttled | Self::Headroom | Self::Idle => "",
        }
    }
}

/// Where a stretch of a unit's time is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "bucket", content = "reason")]
pub enum Bucket {
    /// Useful work.
    #[serde(rename = "productive")]
    Productive,
    /// Serving with its demand met: never a loss.
    #[serde(rename = "headroom")]
    Headroom,
    /// Needed, but not the work itself.
    #[serde(rename = "overhead")]
    Overhead(Overhead),
    /// Allocated and not asked.
    #[serde(rename = "idle")]
    Idle,
    /// Nobody has it.
    #[serde(rename = "unallocated")]
    Unallocated,
    /// Nothing can be said.
    #[serde(rename = "unknown")]
    Unknown(Unknown),
    /// Work was there and was not done.
    #[serde(rename = "lost")]
    Lost(Cause),
}

impl Bucket {
    /// The bucket's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Productive => "productive",
            Self::Headroom => "headroom",
            Self::Overhead(_) => "overhead",
            Self::Idle => "idle",
            Self::Unallocated => "unallocated",
            Self::Unknown(_) => "unknown",
            Self::Lost(_) => "lost",
        }
    }
    /// The reason's word; empty for buckets that have none.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Overhead(overhead) => overhead.as_str(),
            Self::Unknown(unknown) => unknown.as_str(),
            Self::Lost(cause) => cause.as_str(),
            Self::Productive | Self::Headroom | Self::Idle | Self::Unallocated => "",
        }
    }
}

/// How productive a stretch was, and on whose word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The productive part.
    pub w: Part,
    /// Where it comes from.
    pub source: WeightSource,
}

impl Weight {
    /// For states in which no work is done.
    pub const NONE: Self = Self { w: Part(0), source: WeightSource::None };
}
