//! The lines of each section, all of them; the screen shows as many as fit.

mod engines;
mod gpus;
mod storage;

use gpuprod_snapshot::units::{Nanos, to_f64};
use gpuprod_snapshot::{Missing, Reading, Sample, Source};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::view::{Section, View};
use super::words::span;
use super::{draw, paint};
use crate::{seen, text};

/// The lines of a section in `width` columns.
pub(super) fn lines(section: Section, view: &View, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    match section {
        Section::Gpus => gpus::lines(view, width),
        Section::Arrays => storage::arrays(view, width),
        Section::Drives => storage::drives(view, width),
        Section::Engines => engines::lines(view),
        Section::Host => host(view),
        Section::Findings => findings(view, width),
    }
}

/// What a source gave, or the line that says why it gave nothing.
fn known<'a, T>(
    view: &'a View,
    source: Source,
    sample: impl Fn(&'a gpuprod_snapshot::Tick) -> Option<&'a Sample<T>>,
) -> Result<&'a T, Line<'static>> {
    let say = |why: String| Err(Line::styled(text::clip(&text::clean(&why), 200), paint::dim(view)));
    let Some(frame) = &view.frame else {
        return say("not read yet".to_owned());
    };
    let Some(sample) = sample(&frame.known) else {
        return say(format!("{} was not read yet", source.as_str()));
    };
    // Old values are never shown as new ones: three periods of the source, as the rules count them.
    let age = frame.known.stamp.boottime.saturating_sub(sample.at);
    let limit = Nanos(frame.known.period.0.saturating_mul(u64::from(source.period_ticks())).saturating_mul(3));
    match &sample.value {
        Reading::Value(_) if age > limit => say(format!("? stale: last read {} ago", span(age))),
        Reading::Value(value) => Ok(value),
        Reading::Missing(missing) if sample.why.is_empty() => say(format!("? {}", why(*missing))),
        Reading::Missing(_) => say(format!("? {}", sample.why)),
    }
}

/// A reason in words.
fn why(missing: Missing) -> String {
    missing.as_str().replace('_', " ")
}

/// Change per second of a counter between the last two samples of a source.
fn rate(before: u64, after: u64, between: Nanos) -> Option<f64> {
    let change = after.checked_sub(before)?;
    (between.0 > 0).then(|| to_f64(change) / between.as_secs_f64())
}

fn host(view: &View) -> Vec<Line<'static>> {
    let Some(frame) = &view.frame else {
        return Vec::new();
    };
    let mut lines: Vec<Line<'static>> = Vec::new();
    for probe in &frame.judgement.probes {
        let what = format!("{} stuck in {} for {}", probe.collector, text::clean(&probe.call), span(probe.age));
        lines.push(Line::styled(what, paint::off(view)));
    }
    match known(view, Source::Psi, |tick| tick.psi.as_deref()) {
        Ok(_) => {
            let pressure = seen::of(&frame.known, Source::Psi);
            lines.extend(pressure.into_iter().map(Line::raw));
        }
        Err(line) => lines.push(line),
    }
    let links = seen::of(&frame.known, Source::Pci).into_iter().skip(1);
    lines.extend(links.map(|link| Line::styled(link, paint::off(view))));
    lines
}

/// One line per finding; the selected one is marked.
fn findings(view: &View, width: usize) -> Vec<Line<'static>> {
    let Some(frame) = &view.frame else {
        return Vec::new();
    };
    if view.findings().is_empty() {
        return vec![Line::styled("none", paint::dim(view))];
    }
    let now = frame.judgement.stamp.boottime;
    let one = |(place, finding): (usize, &gpuprod_rules::Finding)| {
        let subject = text::clip(&text::clean(&finding.subject), 32);
        let mut rest = format!(
            " {} {subject}  {} since {}",
            finding.rule,
            text::count(finding.victims.len(), "victim", "victims"),
            draw::at(view, finding.since),
        );
        let ago = format!(" ({})", span(now.saturating_sub(finding.since)));
        if rest.chars().count() + ago.len() + 9 <= width {
            rest += &ago;
        }
        let selected = place == view.selected;
        let mark = if selected { "▸" } else { " " };
        let style = if selected { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        Line::from(vec![
            Span::raw(mark),
            Span::styled(format!("{:<8}", finding.severity.as_str()), paint::severity(finding.severity, view)),
            Span::styled(text::clip(&rest, width.saturating_sub(9)), style),
        ])
    };
    view.findings().iter().enumerate().map(one).collect()
}

/// How many lines a section has, whatever the width.
pub(super) fn count(section: Section, view: &View) -> usize {
    lines(section, view, 80).len()
}
