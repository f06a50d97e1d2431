//! The node's own state: pressure, CPU, the processes that hold GPUs.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Reading;
use crate::units::{Bytes, Nanos, Ppb};

/// Pressure stall information: how long tasks waited for a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Psi {
    /// Of the whole system (`/proc/pressure`).
    pub system: Pressures,
    /// Of the cgroups in focus, by path.
    pub cgroups: Vec<CgroupPressures>,
}

/// The pressures of one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupPressures {
    /// Path below the cgroup root (`/kubepods.slice/…`).
    pub path: String,
    /// What its tasks waited for.
    pub pressures: Pressures,
}

/// One resource each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressures {
    /// CPU.
    pub cpu: Reading<Pressure>,
    /// Block I/O (and what else sleeps in io_schedule).
    pub io: Reading<Pressure>,
    /// Memory.
    pub memory: Reading<Pressure>,
}

/// The `some` and `full` lines of one pressure file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stall,
    /// All non-idle tasks waited; the CPU file has no such line before kernel 5.13.
    pub full: Reading<Stall>,
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    /// Average over 10 s, refreshed every 2 s by the kernel.
    pub avg10: Ppb,
    /// Average over 60 s.
    pub avg60: Ppb,
    /// Average over 300 s.
    pub avg300: Ppb,
    /// Total, current at the time of the read: rates are differences of this.
    #[serde(rename = "total_ns")]
    pub total: Nanos,
}

/// CPU time and memory of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Online CPUs.
    pub online: Reading<u32>,
    /// Time not idle, over all CPUs; what the hypervisor took is not in it.
    #[serde(rename = "busy_ns")]
    pub busy: Reading<Nanos>,
    /// Of that, time in interrupts, hard and soft.
    #[serde(rename = "interrupts_ns")]
    pub interrupts: Reading<Nanos>,
    /// Time idle with I/O outstanding.
    #[serde(rename = "iowait_ns")]
    pub iowait: Reading<Nanos>,
    /// Time taken by the hypervisor.
    #[serde(rename = "steal_ns")]
    pub steal: Reading<Nanos>,
    /// Memory of the node.
    pub mem_total: Reading<Bytes>,
    /// Memory that can be had without swapping.
    pub mem_available: Reading<Bytes>,
}

/// The processes that hold GPUs, and their ancestors and children as far as they matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Processes {
    /// The processes, by pid.
    pub processes: Vec<Process>,
}

/// One process. Its identity is (pid, start).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Pid in our namespace.
    pub pid: u32,
    /// Start after boot.
    #[serde(rename = "start_ns")]
    pub start: Reading<Nanos>,
    /// Parent.
    pub ppid: Reading<u32>,
    /// Real user id.
    pub uid: Reading<u32>,
    /// Name, at most 15 bytes, as the kernel keeps it.
    pub comm: Reading<String>,
    /// The leader's state letter (R S D Z T …).
    pub state: Reading<char>,
    /// Threads.
    pub threads: Reading<u32>,
    /// Threads in uninterruptible sleep (D).
    pub threads_blocked: Reading<u32>,
    /// Where the first blocked thread waits in the kernel.
    pub wchan: Reading<String>,
    /// User and system time of all live threads.
    #[serde(rename = "cpu_ns")]
    pub cpu: Reading<Nanos>,
    /// CPUs on which its leader may run, as the kernel prints them (`0-55,112-167`). A thread may be bound tighter.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub cpus_allowed: Reading<String>,
    /// NUMA nodes from which it may take memory, as the kernel prints them.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub mems_allowed: Reading<String>,
    /// CPU on which the leader ran last.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub processor: Reading<u32>,
    /// CPU time by NUMA node, by number: what each thread used since the look before counts to the node of the CPU on
    /// which it ran last. What it had used when it was first seen counts to where it was then. Only grows.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub cpu_by_node: Reading<Vec<NodeTime>>,
    /// Resident memory.
    pub rss: Reading<Bytes>,
    /// Of that, memory that no file backs: what the process itself made. Mapped weights are not in it.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub anonymous: Reading<Bytes>,
    /// Cgroup path (v2 or the controller that decides, as the tenant parser picks it).
    pub cgroup: Reading<String>,
    /// Bytes read by system calls, page cache included.
    pub read_chars: Reading<Bytes>,
    /// Bytes written by system calls.
    pub written_chars: Reading<Bytes>,
    /// Bytes that storage had to read.
    pub read_bytes: Reading<Bytes>,
    /// Bytes that storage has to write.
    pub written_bytes: Reading<Bytes>,
    /// Block devices and mount points behind its open files (`/dev/md0`, `/data`), sorted.
    pub opens: Reading<Vec<String>>,
    /// TCP ports on which it listens, in its own network namespace, sorted.
    pub listens: Reading<Vec<u16>>,
    /// Established TCP connections of its own with other hosts, those to well-known ports (below 1024) left out:
    /// the ranks of a job talk on ports above.
    pub remote_peers: Reading<u32>,
    /// Whether it holds an RDMA device open (`/dev/infiniband/uverbs0`, `/dev/cxi0`).
    pub rdma: Reading<bool>,
}

/// CPU time on the CPUs of one NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTime {
    /// The node's number.
    pub node: u32,
    /// User and system time.
    #[serde(rename = "cpu_ns")]
    pub cpu: Nanos,
}
