//! LLM serving engines as their metrics pages show them, under canonical names.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Reading;
use crate::units::{Nanos, Ppb};

words! {
    /// Which engine wrote the page.
    EngineKind {
        Vllm = "vllm",
        Sglang = "sglang",
        TensorRtLlm = "tensorrt-llm",
        Triton = "triton",
        LlamaCpp = "llama.cpp",
        Tgi = "tgi",
        Lmdeploy = "lmdeploy",
        Nim = "nim",
        Dynamo = "dynamo",
        // No engine: a training job that counts its steps.
        Trainer = "trainer",
    }
}

words! {
    /// What vLLM says of its sleep mode.
    SleepState { Awake = "awake", WeightsOffloaded = "weights_offloaded", DiscardAll = "discard_all" }
}

/// All engines that were asked, in the order of their URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Engines {
    /// The engines.
    pub engines: Vec<Engine>,
}

/// One engine. Sums run over the page's data-parallel indices; a signal that the page does not carry is Missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// Where it was asked, without credentials.
    pub url: String,
    /// When this page was complete, CLOCK_BOOTTIME: engines are asked one after the other.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// The page: there, or why not (refused, timed out, not an engine's).
    pub page: Reading<PageSize>,
    /// What went wrong, in words, when `page` is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Which engine it is.
    pub kind: Reading<EngineKind>,
    /// The model's served name.
    pub model: Reading<String>,
    /// Unix time at which the engine's process started.
    #[serde(rename = "started_ns")]
    pub started: Reading<Nanos>,
    /// Requests in execution.
    pub running: Reading<u64>,
    /// Requests in the queue.
    pub waiting: Reading<u64>,
    /// Requests swapped to the host (vLLM V0 only).
    pub swapped: Reading<u64>,
    /// Share of the KV cache in use.
    pub kv_usage: Reading<Ppb>,
    /// Tokens that the KV cache holds.
    pub kv_capacity_tokens: Reading<u64>,
    /// Prompt tokens, a counter.
    pub prompt_tokens: Reading<u64>,
    /// Generated tokens, a counter.
    pub generation_tokens: Reading<u64>,
    /// Preemptions, a counter.
    pub preemptions: Reading<u64>,
    /// Requests finished well, a counter.
    pub requests_success: Reading<u64>,
    /// Prefix-cache look-ups, a counter (unit: as the engine's version counts).
    pub prefix_queries: Reading<u64>,
    /// Prefix-cache hits, a counter.
    pub prefix_hits: Reading<u64>,
    /// Finished steps of a training job, a counter; not read on an engine's page.
    #[serde(skip_serializing_if = "Reading::is_not_yet")]
    pub steps: Reading<u64>,
    /// Sleep mode.
    pub sleep: Reading<SleepState>,
    /// Time to first token.
    pub ttft: Reading<Histogram>,
    /// Time between tokens.
    pub itl: Reading<Histogram>,
    /// Time of whole requests.
    pub e2e: Reading<Histogram>,
    /// Time in the queue.
    pub queue_time: Reading<Histogram>,
    /// Names of the page that gave the signals above, for the evidence (`kv_usage=vllm:gpu_cache_usage_perc`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl Engine {
    /// Whether it is a training job that counts its steps, and serves nobody.
    #[must_use]
    pub fn trains(&self) -> bool {
        self.kind.get() == Some(&EngineKind::Trainer)
    }
}

/// What was read of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageSize {
    /// Bytes read.
    pub bytes: u64,
    /// Samples on it.
    pub samples: u64,
    /// Lines that could not be read; they cost nothing but themselves.
    pub bad_lines: u64,
}

/// A cumulative histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Observations.
    pub count: u64,
    /// Their sum.
    #[serde(rename = "sum_ns")]
    pub sum: Nanos,
    /// Upper bound and cumulative count, ascending, without the infinite one.
    pub buckets: Vec<(Nanos, u64)>,
}
