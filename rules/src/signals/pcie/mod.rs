//! What is learnt of the way between GPUs and the host: links, uplinks that devices share, and where they are fed from.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::{Pci, PciAddress, PciDevice};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::device::Devices;
use crate::baseline::{Last, Track, Worse};
use crate::unit::identity;
use crate::window::Window;
use crate::{Policy, entries};

mod link;
mod place;
mod uplink;

pub(crate) use link::{LinkSignals, bytes_per_second};
pub(crate) use uplink::{COUNTS, Member, Uplink};

/// No node has more; a hostile recording must not cost more than a node can.
const MOST_BOARDS: usize = 1024;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PcieSignals {
    /// By identity.
    #[serde(with = "entries")]
    boards: BTreeMap<String, Box<Board>>,
    /// By the bridge that its devices share.
    #[serde(with = "entries")]
    uplinks: BTreeMap<PciAddress, Box<Uplink>>,
    /// The socket of each node that has CPUs.
    #[serde(with = "entries")]
    sockets: BTreeMap<u32, u32>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Board {
    pub(crate) address: Option<PciAddress>,
    /// The node that it is near.
    pub(crate) node: Option<u32>,
    pub(crate) link: LinkSignals,
    /// Bytes per second that it receives.
    pub(crate) received: Last,
    /// Bytes per second that it sends.
    pub(crate) sent: Last,
    /// Share of its processes' CPU time that is spent on sockets on which none of their GPUs is.
    pub(crate) away: Track,
    /// That share has been at the threshold and above, since.
    pub(crate) away_since: Option<Nanos>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            address: None,
            node: None,
            link: LinkSignals::default(),
            received: Last::default(),
            sent: Last::default(),
            away: Track::new(Worse::Higher, place::ENOUGH_CPU),
            away_since: None,
        }
    }
}

impl PcieSignals {
    /// Of a GPU.
    pub(crate) fn board(&self, gpu: &Gpu) -> Option<&Board> {
        self.boards.get(&*identity(gpu)).map(|board| &**board)
    }

    /// The uplinks that a GPU shares with others.
    pub(crate) fn uplinks_of(&self, address: PciAddress) -> impl Iterator<Item = (PciAddress, &Uplink)> {
        self.uplinks
            .iter()
            .filter(move |(_, uplink)| uplink.member(address).is_some())
            .map(|(at, uplink)| (*at, &**uplink))
    }

    /// All shared uplinks.
    pub(crate) fn shared_uplinks(&self) -> impl Iterator<Item = (PciAddress, &Uplink)> {
        self.uplinks.iter().map(|(at, uplink)| (*at, &**uplink))
    }

    /// Whether the node has two sockets and more.
    pub(crate) fn several_sockets(&self) -> bool {
        let first = self.sockets.values().next();
        self.sockets.values().any(|socket| Some(socket) != first)
    }

    /// Takes in what the tick brought.
    pub(crate) fn update(&mut self, window: &Window, tick: &Tick, devices: &Devices) {
        if let Some(numa) = tick.numa.as_ref().and_then(|sample| sample.value.get()) {
            self.sockets = place::sockets(numa);
        }
        let pci = window.last.pci.as_ref().and_then(|sample| sample.value.get());
        if let Some(pci) = pci.filter(|_| tick.pci.is_some()) {
            self.uplinks(pci, window);
        }
        if tick.gpu.is_some() {
            self.gpus(window, (pci, tick.pci.is_some()), devices);
        }
        if tick.block.is_some() {
            self.drives(window);
        }
        if tick.proc.is_some() && self.several_sockets() {
            self.places(window);
        }
    }

    fn gpus(&mut self, window: &Window, (pci, fresh): (Option<&Pci>, bool), devices: &Devices) {
        let Some(gpus) = window.last.gpu.as_ref().and_then(|sample| sample.value.get()) else { return };
        let now = window.last.stamp.boottime;
        let pair = window.pair(|tick| &tick.gpu);
        for gpu in gpus.devices.iter().take(MOST_BOARDS) {
            let identity = identity(gpu);
            let doubted = devices.get(&identity).is_some_and(|device| device.trust.is_doubted());
            let full = self.boards.len() >= MOST_BOARDS;
            let board = match self.boards.get_mut(&*identity) {
                Some(board) => board,
                None if full => continue,
                None => self.boards.entry(identity.into_owned()).or_default(),
            };
            board.address = gpu.pci.copied().or(board.address);
            let device =
                pci.filter(|_| fresh).zip(board.address).and_then(|(pci, at)| find(pci, at).map(|own| (pci, own)));
            if let Some((_, own)) = device {
                board.node = own.near_node();
            }
            let moved = pair.and_then(|(old, _, between)| {
                let before = old.devices.iter().find(|before| before.index == gpu.index && before.uuid == gpu.uuid)?;
                // The counters can wrap: such a step says nothing.
                let step = |old: Option<u64>, new: Option<u64>| new?.checked_sub(old?);
                let received = step(before.pcie.rx.copied().map(|b| b.0), gpu.pcie.rx.copied().map(|b| b.0))?;
                let sent = step(before.pcie.tx.copied().map(|b| b.0), gpu.pcie.tx.copied().map(|b| b.0))?;
                Some((uplink::float(received), uplink::float(sent), between.as_secs_f64()))
            });
            let rate = moved.map(|(received, sent, seconds)| received.max(sent) / seconds);
            board.link.read(gpu, device, !doubted && link::awake(gpu, rate), now);
            let Some((received, sent, seconds)) = moved else { continue };
            board.received.add(received, seconds);
            board.sent.add(sent, seconds);
            if let Some(address) = board.address {
                for uplink in self.uplinks.values_mut() {
                    uplink.add(address, (received, sent), seconds);
                }
            }
        }
    }

    /// Ends the block that began at `start`.
    pub(crate) fn close(&mut self, start: Nanos, calm: bool, owners: &[(PciAddress, usize)], policy: &Policy) {
        for board in self.boards.values_mut() {
            board.received.close(super::ENOUGH_SECONDS);
            board.sent.close(super::ENOUGH_SECONDS);
            board.away.close(start, calm, policy);
            let floor = policy.cross_socket_feeding.away.as_fraction();
            board.away_since = match board.away.latest() {
                Some(share) if share >= floor => Some(board.away_since.unwrap_or(start)),
                _ => None,
            };
        }
        for uplink in self.uplinks.values_mut() {
            uplink.close(start, calm, owners, policy);
        }
    }

    /// Keeps every own normal and drops the present.
    pub(crate) fn rest(&mut self) {
        for board in self.boards.values_mut() {
            board.away.rest();
            (board.received, board.sent) = (Last::default(), Last::default());
            board.link = LinkSignals::default();
            board.away_since = None;
        }
        self.uplinks.values_mut().for_each(|uplink| uplink.rest());
    }
}

fn find(pci: &Pci, address: PciAddress) -> Option<&PciDevice> {
    // Listed by address; a GPU's function is 0 in all sources.
    let place = pci.devices.binary_search_by_key(&address, |device| device.address).ok();
    match place {
        Some(place) => pci.devices.get(place),
        None => pci.devices.iter().find(|device| device.address.same_slot(address)),
    }
}
