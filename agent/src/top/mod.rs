//! `top`: the node on one screen, live, from a recording, or at a time that has passed.
//!
//! [`draw::draw`] is pure; [`screen`] owns the terminal; [`feed`] and [`player`] bring the frames.

mod cause;
mod draw;
mod feed;
mod keys;
mod over;
mod page;
mod paint;
mod player;
mod screen;
mod sections;
mod view;
mod web;
mod words;

use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gpuprod_snapshot::units::Nanos;

pub use cause::{Line as CauseLine, line as cause_line};
pub use draw::draw;
pub use feed::Address;
pub use keys::{Wish, apply};
pub use page::page;
pub use player::{Player, Ticks};
pub use view::{Origin, Over, Playing, Section, View};
pub use words::lost;

use crate::clock::Clock;
use crate::pipeline::Frame;
use crate::recording::Recording;
use crate::run::Settings;
use crate::source::Stop;
use screen::Feed;

/// What is to be shown.
#[derive(Debug)]
pub enum From {
    /// The agent at an address.
    Attached(Address),
    /// This host, sampled by this process.
    Own,
    /// A recording.
    File(PathBuf),
}

/// Why there will be no screen here: what stdout is, and what the terminal says of itself.
#[must_use]
pub fn no_screen() -> Option<&'static str> {
    let term = std::env::var_os("TERM");
    match term.as_ref().map(|term| term.to_string_lossy()) {
        _ if !stdout().is_terminal() || !stdin().is_terminal() => Some("this is no terminal"),
        None => Some("TERM is not set"),
        Some(term) if term.is_empty() || term == "dumb" => Some("this terminal (TERM) cannot place text"),
        Some(_) => None,
    }
}

/// A view in the form that this terminal can show.
#[must_use]
pub fn view(host: String, origin: Origin) -> View {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    // Without a word on it, a terminal of today knows Unicode.
    let utf8 = locale.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    View { host, origin: Some(origin), colour: set("NO_COLOR").is_none(), ascii: !utf8, ..View::default() }
}

/// Runs the screen on what is to be shown.
///
/// # Errors
/// When it cannot be read, or the terminal goes away.
pub fn run(settings: Settings, from: From, stop: &Stop, out: &mut dyn Write) -> Result<()> {
    let clock = Clock::new(&settings.host);
    let host = settings.host_name();
    match from {
        From::Attached(address) => {
            let first = address.ask()?;
            let mut view = view(named(&address, host), Origin::Agent(address.shown()));
            view.now = clock.stamp();
            view.note(&first);
            let period = first.known.period;
            view.show(first);
            let news = feed::attach(address, period)?;
            screen::show(&mut view, Feed::Live(news), &clock, stop, out)
        }
        From::Own => {
            let mut view = view(host, Origin::Own);
            let news = feed::own(settings, stop.clone())?;
            screen::show(&mut view, Feed::Live(news), &clock, stop, out)
        }
        From::File(path) => {
            let header = Recording::open(&path)?.header().clone();
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let open = move || ticks(Recording::open(&path)?, &path);
            let player = Player::new(open, settings.config.rules.policy(), 1, Nanos(0))?;
            play(player, view(header.host, Origin::Recording(name)), &clock, stop, out)
        }
    }
}

/// Runs the screen on a player.
///
/// # Errors
/// When it cannot be read, or the terminal goes away.
pub fn play(player: Player, mut view: View, clock: &Clock, stop: &Stop, out: &mut dyn Write) -> Result<()> {
    screen::show(&mut view, Feed::Played(Box::new(player)), clock, stop, out)
}

/// A recording's ticks, with the file's name in the errors.
fn ticks(recording: Recording, path: &Path) -> Result<Ticks> {
    let path = path.to_owned();
    Ok(Box::new(recording.map(move |tick| tick.with_context(|| format!("play {}", path.display())))))
}

/// An agent on another machine has another name than this host.
fn named(address: &Address, host: String) -> String {
    match address {
        Address::Socket(_) => host,
        Address::Web(url) => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
            rest.split('/').next().unwrap_or(rest).to_owned()
        }
    }
}

/// The last frame of a recording, for a page.
///
/// # Errors
/// When it cannot be read, or is empty.
pub fn last(path: &Path, settings: &Settings) -> Result<(Frame<'static>, String)> {
    let recording = Recording::open(path)?;
    let host = recording.header().host.clone();
    let mut pipeline = crate::pipeline::Pipeline::new(settings.config.rules.policy());
    let mut ticks = ticks(recording, path)?.peekable();
    while let Some(tick) = ticks.next() {
        let frame = pipeline.feed(&tick?);
        if ticks.peek().is_none() {
            return Ok((frame.to_owned(), host));
        }
    }
    anyhow::bail!("{} holds no tick", path.display())
}
