//! Serving engines as capacity planning sees them: what is asked, what could be done, how much more may come at once,
//! and how many GPUs that takes. For series and screens; `headroom_breach` looks at the same figures.

use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::engine::{Engine, Engines};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use crate::facts::UnitFacts;
use crate::signals::Signals;
use crate::signals::engine_load::capacity::{WINDOW, part};
use crate::signals::engine_load::{EngineLoad, Second};
use crate::{Micro, Policy, like};

/// One engine. Everything that cannot be told yet is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Its page.
    pub engine: String,
    /// GPUs that it has.
    pub gpus: u32,
    /// Requests per second, over the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Micro>,
    /// How many times its mean a minute has in the worst of a hundred; the policy's prior until it is learnt.
    pub burst: Micro,
    /// Whether that was learnt.
    pub burst_learnt: bool,
    /// Prompt tokens per second at its limit, without what the prefix cache has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<Micro>,
    /// Generated tokens per second at its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<Micro>,
    /// Load of the last minute, as a part of its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Micro>,
    /// Tokens in the KV cache per request that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_tokens: Option<Micro>,
    /// Requests of that size that the cache has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_requests: Option<Micro>,
    /// Bytes that such a request takes in the cache, and on whose word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_size: Option<KvSize>,
    /// Free room over what a burst takes on top of the load: below one a burst has no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Micro>,
    /// GPUs that the load of the last minute takes in its bursts, for its prompts, its generated tokens and its cache:
    /// the largest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_prefill: Option<Micro>,
    /// The same for generated tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_decode: Option<Micro>,
    /// The same for room in the KV cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_kv: Option<Micro>,
}

/// What a request takes in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvSize {
    /// Who says so.
    pub source: KvSource,
    /// How many bytes.
    pub bytes: Micro,
}

/// Who tells the size of a token in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSource {
    /// The operator (`rules.kv_bytes`).
    Declared,
    /// Nobody: all memory that the engine holds, its weights too, over the tokens that its cache has room for. It is
    /// less than this.
    AtMost,
}

impl KvSource {
    /// The word in JSON and series.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::AtMost => "at_most",
        }
    }
}

/// Load and room of one engine, in parts of its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    /// What is used.
    pub(crate) load: f64,
    /// What is left.
    pub(crate) usable: f64,
    /// What a burst takes on top of the load.
    pub(crate) needed: f64,
}

/// How bursty its requests are, and whether that was learnt.
pub(crate) fn burst(load: &EngineLoad, policy: &Policy) -> (f64, bool) {
    load.capacity.burst.map_or((policy.headroom_breach.burst, false), |burst| (burst, true))
}

/// None where its capacity is not known.
pub(crate) fn room(load: &EngineLoad, policy: &Policy) -> Option<Room> {
    let most = load.capacity.most?;
    Some(room_at(load, load.rates(WINDOW)?.of(most), policy))
}

/// The same at a load that is known.
fn room_at(load: &EngineLoad, share: f64, policy: &Policy) -> Room {
    let needed = share * (burst(load, policy).0 - 1.0);
    Room { load: share, usable: (1.0 - share).max(0.0), needed }
}

/// Bytes of a token in the cache of an engine.
fn token_bytes(page: &Engine, own: &[&UnitFacts<'_>], policy: &Policy) -> Option<(KvSource, f64)> {
    let declared = page.model.get().and_then(|model| {
        policy.declared.kv_bytes.iter().find(|line| like(&line.model, model)).map(|line| to_f64(line.per_token))
    });
    if let Some(bytes) = declared {
        return Some((KvSource::Declared, bytes));
    }
    let slots = page.kv_capacity_tokens.copied().filter(|slots| *slots > 0)?;
    let held = own.iter().map(|unit| held(unit)).sum::<Option<u64>>().filter(|held| *held > 0)?;
    Some((KvSource::AtMost, to_f64(held) / to_f64(slots)))
}

/// Memory that the processes of a unit's workload hold on its GPU; of a GPU that does not tell them apart, all in use.
fn held(unit: &UnitFacts<'_>) -> Option<u64> {
    let gpu = unit.gpu.filter(|_| !unit.mig)?;
    let own = gpu.processes.get().into_iter().flatten().filter(|process| unit.work.family.contains(&process.pid));
    let told = own.map(|process| process.mem_used.copied().map(|bytes| bytes.0)).sum::<Option<u64>>();
    told.filter(|bytes| *bytes > 0).or_else(|| gpu.mem_used.copied().map(|bytes| bytes.0))
}

/// All engines whose page answers, by address.
pub(crate) fn all(
    signals: &Signals,
    (engines, units): (Option<&Engines>, &[UnitFacts<'_>]),
    now: Nanos,
    policy: &Policy,
) -> Vec<Serving> {
    let fresh = signals.load.iter().map(|(url, load)| (url, &**load)).filter(|(_, load)| load.is_fresh(now));
    let one = |(url, load): (&String, &EngineLoad)| {
        let page = engines.and_then(|engines| engines.engines.iter().find(|engine| engine.url == *url));
        let slots = page.and_then(|page| page.kv_capacity_tokens.copied()).map(to_f64);
        let own: Vec<&UnitFacts<'_>> =
            units.iter().filter(|unit| unit.engine.is_some_and(|engine| engine.url == *url)).collect();
        let gpus = own.len();
        let (burst, burst_learnt) = burst(load, policy);
        let most = load.capacity.most;
        let now = most.and_then(|most| Some((load.rates(WINDOW)?, most)));
        let room = now.map(|(now, most)| room_at(load, now.of(most), policy));
        let held = load.capacity.held;
        let memory = load.seconds.back().and_then(Second::kv).map(|kv| kv.as_fraction());
        let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
        let micro = |value: Option<f64>| value.map(Micro::from_f64);
        let takes = |part: Option<f64>| micro(part.map(|part| part * burst * f64::from(gpus)));
        Serving {
            engine: url.clone(),
            gpus,
            arrivals: micro(load.capacity.arrivals()),
            burst: Micro::from_f64(burst),
            burst_learnt,
            prefill: micro(most.map(|most| most.prefill)),
            decode: micro(most.map(|most| most.decode)),
            load: micro(room.map(|room| room.load)),
            kv_tokens: micro(held),
            kv_requests: micro(held.zip(slots).map(|(held, slots)| libm::floor(slots / held.max(1.0)))),
            kv_size: held.zip(page.and_then(|page| token_bytes(page, &own, policy))).map(
                |(tokens, (source, bytes))| KvSize { source, bytes: Micro::from_f64(libm::round(tokens * bytes)) },
            ),
            headroom: micro(room.filter(|room| room.needed > 0.0).map(|room| room.usable / room.needed)),
            gpus_prefill: takes(now.and_then(|(now, most)| part(now.prefill, most.prefill))),
            gpus_decode: takes(now.and_then(|(now, most)| part(now.decode, most.decode))),
            gpus_kv: takes(memory),
        }
    };
    fresh.map(one).collect()
}
