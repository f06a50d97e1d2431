//! From keys to what they do. Pure: [`apply`] changes the view, and says what the player of a recording has to do.

use gpuprod_snapshot::units::Nanos;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::view::{Over, Section, View};

/// What the loop and the player have to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing more.
    Nothing,
    /// End.
    Quit,
    /// Hold still, or go on.
    Pause,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
    /// Back by so much.
    Back(Nanos),
    /// On by so much.
    On(Nanos),
    /// On to the next finding.
    NextFinding,
}

/// A small and a large jump in a recording.
const JUMP: Nanos = Nanos::from_secs(10);
const LEAP: Nanos = Nanos::from_secs(60);

/// Does what a key asks for.
pub fn apply(key: KeyEvent, view: &mut View) -> Wish {
    if key.kind == KeyEventKind::Release {
        return Wish::Nothing;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match (key.code, view.over) {
        (KeyCode::Char('c' | 'd' | '\\'), _) if control => return Wish::Quit,
        (KeyCode::Char(_), _) if control => {}
        (KeyCode::Char('q' | 'Q'), _) => return Wish::Quit,
        (KeyCode::Char('?' | 'h') | KeyCode::F(1), Over::Help) | (KeyCode::Esc, _) => lay(view, Over::Nothing),
        (KeyCode::Char('?' | 'h') | KeyCode::F(1), _) => lay(view, Over::Help),
        (KeyCode::Char('e') | KeyCode::Enter, Over::Evidence) => lay(view, Over::Nothing),
        (KeyCode::Char('e') | KeyCode::Enter, _) => lay(view, Over::Evidence),
        (KeyCode::Char(' '), _) => return Wish::Pause,
        (KeyCode::Char('+' | '='), _) => return Wish::Faster,
        (KeyCode::Char('-' | '_'), _) => return Wish::Slower,
        (KeyCode::Left, _) => return Wish::Back(JUMP),
        (KeyCode::Right, _) => return Wish::On(JUMP),
        (KeyCode::Char('['), _) => return Wish::Back(LEAP),
        (KeyCode::Char(']'), _) => return Wish::On(LEAP),
        (KeyCode::Char('n'), _) => return Wish::NextFinding,
        (KeyCode::Tab, Over::Evidence) => turn(view, 1),
        (KeyCode::BackTab, Over::Evidence) => turn(view, -1),
        (KeyCode::Tab, _) => focus(view, 1),
        (KeyCode::BackTab, _) => focus(view, 5),
        (KeyCode::Up | KeyCode::Char('k'), _) => scroll(view, -1),
        (KeyCode::Down | KeyCode::Char('j'), _) => scroll(view, 1),
        (KeyCode::PageUp, _) => scroll(view, -10),
        (KeyCode::PageDown, _) => scroll(view, 10),
        (KeyCode::Home | KeyCode::Char('g'), _) => scroll(view, isize::MIN),
        (KeyCode::End | KeyCode::Char('G'), _) => scroll(view, isize::MAX),
        _ => {}
    }
    Wish::Nothing
}

fn lay(view: &mut View, over: Over) {
    view.over = over;
    view.over_scroll = 0;
}

fn focus(view: &mut View, step: usize) {
    let place = (view.focus.place() + step) % Section::ALL.len();
    view.focus = Section::ALL.get(place).copied().unwrap_or_default();
}

/// The next finding's evidence, around the end.
fn turn(view: &mut View, step: isize) {
    let count = view.findings().len();
    view.selected = if step > 0 { view.selected + 1 } else { view.selected + count.saturating_sub(1) };
    view.selected = view.selected.checked_rem(count).unwrap_or(0);
    view.over_scroll = 0;
}

fn scroll(view: &mut View, by: isize) {
    let held = |place: usize, most: usize| place.saturating_add_signed(by).min(most);
    if view.over != Over::Nothing {
        view.over_scroll = held(view.over_scroll, super::over::length(view).saturating_sub(1));
        return;
    }
    if view.focus == Section::Findings {
        view.selected = held(view.selected, view.findings().len().saturating_sub(1));
    }
    let lines = super::sections::count(view.focus, view);
    let place = view.focus.place();
    if let Some(scroll) = view.scroll.get_mut(place) {
        // The drawing holds it to what there is on this screen; here it must not run away.
        *scroll = scroll.saturating_add_signed(by).min(lines.saturating_sub(1));
    }
}
