//! Serving engines as capacity planning sees them ([`gpuprod_rules::Serving`]). What cannot be told yet is absent.

use gpuprod_rules::{Micro, Serving};

use super::{Exact, Kind, Metric};
use crate::pipeline::Frame;

macro_rules! gauge {
    ($name:literal, $unit:literal, $help:literal, $read:expr) => {
        Metric {
            name: $name,
            kind: Kind::Gauge,
            unit: $unit,
            labels: &["engine"],
            help: $help,
            read: |frame, out| {
                each(frame, |engine| {
                    let read: fn(&Serving) -> Option<Micro> = $read;
                    if let Some(value) = read(engine) {
                        out.put(&[&engine.engine], value.exact());
                    }
                })
            },
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    gauge!("gpuprod.engine.arrivals", "{request}/s", "Requests that came, over the last minute.", |engine| engine
        .arrivals),
    gauge!(
        "gpuprod.engine.burst",
        "1",
        "How many times its mean the busiest minute of a hundred has; the policy's prior until half an hour was seen.",
        |engine| Some(engine.burst)
    ),
    gauge!(
        "gpuprod.engine.load",
        "1",
        "Load of the last minute as a part of the engine's capacity. A burst takes load times (burst - 1) on top.",
        |engine| engine.load
    ),
    gauge!("gpuprod.engine.kv.per_request", "{token}", "Tokens in the KV cache per request that runs.", |engine| {
        engine.kv_tokens
    }),
    Metric {
        name: "gpuprod.engine.kv.request.size",
        kind: Kind::Gauge,
        unit: "By",
        labels: &["engine", "source"],
        help: "Bytes in the KV cache per request that runs: by what the config says of a token (declared), else a bound, since all memory that the engine holds counts, weights too (at_most).",
        read: |frame, out| {
            each(frame, |engine| {
                if let Some(size) = engine.kv_size {
                    out.put(&[&engine.engine, size.source.as_str()], size.bytes.exact());
                }
            });
        },
    },
    gauge!(
        "gpuprod.engine.headroom",
        "1",
        "Free room of the last minute over what a burst takes on top of its load; below 1 a burst has no room.",
        |engine| engine.headroom
    ),
    gauge!(
        "gpuprod.engine.kv.concurrency",
        "{request}",
        "Requests of today's size that the KV cache has room for.",
        |engine| engine.kv_requests
    ),
    Metric {
        name: "gpuprod.engine.capacity",
        kind: Kind::Gauge,
        unit: "{token}/s",
        labels: &["engine", "phase"],
        help: "Tokens per second at the engine's limit, learnt while requests waited and nothing was wrong: computed prompt tokens, generated tokens.",
        read: |frame, out| {
            each(frame, |engine| {
                for (phase, rate) in [("prefill", engine.prefill), ("decode", engine.decode)] {
                    if let Some(rate) = rate {
                        out.put(&[&engine.engine, phase], rate.exact());
                    }
                }
            });
        },
    },
    Metric {
        name: "gpuprod.engine.gpus.required",
        kind: Kind::Gauge,
        unit: "{gpu}",
        labels: &["engine", "phase"],
        help: "GPUs like its own that the load of the last minute takes in its bursts, for prompts, generated tokens and room in the cache: the largest counts.",
        read: |frame, out| {
            each(frame, |engine| {
                let phases = [("prefill", engine.gpus_prefill), ("decode", engine.gpus_decode), ("kv", engine.gpus_kv)];
                for (phase, gpus) in phases {
                    if let Some(gpus) = gpus {
                        out.put(&[&engine.engine, phase], gpus.exact());
                    }
                }
            });
        },
    },
];

fn each(frame: &Frame<'_>, read: impl FnMut(&Serving)) {
    frame.judgement.serving.iter().for_each(read);
}
