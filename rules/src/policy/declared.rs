//! What the operator says of the node, and no reading tells: the shapes of jobs that come, and who has which GPU.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Class;

/// Everything declared. Config: `rules.shapes`, `rules.allocations`, `rules.kv_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Declared {
    /// Shapes of jobs that should find room.
    pub shapes: Vec<Shape>,
    /// Records of who has which GPU.
    pub allocations: Vec<Allocation>,
    /// What a token takes in the KV cache, by model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kv_bytes: Vec<KvBytes>,
}

/// Size of a token in the KV cache: no engine's page tells it, and the model's own config does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvBytes {
    /// The served model's name; `*` stands for any text.
    pub model: String,
    /// 2 x layers x KV heads x head size x bytes of a number.
    pub per_token: u64,
}

/// What a job asks for; 0 and what is left out: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Its name, a series label.
    pub name: String,
    /// Thousandths of a GPU: 250 shares one, 1000 takes one whole, 8000 takes eight.
    pub gpu_milli: u32,
    /// GPU memory, on each GPU, in MiB.
    pub hbm_mib: u32,
    /// Reading and writing files, in MB/s.
    pub storage_mb_per_s: u32,
    /// Operations per second on drives.
    pub storage_iops: u32,
    /// Part of the time in which a task must get a CPU at once, in percent.
    pub io_cpu_percent: u32,
    /// Thousandths of a CPU.
    pub cpu_milli: u32,
    /// Memory of the host, in MiB.
    pub memory_mib: u32,
    /// To and from the GPUs, in MB/s.
    pub pcie_mb_per_s: u32,
    /// Over the network, in MB/s.
    pub network_mb_per_s: u32,
}

/// A scheduler's word that somebody has a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allocation {
    /// The GPU: its UUID, or its index as NVML counts.
    pub gpu: String,
    /// Who has it: a job, a pod, a team.
    pub owner: String,
    /// What for.
    pub class: Option<Class>,
    /// It is meant to stand by: without a process, or with one that does nothing.
    pub standby: bool,
}

impl Default for Declared {
    /// One whole GPU with 4 to 12 CPUs is what OpenB (Alibaba 2023) shows most; the rest is what an inference server or
    /// a data loader of that size asks for. Parts of a GPU are shared only where an operator lists such shapes.
    fn default() -> Self {
        let shape = |name: &str, gpu_milli, hbm_mib, storage_mb_per_s, cpu_milli, memory_mib| Shape {
            name: name.into(),
            gpu_milli,
            hbm_mib,
            storage_mb_per_s,
            io_cpu_percent: 20,
            cpu_milli,
            memory_mib,
            ..Shape::default()
        };
        Self {
            shapes: alloc::vec![
                shape("inference_1gpu", 1_000, 16_384, 100, 4_000, 32_768),
                shape("training_1gpu", 1_000, 16_384, 200, 8_000, 32_768),
            ],
            allocations: Vec::new(),
            kv_bytes: Vec::new(),
        }
    }
}
