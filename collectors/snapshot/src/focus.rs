//! What matters now: which processes and cgroups the collectors look at.

use alloc::collections::BTreeSet;
use alloc::string::String;

use crate::Tick;

/// A pure function of what is known from the previous ticks, so that no collector needs to know another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Focus {
    /// Pids with a context on a GPU.
    pub pids: BTreeSet<u32>,
    /// Cgroup paths of the processes that hold GPUs.
    pub cgroups: BTreeSet<String>,
    /// TCP ports of engines on this node: whoever listens there is asked for.
    pub ports: BTreeSet<u16>,
    /// Block devices in the paths of those processes.
    pub devices: BTreeSet<String>,
}

impl Focus {
    /// From the last sample of each source ([`Tick::advance`] keeps them in one tick).
    #[must_use]
    pub fn of(known: &Tick) -> Self {
        let mut focus = Self::default();
        if let Some(gpus) = known.gpu.as_ref().and_then(|sample| sample.value.get()) {
            for process in gpus.devices.iter().filter_map(|gpu| gpu.processes.get()).flatten() {
                focus.pids.insert(process.pid);
            }
        }
        if let Some(processes) = known.proc.as_ref().and_then(|sample| sample.value.get()) {
            for process in &processes.processes {
                if let Some(path) = process.cgroup.get() {
                    focus.cgroups.insert(path.clone());
                }
                for opened in process.opens.get().into_iter().flatten() {
                    if let Some(name) = opened.strip_prefix("/dev/") {
                        focus.devices.insert(name.into());
                    }
                }
            }
        }
        if let Some(engines) = known.engine.as_ref().and_then(|sample| sample.value.get()) {
            focus.ports.extend(engines.engines.iter().filter_map(|engine| local_port(&engine.url)));
        }
        focus
    }
}

/// The port of a URL on this node; nothing for another host.
#[must_use]
pub fn local_port(url: &str) -> Option<u16> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host_port.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (host_port, if scheme == "https" { 443 } else { 80 }),
    };
    let local = host == "localhost" || host.starts_with("127.") || host == "[::1]" || host == "0.0.0.0";
    local.then_some(port)
}
