//! Values that types allow and that cannot work.

use gpuprod_collectors::engine::counter_name;
use gpuprod_rules::{Allocation, KvBytes, Part, Policy, Shape};
use gpuprod_snapshot::units::Nanos;

use super::{Alerts, Config, Otlp, duration};
use crate::sink::otlp::headers;
use crate::text;

/// Blocks of history that a baseline is made of: the ring holds so many.
const RING: u32 = 120;
/// Of fewer blocks a median and a spread say nothing.
const FEWEST: u32 = 6;
/// Longest time that a rule may wait or hold.
const HOLD: Nanos = Nanos::from_secs(3_600);
/// The whole, in millionths.
const WHOLE: Part = Part(1_000_000);

/// Shortest time that a rule may wait: without any, one bad reading is a finding.
const SHORTEST: Nanos = Nanos::from_secs(1);
/// Largest distance in spreads, and largest ratio, that anything is measured by: of more no reading is capable.
const FARTHEST: f64 = 1_000.0;

/// What is wrong with the thresholds: the key's name, what may stand there and what does.
pub(super) fn policy(policy: &Policy) -> Result<(), String> {
    let values = serde_json::to_value(policy).unwrap_or_default();
    let wrong = refused(policy, &values).err();
    wrong.map_or(Ok(()), |what| {
        let key = what.split(' ').next().unwrap_or_default().replace('.', "/");
        let found = values.pointer(&format!("/{key}")).filter(|found| found.is_number());
        Err(found.map_or_else(|| what.clone(), |found| format!("{what}, not {found}")))
    })
}

/// What must hold for the threshold of this name, for a value that its type does not even hold: what is said of the
/// largest that it does hold, and of the smallest.
pub(super) fn limits(key: &str) -> Option<String> {
    let said = |value: serde_json::Value| {
        let mut values = serde_json::to_value(Policy::default()).ok()?;
        *values.pointer_mut(&format!("/{}", key.replace('.', "/")))? = value;
        let policy: Policy = serde_json::from_value(values.clone()).ok()?;
        let what = refused(&policy, &values).err()?;
        what.strip_prefix(key)?.strip_prefix(" must ").map(str::to_owned)
    };
    let large = [u64::MAX.into(), u32::MAX.into(), f64::MAX.into()].into_iter().find_map(said)?;
    Some(match said(0.into()).filter(|small| *small != large) {
        Some(small) => format!("{large} and {small}"),
        None => large,
    })
}

/// Times that a rule waits before it speaks: their keys end so. How long a thing is told afterwards is no such time.
fn waits(values: &serde_json::Value, above: &str) -> Result<(), String> {
    for (name, value) in values.as_object().into_iter().flatten() {
        let key = format!("{above}{name}");
        waits(value, &format!("{key}."))?;
        let wait = name == "for_ns" || name.ends_with("_for_ns") && name != "told_for_ns";
        if wait && value.as_u64().is_some_and(|value| value < SHORTEST.0) {
            return Err(format!("{key} must be at least {} (1 s)", SHORTEST.0));
        }
    }
    Ok(())
}

fn refused(policy: &Policy, values: &serde_json::Value) -> Result<(), String> {
    let wrong = |key: &str, must: &str| Err(format!("{key} must {must}"));
    policy.check_sections()?;
    if policy.block_ns < Nanos::from_secs(1) || policy.block_ns > Nanos::from_secs(60) {
        return wrong("block_ns", "lie between 1000000000 (1 s) and 60000000000 (60 s)");
    }
    if !(FEWEST..=RING).contains(&policy.baseline_min_blocks) {
        return wrong("baseline_min_blocks", &format!("lie between {FEWEST} and {RING}: no more blocks are kept"));
    }
    if policy.order_slack_blocks > RING {
        return wrong("order_slack_blocks", &format!("be at most {RING}: no more blocks are kept"));
    }
    if policy.starved_critical > WHOLE {
        return wrong("starved_critical", "be at most 1000000");
    }
    if policy.starved_warn > policy.starved_critical {
        return wrong("starved_warn", "be at most starved_critical");
    }
    if policy.starved_clear >= policy.starved_warn {
        return wrong("starved_clear", "be below starved_warn");
    }
    for (key, value) in [
        ("starved_for_ns", policy.starved_for_ns),
        ("starved_clear_ns", policy.starved_clear_ns),
        ("fault_hold_ns", policy.fault_hold_ns),
        ("unread_holds_ns", policy.unread_holds_ns),
        ("deviation_lasts_ns", policy.deviation_lasts_ns),
    ] {
        if value > HOLD {
            return wrong(key, "be at most 3600000000000 (1 h)");
        }
    }
    if policy.squatter.interactive_ns < policy.squatter.for_ns {
        return wrong("squatter.interactive_ns", "be at least squatter.for_ns");
    }
    for (key, value, least, most) in [
        ("deviation_z", policy.deviation_z, 0.0, FARTHEST),
        ("cusum_slack", policy.cusum_slack, 0.0, FARTHEST),
        ("cusum_alarm", policy.cusum_alarm, 0.0, FARTHEST),
        ("coupling_rho", policy.coupling_rho, 0.0, 1.0),
        ("disk_await_ratio", policy.disk_await_ratio, 1.0, FARTHEST),
        ("flooded_await_ratio", policy.flooded_await_ratio, 1.0, FARTHEST),
    ] {
        if !(least..=most).contains(&value) {
            return wrong(key, &format!("lie between {least} and {most}"));
        }
    }
    waits(values, "")
}

/// Most shapes, and most records, that are kept.
const DECLARED: usize = 64;

/// More GPUs than this no driver counts in one node.
const GPUS: u32 = 256;

/// What is wrong with what the operator declares: the key's name and what may stand there.
pub(super) fn declared(shapes: &[Shape], allocations: &[Allocation]) -> Result<(), String> {
    let word = |text: &str| (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if shapes.len() > DECLARED || allocations.len() > DECLARED {
        return Err(format!("shapes and allocations: at most {DECLARED} of each"));
    }
    for (place, shape) in shapes.iter().enumerate() {
        if !word(&shape.name) || shapes.iter().take(place).any(|other| other.name == shape.name) {
            return Err("shapes: each needs a name of 1 to 64 characters of its own".to_owned());
        }
        if !(1..=GPUS * 1_000).contains(&shape.gpu_milli) || shape.gpu_milli > 1_000 && shape.gpu_milli % 1_000 != 0 {
            let (name, found) = (&shape.name, shape.gpu_milli);
            return Err(format!(
                "shapes: gpu_milli of {name} must be 1 to 1000, or whole thousands to {}, not {found}",
                GPUS * 1_000
            ));
        }
    }
    for (place, record) in allocations.iter().enumerate() {
        let gpu = &record.gpu;
        let index = gpu.chars().all(|c| c.is_ascii_digit());
        if !word(gpu) || index && gpu.parse::<u32>().ok().is_none_or(|index| index >= GPUS) {
            return Err(format!("allocations: gpu must be a UUID or an index from 0 to {}, not {gpu:?}", GPUS - 1));
        }
        if let Some(other) = allocations.iter().take(place).find(|other| other.gpu == *gpu) {
            let (one, two) = (&other.owner, &record.owner);
            return Err(format!("allocations: gpu {gpu} must have one owner, not {one:?} and {two:?}"));
        }
    }
    Ok(())
}

/// What is wrong with the sizes of tokens.
pub(super) fn kv_bytes(list: &[KvBytes]) -> Result<(), String> {
    if list.len() > DECLARED {
        return Err(format!("kv_bytes: at most {DECLARED}"));
    }
    let wrong = list.iter().find(|line| line.model.is_empty() || !(1..=1 << 30).contains(&line.per_token));
    wrong.map_or(Ok(()), |KvBytes { model, per_token }| {
        let must = "each needs a model and per_token between 1 and 1073741824";
        Err(format!("kv_bytes: {must}, not {model:?} and {per_token}"))
    })
}

/// Names end on screens, in logs and in labels: a control character in one of them moves a cursor there. Where it is,
/// in dots; never the text, which may be a header's.
pub(super) fn texts(config: &Config) -> Result<(), String> {
    fn walk(value: &serde_json::Value, path: &str) -> Result<(), String> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            serde_json::Value::String(text) => match text.chars().find(|c| c.is_control()) {
                Some(c) => Err(format!("{path} must have no control characters, and has {:#04x}", u32::from(c))),
                None => Ok(()),
            },
            serde_json::Value::Array(list) => {
                list.iter().enumerate().try_for_each(|(place, value)| walk(value, &below(&format!("{}", place + 1))))
            }
            serde_json::Value::Object(map) => map.iter().try_for_each(|(name, value)| walk(value, &below(name))),
            _ => Ok(()),
        }
    }
    walk(&serde_json::to_value(config).unwrap_or_default(), "")
}

/// What is wrong with the alerts' section: the key's name and what may stand there.
pub(super) fn alerts(alerts: &Alerts) -> Result<(), String> {
    for base in &alerts.alertmanagers {
        let must = url(base).err().or_else(|| base.contains(['?', '#']).then_some("is a base: without ? and #"));
        if let Some(must) = must {
            return Err(format!("alertmanagers: {} {must}", text::masked(&format!("{base:?}"))));
        }
    }
    let named = |node: &String| !node.is_empty() && node.chars().count() <= 256 && !node.chars().any(char::is_control);
    if alerts.node.as_ref().is_some_and(|node| !named(node)) {
        return Err("node must have 1 to 256 characters and no control characters".to_owned());
    }
    if alerts.repeat < Nanos::from_secs(1) || alerts.repeat > HOLD {
        return Err(format!("repeat must lie between 1s and 1h, not {}", duration::print(alerts.repeat)));
    }
    if alerts.resolve_after > HOLD {
        return Err(format!("resolve_after must be at most 1h, not {}", duration::print(alerts.resolve_after)));
    }
    if let Some(window) = alerts.silence.iter().find(|window| window.to <= window.from) {
        let (from, to) = (text::utc(window.from), text::utc(window.to));
        return Err(format!("silence: the window from {from} to {to} ends before it begins"));
    }
    Ok(())
}

/// Shortest and longest time between two exports.
const EXPORT: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(3_600));
/// A queue below this does not hold one export of a full node.
const QUEUE: u64 = 1 << 20;

/// What is wrong with the OTLP section: the key's name and what may stand there, never a URL or a header's value.
pub(super) fn otlp(otlp: &Otlp) -> Result<(), String> {
    if let Some(Err(must)) = otlp.endpoint.as_deref().map(url) {
        return Err(format!("endpoint {must}"));
    }
    if let Some(endpoint) = &otlp.endpoint {
        reqwest::Url::parse(endpoint).map_err(|error| format!("endpoint is no URL: {error}"))?;
    }
    if otlp.interval < EXPORT.0 || otlp.interval > EXPORT.1 {
        return Err(format!("interval must lie between 1s and 1h, not {}", duration::print(otlp.interval)));
    }
    headers(&otlp.headers).map_err(|what| format!("headers: {what}"))?;
    let found = otlp.queue_bytes;
    if found < QUEUE { Err(format!("queue_bytes must be at least {QUEUE}, not {found}")) } else { Ok(()) }
}

/// What is wrong with an engine's URL: the engine collector asks `http(s)://HOST…`.
///
/// # Errors
/// In words, without the URL: it may hold a password.
pub fn engine(engine: &str) -> Result<(), &'static str> {
    match url(engine) {
        Err("must name a host") => return Err("must name a host: http://HOST:PORT/metrics"),
        other => other?,
    }
    // With an `@` in it, it is most likely the end of a password.
    let counter = engine.split_once('#').map(|(_, name)| name).filter(|name| !name.contains('@'));
    counter.map_or(Ok(()), |name| counter_name(name).map(|_| ()))
}

fn url(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let rest = rest.ok_or("must begin with http:// or https://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = host.strip_prefix('[').map_or_else(|| host.split(':').next(), |v6| v6.split(']').next());
    if name.is_none_or(str::is_empty) { Err("must name a host") } else { Ok(()) }
}
