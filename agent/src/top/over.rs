//! What lies over the sections: the keys, and a finding's evidence.

use gpuprod_rules::{Evidence, Finding};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::view::View;
use super::words::span;
use super::{draw, paint};
use crate::{cost, tell, text};

/// Puts lines into an area from the scrolled place on.
pub(super) fn show(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>], scroll: usize) {
    let rows = usize::from(area.height);
    let most = lines.len().saturating_sub(rows);
    let first = scroll.min(most);
    for (y, line) in (area.y..).zip(lines.iter().skip(first).take(rows)) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let below = lines.len().saturating_sub(first + rows);
    if below > 0 && area.height > 0 {
        let note = format!(" +{below} below ");
        let width = u16::try_from(note.len()).unwrap_or(0).min(area.width);
        let style = Style::new().add_modifier(Modifier::REVERSED);
        buffer.set_stringn(area.right() - width, area.bottom() - 1, note, usize::from(width), style);
    }
}

/// How many lines there are on a narrow screen: as far as one can scroll.
pub(super) fn length(view: &View) -> usize {
    match view.over {
        super::view::Over::Nothing => 0,
        super::view::Over::Help => help(view).len(),
        super::view::Over::Evidence => evidence(view, 40).len(),
    }
}

/// The keys, and what the columns say.
pub(super) fn help(view: &View) -> Vec<Line<'static>> {
    const KEYS: &[(&str, &str)] = &[
        ("q, Ctrl-C", "quit"),
        ("? h", "this page; Esc goes back"),
        ("e, Enter", "evidence of the selected finding, and what was rejected"),
        ("Tab, Shift-Tab", "next, previous section"),
        ("arrows, j k", "scroll the section; among the findings: select"),
        ("PgUp PgDn", "scroll by ten; Home and End"),
        ("Space", "hold the screen; a recording pauses"),
        ("left right", "of a recording: 10 s back, on; [ and ]: a minute"),
        ("+ -", "of a recording: faster, slower"),
        ("n", "of a recording: on to the next finding"),
    ];
    const COLUMNS: &[(&str, &str)] = &[
        ("STATE", "the first that applies: faulted unknown unallocated loading stalled"),
        ("", "squatted throttled starved productive headroom idle"),
        ("PROD", "w, the part of this second that was useful work; - where no work"),
        ("", "was to be done, ? where nothing can be said"),
        ("BY", "on whose word: tokens steps gpm proxy (power) util, best first"),
        ("HISTORY", "w of the last minutes, newest right"),
        ("normal", "own normal: the median of healthy 5 s blocks of this very thing"),
    ];
    let row = |(key, what): &(&'static str, &'static str)| {
        let key = Span::styled(format!(" {key:<16}"), Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![key, Span::raw(*what)])
    };
    let mut lines: Vec<Line<'static>> = KEYS.iter().map(row).collect();
    lines.push(Line::styled(" what the columns say", paint::dim(view)));
    lines.extend(COLUMNS.iter().map(row));
    lines
}

/// The selected finding, whole.
pub(super) fn evidence(view: &View, width: usize) -> Vec<Line<'static>> {
    let findings = view.findings();
    let Some(finding) = findings.get(view.selected) else {
        return vec![
            Line::raw(" no finding now: nothing is blamed"),
            Line::styled(" (Esc goes back; `gpuprod doctor` says which rules can speak here)", paint::dim(view)),
        ];
    };
    let mut page = Page { lines: Vec::new(), width };
    head(&mut page, finding, view, findings.len());
    page.title("evidence");
    for evidence in &finding.evidence {
        page.text(3, &read(evidence));
    }
    if finding.evidence.is_empty() {
        page.text(3, "none was kept");
    }
    page.title("looked at and rejected");
    for rejected in &finding.rejected {
        let of = if rejected.of.is_empty() { String::new() } else { format!(" ({})", rejected.of) };
        page.text(3, &format!("not {}{of}: {}", rejected.cause, rejected.why));
    }
    if finding.rejected.is_empty() {
        page.text(3, "nothing else was in question");
    }
    if !finding.advice.is_empty() {
        page.title("do");
        page.text(3, &finding.advice);
    }
    page.lines
}

fn head(page: &mut Page, finding: &Finding, view: &View, of: usize) {
    let variant = finding.variant.as_deref().map(|variant| format!("/{}", text::clean(variant))).unwrap_or_default();
    let subject = text::clean(&finding.subject);
    page.lines.push(Line::from(vec![
        Span::raw(" "),
        Span::styled(finding.severity.as_str(), paint::severity(finding.severity, view)),
        Span::styled(format!(" {}{variant} {subject}", finding.rule), Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(format!("   {} of {of}", view.selected + 1), paint::dim(view)),
    ]));
    let now = view.frame.as_ref().map(|frame| frame.judgement.stamp.boottime).unwrap_or_default();
    page.text(
        1,
        &format!(
            "began about {}, confirmed {} ({} ago), confidence {:.0} %, cause {}",
            draw::at(view, finding.onset),
            draw::at(view, finding.since),
            span(now.saturating_sub(finding.since)),
            finding.confidence.as_fraction() * 100.0,
            finding.cause.map_or("-", |cause| cause.as_str()),
        ),
    );
    page.text(1, &finding.summary);
    let names: Vec<String> = finding.victims.iter().map(|unit| victim(view, &unit.0)).collect();
    page.text(1, &format!("victims: {}", names.join(", ")));
    let cost = view.frame.as_ref().and_then(|frame| cost::find(&frame.own.costs, finding));
    if let Some(lost) = cost.and_then(|cost| tell::lost(finding, Some(cost))) {
        page.text(1, &format!("lost: {lost}"));
    }
    if !finding.also.is_empty() {
        let also: Vec<&str> = finding.also.iter().map(|rule| rule.as_str()).collect();
        page.text(1, &format!("seen by {} too", also.join(", ")));
    }
}

fn victim(view: &View, id: &str) -> String {
    let frame = view.frame.as_ref();
    let unit = frame.and_then(|frame| frame.judgement.units.iter().find(|unit| *unit.unit.0 == *id).zip(Some(frame)));
    unit.map_or_else(|| id.to_owned(), |(unit, frame)| format!("GPU {}", super::words::unit_name(unit, frame)))
}

fn read(evidence: &Evidence) -> String {
    let mut text = format!("{} of {}: {} {}", evidence.what, evidence.of, evidence.value, evidence.unit);
    if let Some(normal) = evidence.normal {
        text += &format!("; normal {} +- {} (n {}, {} spreads off)", normal.median, normal.spread, normal.n, normal.z);
    }
    text
}

struct Page {
    lines: Vec<Line<'static>>,
    width: usize,
}

impl Page {
    fn title(&mut self, title: &str) {
        self.lines.push(Line::styled(format!(" {title}"), Style::new().add_modifier(Modifier::BOLD)));
    }

    fn text(&mut self, indent: usize, text: &str) {
        let width = self.width.saturating_sub(indent + 1);
        for (place, line) in text::wrap(&text::clean(text), width).into_iter().enumerate() {
            let indent = if place == 0 { indent } else { indent + 2 };
            self.lines.push(Line::raw(format!("{:indent$}{line}", "")));
        }
    }
}
