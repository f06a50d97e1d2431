//! What the service manager is told: ready, alive, reloading. Without `NOTIFY_SOCKET` nothing is said.
//!
//! The watchdog is fed by the tick loop and by nothing else, so that a tick thread that stands still is seen.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use sd_notify::NotifyState;

/// A tick may be so late before the watchdog may bite, beside three periods.
const SLACK: Nanos = Nanos::from_secs(10);

/// The way to the service manager.
#[derive(Debug, Default)]
pub struct Service {
    socket: Option<UnixDatagram>,
    ready: bool,
    status: String,
}

impl Service {
    /// From the environment that the service manager gave.
    #[must_use]
    pub fn from_env() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name).ok());
        Self { socket, ..Self::default() }
    }

    /// With every tick: alive. With the first one: ready, and a watchdog that a tick as long as this one cannot meet
    /// is told to be more patient.
    pub fn tick(&mut self, period: Nanos, status: &str) {
        if self.socket.is_none() {
            return;
        }
        if !self.ready {
            let mut states = vec![NotifyState::Ready, NotifyState::Watchdog];
            let needs = Duration::from_nanos(period.0.saturating_mul(3).saturating_add(SLACK.0));
            if sd_notify::watchdog_enabled().is_some_and(|limit| limit < needs) {
                states.push(NotifyState::WatchdogUsec(u32::try_from(needs.as_micros()).unwrap_or(u32::MAX)));
            }
            // Said again with the next tick if it did not get through: without it the start never ends.
            self.ready = self.say(&states);
        } else {
            self.say(&[NotifyState::Watchdog]);
        }
        if self.status != status && self.say(&[NotifyState::Status(status)]) {
            status.clone_into(&mut self.status);
        }
    }

    /// The configuration is read anew.
    pub fn reloading(&self) {
        // With the time of the request, which newer versions want.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.say(&[NotifyState::Reloading, now]);
        }
    }

    /// That is over, whatever came of it.
    pub fn reloaded(&mut self) {
        if !self.say(&[NotifyState::Ready]) {
            self.ready = false;
        }
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.say(&[NotifyState::Stopping]);
    }

    /// Whether it got through. The tick thread does not wait for a service manager that does not read.
    fn say(&self, states: &[NotifyState<'_>]) -> bool {
        let Some(socket) = &self.socket else { return true };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        socket.send(message.as_bytes()).is_ok()
    }
}

fn connect(name: &OsString) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    socket.connect_addr(&address)?;
    Ok(socket)
}
