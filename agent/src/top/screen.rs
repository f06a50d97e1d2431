//! The terminal: taken over, drawn to, and given back as it was, whatever happens.

use std::io::{self, BufWriter, Write};
use std::panic;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuprod_snapshot::units::Nanos;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};

use super::draw::draw;
use super::feed::News;
use super::keys::{self, Wish};
use super::player::Player;
use super::view::View;
use crate::clock::Clock;
use crate::source::Stop;

/// Where frames come from.
pub(super) enum Feed {
    /// A thread that sends them.
    Live(Receiver<News>),
    /// Ticks that were written down.
    Played(Box<Player>),
}

/// How often the clock on the screen and the age of a frame are looked at.
const SECOND: Nanos = Nanos::from_secs(1);
/// Longest wait for a key.
const WAIT: Duration = Duration::from_millis(100);
/// What panicked while the screen was ours; printed when it is given back.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Raw mode and the alternate screen, for as long as this lives.
struct Taken;

impl Taken {
    fn take(mut out: &mut dyn Write) -> Result<Self> {
        enable_raw_mode().context("take over the terminal")?;
        let taken = Self;
        execute!(&mut out, EnterAlternateScreen, Hide).context("take over the terminal")?;
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Also on the way out of a panic; a terminal that is gone cannot be mended.
        let mut out = io::stdout();
        let _ = execute!(out, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
        if let Some(message) = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
}

/// Shows the view until it is quit or stopped.
///
/// # Errors
/// When the terminal goes away, a recording is damaged, or a thread of ours ends.
pub(super) fn show(view: &mut View, mut feed: Feed, clock: &Clock, stop: &Stop, out: &mut dyn Write) -> Result<()> {
    let before = panic::take_hook();
    // On the alternate screen a message would be wiped out: it waits.
    panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
    let taken = Taken::take(out)?;
    let result = go(view, &mut feed, clock, stop, out);
    drop(taken);
    panic::set_hook(before);
    result
}

fn go(view: &mut View, feed: &mut Feed, clock: &Clock, stop: &Stop, out: &mut dyn Write) -> Result<()> {
    let mut terminal = Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, out)))
        .context("ask the terminal for its size")?;
    let keys = keys_of_the_terminal()?;
    let mut drawn = Nanos(0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        view.now = clock.stamp();
        let fresh = poll(feed, view)?;
        if fresh || view.now.boottime.saturating_sub(drawn) >= SECOND {
            terminal.draw(|frame| draw(frame, view)).context("draw (is the terminal gone?)")?;
            drawn = view.now.boottime;
        }
        // All keys that wait, then one drawing: a held arrow must not lag behind.
        let mut next = keys.recv_timeout(WAIT);
        loop {
            match next {
                Ok(Event::Key(key)) => {
                    if wish(keys::apply(key, view), feed, view)? {
                        return Ok(());
                    }
                    drawn = Nanos(0);
                }
                Ok(_) => drawn = Nanos(0),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => bail!("the terminal is gone"),
            }
            next = keys.recv_timeout(Duration::ZERO);
        }
    }
}

/// Keys and changes of size, read by a thread of their own: at the end of a terminal that hung up, crossterm reads
/// nothing for ever and never comes back. The thread ends with the process.
fn keys_of_the_terminal() -> Result<Receiver<Event>> {
    let (tell, told) = sync_channel(64);
    let read = move || {
        while let Ok(event) = event::read() {
            if tell.send(event).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).context("start the thread that reads keys")?;
    Ok(told)
}

/// Takes what the feed has; whether there was something new.
fn poll(feed: &mut Feed, view: &mut View) -> Result<bool> {
    match feed {
        Feed::Live(news) => {
            let mut fresh = false;
            loop {
                match news.try_recv() {
                    Ok(_) if view.paused => {}
                    Ok(News::Frame(frame)) => {
                        view.trouble = None;
                        let note = frame.to_owned();
                        if view.show(*frame) {
                            view.note(&note);
                            fresh = true;
                        }
                    }
                    Ok(News::Trouble(why)) => {
                        fresh |= view.trouble.as_ref() != Some(&why);
                        view.trouble = Some(why);
                    }
                    Err(TryRecvError::Empty) => return Ok(fresh),
                    Err(TryRecvError::Disconnected) => bail!("the thread that reads has ended"),
                }
            }
        }
        Feed::Played(player) => {
            let was = view.playing;
            let paused = view.paused;
            let frame = player.advance(paused, |frame| view.note(frame))?;
            let fresh = frame.is_some();
            if let Some(frame) = frame {
                view.show(frame);
            }
            view.playing = Some(player.playing());
            Ok(fresh || was.map(|was| (was.ended, was.seeking)) != view.playing.map(|now| (now.ended, now.seeking)))
        }
    }
}

/// Does what a key wished; whether that is the end.
fn wish(wish: Wish, feed: &mut Feed, view: &mut View) -> Result<bool> {
    match (wish, feed) {
        (Wish::Quit, _) => return Ok(true),
        (Wish::Pause, _) => view.paused = !view.paused,
        (Wish::Faster, Feed::Played(player)) => player.faster(true),
        (Wish::Slower, Feed::Played(player)) => player.faster(false),
        (Wish::On(by), Feed::Played(player)) => player.on(by),
        (Wish::Back(by), Feed::Played(player)) => {
            view.forget();
            player.back(by)?;
        }
        (Wish::NextFinding, Feed::Played(player)) => player.hunt(),
        _ => {}
    }
    Ok(false)
}
