//! The screen, as a pure function of a [`View`].

use gpuprod_snapshot::units::Nanos;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::view::{Origin, Over, Section, View};
use super::words::{clock, span};
use super::{cause, over, paint, sections};
use crate::check::Level;
use crate::text;

/// Below this a screen cannot say anything.
const SMALLEST: (u16, u16) = (30, 5);
/// From so many free rows on, the selected finding's evidence is shown below the sections.
const ROOM: u16 = 8;
/// Width of a section's name.
const NAME: u16 = 10;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        buffer.set_stringn(area.x, area.y, "too small", usize::from(area.width), Style::new());
        return;
    }
    let mut rows = Rows { buffer, area, next: area.y };
    header(&mut rows, view);
    let content = content(view, area.width);
    let needs: u16 = content.iter().fold(0, |sum, (_, lines)| sum.saturating_add(count(lines)));
    // What the sections leave may be spent on the numbers behind the cause.
    let spare = area.height.saturating_sub(needs.saturating_add(4));
    cause_line(&mut rows, view, usize::from(spare.clamp(1, 4)));
    let last = area.bottom().saturating_sub(1);
    let body = Rect { y: rows.next, height: last.saturating_sub(rows.next), ..area };
    match view.over {
        Over::Nothing => all_sections(rows.buffer, body, &content, view),
        Over::Help => over::show(rows.buffer, body, &over::help(view), view.over_scroll),
        Over::Evidence => {
            let lines = over::evidence(view, usize::from(body.width));
            over::show(rows.buffer, body, &lines, view.over_scroll);
        }
    }
    rows.next = last;
    rows.put(&footer(view), Style::new());
    paint::finish(buffer, view);
}

/// Lines from the top down.
struct Rows<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    next: u16,
}

impl Rows<'_> {
    fn put(&mut self, line: &Line<'_>, style: Style) {
        if self.next >= self.area.bottom() {
            return;
        }
        let row = Rect { y: self.next, height: 1, ..self.area };
        self.buffer.set_style(row, style);
        self.buffer.set_line(row.x, row.y, line, row.width);
        self.next += 1;
    }
}

/// Who, when, and whether it is live; the clock is the last to go when there is no room.
fn header(rows: &mut Rows<'_>, view: &View) {
    let width = usize::from(rows.area.width);
    let right = origin(view, width);
    let taken: usize = right.iter().map(Span::width).sum();
    let host = text::clean(&view.host);
    let now = view.frame.as_ref().map(|frame| frame.known.stamp.realtime);
    let full = now.map(text::utc).unwrap_or_default();
    let short = now.map(|now| format!("{}Z", clock(now))).unwrap_or_default();
    let forms = [(32, &full), (24, &short), (12, &short)];
    let mut left = forms.iter().map(|(most, time)| format!("gpuprod {}  {time}", text::clip(&host, *most)));
    let fits = |left: &String| Span::raw(left.as_str()).width() + taken < width;
    let left = left.find(fits).unwrap_or_else(|| format!(" {short}"));
    let pad = width.saturating_sub(Span::raw(left.as_str()).width() + taken);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(left, bold), Span::raw(" ".repeat(pad))];
    spans.extend(right);
    rows.put(&Line::from(spans), paint::bar(view));
}

/// Where frames come from, and how old they are.
fn origin(view: &View, width: usize) -> Vec<Span<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans: Vec<Span<'static>> = Vec::new();
    if let Some(age) = view.stale() {
        let style = paint::level(Level::Critical, view);
        spans.push(Span::styled(format!(" STALE: last tick {} ago ", span(age)), style));
        spans.push(Span::raw(" "));
    }
    match (&view.origin, view.playing) {
        (Some(Origin::Recording(name)), Some(playing)) => {
            let length = playing.length.map(|length| format!(" of {}", minutes(length))).unwrap_or_default();
            let mode = match () {
                () if view.paused => "PAUSED".to_owned(),
                () if playing.seeking => "seeking".to_owned(),
                () if playing.ended => "end".to_owned(),
                () => format!("{}x", playing.speed),
            };
            let name = text::clip(&text::clean(name), width / 4);
            spans.push(Span::raw(format!("recording {name} {}{length} ", minutes(playing.position))));
            spans.push(Span::styled(mode, bold));
        }
        (Some(Origin::Agent(at)), _) => {
            let at = text::clip(&text::printable(at), width / 3);
            let word = match (view.paused, view.stale()) {
                (true, _) => "PAUSED: agent",
                (false, Some(_)) => "agent",
                (false, None) => "live: agent",
            };
            spans.push(Span::raw(format!("{word} {at}")));
        }
        (Some(Origin::Own), _) if view.paused => spans.push(Span::raw("PAUSED: own sampling")),
        (Some(Origin::Own), _) => spans.push(Span::raw("live: own sampling, no agent")),
        _ => {}
    }
    spans
}

fn minutes(value: Nanos) -> String {
    let seconds = value.0 / 1_000_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// What is wrong, whose doing, since when, what it costs.
fn cause_line(rows: &mut Rows<'_>, view: &View, most: usize) {
    let width = usize::from(rows.area.width);
    let tall = rows.area.height >= 40;
    if let Some(trouble) = &view.trouble {
        let style = paint::level(Level::CannotTell, view);
        rows.put(&Line::raw(text::clip(&format!(" {}", text::printable(trouble)), width)), style);
    }
    let Some(frame) = &view.frame else {
        rows.put(&Line::raw(" waiting for the first tick"), Style::new());
        return;
    };
    let mut line = cause::line(frame);
    if let Some(age) = view.stale() {
        // What was true then is not said of now.
        line.level = Level::CannotTell;
        line.sentence.insert_str(0, &format!("no news for {}; the last was: ", span(age)));
    }
    let style = paint::level(line.level, view);
    let word = match line.level {
        Level::Fine => "OK",
        Level::Warning => "WARNING",
        Level::Critical => "CRITICAL",
        Level::CannotTell => "UNKNOWN",
    };
    for part in text::wrap(&format!(" {word}: {}", line.sentence), width).iter().take(if tall { 4 } else { 2 }) {
        rows.put(&Line::raw(part.clone()), style);
    }
    if !line.detail.is_empty() {
        let detail = text::wrap(&format!(" {}", line.detail), width);
        let cut = detail.len() > most;
        for (place, part) in detail.iter().take(most).enumerate() {
            let more = cut && place + 1 == most;
            let part = if more { text::clip(&format!("{part} …"), width) } else { part.clone() };
            rows.put(&Line::raw(part), Style::new());
        }
    }
    if tall {
        rows.next += 1;
    }
}

/// Every section's lines.
type Content = Vec<(Section, Vec<Line<'static>>)>;

/// Every section's lines; the GPUs have the whole width.
fn content(view: &View, width: u16) -> Content {
    let of = |section: &Section| {
        let margin = if *section == Section::Gpus { 1 } else { NAME };
        (*section, sections::lines(*section, view, width.saturating_sub(margin)))
    };
    Section::ALL.iter().map(of).collect()
}

fn count(lines: &[Line<'_>]) -> u16 {
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
}

/// Every section at its place, as many lines of each as fit.
fn all_sections(buffer: &mut Buffer, body: Rect, content: &Content, view: &View) {
    let gap = u16::from(body.height >= 40);
    let needs: Vec<u16> = content.iter().map(|(_, lines)| count(lines)).collect();
    let gaps = gap * 5;
    let heights = allot(&needs, body.height.saturating_sub(gaps), view.focus);
    let mut y = body.y;
    for ((section, lines), height) in content.iter().zip(heights) {
        let area = Rect { y, height: height.min(body.bottom().saturating_sub(y)), ..body };
        section_at(buffer, area, *section, lines, view);
        y = y.saturating_add(height).saturating_add(if height > 0 { gap } else { 0 });
    }
    // A tall screen has room for the evidence at once.
    let rest = Rect { y, height: body.bottom().saturating_sub(y), ..body };
    if rest.height >= ROOM && !view.findings().is_empty() {
        let lines = over::evidence(view, usize::from(rest.width));
        over::show(buffer, rest, &lines, 0);
    }
}

/// The fewest lines that each section is given, in the order of the screen: a header and four GPUs, an array, two
/// drives, an engine, the host, two findings.
const FEWEST: [u16; 6] = [5, 1, 1, 1, 1, 2];
/// Who grows first when there is room.
const HUNGER: [Section; 6] =
    [Section::Gpus, Section::Findings, Section::Engines, Section::Arrays, Section::Host, Section::Drives];

/// Shares `height` lines among sections that need so many.
fn allot(needs: &[u16], height: u16, focus: Section) -> [u16; 6] {
    let need = |section: Section| needs.get(section.place()).copied().unwrap_or(0);
    let mut given = [0_u16; 6];
    let mut left = height;
    let mut give = |section: Section, most: u16, left: &mut u16| {
        if let Some(slot) = given.get_mut(section.place()) {
            let more = most.min(need(section)).saturating_sub(*slot).min(*left);
            *slot += more;
            *left -= more;
        }
    };
    for section in HUNGER {
        let fewest = FEWEST.get(section.place()).copied().unwrap_or(1);
        give(section, fewest, &mut left);
    }
    // The section that is looked at takes what it needs, but for what the others keep.
    for section in std::iter::once(focus).chain(HUNGER) {
        give(section, u16::MAX, &mut left);
    }
    given
}

fn section_at(buffer: &mut Buffer, area: Rect, section: Section, lines: &[Line<'static>], view: &View) {
    if area.height == 0 {
        return;
    }
    let focused = view.focus == section;
    let name = match section {
        Section::Gpus => "",
        Section::Arrays => "ARRAYS",
        Section::Drives => "DRIVES",
        Section::Engines => "ENGINES",
        Section::Host => "HOST",
        Section::Findings => "FINDINGS",
    };
    let mark = if focused { "▸" } else { " " };
    buffer.set_stringn(area.x, area.y, format!("{mark}{name}"), usize::from(NAME), paint::name(focused, view));
    // The GPUs' column heads stay where they are.
    let fixed = usize::from(section == Section::Gpus);
    let rows = usize::from(area.height).saturating_sub(fixed);
    let scroll = view.scroll.get(section.place()).copied().unwrap_or(0);
    let rest = lines.len().saturating_sub(fixed);
    let scroll = scroll.min(rest.saturating_sub(rows));
    let heads = lines.iter().take(fixed);
    let shown = lines.iter().skip(fixed + scroll).take(rows);
    let margin = if section == Section::Gpus { 1 } else { NAME };
    let x = area.x + margin;
    let width = area.width.saturating_sub(margin);
    for (y, line) in (area.y..).zip(heads.chain(shown)) {
        buffer.set_line(x, y, line, width);
    }
    let (above, below) = (scroll, rest.saturating_sub(scroll + rows));
    let more = match (above, below) {
        (0, 0) => return,
        (0, below) => format!(" +{below} below"),
        (above, 0) => format!(" +{above} above"),
        (above, below) => format!(" +{above} above, +{below} below"),
    };
    let at = u16::try_from(more.len()).unwrap_or(0).min(width);
    let y = if section == Section::Gpus { area.y } else { area.bottom().saturating_sub(1) };
    buffer.set_stringn(area.right().saturating_sub(at), y, more, usize::from(at), paint::off(view));
}

fn footer(view: &View) -> Line<'static> {
    const PLAYED: &[(&str, &str)] = &[
        ("e", "evidence"),
        ("Space", "pause"),
        ("←→", "10 s"),
        ("n", "next finding"),
        ("+-", "speed"),
        ("?", "help"),
        ("q", "quit"),
    ];
    const LIVE: &[(&str, &str)] =
        &[("e", "evidence"), ("Tab", "section"), ("↑↓", "scroll"), ("Space", "hold"), ("?", "help"), ("q", "quit")];
    let keys: &[(&str, &str)] = match (view.over, view.playing.is_some()) {
        (Over::Help, _) => &[("Esc", "back"), ("↑↓", "scroll"), ("q", "quit")],
        (Over::Evidence, _) => &[("Esc", "back"), ("↑↓", "scroll"), ("Tab", "next finding"), ("q", "quit")],
        (Over::Nothing, true) => PLAYED,
        (Over::Nothing, false) => LIVE,
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(*key, Style::new().add_modifier(Modifier::REVERSED)));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    Line::from(spans)
}

/// The wall clock of an instant in a finding, for the other files of this room.
pub(super) fn at(view: &View, boottime: Nanos) -> String {
    view.frame
        .as_ref()
        .map_or_else(|| "?".to_owned(), |frame| clock(super::words::wall(&frame.judgement.stamp, boottime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_shared() {
        // 24 rows: 8 GPUs and their head, an array, 4 drives, an engine, the host, 2 findings fit in 20.
        assert_eq!(allot(&[9, 1, 4, 1, 1, 2], 18, Section::Gpus), [9, 1, 4, 1, 1, 2]);
        // 64 GPUs on a small screen leave the others their fewest.
        assert_eq!(allot(&[65, 1, 4, 1, 1, 2], 20, Section::Gpus), [14, 1, 1, 1, 1, 2]);
        // Whoever looks at the drives sees them.
        assert_eq!(allot(&[65, 1, 12, 1, 1, 2], 20, Section::Drives), [5, 1, 10, 1, 1, 2]);
        // Too small for all: the GPUs and the findings stay.
        assert_eq!(allot(&[9, 1, 4, 1, 1, 2], 6, Section::Gpus), [5, 0, 0, 0, 0, 1]);
    }
}
