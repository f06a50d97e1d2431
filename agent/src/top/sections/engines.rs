//! Engines: tokens per second against their own normal, queue, KV cache.

use gpuprod_rules::VitalKind;
use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::{Reading, Source};
use ratatui::text::{Line, Span};

use super::super::paint;
use super::super::view::View;
use super::super::words::number;
use super::{known, rate, why};
use crate::text;

/// Below so much of its own normal an engine is pointed out.
const OFF: f64 = 0.9;

pub(super) fn lines(view: &View) -> Vec<Line<'static>> {
    let engines = match known(view, Source::Engine, |tick| tick.engine.as_deref()) {
        Ok(engines) => &engines.engines,
        Err(why) => return vec![why],
    };
    if engines.is_empty() {
        return vec![Line::styled(
            "no engine was named (--engine URL): progress is guessed from the GPUs alone",
            paint::dim(view),
        )];
    }
    engines.iter().map(|engine| line(engine, view)).collect()
}

fn line(engine: &Engine, view: &View) -> Line<'static> {
    let place = text::clip(&address(&engine.url), 24);
    if let Some(missing) = engine.page.missing() {
        let why = if engine.why.is_empty() { why(missing) } else { text::clean(&engine.why) };
        return Line::styled(format!("{place}: no page ({why})"), paint::off(view));
    }
    let show = |reading: &Reading<u64>| reading.copied().map_or_else(|| "?".to_owned(), |value| value.to_string());
    let kind = engine.kind.get().map_or_else(|| "?".to_owned(), ToString::to_string);
    let kv = engine
        .kv_usage
        .copied()
        .map_or_else(|| "?".to_owned(), |usage| format!("{:.0} %", usage.as_fraction() * 100.0));
    let (speed, off) = speed(engine, view);
    let style = if off { paint::off(view) } else { ratatui::style::Style::new() };
    if engine.trains() {
        let steps = engine.steps.copied().map_or_else(|| "? steps".to_owned(), |steps| format!("{steps} steps"));
        return Line::from(vec![
            Span::raw(format!("{kind} {place}  ")),
            Span::styled(speed, style),
            Span::raw(format!("  {steps}")),
        ]);
    }
    Line::from(vec![
        Span::raw(format!("{kind} {place}  ")),
        Span::styled(speed, style),
        Span::raw(format!("  {} run {} wait  KV {kv}", show(&engine.running), show(&engine.waiting))),
    ])
}

/// `1,729 tok/s = 65 % of normal`, and whether that is little.
fn speed(engine: &Engine, view: &View) -> (String, bool) {
    let tokens = tokens(engine, view).map(|rate| format!("{} tok/s", number(rate.round())));
    let work = view.vital(VitalKind::Work, &engine.url);
    let pace = view.vital(VitalKind::Steps, &engine.url).and_then(|(value, ..)| value);
    let tokens = tokens.or_else(|| pace.map(pace_of));
    let rate =
        tokens.or_else(|| work.and_then(|(value, ..)| value).map(|value| format!("{} work/s", number(value.round()))));
    let rate = rate.unwrap_or_else(|| if engine.trains() { "no step yet" } else { "? tok/s" }.to_owned());
    match view.vital(VitalKind::Progress, &engine.url) {
        Some((Some(part), ..)) => (format!("{rate} = {:.0} % of normal", part * 100.0), part < OFF),
        Some((None, _, n)) => (format!("{rate} (normal: learning, {n})"), false),
        None => (rate, false),
    }
}

/// Steps take from milliseconds to minutes.
fn pace_of(pace: f64) -> String {
    match pace {
        ..=0.0 => "no steps".to_owned(),
        ..1.0 => format!("a step in {:.1} s", 1.0 / pace),
        _ => format!("{pace:.1} steps/s"),
    }
}

fn tokens(engine: &Engine, view: &View) -> Option<f64> {
    let old = view.before.as_ref()?.engine.as_ref()?.value.get()?;
    let old = old.engines.iter().find(|old| old.url == engine.url)?;
    let between = engine.at.checked_sub(old.at)?;
    rate(old.generation_tokens.copied()?, engine.generation_tokens.copied()?, between)
}

/// Host and port are what tells engines apart.
fn address(url: &str) -> String {
    let url = text::printable(url);
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or(rest);
    let local = place.strip_prefix("127.0.0.1").or_else(|| place.strip_prefix("localhost"));
    local.filter(|port| port.starts_with(':')).unwrap_or(place).to_owned()
}
