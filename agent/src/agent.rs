//! The daemon: the tick thread feeds the pipeline and hands each frame to the sinks; the `net` thread serves and
//! delivers, so that the tick thread never waits for anybody.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::{Context, Result};
use gpuprod_collectors::engine::Scraper;
use gpuprod_snapshot::Tick;
use tokio::runtime::Handle;

use crate::alerts::{self, Desk};
use crate::cli::Sampling;
use crate::http::{self, Shelf};
use crate::lease::Switch;
use crate::own::Own;
use crate::pipeline::{Frame, Pipeline};
use crate::reload::{Reload, Step};
use crate::run::{Settings, live};
use crate::say::Say;
use crate::sink::{self, Sink, alertmanager, otlp};
use crate::source::Stop;
use crate::store::{Keeper, Status, Store};
use crate::systemd::Service;
use crate::{clock, cost, prices, socket, state_dir, text};

/// Set by signals.
#[derive(Debug)]
pub struct Signals {
    /// SIGTERM, SIGINT: end.
    pub stop: Stop,
    /// SIGHUP: read the configuration anew.
    pub reload: Stop,
}

/// Runs until asked to stop. What it says goes to `err`: where it serves, and what it does without.
///
/// # Errors
/// When the config is wrong, the port, the socket or the store is taken, the store is a newer version's, or a thread
/// cannot be started.
pub fn run(flags: &Sampling, signals: &Signals, err: &mut dyn Write) -> Result<()> {
    let mut settings = Settings::resolve(flags)?;
    let mut reload = Reload::new(flags.clone(), Arc::clone(&signals.reload), clock::realtime());
    let mut service = Service::from_env();
    let state = settings.config.state_dir();
    settings.options.state_dir = state_dir::make(&state).is_ok().then_some(state);
    let config = &settings.config;
    let http = if config.http.enabled {
        let listen = config.http.listen;
        let listener = TcpListener::bind(listen).map_err(|error| {
            let hint = unbound(error.kind());
            anyhow::Error::new(error).context(format!("listen on {listen} ({hint}; the key is http.listen)"))
        })?;
        // A closed or full stderr is no reason to end: what is said here may be lost.
        let _ = writeln!(err, "gpuprod {}: http://{}/metrics", env!("CARGO_PKG_VERSION"), listener.local_addr()?);
        Some(listener)
    } else {
        None
    };
    let socket = if config.socket.enabled { bind(&settings, err)? } else { None };
    let path = config.socket_path();
    let ours = socket.as_ref().and_then(|_| socket::identity(&path));
    let shelf = Shelf::default();
    let gpus = Switch::new(Arc::clone(&settings.options.nvml_released));
    let net = net(http, socket, &shelf, &gpus)?;
    let tally = alertmanager::Tally::default();
    let metrics = otlp::Tally::new(&settings.host);
    let mut keeper = Keeper::start(&settings)?;
    let mut sinks = sinks_of(&settings, &shelf, &net, &tally, &metrics, keeper.store());
    let host_name = settings.host_name();
    let mut desk = Desk::new(alerts::plan(config, &host_name));
    let mut memory = alerts::Memory::ask(keeper.store(), &net);
    let mut pipeline = Pipeline::new(config.rules.policy()).with_tenancy(config.tenancy());
    let mut ticks = live(&settings, &signals.stop);
    let mut refused = None;
    let mut unread = Unread::new(Say::stderr());
    while let Some(tick) = ticks.next() {
        refused = keeper.store().fatal();
        if refused.is_some() {
            break;
        }
        match reload.step(&settings.config, tick.stamp.realtime) {
            Step::Rest => {}
            Step::Begun => service.reloading(),
            Step::Refused => service.reloaded(),
            Step::Taken(change) => {
                settings.config = change.config.clone();
                if change.touches("rules") {
                    pipeline.set_policy(settings.config.rules.policy());
                }
                if ["tenants", "classes"].iter().any(|section| change.touches(section)) {
                    pipeline.set_tenancy(settings.config.tenancy());
                }
                if change.touches("engines") {
                    ticks.replace(Box::new(Scraper::new(&settings.config.engines)));
                }
                if SINKS.iter().any(|section| change.touches(section)) {
                    // The old ones go first: a new one may want the same queue.
                    sinks.clear();
                    sinks = sinks_of(&settings, &shelf, &net, &tally, &metrics, keeper.store());
                    desk.replan(alerts::plan(&settings.config, &host_name));
                }
                service.reloaded();
            }
        }
        unread.look(&tick);
        let now = tick.stamp.boottime;
        let mut frame = pipeline.feed(&tick);
        frame.own = Own {
            config: reload.state().clone(),
            lease: gpus.at(now),
            otlp: settings.config.otlp.endpoint.as_ref().map(|_| metrics.report(&keeper.store().status(now))),
            store: None,
            prices: prices::now(&settings.config.prices, &frame.judgement.units, tick.stamp.realtime),
            costs: cost::all(
                &frame.judgement.findings,
                &frame.judgement.units,
                &settings.config.prices,
                tick.stamp.realtime,
            ),
            tenants_hidden: !settings.config.tenants.exported,
        };
        memory.recall(&mut desk, &tick.stamp);
        desk.posts(tally.posts());
        desk.step(&frame.judgement.findings, &tick.stamp);
        memory.keep(&desk);
        frame.alerts = Cow::Borrowed(desk.told());
        let frame = keeper.step(frame);
        for sink in &mut sinks {
            sink.accept(&frame);
        }
        service.tick(tick.period, &words(&frame));
        keeper.keep(&mut pipeline, tick);
    }
    service.stopping();
    ticks.end();
    keeper.stop(pipeline.judge());
    socket::release(&path, ours);
    refused.map_or(Ok(()), |refused| Err(refused.into()))
}

/// Notes about jobs that cannot be read: each is said once, and again when it could be read meanwhile.
struct Unread {
    say: Say,
    said: BTreeSet<String>,
}

impl Unread {
    const fn new(say: Say) -> Self {
        Self { say, said: BTreeSet::new() }
    }

    fn look(&mut self, tick: &Tick) {
        let Some(cgroups) = tick.cgroup.as_deref().and_then(|sample| sample.value.get()) else { return };
        for why in cgroups.unread.iter().filter(|why| !self.said.contains(*why)) {
            self.say.say(&format!("a note about a job is left out: {why}"));
        }
        self.said = cgroups.unread.iter().cloned().collect();
    }
}

/// Everything that takes frames.
fn sinks_of(
    settings: &Settings,
    shelf: &Shelf,
    net: &Handle,
    tally: &alertmanager::Tally,
    metrics: &otlp::Tally,
    store: &Store,
) -> Vec<Box<dyn Sink>> {
    let mut sinks = sink::all(settings, shelf.clone(), net, store);
    if let Some(sink) = alertmanager::start(&settings.config, net, tally) {
        sinks.push(Box::new(sink));
    }
    if let Some(sink) = otlp::Otlp::start(settings, net, store, metrics) {
        sinks.push(Box::new(sink));
    }
    sinks
}

/// Sections of the config that sinks and alerts are made from.
const SINKS: &[&str] = &["labels", "otlp", "alerts", "rules"];

/// For `systemctl status`.
fn words(frame: &Frame<'_>) -> String {
    let (gpus, findings) = (frame.judgement.units.len(), frame.judgement.findings.len());
    let mut words = format!("{}, {}", text::count(gpus, "GPU", "GPUs"), text::count(findings, "finding", "findings"));
    if frame.own.lease.is_some() {
        words.push_str("; GPUs let go of");
    }
    if let Some(late) = frame.own.store.as_ref().and_then(Status::late) {
        let _ = write!(words, "; {late}");
    }
    if frame.own.config.refused {
        words.push_str("; the config file was refused, the one before is in force");
    }
    words
}

/// Why the page's address was not to be had.
fn unbound(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrNotAvailable => "no address of this machine",
        ErrorKind::PermissionDenied => "a port that low takes root",
        _ => "is another agent running?",
    }
}

/// Another agent is an error; a directory that cannot be made costs `check` its baselines and nothing else.
fn bind(settings: &Settings, err: &mut dyn Write) -> Result<Option<UnixListener>> {
    let path = settings.config.socket_path();
    match socket::bind(&path) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(error).with_context(|| format!("listen on {}", path.display()))
        }
        Err(error) => {
            let _ = writeln!(err, "without the unix socket {}: {error}", path.display());
            Ok(None)
        }
    }
}

/// Starts the `net` thread; the handle takes what the sinks deliver.
fn net(http: Option<TcpListener>, socket: Option<UnixListener>, shelf: &Shelf, gpus: &Switch) -> Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("start the network runtime")?;
    let handle = runtime.handle().clone();
    let (pages, frames, gpus) = (shelf.clone(), shelf.clone(), gpus.clone());
    let serve = async move {
        let http = async {
            match http {
                Some(listener) => http::serve(listener, pages).await,
                None => std::future::pending().await,
            }
        };
        let socket = async {
            match socket {
                Some(listener) => socket::serve(listener, frames, gpus).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(http, socket)
    };
    std::thread::Builder::new()
        .name("net".to_owned())
        .spawn(move || runtime.block_on(serve))
        .context("start the net thread")?;
    Ok(handle)
}
