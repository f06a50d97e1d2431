//! LLM engines as their own pages show them, under one set of names.

use gpuprod_snapshot::engine::{Engine, Histogram};
use gpuprod_snapshot::{Missing, Reading};

use super::{Exact, Kind, Metric, value};
use crate::pipeline::Frame;

macro_rules! series {
    ($kind:ident, $name:literal, $unit:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &["engine"],
            help: $help,
            read: |frame, out| each(frame, |engine| out.read(&[&engine.url], &engine.$field)),
        }
    };
}
macro_rules! latency {
    ($part:ident, $name:literal, $unit:literal, $help:literal, $field:ident) => {
        Metric {
            name: $name,
            kind: Kind::Counter,
            unit: $unit,
            labels: &["engine"],
            help: $help,
            read: |frame, out| each(frame, |engine| out.read(&[&engine.url], &of(&engine.$field, |h| h.$part))),
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.engine.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["engine", "kind", "model"],
        help: "Which engine answers at this address, and what it serves.",
        read: |frame, out| {
            each(frame, |engine| {
                if let Some(kind) = engine.kind.get() {
                    let model = engine.model.get().map_or("", String::as_str);
                    out.put(&[&engine.url, kind.as_str(), model], 1_u32.exact());
                }
            });
        },
    },
    Metric {
        name: "gpuprod.engine.up",
        kind: Kind::Gauge,
        unit: "",
        labels: &["engine"],
        help: "1 while the engine's page can be read.",
        read: |frame, out| {
            each(frame, |engine| out.put(&[&engine.url], engine.page.get().is_some().exact()));
        },
    },
    series!(Gauge, "gpuprod.engine.requests.running", "{request}", "Requests in execution.", running),
    series!(Gauge, "gpuprod.engine.requests.waiting", "{request}", "Requests in the queue.", waiting),
    series!(Gauge, "gpuprod.engine.requests.swapped", "{request}", "Requests swapped to the host.", swapped),
    series!(Gauge, "gpuprod.engine.kv.usage", "1", "Share of the KV cache in use.", kv_usage),
    series!(Counter, "gpuprod.engine.tokens.prompt", "{token}", "Prompt tokens taken in.", prompt_tokens),
    series!(Counter, "gpuprod.engine.tokens.generated", "{token}", "Tokens generated.", generation_tokens),
    series!(
        Counter,
        "gpuprod.engine.preemptions",
        "{preemption}",
        "Requests put back for want of KV cache.",
        preemptions
    ),
    series!(Counter, "gpuprod.engine.requests.success", "{request}", "Requests finished well.", requests_success),
    series!(Counter, "gpuprod.engine.prefix.queries", "{query}", "Look-ups in the prefix cache.", prefix_queries),
    series!(Counter, "gpuprod.engine.prefix.hits", "{query}", "Hits in the prefix cache.", prefix_hits),
    series!(Counter, "gpuprod.engine.steps", "{step}", "Finished steps of a training job.", steps),
    latency!(sum, "gpuprod.engine.ttft.time", "s", "Time to first token, summed over requests.", ttft),
    latency!(
        count,
        "gpuprod.engine.ttft.observations",
        "{request}",
        "Requests whose time to first token is summed.",
        ttft
    ),
    latency!(sum, "gpuprod.engine.itl.time", "s", "Time between tokens, summed.", itl),
    latency!(count, "gpuprod.engine.itl.observations", "{token}", "Tokens whose time between is summed.", itl),
    latency!(sum, "gpuprod.engine.request.time", "s", "Time of whole requests, summed.", e2e),
    latency!(count, "gpuprod.engine.request.observations", "{request}", "Requests whose time is summed.", e2e),
    latency!(sum, "gpuprod.engine.queue.time", "s", "Time in the queue, summed over requests.", queue_time),
    latency!(
        count,
        "gpuprod.engine.queue.observations",
        "{request}",
        "Requests whose time in the queue is summed.",
        queue_time
    ),
];

fn each(frame: &Frame<'_>, read: impl FnMut(&Engine)) {
    value(frame.known.engine.as_deref()).map_or(&[][..], |engines| &engines.engines).iter().for_each(read);
}

fn of<T>(histogram: &Reading<Histogram>, field: fn(&Histogram) -> T) -> Reading<T> {
    Reading::from_option(histogram.get().map(field), Missing::NotYet)
}
