//! Storage: software RAID, block devices, NVMe, network file systems.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Reading;
use crate::topology::PciAddress;
use crate::units::{Bytes, BytesPerSecond, Celsius, Nanos, Ppb};

/// All arrays of Linux md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Md {
    /// The arrays, by name. No array and no md module are the same normal state.
    pub arrays: Vec<MdArray>,
}

words! {
    /// `md/array_state`.
    MdState {
        Clear = "clear", Inactive = "inactive", Suspended = "suspended", ReadOnly = "readonly",
        ReadAuto = "read-auto", Clean = "clean", Active = "active", WritePending = "write-pending",
        ActiveIdle = "active-idle", Broken = "broken",
    }
}

words! {
    /// `md/sync_action`, in sysfs words (mdstat's `recovery` is `recover`).
    MdAction {
        Idle = "idle", Resync = "resync", Recover = "recover", Check = "check", Repair = "repair",
        Reshape = "reshape", Frozen = "frozen",
    }
}

words! {
    /// Whether the action is going on.
    SyncState {
        /// Nothing to do.
        None = "none",
        /// Blocks are being read and written.
        Running = "running",
        /// Waits for another array on the same disks.
        Delayed = "delayed",
        /// Waits for the first write.
        Pending = "pending",
        /// Another node of the cluster does it.
        Remote = "remote",
    }
}

/// One array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MdArray {
    /// Kernel name (`md0`, `md_d0`, `md127`).
    pub name: String,
    /// `raid0` … `raid10`, `linear`, `container`; missing for an inactive array.
    pub level: Reading<String>,
    /// Its state.
    pub state: Reading<MdState>,
    /// Holds members for volumes and no data of its own (IMSM, DDF).
    pub is_container: bool,
    /// The container that it is a volume of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Metadata format (`1.2`, `0.90`, `external:imsm`).
    pub metadata: Reading<String>,
    /// Array UUID.
    pub uuid: Reading<String>,
    /// Size of the array.
    pub size: Reading<Bytes>,
    /// Chunk.
    pub chunk: Reading<Bytes>,
    /// Layout in words (`algorithm-2`, `2 near-copies`).
    pub layout: Reading<String>,
    /// Member slots.
    pub raid_disks: Reading<u32>,
    /// Member slots before the reshape under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid_disks_old: Option<u32>,
    /// Members in sync.
    pub active_disks: Reading<u32>,
    /// Slots without a member in sync (`_` of mdstat); counts a member that is being rebuilt.
    pub missing: Reading<u32>,
    /// `md/degraded`; unsupported for levels without redundancy.
    pub degraded: Reading<u32>,
    /// mdstat's `[UU_]`.
    pub slots: Reading<String>,
    /// The members.
    pub members: Vec<MdMember>,
    /// What the array is doing.
    pub action: Reading<MdAction>,
    /// What it did last.
    pub last_action: Reading<MdAction>,
    /// Whether that goes on.
    pub sync: Reading<SyncState>,
    /// Confirmed progress, per member (raid10: of the array); moves in coarse steps.
    pub sync_done: Reading<Bytes>,
    /// What is to be done, per member (raid10: of the array).
    pub sync_total: Reading<Bytes>,
    /// mdstat's finer progress.
    pub sync_done_fine: Reading<Bytes>,
    /// mdstat's total to that progress.
    pub sync_total_fine: Reading<Bytes>,
    /// mdstat's percentage, as printed (truncated).
    pub sync_percent: Reading<Ppb>,
    /// mdstat's estimate of the end; garbage when speed is about zero.
    #[serde(rename = "sync_finish_ns")]
    pub sync_finish: Reading<Nanos>,
    /// Speed per member, the kernel's estimate.
    pub sync_speed: Reading<BytesPerSecond>,
    /// Below this md never yields to other I/O.
    pub sync_speed_min: Reading<BytesPerSecond>,
    /// Above this md sleeps.
    pub sync_speed_max: Reading<BytesPerSecond>,
    /// Sectors that disagreed at the last scrub.
    pub mismatch_sectors: Reading<u64>,
    /// Write-intent bitmap.
    pub bitmap: Reading<bool>,
}

words! {
    /// One word of `dev-*/state` or one flag of mdstat.
    MemberFlag {
        Faulty = "faulty", InSync = "in_sync", Journal = "journal", WriteMostly = "write_mostly",
        Blocked = "blocked", Spare = "spare", WriteError = "write_error", WantReplacement = "want_replacement",
        Replacement = "replacement", ExternalBadBlocks = "external_bbl", FailFast = "failfast",
    }
}

/// A member of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MdMember {
    /// Kernel name of the disk or partition.
    pub name: String,
    /// mdstat's descriptor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nr: Option<u32>,
    /// Role; missing (`gone`) for a spare without one.
    pub slot: Reading<u32>,
    /// Flags.
    pub flags: Vec<MemberFlag>,
    /// Read errors that were corrected.
    pub errors: Reading<u64>,
}

impl MdMember {
    /// Whether the member carries the flag.
    #[must_use]
    pub fn has(&self, flag: &MemberFlag) -> bool {
        self.flags.contains(flag)
    }
    /// A spare that has a slot is being rebuilt.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        self.has(&MemberFlag::Spare) && self.slot.get().is_some()
    }
}

/// Block devices and what stands on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Block {
    /// Devices that did I/O or are in somebody's path, by name.
    pub devices: Vec<BlockDevice>,
    /// Mounts on block devices.
    pub mounts: Vec<Mount>,
}

/// One block device: disk, partition, dm, md, loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockDevice {
    /// Kernel name.
    pub name: String,
    /// Major and minor number.
    pub dev: (u32, u32),
    /// The disk of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_of: Option<String>,
    /// What it is made of (`slaves/`), sorted.
    pub slaves: Vec<String>,
    /// Where the disk sits; missing for what is not on PCI.
    pub pci: Reading<PciAddress>,
    /// Whether it spins.
    pub rotational: Reading<bool>,
    /// Requests that the queue takes.
    pub nr_requests: Reading<u32>,
    /// Counters.
    pub io: Reading<IoCounters>,
}

/// A line of `/proc/diskstats`. Millisecond counters are 32 bits wide and wrap; the others are 64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoCounters {
    /// How many counters the kernel printed: 11, 15 or 17.
    pub fields: u32,
    /// Reads completed.
    pub reads: u64,
    /// Reads merged.
    pub reads_merged: u64,
    /// 512-byte sectors read, whatever the device's sector is.
    pub sectors_read: u64,
    /// Time of reads, wraps at 2^32.
    pub read_ms: u32,
    /// Writes completed.
    pub writes: u64,
    /// Writes merged.
    pub writes_merged: u64,
    /// 512-byte sectors written.
    pub sectors_written: u64,
    /// Time of writes, wraps at 2^32.
    pub write_ms: u32,
    /// Requests in flight.
    pub in_flight: u64,
    /// Time with at least one request in flight, wraps at 2^32.
    pub io_ticks_ms: u32,
    /// Time summed over requests, wraps at 2^32.
    pub weighted_ms: u32,
    /// Discards completed (kernel 4.18).
    pub discards: Reading<u64>,
    /// Flushes completed (kernel 5.5, whole disks).
    pub flushes: Reading<u64>,
    /// Time of flushes.
    pub flush_ms: Reading<u32>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Mount point in the namespace that was read.
    pub point: String,
    /// File system type.
    pub fs: String,
    /// Its source (`/dev/md0`, `server:/export`).
    pub source: String,
    /// Device number of the file system.
    pub dev: (u32, u32),
    /// Mounted read-only.
    pub read_only: bool,
}

/// NVMe controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvme {
    /// The controllers, by name.
    pub controllers: Vec<NvmeController>,
}

words! {
    /// `/sys/class/nvme/*/state`.
    NvmeState {
        New = "new", Live = "live", Resetting = "resetting", Connecting = "connecting",
        Deleting = "deleting", DeletingNoIo = "deleting (no IO)", Dead = "dead",
    }
}

/// One controller and its health log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvmeController {
    /// Kernel name (`nvme0`).
    pub name: String,
    /// Driver state.
    pub state: Reading<NvmeState>,
    /// Model.
    pub model: Reading<String>,
    /// Where it sits.
    pub pci: Reading<PciAddress>,
    /// Composite temperature.
    pub temp: Reading<Celsius>,
    /// Critical-warning bits of the health log.
    pub critical_warning: Reading<u32>,
    /// Life used; may exceed one.
    pub percent_used: Reading<u32>,
    /// Media errors.
    pub media_errors: Reading<u64>,
    /// Time in host-managed thermal throttling.
    #[serde(rename = "throttled_ns")]
    pub throttled: Reading<Nanos>,
}

/// Latency histograms that the kernel gathered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockLatency {
    /// One histogram per device name.
    pub devices: Vec<(String, crate::engine::Histogram)>,
}

/// Network and parallel file systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fs {
    /// The mounts.
    pub mounts: Vec<FsMount>,
}

/// One network mount, summed over its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FsMount {
    /// Mount point.
    pub point: String,
    /// Type (`nfs4`, `lustre`).
    pub fs: String,
    /// Operations completed.
    pub ops: Reading<u64>,
    /// Time from request to answer.
    #[serde(rename = "rtt_ns")]
    pub rtt: Reading<Nanos>,
    /// Time in the client's queue.
    #[serde(rename = "queue_ns")]
    pub queue: Reading<Nanos>,
    /// Bytes read from the server.
    pub read: Reading<Bytes>,
    /// Bytes written to the server.
    pub written: Reading<Bytes>,
    /// Requests that were sent and not answered yet.
    pub unanswered: Reading<u64>,
}
