use std::path::Path;

use gpuprod_snapshot::engine::EngineKind;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn page(text: &str) -> Engine {
    read(text).unwrap()
}

/// What expected.json says against what was read; null must be missing, an absent key is not asked for.
fn check(file: &str, engine: &Engine, want: &Value) {
    let of = |key: &str| want.get(key).map(|value| (format!("{file} {key}"), value));
    let counts = [
        ("running", &engine.running),
        ("waiting", &engine.waiting),
        ("swapped", &engine.swapped),
        ("prompt_tokens_total", &engine.prompt_tokens),
        ("generation_tokens_total", &engine.generation_tokens),
        ("preemptions_total", &engine.preemptions),
        ("requests_success_total", &engine.requests_success),
        ("prefix_cache_queries_total", &engine.prefix_queries),
        ("prefix_cache_hits_total", &engine.prefix_hits),
        ("kv_capacity_tokens", &engine.kv_capacity_tokens),
    ];
    for (key, found) in counts {
        if let Some((what, value)) = of(key) {
            assert_eq!(found.copied(), value.as_u64(), "{what}");
        }
    }
    for (key, found) in [("ttft", &engine.ttft), ("tpot", &engine.itl)] {
        if let Some((what, value)) = of(&format!("{key}_count")) {
            assert_eq!(found.get().map(|h| h.count), value.as_u64(), "{what}");
        }
        if let Some((what, value)) = of(&format!("{key}_sum_s")) {
            let found = found.get().unwrap().sum.as_secs_f64();
            assert!((found - value.as_f64().unwrap()).abs() < 1e-6, "{what}");
        }
    }
    if let Some((what, value)) = of("kv_usage") {
        let found = engine.kv_usage.copied().map(Ppb::as_fraction);
        assert_eq!(found.is_some(), value.is_number(), "{what}");
        assert!((found.unwrap_or(0.0) - value.as_f64().unwrap_or(0.0)).abs() < 1e-9, "{what}");
    }
    if let Some((what, value)) = of("sleep_state") {
        assert_eq!(engine.sleep.get().map(SleepState::as_str), value.as_str(), "{what}");
    }
    assert_eq!(engine.kind.get().map(EngineKind::as_str), want["engine"].as_str(), "{file} engine");
    assert_eq!(engine.model.get().map(String::as_str), want["model"].as_str(), "{file} model");
}

#[test]
fn the_collected_pages_give_what_is_expected_of_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/engines");
    let file = |name: &str| std::io::read_to_string(std::fs::File::open(dir.join(name))?);
    let Ok(expected) = file("expected.json") else {
        return eprintln!("skipped: {} is not there", dir.display());
    };
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let files = expected["files"].as_object().unwrap();
    assert_eq!(files.len(), 11);
    for (name, want) in files {
        let engine = page(&file(name).unwrap());
        assert_eq!(engine.page.get().map(|page| page.bad_lines), Some(0), "{name}");
        check(name, &engine, want);
    }
    let fresh = page(&file("vllm_v1_fresh_start.prom").unwrap());
    // `process_start_time_seconds 1.7740113846e+09`
    assert_eq!(fresh.started.copied().map(|s| s.0 / 100_000_000), Some(17_740_113_846));
    let declared = page(&file("vllm_declared_without_samples.prom").unwrap());
    assert_eq!(declared.running, Reading::Missing(Missing::NotYet));
    assert_eq!(declared.generation_tokens, Reading::Missing(Missing::Unsupported));
}

#[test]
fn one_signal_under_two_names_counts_once() {
    let engine = page(
        "vllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
         vllm:gpu_prefix_cache_queries_total 7\n",
    );
    assert_eq!(engine.kv_usage, Reading::Value(Ppb(250_000_000)));
    assert_eq!(engine.prefix_queries, Reading::Value(7));
    assert!(engine.names.contains(&"kv_usage=vllm:kv_cache_usage_perc".to_owned()), "{:?}", engine.names);
    assert!(engine.names.contains(&"prefix_queries=vllm:gpu_prefix_cache_queries_total".to_owned()));
}

#[test]
fn data_parallel_engines_add_up_and_the_fullest_cache_counts() {
    let engine = page(
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.9\nvllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.1\n\
         vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1\n\
         vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"100\"} 1\n\
         vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} 1\n",
    );
    assert_eq!(engine.running, Reading::Value(7));
    assert_eq!(engine.kv_usage, Reading::Value(Ppb(900_000_000)));
    assert_eq!(engine.kv_capacity_tokens, Reading::Value(3200));
    assert_eq!(engine.sleep, Reading::Value(SleepState::DiscardAll));
    assert_eq!(engine.model, Reading::Value("m".to_owned()));
}

#[test]
fn both_spellings_and_rays_prefix_are_the_same_names() {
    for name in ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_"] {
        // OpenMetrics: the type has no _total, integers no .0, the page ends with # EOF.
        let engine = page(&format!(
            "# TYPE {name}generation_tokens counter\n{name}generation_tokens_total{{model_name=\"m\",engine=\"0\"}} 12 1700000000.5\n\
             # TYPE {name}num_preemptions counter\n# EOF\n"
        ));
        assert_eq!(engine.kind, Reading::Value(EngineKind::Vllm), "{name}");
        assert_eq!(engine.generation_tokens, Reading::Value(12), "{name}");
        assert_eq!(engine.preemptions, Reading::Missing(Missing::NotYet), "{name}");
    }
}

#[test]
fn sglang_ranks_repeat_and_the_priority_total_is_the_total() {
    let engine = page(
        "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 5\nsglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\"} 5\n\
         sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"2\"} 2\n\
         sglang:num_queue_reqs{priority=\"\"} 9\nsglang:num_queue_reqs{priority=\"0\"} 4\nsglang:num_queue_reqs{priority=\"1\"} 5\n\
         sglang:generation_tokens_total 10\nsglang:realtime_tokens_total{mode=\"decode\"} 30\n\
         sglang:realtime_tokens_total{mode=\"prefill_compute\"} 7\nsglang:realtime_tokens_total{mode=\"prefill_cache\"} 1\n",
    );
    assert_eq!(engine.running, Reading::Value(7));
    assert_eq!(engine.waiting, Reading::Value(9));
    assert_eq!(engine.generation_tokens, Reading::Value(30));
    assert_eq!(engine.prompt_tokens, Reading::Value(8));
    let parts = page("sglang:num_queue_reqs{priority=\"0\"} 4\nsglang:num_queue_reqs{priority=\"1\"} 5\n");
    assert_eq!(parts.waiting, Reading::Value(9), "without a total, the parts are it");
}

#[test]
fn sentinels_and_what_is_no_number_are_missing() {
    let engine = page(
        "vllm:num_requests_running -1.0\nvllm:kv_cache_usage_perc NaN\nvllm:generation_tokens_total +Inf\n\
         vllm:prompt_tokens_total 1e30\nvllm:num_requests_waiting{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"1\"} NaN\n",
    );
    assert_eq!(engine.running, Reading::Missing(Missing::Unsupported));
    for reading in [&engine.generation_tokens, &engine.prompt_tokens, &engine.waiting] {
        assert_eq!(*reading, Reading::Missing(Missing::Malformed));
    }
    assert_eq!(engine.kv_usage, Reading::Missing(Missing::Malformed));
    let percent = page("vllm:kv_cache_usage_perc 42\n");
    assert_eq!(percent.kv_usage, Reading::Missing(Missing::Malformed), "a share is no percentage");
    let older = page("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.5\n");
    assert_eq!(older.kv_usage, Reading::Value(Ppb(500_000_000)));
}

#[test]
fn histograms_add_up_by_bound_in_the_unit_of_their_name() {
    let engine = page(
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.25\"} 1\nvllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\"} 3\n\
         vllm:time_to_first_token_seconds_bucket{engine=\"1\",le=\"0.25\"} 2\nvllm:time_to_first_token_seconds_bucket{engine=\"1\",le=\"+Inf\"} 2\n\
         vllm:time_to_first_token_seconds_count{engine=\"0\"} 3\nvllm:time_to_first_token_seconds_count{engine=\"1\"} 2\n\
         vllm:time_to_first_token_seconds_sum{engine=\"0\"} 1.5\nvllm:time_to_first_token_seconds_sum{engine=\"1\"} 0.25\n\
         vllm:time_per_output_token_seconds_count 9\nvllm:time_per_output_token_seconds_sum 1\n\
         vllm:inter_token_latency_seconds_count 8\nvllm:inter_token_latency_seconds_sum 2\n",
    );
    let wanted = Histogram { count: 5, sum: Nanos::from_millis(1750), buckets: vec![(Nanos::from_millis(250), 3)] };
    assert_eq!(engine.ttft, Reading::Value(wanted));
    assert_eq!(engine.itl.get().map(|h| h.count), Some(8), "the newer name, once");
    let triton = page(
        "nv_inference_first_response_histogram_ms_bucket{le=\"100\"} 1\nnv_inference_first_response_histogram_ms_sum 80.5\n\
         nv_inference_first_response_histogram_ms_count 1\n",
    );
    let wanted = Histogram { count: 1, sum: Nanos(80_500_000), buckets: vec![(Nanos::from_millis(100), 1)] };
    assert_eq!(triton.ttft, Reading::Value(wanted));
    let crooked = page(
        "vllm:time_to_first_token_seconds_bucket{le=\"1\"} 9\nvllm:time_to_first_token_seconds_bucket{le=\"2\"} 4\n\
         vllm:time_to_first_token_seconds_count 9\nvllm:time_to_first_token_seconds_sum 1\n",
    );
    assert_eq!(crooked.ttft.get().map(|h| h.buckets.len()), Some(0));
}

#[test]
fn an_abort_is_no_success() {
    let engine = page(
        "vllm:request_success_total{finished_reason=\"stop\"} 4\nvllm:request_success_total{finished_reason=\"length\"} 3\n\
         vllm:request_success_total{finished_reason=\"abort\"} 100\nvllm:request_success_total{finished_reason=\"error\"} 100\n",
    );
    assert_eq!(engine.requests_success, Reading::Value(7));
}

#[test]
fn which_engine_it_is() {
    for (text, kind) in [
        ("dynamo_frontend_queued_requests 1\nvllm:num_requests_running 2\n", EngineKind::Vllm),
        ("dynamo_frontend_queued_requests 1\n", EngineKind::Dynamo),
        ("num_requests_running 1\ngpu_cache_usage_perc 0.1\n", EngineKind::Nim),
        ("num_requests_running 1\nkv_cache_utilization 0.1\n", EngineKind::TensorRtLlm),
        ("tgi_queue_size 1\n", EngineKind::Tgi),
        ("lmdeploy:num_requests_running 1\n", EngineKind::Lmdeploy),
        ("[]", EngineKind::TensorRtLlm),
    ] {
        assert_eq!(page(text).kind, Reading::Value(kind), "{text}");
    }
    assert_eq!(page("[]").running, Reading::Missing(Missing::NotYet), "nothing ran since: not zero");
    assert_eq!(page("node_load1 0.5\n").kind, Reading::Missing(Missing::Unsupported));
}

#[test]
fn what_is_no_page_says_so() {
    let why = |text| read(text).unwrap_err().1;
    assert_eq!(why(""), "empty body");
    assert_eq!(why("\n \n"), "empty body");
    assert_eq!(why("<html><body>It works!</body></html>\n"), "not a metrics page");
    assert!(why("[{\"iter\": ").starts_with("not a metrics page"));
    assert!(why("[1]").starts_with("not a metrics page"));
    let engine = page("vllm:num_requests_running 1\n<oops>\nvllm:num_requests_waiting 2\n");
    assert_eq!(engine.page.get().map(|page| (page.samples, page.bad_lines)), Some((2, 1)));
    assert_eq!(engine.waiting, Reading::Value(2));
}

proptest! {
    #[test]
    fn hostile_pages(text in "((ray_)?(vllm[:_]|sglang:|nv_inference_)?(num_requests_running|time_to_first_token_seconds(_bucket|_sum|_count)?|kv_cache_usage_perc|cache_config_info|engine_sleep_state)?([{](le|priority|tp_rank|num_gpu_blocks|block_size)=\"[0-9.e+NaInf-]{0,6}\"[}])? ?[0-9.e+NaInf-]{0,8}\n){0,30}") {
        // No line is lost or counted twice, and what no hostile line names is read as it stands.
        let text = text + "vllm:num_requests_waiting{engine=\"0\"} 7\n";
        let engine = read(&text).unwrap();
        let lines = text.split('\n').filter(|line| !line.trim_matches([' ', '\t', '\r']).is_empty()).count();
        let size = engine.page.get().unwrap();
        prop_assert_eq!(size.samples + size.bad_lines, lines as u64);
        prop_assert_eq!(size.bytes, text.len() as u64);
        match engine.kind {
            Reading::Value(EngineKind::Vllm) => prop_assert_eq!(engine.waiting, Reading::Value(7)),
            Reading::Value(EngineKind::Sglang) => prop_assert!(text.contains("sglang:")),
            Reading::Value(EngineKind::Triton) => prop_assert!(text.contains("nv_inference_")),
            kind => return Err(TestCaseError::fail(format!("{kind:?} of {text}"))),
        }
    }

    /// A list is read exactly when it is one: TensorRT-LLM's page is JSON, an array of objects.
    #[test]
    fn hostile_lists(text in "\\[[\\[{}\",:0-9a-zA-Z]{0,60}\\]?|\\[(\\{(\"(iter|numActiveRequests|x)\":[0-9]{1,3})?\\},?){0,3}\\]") {
        let objects = serde_json::from_str::<Vec<serde_json::Map<String, Value>>>(&text);
        match read(&text) {
            Ok(engine) => {
                prop_assert_eq!(engine.kind, Reading::Value(EngineKind::TensorRtLlm));
                let objects = objects.unwrap();
                let last = objects.last().and_then(|last| last.get("numActiveRequests")?.as_u64());
                prop_assert_eq!(engine.running.copied(), last);
            }
            Err((missing, why)) => {
                prop_assert_eq!(missing, Missing::Malformed);
                prop_assert!(objects.is_err() && why.starts_with("not a metrics page"), "{why}: {text}");
            }
        }
    }
}

#[test]
fn no_text_of_a_page_is_kept_beyond_256_characters() {
    let long = "\u{e9}".repeat(100_000);
    let name = format!("{}:vllm:num_requests_running", "x".repeat(100_000));
    let text = format!(
        "vllm:num_requests_running{{model_name=\"{long}\"}} 1\n{name}{{model_name=\"m\"}} 1\n\
         vllm:engine_sleep_state{{sleep_state=\"{long}\"}} 1\n"
    );
    let engine = page(&text);
    assert_eq!(engine.running.copied(), Some(1));
    assert_eq!(engine.model.get().unwrap(), &"\u{e9}".repeat(256));
    assert_eq!(engine.sleep.get().unwrap().as_str(), "\u{e9}".repeat(256));
    assert!(engine.names.iter().all(|name| name.len() < 300), "{:?}", engine.names);
}
