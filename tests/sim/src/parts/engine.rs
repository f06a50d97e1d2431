//! Engines as their pages show them (vLLM's V1 names).

use gpuprod_snapshot::engine::{Engine, EngineKind, Engines, PageSize, SleepState};
use gpuprod_snapshot::units::{Nanos, Ppb};
use gpuprod_snapshot::{Missing, Reading};

use crate::page;
use crate::scenario::Work;
use crate::words::whole;
use crate::world::{Job, World};

/// Signals and the names that gave them: what a reader of the page should cite.
const NAMES: &[&str] = &[
    "running=vllm:num_requests_running",
    "waiting=vllm:num_requests_waiting",
    "kv_usage=vllm:kv_cache_usage_perc",
    "prompt_tokens=vllm:prompt_tokens_total",
    "generation_tokens=vllm:generation_tokens_total",
    "preemptions=vllm:num_preemptions_total",
    "requests_success=vllm:request_success_total",
    "prefix_queries=vllm:prefix_cache_queries_total",
    "prefix_hits=vllm:prefix_cache_hits_total",
    "ttft=vllm:time_to_first_token_seconds",
    "itl=vllm:inter_token_latency_seconds",
    "e2e=vllm:e2e_request_latency_seconds",
    "queue_time=vllm:request_queue_time_seconds",
];
/// Tokens that the KV cache holds.
const KV_TOKENS: u64 = 524_288;

/// All of them. `unix` turns a second of the scenario into Unix time.
pub(crate) fn engines(world: &World<'_>, at: Nanos, unix: impl Fn(i64) -> Nanos) -> Engines {
    let all = world.scenario.works.iter().zip(&world.jobs).enumerate().filter(|(at, _)| world.has_page(*at));
    let engines = all.filter_map(|(_, (work, job))| {
        let url = format!("http://127.0.0.1:{}/metrics", work.port?);
        Some(match job.pace.serves() {
            true if work.counts_steps() => trainer(work, job, url, at, unix(job.started)),
            true => engine(work, job, url, at, unix(job.started)),
            false if job.pace.times_out() => absent(url, at, Missing::TimedOut, "no answer in time"),
            false => absent(url, at, Missing::Gone, "refused"),
        })
        .map(|mut page| {
            // Whoever has read a job's page once knows whose it is.
            if work.counts_steps() {
                page.kind = EngineKind::Trainer.into();
            }
            page
        })
    });
    Engines { engines: engines.collect() }
}

fn engine(work: &Work, job: &Job, url: String, at: Nanos, started: Nanos) -> Engine {
    let count = |value: f64| Reading::Value(whole(value.floor()));
    let mut engine = Engine {
        url,
        at,
        kind: EngineKind::Vllm.into(),
        model: work.model.clone().into(),
        started: started.into(),
        running: count(job.knobs.running),
        waiting: count(job.knobs.waiting),
        swapped: job.swapped.map_or(Reading::Missing(Missing::Unsupported), count),
        // Thousandths: a decimal that every parser gives back.
        kv_usage: Ppb(whole(job.knobs.kv * 1000.0) * 1_000_000).into(),
        kv_capacity_tokens: work.traffic.as_ref().map_or(KV_TOKENS, |traffic| whole(traffic.kv)).into(),
        prompt_tokens: count(job.prompt),
        generation_tokens: count(job.generated),
        preemptions: count(job.preempted),
        requests_success: count(job.finished),
        prefix_queries: count(job.prompt),
        prefix_hits: count(job.hits),
        sleep: if job.pace.sleeps { SleepState::WeightsOffloaded } else { SleepState::Awake }.into(),
        ttft: job.ttft.show().into(),
        itl: job.itl.show().into(),
        e2e: job.e2e.show().into(),
        queue_time: job.queue.show().into(),
        ..Engine::default()
    };
    engine.page = size(&engine);
    engine.names = NAMES.iter().map(|name| (*name).to_owned()).collect();
    if job.swapped.is_some() {
        engine.names.insert(2, "swapped=vllm:num_requests_swapped".into());
    }
    engine
}

/// A training job's page.
fn trainer(work: &Work, job: &Job, url: String, at: Nanos, started: Nanos) -> Engine {
    let mut page = absent(url, at, Missing::Unsupported, "");
    page.kind = EngineKind::Trainer.into();
    page.model = work.model.clone().into();
    page.started = started.into();
    page.steps = whole(job.steps.floor()).into();
    page.names = vec!["steps=gpuprod_steps_total".into()];
    page.page = size(&page);
    page
}

fn size(engine: &Engine) -> Reading<PageSize> {
    let text = page::respond_engine(engine);
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    let count = |count: usize| u64::try_from(count).unwrap_or(0);
    PageSize { bytes: count(text.len()), samples: count(samples), bad_lines: 0 }.into()
}

/// Nobody listens, or nobody answers: nothing is known, for one reason.
fn absent(url: String, at: Nanos, missing: Missing, why: &str) -> Engine {
    let mut engine = Engine { url, at, why: why.into(), ..Engine::default() };
    macro_rules! gone { ($($field:ident)+) => { $(engine.$field = Reading::Missing(missing);)+ } }
    gone!(page kind model started running waiting swapped kv_usage kv_capacity_tokens prompt_tokens generation_tokens
        preemptions requests_success prefix_queries prefix_hits sleep ttft itl e2e queue_time);
    engine
}
