//! The text that a vLLM engine of the V1 generation serves at `/metrics`, and a training job that counts its steps.

use std::fmt::Write as _;

use gpuprod_snapshot::engine::{Engine, Histogram};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Reading, Tick};

/// The page of the engine at a URL, as it stands in a tick; nothing when that engine does not answer.
#[must_use]
pub fn respond(tick: &Tick, url: &str) -> Option<String> {
    let engines = tick.engine.as_ref()?.value.get()?;
    let engine = engines.engines.iter().find(|engine| engine.url == url)?;
    engine.page.get()?;
    Some(respond_engine(engine))
}

/// Family, its kind, and its value.
type Row<'a> = (&'static str, &'static str, &'a Reading<u64>);

/// As Python's prometheus_client writes `Counter("gpuprod_steps", …, ["model"])`.
fn respond_trainer(engine: &Engine) -> String {
    let mut text = String::new();
    if let Some(started) = engine.started.get() {
        family(&mut text, "process_start_time_seconds", "gauge");
        let _ = writeln!(text, "process_start_time_seconds {}", decimal(*started));
    }
    let model = engine.model.get().map_or("unknown", String::as_str);
    family(&mut text, "gpuprod_steps_total", "counter");
    if let Some(steps) = engine.steps.get() {
        let _ = writeln!(text, "gpuprod_steps_total{{model=\"{model}\"}} {steps}.0");
    }
    text
}

pub(crate) fn respond_engine(engine: &Engine) -> String {
    if engine.trains() {
        return respond_trainer(engine);
    }
    let mut text = String::new();
    let model = engine.model.get().map_or("unknown", String::as_str);
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    let gauges: [Row<'_>; 3] = [
        ("vllm:num_requests_running", "gauge", &engine.running),
        ("vllm:num_requests_waiting", "gauge", &engine.waiting),
        ("vllm:num_requests_swapped", "gauge", &engine.swapped),
    ];
    let counters: [Row<'_>; 5] = [
        ("vllm:num_preemptions", "counter", &engine.preemptions),
        ("vllm:prompt_tokens", "counter", &engine.prompt_tokens),
        ("vllm:generation_tokens", "counter", &engine.generation_tokens),
        ("vllm:prefix_cache_queries", "counter", &engine.prefix_queries),
        ("vllm:prefix_cache_hits", "counter", &engine.prefix_hits),
    ];
    for (name, kind, value) in gauges.iter().chain(&counters) {
        let Some(value) = value.get() else { continue };
        let suffix = if *kind == "counter" { "_total" } else { "" };
        family(&mut text, &format!("{name}{suffix}"), kind);
        let _ = writeln!(text, "{name}{suffix}{{{labels}}} {value}.0");
    }
    if let Some(done) = engine.requests_success.get() {
        family(&mut text, "vllm:request_success_total", "counter");
        for (reason, value) in [("stop", *done), ("length", 0), ("abort", 0)] {
            let _ = writeln!(
                text,
                "vllm:request_success_total{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"{model}\"}} {value}.0"
            );
        }
    }
    if let Some(kv) = engine.kv_usage.get() {
        family(&mut text, "vllm:kv_cache_usage_perc", "gauge");
        let _ = writeln!(text, "vllm:kv_cache_usage_perc{{{labels}}} {}", kv.as_fraction());
    }
    if let Some(tokens) = engine.kv_capacity_tokens.get() {
        family(&mut text, "vllm:cache_config_info", "gauge");
        let _ = writeln!(
            text,
            "vllm:cache_config_info{{block_size=\"16\",engine=\"0\",gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"{}\"}} 1.0",
            tokens / 16
        );
    }
    if let Some(sleep) = engine.sleep.get() {
        family(&mut text, "vllm:engine_sleep_state", "gauge");
        for state in ["awake", "weights_offloaded", "discard_all"] {
            let on = u8::from(sleep.as_str() == state);
            let _ = writeln!(
                text,
                "vllm:engine_sleep_state{{engine=\"0\",model_name=\"{model}\",sleep_state=\"{state}\"}} {on}.0"
            );
        }
    }
    let histograms = [
        ("vllm:time_to_first_token_seconds", &engine.ttft),
        ("vllm:inter_token_latency_seconds", &engine.itl),
        ("vllm:e2e_request_latency_seconds", &engine.e2e),
        ("vllm:request_queue_time_seconds", &engine.queue_time),
    ];
    for (name, reading) in histograms {
        if let Some(histogram) = reading.get() {
            family(&mut text, name, "histogram");
            buckets(&mut text, name, &labels, model, histogram);
        }
    }
    if let Some(started) = engine.started.get() {
        family(&mut text, "process_start_time_seconds", "gauge");
        let _ = writeln!(text, "process_start_time_seconds {}", decimal(*started));
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {kind}\n# TYPE {name} {kind}");
}

fn buckets(text: &mut String, name: &str, labels: &str, model: &str, histogram: &Histogram) {
    let _ = writeln!(text, "{name}_sum{{{labels}}} {}", decimal(histogram.sum));
    let bounds = histogram.buckets.iter().map(|(bound, count)| (decimal(*bound), *count));
    for (bound, count) in bounds.chain([("+Inf".to_owned(), histogram.count)]) {
        let _ = writeln!(text, "{name}_bucket{{engine=\"0\",le=\"{bound}\",model_name=\"{model}\"}} {count}.0");
    }
    let _ = writeln!(text, "{name}_count{{{labels}}} {}.0", histogram.count);
}

/// Nanoseconds as seconds, as Python prints a float of that size.
fn decimal(nanos: Nanos) -> String {
    let (whole, rest) = (nanos.0 / 1_000_000_000, nanos.0 % 1_000_000_000);
    let digits = format!("{rest:09}");
    let digits = digits.trim_end_matches('0');
    format!("{whole}.{}", if digits.is_empty() { "0" } else { digits })
}
