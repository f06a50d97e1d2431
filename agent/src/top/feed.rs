//! Where live frames come from: a running agent that is asked once a second, or this process's own sampling. Each
//! has a thread of its own, so that keys are answered whatever an agent or a driver does.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprod_snapshot::units::Nanos;

use super::web::Web;
use crate::pipeline::{Frame, Pipeline};
use crate::run::{Settings, live};
use crate::source::Stop;
use crate::{cost, socket};

/// What a feed says.
#[derive(Debug)]
pub(super) enum News {
    /// A frame.
    Frame(Box<Frame<'static>>),
    /// It did not work this time, and why.
    Trouble(String),
}

/// Where an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Its unix socket: everything.
    Socket(PathBuf),
    /// Its HTTP port: without pids, commands and users.
    Web(String),
}

impl Address {
    /// Of `--attach`: a URL, or the path of a socket.
    ///
    /// # Errors
    /// In words, for a flag's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("http://") {
            if rest.is_empty() || rest.starts_with('/') {
                return Err("there is no host in the URL; write http://host:9749".to_owned());
            }
            return Ok(Self::Web(text.to_owned()));
        }
        if text.contains("://") {
            return Err("only http:// is known; a path is taken for the agent's unix socket".to_owned());
        }
        if text.is_empty() {
            return Err("write the path of the agent's socket, or http://host:9749".to_owned());
        }
        Ok(Self::Socket(PathBuf::from(text)))
    }

    /// For the header.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Socket(path) => path.display().to_string(),
            Self::Web(url) => crate::text::masked(url),
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// When nobody is there, or what is there does not answer.
    pub fn ask(&self) -> Result<Frame<'static>> {
        match self {
            Self::Socket(path) => socket::ask(path).with_context(|| format!("ask the agent at {}", path.display())),
            Self::Web(url) => Web::new(url)?.ask(),
        }
    }
}

/// Frames that wait for the screen; one that is not taken in time is left out, and the next one comes.
const WAITING: usize = 4;

/// Asks the agent once a second, whatever it answers, until nobody listens any more.
///
/// # Errors
/// When no thread can be started.
pub(super) fn attach(address: Address, period: Nanos) -> Result<Receiver<News>> {
    let (tell, told) = sync_channel(WAITING);
    let pause = Duration::from_nanos(period.0.clamp(200_000_000, 5_000_000_000));
    let work = move || {
        let web = match &address {
            Address::Web(url) => Web::new(url).ok(),
            Address::Socket(_) => None,
        };
        loop {
            let answer = web.as_ref().map_or_else(|| address.ask(), Web::ask);
            let news =
                answer.map_or_else(|error| News::Trouble(format!("{error:#}")), |frame| News::Frame(Box::new(frame)));
            if !send(&tell, news) {
                return;
            }
            thread::sleep(pause);
        }
    };
    thread::Builder::new().name("attach".to_owned()).spawn(work).context("start the thread that asks the agent")?;
    Ok(told)
}

/// Samples this host until stopped or until nobody listens any more.
///
/// # Errors
/// When no thread can be started.
pub(super) fn own(settings: Settings, stop: Stop) -> Result<Receiver<News>> {
    let (tell, told) = sync_channel(WAITING);
    let work = move || {
        let mut pipeline = Pipeline::new(settings.config.rules.policy());
        for tick in live(&settings, &stop) {
            let mut frame = pipeline.feed(&tick).to_owned();
            let judged = &frame.judgement;
            frame.own.costs = cost::all(&judged.findings, &judged.units, &settings.config.prices, tick.stamp.realtime);
            if !send(&tell, News::Frame(Box::new(frame))) {
                return;
            }
        }
    };
    thread::Builder::new().name("sample".to_owned()).spawn(work).context("start the sampling thread")?;
    Ok(told)
}

/// Whether somebody still listens.
fn send(tell: &SyncSender<News>, news: News) -> bool {
    !matches!(tell.try_send(news), Err(TrySendError::Disconnected(_)))
}
