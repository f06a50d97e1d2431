//! The tick: time stamps, samples, and the one list of sources.

use alloc::string::String;
use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::{Reading, engine, gpu, host, storage, tenant, topology};

/// The kernel's random id of this boot (`/proc/sys/kernel/random/boot_id`). Empty when it cannot be read: then
/// two ticks are never taken to be of one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// One instant on all clocks. Arithmetic uses `boottime` (it counts suspend); `monotonic` tells how much of a
/// gap was suspend; `realtime` is for people, and for gaps across a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Which boot the two counting clocks belong to.
    pub boot_id: BootId,
    /// CLOCK_BOOTTIME.
    #[serde(rename = "boottime_ns")]
    pub boottime: Nanos,
    /// CLOCK_MONOTONIC.
    #[serde(rename = "monotonic_ns")]
    pub monotonic: Nanos,
    /// CLOCK_REALTIME since the Unix epoch.
    #[serde(rename = "realtime_ns")]
    pub realtime: Nanos,
}

/// A call that has not come back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hung {
    /// The call in progress, as the stuck thread names itself (`nvmlDeviceGetPowerUsage`).
    pub call: String,
    /// When it was asked for, CLOCK_BOOTTIME.
    #[serde(rename = "since_ns")]
    pub since: Nanos,
}

/// What one source gave, with the sample's own time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample<T> {
    /// When the read was complete, CLOCK_BOOTTIME. Rates divide by differences of this, never of the tick's time.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long the read took.
    #[serde(rename = "took_ns")]
    pub took: Nanos,
    /// What was read, or why the source as a whole gave nothing.
    #[serde(default)]
    pub value: Reading<T>,
    /// The error in words when `value` is missing: what was tried, on what, what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The call that blocks the source, when one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung: Option<Hung>,
}

macro_rules! sources {
    ($($(#[$meta:meta])* $field:ident, $variant:ident, $ty:ty, every $period:literal;)+) => {
        /// Where a part of a tick comes from. One collector owns each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Source { $($(#[$meta])* $variant,)+ }

        impl Source {
            /// All sources, in the order in which they are shown.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in recordings, flags and series.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($field),)+ }
            }

            /// A collector runs on every tick whose number is divisible by this.
            #[must_use]
            pub const fn period_ticks(self) -> u32 {
                match self { $(Self::$variant => $period,)+ }
            }
        }

        /// What one source reads.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Part { $($(#[$meta])* $variant($ty),)+ }

        impl Part {
            /// The source that it belongs to.
            #[must_use]
            pub const fn source(&self) -> Source {
                match self { $(Self::$variant(_) => Source::$variant,)+ }
            }
        }

        /// What was newly read of the node at an instant. A source that was not read since the tick before is absent.
        /// Judge, recording and screens look at the same samples: a copy of a tick copies none of them.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Tick {
            /// When the tick was put together.
            pub stamp: Stamp,
            /// The tick's nominal length.
            #[serde(rename = "period_ns")]
            pub period: Nanos,
            $($(#[$meta])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<Arc<Sample<$ty>>>,)+
        }

        impl Tick {
            /// Puts a sample in its place; a later one of the same source wins, whatever the order of arrival.
            pub fn put(&mut self, sample: Sample<Part>) {
                let Sample { at, took, value, why, hung } = sample;
                match value {
                    Reading::Value(part) => match part {
                        $(Part::$variant(value) => keep(&mut self.$field, Sample { at, took, value: Reading::Value(value), why, hung }),)+
                    },
                    // Without a value the source is not known from the sample: use `put_missing`.
                    Reading::Missing(_) => {}
                }
            }

            /// Notes that a source gave nothing, and why.
            pub fn put_missing(&mut self, source: Source, sample: Sample<()>) {
                let Sample { at, took, value, why, hung } = sample;
                let Reading::Missing(missing) = value else { return };
                match source {
                    $(Source::$variant => keep(&mut self.$field, Sample { at, took, value: Reading::Missing(missing), why, hung }),)+
                }
            }

            /// The state of one source in this tick: time, duration, error, without the value.
            #[must_use]
            pub fn status(&self, source: Source) -> Option<Sample<()>> {
                match source { $(Source::$variant => self.$field.as_ref().map(|sample| sample.status()),)+ }
            }

            /// Takes out samples that are known already: no newer than another tick's of the same boot.
            pub fn forget(&mut self, known: &Self) {
                if self.stamp.boot_id != known.stamp.boot_id {
                    return;
                }
                $(if let (Some(sample), Some(held)) = (&self.$field, &known.$field)
                    && sample.at <= held.at
                {
                    self.$field = None;
                })+
            }

            /// Moves the samples of a newer tick in, and what they displace into `older`: the two ticks then
            /// hold the last two samples of each source.
            pub fn advance(&mut self, older: &mut Self, newer: &Self) {
                older.stamp = core::mem::replace(&mut self.stamp, newer.stamp.clone());
                older.period = core::mem::replace(&mut self.period, newer.period);
                $(if let Some(sample) = &newer.$field {
                    older.$field = self.$field.replace(Arc::clone(sample));
                })+
            }
        }
    };
}

sources! {
    /// GPUs by NVML.
    gpu, Gpu, gpu::Gpus, every 1;
    /// The driver's error lines in the kernel log.
    xid, Xid, gpu::Xids, every 1;
    /// LLM engines by their metrics pages.
    engine, Engine, engine::Engines, every 1;
    /// Linux software RAID.
    md, Md, storage::Md, every 1;
    /// Block devices and the chain mount -> file system -> dm/md -> disk -> PCI.
    block, Block, storage::Block, every 1;
    /// NVMe controllers and their health.
    nvme, Nvme, storage::Nvme, every 30;
    /// Block latency histograms from the kernel (BPF).
    blklat, BlockLatency, storage::BlockLatency, every 1;
    /// Network and parallel file systems.
    fs, Fs, storage::Fs, every 5;
    /// Pressure stall information, of the system and of the cgroups that matter.
    psi, Psi, host::Psi, every 1;
    /// CPU time, run queue, memory.
    cpu, Cpu, host::Cpu, every 1;
    /// The PCI tree.
    pci, Pci, topology::Pci, every 10;
    /// NUMA nodes.
    numa, Numa, topology::Numa, every 60;
    /// Network and RDMA ports.
    net, Net, topology::Net, every 5;
    /// The processes that hold GPUs.
    proc, Proc, host::Processes, every 1;
    /// The cgroups of those processes, and whose they are.
    cgroup, Cgroup, tenant::Cgroups, every 5;
}

impl<T> Sample<T> {
    /// The sample without its value.
    #[must_use]
    pub fn status(&self) -> Sample<()> {
        Sample {
            at: self.at,
            took: self.took,
            value: self.value.as_ref().map(|_| ()),
            why: self.why.clone(),
            hung: self.hung.clone(),
        }
    }
}

fn keep<T>(slot: &mut Option<Arc<Sample<T>>>, sample: Sample<T>) {
    if slot.as_ref().is_none_or(|held| held.at <= sample.at) {
        *slot = Some(Arc::new(sample));
    }
}
