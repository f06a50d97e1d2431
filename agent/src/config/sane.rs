//! Values that types allow and that cannot work.

use gpuprod_collectors::engine::counter_name;
use gpuprod_rules::{Allocation, KvBytes, Part, Policy, Shape};
use gpuprod_snapshot::units::Nanos;

use super::{Alerts, Otlp};
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

/// What is wrong with the thresholds: the key's name and what may stand there.
pub(super) fn policy(policy: &Policy) -> Result<(), String> {
    let wrong = |key: &str, must: &str| Err(format!("{key} must {must}"));
    if policy.block_ns < Nanos::from_secs(1) || policy.block_ns > Nanos::from_secs(60) {
        return wrong("block_ns", "lie between 1000000000 (1 s) and 60000000000 (60 s)");
    }
    if !(FEWEST..=RING).contains(&policy.baseline_min_blocks) {
        return wrong("baseline_min_blocks", &format!("lie between {FEWEST} and {RING}: no more blocks are kept"));
    }
    for (key, value) in [("starved_critical", policy.starved_critical)] {
        if value > WHOLE {
            return wrong(key, "be at most 1000000");
        }
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
    for (key, value, least) in [
        ("deviation_z", policy.deviation_z, 0.0),
        ("cusum_slack", policy.cusum_slack, 0.0),
        ("cusum_alarm", policy.cusum_alarm, 0.0),
        ("coupling_rho", policy.coupling_rho, 0.0),
        ("disk_await_ratio", policy.disk_await_ratio, 1.0),
        ("flooded_await_ratio", policy.flooded_await_ratio, 1.0),
    ] {
        if !value.is_finite() || value < least {
            return wrong(key, &format!("be a finite number of at least {least}"));
        }
    }
    policy.check_sections()
}

/// Most shapes, and most records, that are kept.
const DECLARED: usize = 64;

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
        if shape.gpu_milli == 0 || shape.gpu_milli > 1_000 && shape.gpu_milli % 1_000 != 0 {
            return Err(format!("shapes: gpu_milli of {} must be 1 to 1000, or whole thousands", shape.name));
        }
    }
    if allocations.iter().any(|record| !word(&record.gpu)) {
        return Err("allocations: gpu must be a UUID or an index".to_owned());
    }
    Ok(())
}

/// What is wrong with the sizes of tokens.
pub(super) fn kv_bytes(list: &[KvBytes]) -> Result<(), String> {
    if list.len() > DECLARED {
        return Err(format!("kv_bytes: at most {DECLARED}"));
    }
    let wrong = list.iter().find(|line| line.model.is_empty() || !(1..=1 << 30).contains(&line.per_token));
    wrong.map_or(Ok(()), |_| Err("kv_bytes: each needs a model and per_token between 1 and 1073741824".to_owned()))
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
        return Err("repeat must lie between 1s and 1h".to_owned());
    }
    if alerts.resolve_after > HOLD {
        return Err("resolve_after must be at most 1h".to_owned());
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
        return Err("interval must lie between 1s and 1h".to_owned());
    }
    headers(&otlp.headers).map_err(|what| format!("headers: {what}"))?;
    if otlp.queue_bytes < QUEUE { Err(format!("queue_bytes must be at least {QUEUE}")) } else { Ok(()) }
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
