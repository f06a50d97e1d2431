//! The one table of names: what each engine calls the canonical signals, in order of preference.
//!
//! The first name of a row that the page carries gives the signal; others are the same thing under an older or
//! newer name and are never added to it. Sources: the engines' released sources and documentation (vLLM 0.5 to
//! 0.33, SGLang 0.4 to 0.5, TensorRT-LLM, Triton, TGI, llama.cpp, LMDeploy, NIM, Dynamo).

use gpuprod_snapshot::engine::EngineKind;

/// What a row gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Running,
    Waiting,
    Swapped,
    KvUsage,
    KvCapacity,
    PromptTokens,
    GenerationTokens,
    Preemptions,
    Success,
    PrefixQueries,
    PrefixHits,
    Ttft,
    Itl,
    E2e,
    QueueTime,
}

impl Signal {
    /// The field's name, for the evidence.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Swapped => "swapped",
            Self::KvUsage => "kv_usage",
            Self::KvCapacity => "kv_capacity_tokens",
            Self::PromptTokens => "prompt_tokens",
            Self::GenerationTokens => "generation_tokens",
            Self::Preemptions => "preemptions",
            Self::Success => "requests_success",
            Self::PrefixQueries => "prefix_queries",
            Self::PrefixHits => "prefix_hits",
            Self::Ttft => "ttft",
            Self::Itl => "itl",
            Self::E2e => "e2e",
            Self::QueueTime => "queue_time",
        }
    }
}

/// How the series of one name become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Over data-parallel engines, models, reasons.
    Sum,
    /// The fullest of the engines.
    Max,
    /// One number times another, each under its own name; summed.
    Product(&'static str),
    /// A histogram of time; buckets are summed by bound. The unit is in the name: `_ms`, else seconds.
    Time,
}

/// A name, and which of its series count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) name: &'static str,
    /// Empty: all series count.
    pub(super) label: &'static str,
    /// Values of the label that count; with `!` in front of the first, all others count.
    pub(super) values: &'static [&'static str],
}

pub(super) struct Row {
    pub(super) signal: Signal,
    pub(super) rule: Rule,
    pub(super) names: &'static [Name],
}

const fn n(name: &'static str) -> Name {
    only(name, "", &[])
}

const fn only(name: &'static str, label: &'static str, values: &'static [&'static str]) -> Name {
    Name { name, label, values }
}

macro_rules! rows {
    ($($signal:ident $rule:expr => $($name:expr),+;)+) => {
        &[$(Row { signal: Signal::$signal, rule: $rule, names: &[$($name),+] },)+]
    };
}

use Rule::{Max, Product, Sum, Time};

const VLLM: &[Row] = rows! {
    Running Sum => n("vllm:num_requests_running");
    Waiting Sum => n("vllm:num_requests_waiting");
    Swapped Sum => n("vllm:num_requests_swapped");
    KvUsage Max => n("vllm:kv_cache_usage_perc"), n("vllm:gpu_cache_usage_perc");
    PromptTokens Sum => n("vllm:prompt_tokens_total");
    GenerationTokens Sum => n("vllm:generation_tokens_total");
    Preemptions Sum => n("vllm:num_preemptions_total");
    Success Sum => only("vllm:request_success_total", "finished_reason", &["!", "abort", "error"]);
    PrefixQueries Sum => n("vllm:prefix_cache_queries_total"), n("vllm:gpu_prefix_cache_queries_total");
    PrefixHits Sum => n("vllm:prefix_cache_hits_total"), n("vllm:gpu_prefix_cache_hits_total");
    Ttft Time => n("vllm:time_to_first_token_seconds");
    Itl Time => n("vllm:inter_token_latency_seconds"), n("vllm:time_per_output_token_seconds");
    E2e Time => n("vllm:e2e_request_latency_seconds");
    QueueTime Time => n("vllm:request_queue_time_seconds"), n("vllm:time_in_queue_requests");
};

// Token counters of SGLang move when a request ends; the realtime ones move while it runs.
const SGLANG: &[Row] = rows! {
    Running Sum => n("sglang:num_running_reqs"), n("sglang:num_requests_running");
    Waiting Sum => n("sglang:num_queue_reqs"), n("sglang:num_requests_waiting"), n("sglang:queue_req");
    KvUsage Max => n("sglang:token_usage");
    KvCapacity Sum => n("sglang:max_total_num_tokens");
    PromptTokens Sum => only("sglang:realtime_tokens_total", "mode", &["prefill_compute", "prefill_cache"]), n("sglang:prompt_tokens_total");
    GenerationTokens Sum => only("sglang:realtime_tokens_total", "mode", &["decode"]), n("sglang:generation_tokens_total");
    Preemptions Sum => n("sglang:num_retracted_requests_total");
    Success Sum => n("sglang:num_requests_total");
    Ttft Time => n("sglang:time_to_first_token_seconds");
    Itl Time => n("sglang:inter_token_latency_seconds"), n("sglang:time_per_output_token_seconds");
    E2e Time => n("sglang:e2e_request_latency_seconds");
    QueueTime Time => n("sglang:queue_time_seconds");
};

const TRTLLM: &[Row] = rows! {
    Running Sum => n("trtllm_num_requests_running"), n("num_requests_running");
    Waiting Sum => n("trtllm_num_requests_waiting"), n("num_requests_waiting");
    KvUsage Max => n("trtllm_kv_cache_utilization"), n("kv_cache_utilization");
    KvCapacity Product("trtllm_kv_cache_tokens_per_block") => n("trtllm_kv_cache_max_blocks");
    PromptTokens Sum => n("trtllm_prompt_tokens_total"), n("prompt_tokens_total");
    GenerationTokens Sum => n("trtllm_generation_tokens_total"), n("generation_tokens_total");
    Success Sum => n("trtllm_request_success_total"), n("request_success_total");
    Ttft Time => n("trtllm_time_to_first_token_seconds"), n("time_to_first_token_seconds");
    Itl Time => n("trtllm_time_per_output_token_seconds"), n("time_per_output_token_seconds");
    E2e Time => n("trtllm_e2e_request_latency_seconds"), n("e2e_request_latency_seconds");
    QueueTime Time => n("trtllm_request_queue_time_seconds"), n("request_queue_time_seconds");
};

const TRITON: &[Row] = rows! {
    Running Sum => only("nv_trt_llm_request_metrics", "request_type", &["scheduled"]), only("nv_trt_llm_request_metrics", "request_type", &["active"]);
    Waiting Sum => only("nv_trt_llm_request_metrics", "request_type", &["waiting"]), n("nv_inference_pending_request_count");
    KvUsage Max => only("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", &["fraction"]);
    Success Sum => n("nv_inference_request_success");
    Ttft Time => n("nv_inference_first_response_histogram_ms");
};

const TGI: &[Row] = rows! {
    Running Sum => n("tgi_batch_current_size");
    Waiting Sum => n("tgi_queue_size");
    PromptTokens Sum => n("tgi_request_input_length_sum");
    GenerationTokens Sum => n("tgi_request_generated_tokens_sum");
    Success Sum => n("tgi_request_success");
    Itl Time => n("tgi_request_mean_time_per_token_duration");
    E2e Time => n("tgi_request_duration");
    QueueTime Time => n("tgi_request_queue_duration");
};

const LLAMACPP: &[Row] = rows! {
    Running Sum => n("llamacpp:requests_processing");
    Waiting Sum => n("llamacpp:requests_deferred");
    KvUsage Max => n("llamacpp:kv_cache_usage_ratio");
    PromptTokens Sum => n("llamacpp:prompt_tokens_total");
    GenerationTokens Sum => n("llamacpp:tokens_predicted_total");
};

const LMDEPLOY: &[Row] = rows! {
    Running Sum => n("lmdeploy:num_requests_running");
    Waiting Sum => n("lmdeploy:num_requests_waiting");
    KvUsage Max => n("lmdeploy:gpu_cache_usage_perc");
    PromptTokens Sum => n("lmdeploy:prompt_tokens_total");
    GenerationTokens Sum => n("lmdeploy:generation_tokens_total");
    Ttft Time => n("lmdeploy:time_to_first_token_seconds");
    Itl Time => n("lmdeploy:time_per_output_token_seconds");
    E2e Time => n("lmdeploy:e2e_request_latency_seconds");
    QueueTime Time => n("lmdeploy:request_queue_time_seconds");
};

const DYNAMO: &[Row] = rows! {
    Running Sum => n("dynamo_component_inflight_requests"), n("dynamo_frontend_inflight_requests");
    Waiting Sum => n("dynamo_frontend_queued_requests");
    KvUsage Max => n("dynamo_component_kvstats_gpu_cache_usage_percent");
    PromptTokens Sum => n("dynamo_frontend_input_sequence_tokens_sum");
    GenerationTokens Sum => n("dynamo_frontend_output_sequence_tokens_sum");
    Ttft Time => n("dynamo_frontend_time_to_first_token_seconds");
    Itl Time => n("dynamo_frontend_inter_token_latency_seconds");
    E2e Time => n("dynamo_frontend_request_duration_seconds");
};

const NIM: &[Row] = rows! {
    Running Sum => n("num_requests_running");
    Waiting Sum => n("num_requests_waiting");
    KvUsage Max => n("gpu_cache_usage_perc");
    PromptTokens Sum => n("prompt_tokens_total");
    GenerationTokens Sum => n("generation_tokens_total");
    Success Sum => n("request_success_total");
    Ttft Time => n("time_to_first_token_seconds");
    Itl Time => n("time_per_output_token_seconds");
    E2e Time => n("e2e_request_latency_seconds");
};

/// An engine, the beginnings of names that only it writes, and its rows.
pub(super) struct Engine {
    pub(super) kind: EngineKind,
    pub(super) marks: &'static [&'static str],
    pub(super) rows: &'static [Row],
}

macro_rules! engines {
    ($($kind:ident, $marks:expr, $rows:ident;)+) => {
        &[$(Engine { kind: EngineKind::$kind, marks: &$marks, rows: $rows },)+]
    };
}

/// In order: a front end or a server around an engine passes that engine's own page on, and the engine counts.
pub(super) const ENGINES: &[Engine] = engines! {
    Vllm, ["vllm:"], VLLM;
    Sglang, ["sglang:"], SGLANG;
    Lmdeploy, ["lmdeploy:"], LMDEPLOY;
    LlamaCpp, ["llamacpp:"], LLAMACPP;
    TensorRtLlm, ["trtllm_", "kv_cache_utilization"], TRTLLM;
    Tgi, ["tgi_"], TGI;
    Triton, ["nv_inference_", "nv_trt_llm_"], TRITON;
    Dynamo, ["dynamo_"], DYNAMO;
    Nim, ["num_request_max", "gpu_cache_usage_perc", "num_requests_running"], NIM;
};

/// A name of a page without what Ray puts before it.
pub(super) fn plain(page: &str) -> &str {
    page.strip_prefix("ray_").unwrap_or(page)
}

/// Whether a plain name begins with one of the table. `vllm:x` is also written `vllm_x` (OpenMetrics, Ray).
pub(super) fn begins(plain: &str, mark: &str) -> bool {
    let same = |(a, b): (&u8, &u8)| a == b || (*a == b'_' && *b == b':');
    let (page, mark) = (plain.as_bytes(), mark.as_bytes());
    // Most names differ at the end of the shorter one; all of an engine's are alike at the beginning.
    page.get(..mark.len()).is_some_and(|head| head.iter().rev().zip(mark.iter().rev()).all(same))
}

/// What stands behind a name of the table in a plain name: nothing when they are the same, `_sum` …
pub(super) fn suffix<'a>(plain: &'a str, name: &str) -> Option<&'a str> {
    begins(plain, name).then(|| plain.get(name.len()..)).flatten()
}
