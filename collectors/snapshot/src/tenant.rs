//! Whose a process is, and what its cgroup was allowed and used.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Reading;
use crate::units::{Bytes, Nanos};

/// The cgroups in focus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroups {
    /// The cgroups, by path.
    pub cgroups: Vec<Cgroup>,
    /// Notes of the site's scheduler about their jobs, as far as there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<JobNote>,
    /// Notes that are there and cannot be read: which file, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// What the site says of a job: a file that a prolog or an epilog left on the node, named by the job's number (Slurm)
/// or uid (pod). Tenants cannot write there; nothing else is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobNote {
    /// The job's number, or the pod's uid.
    pub job: String,
    /// Slurm account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Slurm partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Kubernetes namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What it is for, in the site's word (a pod's label).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How it ended, or that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Its wall limit.
    #[serde(rename = "limit_ns", skip_serializing_if = "Option::is_none")]
    pub limit: Option<Nanos>,
    /// Unix time of its start.
    #[serde(rename = "started_ns", skip_serializing_if = "Option::is_none")]
    pub started: Option<Nanos>,
}

words! {
    /// Slurm's job states, as far as they matter on a node.
    JobState {
        Running = "RUNNING", Completed = "COMPLETED", Failed = "FAILED", Cancelled = "CANCELLED",
        Timeout = "TIMEOUT", OutOfMemory = "OUT_OF_MEMORY", NodeFail = "NODE_FAIL", Preempted = "PREEMPTED",
    }
}

impl JobState {
    /// Whether the allocation is over. A word that is not known says nothing.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        !matches!(self, Self::Running | Self::Other(_))
    }
}

/// One cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// Path below the root.
    pub path: String,
    /// What the path says of its owner.
    pub owner: Owner,
    /// CPU time used.
    #[serde(rename = "cpu_used_ns")]
    pub cpu_used: Reading<Nanos>,
    /// Quota periods that passed.
    pub periods: Reading<u64>,
    /// Quota periods in which it was throttled.
    pub throttled_periods: Reading<u64>,
    /// Memory in use.
    pub mem_used: Reading<Bytes>,
    /// Memory allowed; missing (`unsupported`) without a limit.
    pub mem_limit: Reading<Bytes>,
    /// Kills by the out-of-memory killer.
    pub oom_kills: Reading<u64>,
    /// Pages of files that were read anew soon after they had been thrown out of the page cache. A page has 4 KiB or
    /// more.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub refaults: Reading<u64>,
    /// Bytes read and written per device number.
    pub io: Reading<Vec<CgroupIo>>,
}

/// A line of `io.stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupIo {
    /// Device number.
    pub dev: (u32, u32),
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
}

words! {
    /// Who started it.
    Runtime {
        Docker = "docker", Cri = "cri", Crio = "cri-o", Podman = "podman", Slurm = "slurm",
        Systemd = "systemd", Lxc = "lxc", Vm = "vm", None = "none",
    }
}

/// What a cgroup path says of its owner. All fields are as the path gives them; nothing is guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// Who started it.
    pub runtime: Reading<Runtime>,
    /// Container id: 64 hexadecimal digits, or a name where the runtime uses names (LXC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Kubernetes pod uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// A static pod: the id is a hash and not the API's uid.
    pub static_pod: bool,
    /// Kubernetes quality of service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Slurm job number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_job: Option<String>,
    /// Slurm step (`0`, `batch`, `extern`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_step: Option<String>,
    /// Slurm's newer id without a job number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm_sluid: Option<String>,
    /// systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// User id of the slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_uid: Option<u32>,
    /// Part of the platform, not of a workload.
    pub infra: bool,
}
