//! The daemon: the tick thread feeds the pipeline and hands each frame to the sinks; the `net` thread serves and
//! delivers, so that the tick thread never waits for anybody.

use std::borrow::Cow;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result};
use tokio::runtime::Handle;

use crate::alerts::{self, Desk, Kept};
use crate::http::{self, Shelf};
use crate::pipeline::Pipeline;
use crate::run::{Settings, live};
use crate::sink::{self, alertmanager};
use crate::source::Stop;
use crate::{socket, state_dir};

/// Runs until asked to stop. What it says goes to `err`: where it serves, and what it does without.
///
/// # Errors
/// When the port or the socket is taken, or the `net` thread cannot be started.
pub fn run(mut settings: Settings, stop: &Stop, err: &mut dyn Write) -> Result<()> {
    let state = settings.config.state_dir();
    settings.options.state_dir = state_dir::make(&state).is_ok().then_some(state);
    let config = &settings.config;
    let http = if config.http.enabled {
        let listen = config.http.listen;
        let listener = TcpListener::bind(listen)
            .with_context(|| format!("listen on {listen} (is another agent running? the key is http.listen)"))?;
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
    let net = net(http, socket, &shelf)?;
    let mut sinks = sink::all(&settings, shelf, &net);
    let tally = alertmanager::Tally::default();
    if let Some(sink) = alertmanager::start(config, &net, &tally) {
        sinks.push(Box::new(sink));
    }
    let mut desk = Desk::new(alerts::plan(config, &settings.host_name()), Kept::default());
    let mut pipeline = Pipeline::new(config.rules.policy());
    for tick in live(&settings, stop) {
        let mut frame = pipeline.feed(&tick);
        desk.posts(tally.posts());
        frame.alerts = Cow::Borrowed(desk.step(&frame.judgement.findings, &tick.stamp));
        for sink in &mut sinks {
            sink.accept(&frame);
        }
    }
    socket::release(&path, ours);
    Ok(())
}

/// Another agent is an error; a directory that cannot be made costs `check` its baselines and nothing else.
fn bind(settings: &Settings, err: &mut dyn Write) -> Result<Option<UnixListener>> {
    let path = settings.config.socket_path();
    match socket::bind(&path) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            Err(error).with_context(|| format!("listen on {}", path.display()))
        }
        Err(error) => {
            let _ = writeln!(err, "without the unix socket {}: {error}", path.display());
            Ok(None)
        }
    }
}

/// Starts the `net` thread; the handle takes what the sinks deliver.
fn net(http: Option<TcpListener>, socket: Option<UnixListener>, shelf: &Shelf) -> Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("start the network runtime")?;
    let handle = runtime.handle().clone();
    let (pages, frames) = (shelf.clone(), shelf.clone());
    let serve = async move {
        let http = async {
            match http {
                Some(listener) => http::serve(listener, pages).await,
                None => std::future::pending().await,
            }
        };
        let socket = async {
            match socket {
                Some(listener) => socket::serve(listener, frames).await,
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
