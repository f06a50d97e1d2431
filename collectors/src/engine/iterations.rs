//! TensorRT-LLM's `/metrics`: a JSON list of iteration records instead of Prometheus text.

use gpuprod_snapshot::engine::{Engine, EngineKind, PageSize};
use gpuprod_snapshot::units::{Ppb, to_f64};
use gpuprod_snapshot::{Missing, Reading};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Iteration {
    num_active_requests: Option<u64>,
    num_queued_requests: Option<u64>,
    kv_cache_stats: Option<Cache>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cache {
    max_num_blocks: Option<u64>,
    used_num_blocks: Option<u64>,
    tokens_per_block: Option<u64>,
}

/// How many records, and the last: a hostile list of millions is counted, not kept.
#[derive(Default)]
struct Records {
    count: u64,
    last: Option<Iteration>,
}

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Records;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of iteration records")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Records, A::Error> {
                let mut records = Records::default();
                while let Some(record) = list.next_element()? {
                    records.count += 1;
                    records.last = Some(record);
                }
                Ok(records)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// Reads the list; its last record is the newest. An empty list means that nothing ran since the last reader.
pub(super) fn read(text: &str) -> Result<Engine, (Missing, String)> {
    let records: Records =
        serde_json::from_str(text).map_err(|error| (Missing::Malformed, format!("not a metrics page: {error}")))?;
    let mut engine = super::page::blank(Missing::Unsupported);
    engine.kind = Reading::Value(EngineKind::TensorRtLlm);
    engine.page = Reading::Value(PageSize {
        bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
        samples: records.count,
        bad_lines: 0,
    });
    let Some(last) = records.last else {
        engine.running = Reading::default();
        engine.waiting = Reading::default();
        engine.kv_usage = Reading::default();
        engine.kv_capacity_tokens = Reading::default();
        return Ok(engine);
    };
    engine.running = Reading::from_option(last.num_active_requests, Missing::Unsupported);
    engine.waiting = Reading::from_option(last.num_queued_requests, Missing::Unsupported);
    let cache = last.kv_cache_stats.unwrap_or_default();
    let share = |used: u64, max: u64| (max > 0).then(|| Ppb::from_fraction(to_f64(used) / to_f64(max))).flatten();
    let usage = cache.used_num_blocks.zip(cache.max_num_blocks);
    engine.kv_usage = Reading::from_option(usage.and_then(|(used, max)| share(used, max)), Missing::Unsupported);
    let tokens = cache.max_num_blocks.zip(cache.tokens_per_block);
    engine.kv_capacity_tokens =
        Reading::from_option(tokens.and_then(|(blocks, each)| blocks.checked_mul(each)), Missing::Unsupported);
    let names = [
        ("running", engine.running.get().is_some(), "numActiveRequests"),
        ("waiting", engine.waiting.get().is_some(), "numQueuedRequests"),
        ("kv_usage", engine.kv_usage.get().is_some(), "kvCacheStats"),
    ];
    let found = names.iter().filter(|(_, there, _)| *there);
    engine.names = found.map(|(signal, _, name)| format!("{signal}={name}")).collect();
    Ok(engine)
}
