//! Colours, and what stands for them where there are none.

use gpuprod_rules::{Severity, State};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use super::view::View;
use crate::check::Level;

/// Eight steps of a bar, lowest first.
pub(super) const STEPS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The same in ASCII.
const PLAIN: [&str; 8] = ["_", ".", "-", "~", "=", "+", "*", "#"];

fn style(view: &View, fg: Color, bg: Option<Color>, plain: Modifier) -> Style {
    if !view.colour {
        return Style::new().add_modifier(plain);
    }
    let style = Style::new().fg(fg);
    bg.map_or(style, |bg| style.bg(bg))
}

/// The cause line.
pub(super) fn level(level: Level, view: &View) -> Style {
    let (fg, bg, plain) = match level {
        Level::Fine => (Color::Black, Color::Green, Modifier::BOLD),
        Level::Warning => (Color::Black, Color::Yellow, Modifier::REVERSED),
        Level::Critical => (Color::White, Color::Red, Modifier::REVERSED.union(Modifier::BOLD)),
        Level::CannotTell => (Color::White, Color::Magenta, Modifier::REVERSED),
    };
    let style = style(view, fg, Some(bg), plain);
    if view.colour { style.add_modifier(Modifier::BOLD) } else { style }
}

/// A finding's severity.
pub(super) fn severity(severity: Severity, view: &View) -> Style {
    match severity {
        Severity::Critical => style(view, Color::Red, None, Modifier::BOLD).add_modifier(Modifier::BOLD),
        Severity::Warn => style(view, Color::Yellow, None, Modifier::BOLD),
        Severity::Info => style(view, Color::Cyan, None, Modifier::empty()),
    }
}

/// A unit's state.
pub(super) fn state(state: State, view: &View) -> Style {
    match state {
        State::Productive(_) => style(view, Color::Green, None, Modifier::empty()),
        State::Headroom | State::Loading(_) => style(view, Color::Cyan, None, Modifier::empty()),
        State::Idle | State::Unallocated => style(view, Color::DarkGray, None, Modifier::DIM),
        State::Unknown(_) => style(view, Color::Magenta, None, Modifier::BOLD),
        State::Faulted(_) => {
            style(view, Color::White, Some(Color::Red), Modifier::REVERSED).add_modifier(Modifier::BOLD)
        }
        State::Stalled | State::Squatted | State::Throttled | State::Starved(_) => {
            style(view, Color::Red, None, Modifier::BOLD).add_modifier(Modifier::BOLD)
        }
    }
}

/// What is out of its normal.
pub(super) fn off(view: &View) -> Style {
    style(view, Color::Yellow, None, Modifier::BOLD).add_modifier(Modifier::BOLD)
}

/// What matters less.
pub(super) fn dim(view: &View) -> Style {
    style(view, Color::DarkGray, None, Modifier::DIM)
}

/// A section's name.
pub(super) fn name(focused: bool, view: &View) -> Style {
    let style = style(view, Color::Blue, None, Modifier::empty()).add_modifier(Modifier::BOLD);
    if focused { style.add_modifier(Modifier::UNDERLINED) } else { style }
}

/// The header.
pub(super) fn bar(view: &View) -> Style {
    style(view, Color::White, Some(Color::DarkGray), Modifier::REVERSED)
}

/// The last touch: what is stale is grey, and a terminal without Unicode gets none.
pub(super) fn finish(buffer: &mut Buffer, view: &View) {
    let area = buffer.area;
    if view.stale().is_some() {
        let below = ratatui::layout::Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
        buffer.set_style(below, Style::new().add_modifier(Modifier::DIM));
    }
    if !view.ascii {
        return;
    }
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            let Some(cell) = buffer.cell_mut((x, y)) else { continue };
            if cell.symbol().is_ascii() {
                continue;
            }
            let step = STEPS.iter().position(|step| *step == cell.symbol()).and_then(|place| PLAIN.get(place));
            let plain = step.copied().unwrap_or(match cell.symbol() {
                "▸" => ">",
                "…" => ".",
                "↑" => "^",
                "↓" => "v",
                "←" => "<",
                "→" => ">",
                "·" => ".",
                _ => "?",
            });
            cell.set_symbol(plain);
        }
    }
}
