//! The figures as text and as JSON.

use std::cmp::Reverse;
use std::fmt::Write as _;

use gpuprod_rules::RuleId;
use gpuprod_snapshot::units::to_f64;
use serde_json::{Value, json};

use crate::alerts::Beginnings;
use crate::boot::Figure;
use crate::floors::Floor;
use crate::score::Score;

fn show(figure: Option<Figure>) -> String {
    figure
        .map_or_else(|| format!("{:<24}", "-"), |f| format!("{:.3} [{:.3} {:.3}] n={:<5}", f.value, f.low, f.high, f.n))
}

fn seconds(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value} s"))
}

/// What pages nobody: figures without a floor.
fn informed(of: &str, informed: &Beginnings, weeks: f64) -> String {
    let a_week = |pick: fn(&(u64, u64)) -> u64| to_f64(informed.values().map(pick).sum()) / weeks.max(1e-9);
    let mut by: Vec<_> = informed.iter().collect();
    by.sort_by_key(|(_, (told, _))| Reverse(*told));
    let by: Vec<String> = by.iter().map(|(rule, (told, flips))| format!("{rule} {told}, again {flips}")).collect();
    format!(
        "{of}, information: {:.1} a GPU-week begin, {:.1} of them had ended and come again ({})",
        a_week(|(told, _)| *told),
        a_week(|(_, flips)| *flips),
        by.join("; ")
    )
}

/// The same for programs.
fn beginnings(informed: &Beginnings) -> Value {
    let of = |(rule, (told, flips)): (&RuleId, &(u64, u64))| json!({ "rule": rule, "began": told, "again": flips });
    informed.iter().map(of).collect()
}

/// The table.
pub(crate) fn text(score: &Score, floors: &[Floor], whole: bool) -> String {
    let mut out = String::new();
    let mut say = |line: String| {
        out += line.trim_end();
        out.push('\n');
    };
    say(format!("starvebench: {}", score.head));
    say("figures with [95 % interval, redrawn by runs]".into());
    say(String::new());
    say(format!(
        "{:<26} {:<32} {:<32} {:>8} {:>8} {:>8}",
        "rule or word", "precision", "recall (effect from .15)", "p50", "p95", "allowed"
    ));
    for (name, rule) in &score.rules {
        let mut latencies = rule.latencies.clone();
        let (p50, p95) = (crate::boot::quantile(&mut latencies, 500), crate::boot::quantile(&mut latencies, 950));
        say(format!(
            "{name:<26} {:<32} {:<32} {:>8} {:>8} {:>8}",
            show(rule.precision),
            show(rule.recall),
            seconds(p50),
            seconds(p95),
            rule.allowed
        ));
    }
    say(format!("{:<26} {:<32} {:<32}", "mean over the rules", show(score.precision), show(score.recall)));
    say(String::new());
    say(format!(
        "{:<12} {:>5} {:<32} {:<32} {:<32} {:>6}",
        "group", "runs", "precision", "recall", "states by time", "false"
    ));
    for (group, of) in &score.groups {
        say(format!(
            "{:<12} {:>5} {:<32} {:<32} {:<32} {:>6}",
            group.as_str(),
            of.runs,
            show(of.precision),
            show(of.recall),
            show(of.states),
            of.wrong
        ));
    }
    say(String::new());
    say(format!("states by time (drawn)      {}", show(score.states)));
    for (name, figure) in
        ["top-1 cause, single", "top-1 cause, confounded", "top-3 cause, single", "top-3 cause, confounded"]
            .iter()
            .zip(score.causes)
    {
        say(format!("{name:<27} {}", show(figure)));
    }
    say(String::new());
    say(format!("{:<20} {:>8} {:>8} {:>8} {:>5}", "detection", "target", "p50", "p95", "n"));
    for latency in &score.latency {
        say(format!(
            "{:<20} {:>6} s {:>8} {:>8} {:>5}",
            latency.name,
            latency.target,
            seconds(latency.p50),
            seconds(latency.p95),
            latency.n
        ));
    }
    say(String::new());
    say("recall by size of the effect".into());
    for (name, found, asked) in &score.effects {
        say(format!("  {name:<14} {found:>5} of {asked}"));
    }
    say(String::new());
    say(format!("{:<10} {:>10} {:>11} {:>11}  variant", "weight", "GPU-hours", "mean error", "worst"));
    for (source, of) in &score.productive {
        say(format!(
            "{source:<10} {:>10.1} {:>10.1}% {:>10.1}%  {}",
            of.hours,
            of.mean * 100.0,
            of.worst.1 * 100.0,
            of.worst.0
        ));
    }
    say(String::new());
    let healthy = &score.healthy;
    say(format!(
        "healthy variants: {} false alerts in {:.2} GPU-weeks, {} critical, {} squatters; telemetry faults: {} false alerts",
        healthy.alerts, healthy.weeks, healthy.critical, healthy.squatters, healthy.telemetry
    ));
    say(informed("healthy variants", &healthy.informed, healthy.weeks));
    if let Some(pages) = score.paged.per_trouble() {
        let paged = &score.paged;
        say(format!(
            "pages per trouble, if every rule may page: {pages:.3} ({} in {} runs with one trouble each, {} about an object that was paged before)",
            paged.pages, paged.troubles, paged.again
        ));
    }
    if let Some(soak) = &score.soak {
        say(format!(
            "healthy soak: {:.1} GPU-weeks, {} pages, {} lesser findings",
            soak.weeks, soak.pages, soak.lesser
        ));
        say(informed("healthy soak", &soak.informed, soak.weeks));
        soak.said.iter().take(20).for_each(|line| say(format!("  {line}")));
    }
    say(String::new());
    say(format!("{:<22} {:<32} {:<32}", "is something wrong?", "precision", "recall"));
    for (name, precision, recall) in &score.naive {
        say(format!("{name:<22} {:<32} {:<32}", show(*precision), show(*recall)));
    }
    if !score.ablations.is_empty() {
        say(String::new());
        say(format!("{:<22} {:<32} {:<32}", "ablation", "precision", "recall"));
        for ablation in &score.ablations {
            let why =
                ablation.why.as_deref().map(|why| format!("not possible: {}", why.lines().next().unwrap_or_default()));
            say(format!(
                "{:<22} {}",
                ablation.name,
                why.unwrap_or_else(|| format!("{:<32} {:<32}", show(ablation.precision), show(ablation.recall)))
            ));
        }
    }
    say(String::new());
    say("states that were taken for others, GPU-seconds (right: said)".into());
    for ((right, said), seconds) in score.confusion.iter().take(30) {
        say(format!("  {seconds:>7}  {right}: {said}"));
    }
    say(String::new());
    say(format!(
        "misses and false alerts: {}{}",
        score.misses.len(),
        if score.misses.is_empty() { "" } else { ", the first ones (--misses FILE for all)" }
    ));
    score.misses.iter().take(15).for_each(|line| say(format!("  {}", line.chars().take(230).collect::<String>())));
    if !score.missing.is_empty() {
        say(String::new());
        say(format!("variants that are missing ({}): {}", score.missing.len(), score.missing.join(" ")));
    }
    say(String::new());
    if !whole {
        say("a part of the variants: no floor is checked".into());
        return out;
    }
    say(format!("{:<36} {:>10} {:>10} {:>10}", "figure", "value", "target", "floor"));
    for floor in floors {
        let sign = if floor.at_least { ">=" } else { "<=" };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let bound = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{sign} {value:.3}"));
        let held = if floor.holds { "" } else { "  FLOOR MISSED" };
        let met = if floor.met { "target met" } else { "target missed" };
        say(format!(
            "{:<36} {:>10} {:>10} {:>10}  {met}{held}",
            floor.name,
            number(floor.value),
            bound(Some(floor.target)),
            bound(floor.floor)
        ));
    }
    out
}

/// Every miss and false alert.
pub(crate) fn misses(score: &Score) -> String {
    let mut out = format!("{}\n", score.head);
    for line in &score.misses {
        let _ = writeln!(out, "{line}");
    }
    for line in score.soak.iter().flat_map(|soak| &soak.said) {
        let _ = writeln!(out, "soak {line}");
    }
    let _ = writeln!(out, "missing variants: {}", score.missing.join(" "));
    out
}

/// The same as JSON.
pub(crate) fn json(score: &Score, floors: &[Floor]) -> Value {
    let figure =
        |figure: Option<Figure>| figure.map(|f| json!({ "value": f.value, "low": f.low, "high": f.high, "n": f.n }));
    let rules: serde_json::Map<String, Value> = score.rules.iter().map(|(name, rule)| {
        let mut latencies = rule.latencies.clone();
        let value = json!({
            "precision": figure(rule.precision), "recall": figure(rule.recall), "allowed": rule.allowed,
            "latency_p50_s": crate::boot::quantile(&mut latencies, 500), "latency_p95_s": crate::boot::quantile(&mut latencies, 950),
        });
        (name.clone(), value)
    }).collect();
    let names = ["top1_single", "top1_confounded", "top3_single", "top3_confounded"];
    let causes: Vec<Value> =
        names.iter().zip(score.causes).map(|(name, of)| json!({ "name": name, "figure": figure(of) })).collect();
    json!({
        "head": score.head,
        "metrics": score.metrics(),
        "precision": figure(score.precision), "recall": figure(score.recall), "states": figure(score.states),
        "rules": rules,
        "groups": score.groups.iter().map(|(group, of)| json!({
            "group": group.as_str(), "runs": of.runs, "precision": figure(of.precision), "recall": figure(of.recall),
            "states": figure(of.states), "false": of.wrong,
        })).collect::<Vec<_>>(),
        "causes": causes,
        "detection": score.latency.iter().map(|of| json!({
            "kind": of.name, "target_s": of.target, "p50_s": of.p50, "p95_s": of.p95, "n": of.n,
        })).collect::<Vec<_>>(),
        "productive": score.productive.iter().map(|(source, of)| json!({
            "weight": source, "gpu_hours": of.hours, "mean_error": of.mean, "worst_error": of.worst.1, "worst_variant": of.worst.0,
        })).collect::<Vec<_>>(),
        "healthy": {
            "gpu_weeks": score.healthy.weeks, "false": score.healthy.alerts, "critical": score.healthy.critical,
            "squatters": score.healthy.squatters, "information": beginnings(&score.healthy.informed),
            "telemetry_false": score.healthy.telemetry,
        },
        "soak": score.soak.as_ref().map(|of| json!({
            "gpu_weeks": of.weeks, "pages": of.pages, "lesser": of.lesser, "information": beginnings(&of.informed),
            "said": of.said,
        })),
        "effects": score.effects.iter().map(|(name, found, asked)| json!({ "size": name, "found": found, "asked": asked })).collect::<Vec<_>>(),
        "judges": score.naive.iter().map(|(name, precision, recall)| json!({ "name": name, "precision": figure(*precision), "recall": figure(*recall) })).collect::<Vec<_>>(),
        "ablations": score.ablations.iter().map(|of| json!({ "name": of.name, "precision": figure(of.precision), "recall": figure(of.recall), "why": of.why })).collect::<Vec<_>>(),
        "confusion": score.confusion.iter().map(|((right, said), seconds)| json!({ "right": right, "said": said, "gpu_seconds": seconds })).collect::<Vec<_>>(),
        "misses": score.misses,
        "missing": score.missing,
        "floors": floors.iter().map(|of| json!({ "name": of.name, "value": of.value, "target": of.target, "floor": of.floor, "met": of.met, "holds": of.holds })).collect::<Vec<_>>(),
    })
}
