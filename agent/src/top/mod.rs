//! `top`: the node on one screen, live, from a recording, or at a time that has passed.
//!
//! [`draw()`] is pure; `screen` owns the terminal; `feed` and `player` bring the frames.

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

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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
use crate::config::duration;
use crate::pipeline::Frame;
use crate::recording::Recording;
use crate::run::{Settings, TOP_TIME, ends, found, look};
use crate::source::Stop;
use crate::{history, text};
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
    /// The store's history, from a time on.
    History(Since),
}

/// A time that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Nanos),
    /// Unix time.
    At(Nanos),
}

impl Since {
    /// `2h`, or an instant as RFC 3339 writes it.
    ///
    /// # Errors
    /// In words, for a flag's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        duration::parse(text).map(Self::Ago).or_else(|_| text::instant(text).map(Self::At)).map_err(|_| {
            format!("{text:?} is no time; write how long ago (90s, 10m, 2h) or when (2026-11-28T02:00:00Z)")
        })
    }
}

/// Own normals take two and a half healthy minutes: this much before the time asked for is judged unseen.
const WARM: Nanos = Nanos::from_secs(900);

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

/// The command: the screen, or one plain page where there can be none. Without a word on where from, the running agent
/// is asked, and where none runs this host is sampled.
///
/// # Errors
/// When what is to be shown cannot be read, or the terminal goes away.
pub fn command(
    settings: Settings,
    from: Option<From>,
    once: bool,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<()> {
    let blind = if once { None } else { no_screen() };
    if let Some(why) = blind {
        writeln!(err, "note: {why}: one plain page (top --once)")?;
    }
    let found = if from.is_none() { found(&settings, err)? } else { None };
    if !once && blind.is_none() {
        let agent = || found.map(|(path, _)| From::Attached(Address::Socket(path)));
        return run(settings, from.or_else(agent).unwrap_or(From::Own), &ends()?, (out, err));
    }
    let host = settings.host_name();
    let text = match (from, found) {
        (Some(From::History(since)), _) => page_of(since, &settings, err)?,
        (Some(From::File(path)), _) => {
            let (frame, host) = last(&path, &settings)?;
            page(&frame, &host)
        }
        (Some(From::Attached(address)), _) => page(&address.ask()?, &host),
        (_, Some((_, frame))) => page(&frame, &host),
        (_, None) => look(&settings, TOP_TIME, |frame| page(frame, &host))?,
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// Runs the screen on what is to be shown.
///
/// # Errors
/// When it cannot be read, or the terminal goes away.
pub fn run(settings: Settings, from: From, stop: &Stop, (out, err): (&mut dyn Write, &mut dyn Write)) -> Result<()> {
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
        From::History(since) => {
            let Past { player, skipped, .. } = past(since, &settings, clock.stamp().realtime)?;
            let played = play(player, view(host, Origin::Recording("history".to_owned())), &clock, stop, out);
            // When the screen is gone: what is written beside it would stand in it.
            skipped.tell(err)?;
            played
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

/// The store's history from a time on.
pub struct Past {
    /// Plays it; what is before the time is judged unseen.
    pub player: Player,
    /// The time.
    pub from: Nanos,
    /// What cannot be read of it.
    pub skipped: Skipped,
}

/// Segments that cannot be read, as far as they were met: each is a gap in what is shown.
#[derive(Clone, Debug, Default)]
pub struct Skipped(Arc<Mutex<BTreeMap<PathBuf, String>>>);

impl Skipped {
    fn add(&self, damaged: history::Damaged) {
        let path = damaged.path.clone();
        let why = format!("{:#}", anyhow::Error::new(damaged));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, why);
    }

    /// `; FILE is damaged: why`, for each.
    fn words(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().map(|why| format!("; {}", text::clean(why))).collect()
    }

    /// One line for each.
    ///
    /// # Errors
    /// When the output is gone.
    pub fn tell(&self, err: &mut dyn Write) -> std::io::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().try_for_each(|why| writeln!(err, "note: skipped in the history: {}", text::clean(why)))
    }
}

/// The store's history around a time: what is before it is judged too, so that own normals are known then.
///
/// # Errors
/// When there is no history from then on.
pub fn past(since: Since, settings: &Settings, now: Nanos) -> Result<Past> {
    let from = match since {
        Since::Ago(ago) => now.saturating_sub(ago),
        Since::At(instant) => instant,
    };
    let store = settings.config.store_dir().context("no place of the store is known (the key is store.dir)")?;
    let dir = store.join(history::DIR);
    let shown = format!("{} (the agent's store keeps it there; --config names another)", dir.display());
    let begin = from.saturating_sub(WARM);
    let skipped = Skipped::default();
    let ours = skipped.clone();
    let open = move || -> Result<Ticks> {
        let ours = ours.clone();
        let ticks =
            history::between(&dir, begin, now).with_context(|| format!("read the history in {}", dir.display()))?;
        // A damaged segment is a gap, and the ledger books gaps; the next segment goes on.
        Ok(Box::new(ticks.filter_map(move |tick| tick.map_err(|damaged| ours.add(damaged)).ok().map(Ok))))
    };
    anyhow::ensure!(
        open()?.any(|tick| tick.is_ok_and(|tick| tick.stamp.realtime >= from)),
        "no history from {} on in {shown}{}",
        text::utc(from),
        skipped.words()
    );
    let player = Player::new(open, settings.config.rules.policy(), 1, Nanos(0))?.from(from);
    Ok(Past { player, from, skipped })
}

/// The page of a time that has passed.
///
/// # Errors
/// When there is no history from then on.
pub fn page_of(since: Since, settings: &Settings, err: &mut dyn Write) -> Result<String> {
    let now = Clock::new(&settings.host).stamp().realtime;
    let Past { mut player, from, skipped } = past(since, settings, now)?;
    let mut last = None;
    loop {
        // What stood at that time is what the last tick up to it said.
        last = player.advance(true, |_| {})?.or(last);
        if !player.playing().seeking {
            skipped.tell(err)?;
            let frame = last.with_context(|| format!("no tick of the history is at {}", text::utc(from)))?;
            return Ok(page(&frame, &settings.host_name()));
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
