//! Uplinks that several devices share: what each moves, what it moves when it is alone, and what the link can carry.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::topology::{Pci, PciAddress, PciDevice, PciKind};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::link::generation;
use super::{PcieSignals, bytes_per_second, find};
use crate::Policy;
use crate::baseline::{Track, Worse};
use crate::window::Window;

/// QEMU's ports: their links are made up.
const VIRTUAL: u32 = 0x1b36;
/// Uplinks and devices on one that are watched.
const MOST_UPLINKS: usize = 64;
const MOST_MEMBERS: usize = 32;
/// Devices of a tree that are looked at, and bridges above each: no node has more.
const MOST_DEVICES: usize = 256;
const MOST_DEPTH: usize = 8;
/// A device is alone while the others move less than this part of what the link can carry.
const ALONE: f64 = 0.1;
/// A device that moves less than this part of the link neither suffers on it nor crowds it.
pub(crate) const COUNTS: f64 = 0.05;
/// How fast the upper quantile follows, and which one it is.
const STEP: f64 = 0.1;
const QUANTILE: f64 = 0.95;

/// A bridge that leads to the host, and the devices below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Uplink {
    /// Bytes per second that it can carry in one direction.
    pub(crate) capacity: f64,
    #[serde(with = "crate::entries")]
    pub(crate) members: BTreeMap<PciAddress, Member>,
    /// The part of the capacity in use in the last block, in the busier direction.
    pub(crate) used: f64,
    /// The same, with its own normal: when it left that, it began to be crowded.
    pub(crate) load: Track,
    /// Whether that direction is towards the devices.
    pub(crate) down: bool,
    /// It has been full, since.
    pub(crate) full_since: Option<Nanos>,
}

/// A device on an uplink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// `nvme0n1`; a GPU is called by its address.
    pub(crate) name: Option<String>,
    /// Bytes towards it and from it in the block under way, and the seconds that they took.
    moved: (f64, f64),
    seconds: f64,
    /// Bytes per second of the last block, towards it and from it.
    pub(crate) rate: Option<(f64, f64)>,
    /// The upper quantile of what it moves when it is alone, in each direction, and the blocks that it is made of.
    pub(crate) alone: (f64, f64),
    pub(crate) blocks: u32,
}

pub(super) fn float(bytes: u64) -> f64 {
    to_f64(bytes)
}

/// Moves an upper quantile by a value: up fast, down slowly.
fn follow(quantile: f64, value: f64, first: bool) -> f64 {
    if first {
        value
    } else if value > quantile {
        quantile + (value - quantile) * STEP
    } else {
        quantile - (quantile - value) * STEP * (1.0 - QUANTILE) / QUANTILE
    }
}

/// The workload that has a GPU to itself.
fn owner(owners: &[(PciAddress, usize)], address: PciAddress) -> Option<usize> {
    let mut own = owners.iter().filter(|(at, _)| at.same_slot(address)).map(|(_, owner)| *owner);
    let first = own.next()?;
    own.all(|other| other == first).then_some(first)
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            capacity: 0.0,
            members: BTreeMap::new(),
            used: 0.0,
            load: Track::new(Worse::Higher, 1.0),
            down: false,
            full_since: None,
        }
    }
}

impl Uplink {
    pub(crate) fn member(&self, address: PciAddress) -> Option<&Member> {
        self.members.iter().find(|(own, _)| own.same_slot(address)).map(|(_, member)| member)
    }

    pub(super) fn add(&mut self, address: PciAddress, (to, from): (f64, f64), seconds: f64) {
        if let Some(member) = self.members.get_mut(&address) {
            member.moved = (member.moved.0 + to, member.moved.1 + from);
            member.seconds += seconds;
        }
    }

    /// Ends the block that began at `start`. GPUs of one workload count as one: a second GPU of the job is never quiet.
    pub(super) fn close(&mut self, start: Nanos, calm: bool, owners: &[(PciAddress, usize)], policy: &Policy) {
        for member in self.members.values_mut() {
            let (moved, seconds) = (core::mem::take(&mut member.moved), core::mem::take(&mut member.seconds));
            member.rate = (seconds >= 2.0).then(|| (moved.0 / seconds, moved.1 / seconds));
        }
        let rates = || self.members.values().filter_map(|member| member.rate);
        let (down, up) = rates().fold((0.0, 0.0), |(down, up), (to, from)| (down + to, up + from));
        (self.used, self.down) = (f64::max(down, up) / self.capacity, down >= up);
        if rates().next().is_some() {
            self.load.add(self.used, 1.0);
        }
        self.load.close(start, calm, policy);
        let full = self.used >= policy.shared_uplink_contention.used.as_fraction();
        self.full_since = full.then(|| self.full_since.unwrap_or(start));
        let quiet = self.capacity * ALONE;
        let crowds: Vec<(Option<usize>, (f64, f64), bool)> = self
            .members
            .iter()
            .map(|(address, member)| {
                (owner(owners, *address), member.rate.unwrap_or_default(), self.squeezes(member, policy))
            })
            .collect();
        for (place, member) in self.members.values_mut().enumerate() {
            let Some((to, from)) = member.rate else { continue };
            let own = crowds.get(place).and_then(|(owner, ..)| *owner);
            let others = crowds
                .iter()
                .enumerate()
                .filter(|(other, (owner, ..))| *other != place && (own.is_none() || *owner != own));
            let (others_down, others_up, squeezed) = others.fold((0.0, 0.0, false), |sum, (_, (_, rate, squeezed))| {
                (sum.0 + rate.0, sum.1 + rate.1, sum.2 || *squeezed)
            });
            if f64::max(others_down, others_up) <= quiet && !squeezed && to.max(from) >= self.capacity * COUNTS {
                let first = member.blocks == 0;
                member.alone = (follow(member.alone.0, to, first), follow(member.alone.1, from, first));
                member.blocks = member.blocks.saturating_add(1);
            }
        }
    }

    /// Whether a device that moves little does so because the link is full: it is not quiet then, and whoever fills the link
    /// is not alone.
    fn squeezes(&self, member: &Member, policy: &Policy) -> bool {
        let pick = |(to, from): (f64, f64)| if self.down { to } else { from };
        let (rate, alone) = (member.rate.map_or(0.0, pick), pick(member.alone));
        let limit = 1.0 - policy.shared_uplink_contention.squeezed.as_fraction();
        let known = member.blocks >= policy.baseline_min_blocks;
        self.full_since.is_some() && known && rate > alone * ALONE && rate <= alone * limit
    }

    pub(super) fn rest(&mut self) {
        (self.used, self.full_since) = (0.0, None);
        self.load.rest();
        for member in self.members.values_mut() {
            (member.moved, member.seconds, member.rate) = ((0.0, 0.0), 0.0, None);
        }
    }
}

impl PcieSignals {
    /// Finds the bridges that two devices and more share, GPUs among them. Of a chain of bridges with the same devices
    /// the lowest stands for all: the others are ends of the same way.
    pub(super) fn uplinks(&mut self, pci: &Pci, window: &Window) {
        let mut below: BTreeMap<PciAddress, Vec<&PciDevice>> = BTreeMap::new();
        for device in pci.devices.iter().filter(|device| counts(device)).take(MOST_DEVICES) {
            for bridge in device.bridges.iter().take(MOST_DEPTH) {
                below.entry(*bridge).or_default().push(device);
            }
        }
        let is_gpu = |device: &&PciDevice| matches!(device.kind.get(), Some(PciKind::Gpu | PciKind::Accelerator));
        below.retain(|_, devices| devices.len() > 1 && devices.iter().any(is_gpu));
        let mut known = core::mem::take(&mut self.uplinks);
        let drives = window.last.block.as_ref().and_then(|sample| sample.value.get());
        for (bridge, devices) in &below {
            let Some(own) = find(pci, *bridge) else { continue };
            // A bridge further down that has the same devices.
            let lower = below.iter().any(|(other, same)| {
                other != bridge && same == devices && {
                    find(pci, *other).is_some_and(|other| other.bridges.contains(bridge))
                }
            });
            let capacity = own.link.width.copied().zip(own.link.speed.copied().and_then(|speed| generation(speed.0)));
            let capacity = capacity.and_then(|(width, generation)| bytes_per_second(width, generation));
            let Some(capacity) = capacity.filter(|capacity| *capacity > 0.0) else { continue };
            if lower || own.vendor.copied() == Some(VIRTUAL) || self.uplinks.len() >= MOST_UPLINKS {
                continue;
            }
            let mut uplink = known.remove(bridge).unwrap_or_default();
            uplink.capacity = capacity;
            let present = |address: &PciAddress| devices.iter().any(|device| device.address == *address);
            uplink.members.retain(|address, _| present(address));
            for device in devices.iter().take(MOST_MEMBERS) {
                let member = uplink.members.entry(device.address).or_default();
                let drive = drives.into_iter().flat_map(|block| &block.devices);
                let mut drive = drive.filter(|drive| drive.partition_of.is_none());
                member.name =
                    drive.find(|drive| drive.pci.copied() == Some(device.address)).map(|drive| drive.name.clone());
            }
            self.uplinks.insert(*bridge, uplink);
        }
    }

    /// What drives on uplinks moved: reads come up, writes go down.
    pub(super) fn drives(&mut self, window: &Window) {
        if self.uplinks.is_empty() {
            return;
        }
        let Some((old, new, between)) = window.pair(|tick| &tick.block) else { return };
        for drive in new.devices.iter().filter(|drive| drive.partition_of.is_none()) {
            let Some(address) = drive.pci.copied() else { continue };
            let before = old.devices.iter().find(|before| before.name == drive.name && before.dev == drive.dev);
            let Some((before, after)) = before.and_then(|before| before.io.get()).zip(drive.io.get()) else { continue };
            let sectors = |old: u64, new: u64| new.checked_sub(old).map(|sectors| to_f64(sectors) * 512.0);
            let moved = sectors(before.sectors_written, after.sectors_written)
                .zip(sectors(before.sectors_read, after.sectors_read));
            let Some(moved) = moved else { continue };
            for uplink in self.uplinks.values_mut() {
                uplink.add(address, moved, between.as_secs_f64());
            }
        }
    }
}

/// What moves bytes that can be told: GPUs and drives. A network card's traffic has no address here.
fn counts(device: &PciDevice) -> bool {
    matches!(device.kind.get(), Some(PciKind::Gpu | PciKind::Accelerator | PciKind::Nvme))
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::topology::Link;
    use gpuprod_snapshot::units::MegaTransfers;

    use super::*;

    fn at(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0, function: 0 }
    }

    fn device(bus: u8, kind: PciKind, bridges: &[u8]) -> PciDevice {
        let link = Link {
            speed: MegaTransfers(16_000).into(),
            width: 16.into(),
            speed_max: MegaTransfers(16_000).into(),
            width_max: 16.into(),
        };
        let bridges = bridges.iter().map(|bus| at(*bus)).collect();
        PciDevice { address: at(bus), kind: kind.into(), bridges, link, vendor: 0x1000.into(), ..PciDevice::default() }
    }

    fn found(devices: Vec<PciDevice>) -> PcieSignals {
        let mut signals = PcieSignals::default();
        signals.uplinks(&Pci { devices }, &Window::default());
        signals
    }

    /// A root port (1), an outer switch (2) with a drive (20) and an inner switch (3, 4 and 5 its ports) with two GPUs.
    fn tree() -> Vec<PciDevice> {
        let mut tree: Vec<PciDevice> = Vec::new();
        for (bus, above) in [(1, &[][..]), (2, &[1]), (3, &[1, 2]), (4, &[1, 2, 3]), (5, &[1, 2, 3])] {
            tree.push(device(bus, PciKind::Bridge, above));
        }
        tree.push(device(10, PciKind::Gpu, &[1, 2, 3, 4]));
        tree.push(device(11, PciKind::Gpu, &[1, 2, 3, 5]));
        tree.push(device(20, PciKind::Nvme, &[1, 2]));
        tree.push(device(30, PciKind::Nic, &[1, 2]));
        tree
    }

    #[test]
    fn a_way_that_two_devices_share_is_one_uplink_with_its_own_capacity() {
        let signals = found(tree());
        let members =
            |bus| signals.uplinks.get(&at(bus)).map(|up| up.members.keys().map(|at| at.bus).collect::<Vec<_>>());
        // The root port and the outer switch lead to the same devices: the lower stands for both.
        assert_eq!(members(1), None);
        assert_eq!((members(2), members(3)), (Some([10, 11, 20].into()), Some([10, 11].into())));
        assert_eq!((members(4), members(5)), (None, None), "a port of one GPU is shared with nobody");
        let capacity = signals.uplinks.get(&at(3)).map(|up| up.capacity / 1e9);
        assert!(capacity.is_some_and(|gigas| (31.0..32.0).contains(&gigas)), "{capacity:?}");
        assert_eq!(signals.uplinks_of(at(10)).map(|(bridge, _)| bridge.bus).collect::<Vec<_>>(), [2, 3]);
        // Ports that a hypervisor made up, and links that say nothing, carry nothing that could be full.
        let mut virtual_ports = tree();
        virtual_ports.iter_mut().for_each(|device| device.vendor = VIRTUAL.into());
        assert!(found(virtual_ports).uplinks.is_empty());
        let mut silent = tree();
        silent.iter_mut().for_each(|device| device.link = Link::default());
        assert!(found(silent).uplinks.is_empty());
    }

    #[test]
    fn what_a_device_moves_alone_is_learnt_while_the_others_are_quiet() {
        let mut signals = found(tree());
        let policy = Policy::default();
        let uplink = signals.uplinks.get_mut(&at(3)).unwrap();
        let mut block = |number: u64, one: f64, other: f64| {
            uplink.add(at(10), (one * 5e9, 0.0), 5.0);
            uplink.add(at(11), (other * 5e9, 0.0), 5.0);
            uplink.close(Nanos::from_secs(number * 5), true, &[], &policy);
            let of = |bus| uplink.members.get(&at(bus)).map(|member| (member.alone.0 / 1e9, member.blocks)).unwrap();
            (of(10), of(11), uplink.full_since)
        };
        for number in 0..30 {
            let _ = block(number, 12.0, 0.1);
        }
        let ((alone, blocks), (_, other), full) = block(30, 12.0, 0.1);
        assert!(libm::fabs(alone - 12.0) < 0.01 && blocks == 31 && other == 0 && full.is_none());
        // Crowded: nobody's measure moves, and the link has been full since that block.
        let ((alone, blocks), ..) = block(31, 6.0, 22.0);
        assert!(libm::fabs(alone - 12.0) < 0.01 && blocks == 31);
        assert_eq!(block(32, 6.0, 22.0).2, Some(Nanos::from_secs(31 * 5)));
        assert_eq!(block(33, 6.0, 0.0).2, None);
    }

    #[test]
    fn gpus_of_one_workload_count_as_one_and_a_squeezed_device_is_not_quiet() {
        let mut signals = found(tree());
        let policy = Policy::default();
        let uplink = signals.uplinks.get_mut(&at(2)).unwrap();
        let mut block = |number: u64, rates: [f64; 3], owners: &[(PciAddress, usize)]| {
            for (bus, rate) in [10, 11, 20].into_iter().zip(rates) {
                uplink.add(at(bus), (rate * 5e9, 0.0), 5.0);
            }
            uplink.close(Nanos::from_secs(number * 5), true, owners, &policy);
            [10, 11, 20].map(|bus| uplink.members.get(&at(bus)).map_or(0, |member| member.blocks))
        };
        let (one, two) = ([(at(10), 7), (at(11), 7)], [(at(10), 7), (at(11), 8)]);
        for number in 0..10 {
            let _ = block(number, [8.0, 8.0, 0.1], &two);
        }
        assert_eq!(block(10, [8.0, 8.0, 0.1], &two), [0, 0, 0], "two jobs are never alone");
        for number in 11..111 {
            let _ = block(number, [4.0, 4.0, 0.1], &one);
        }
        assert_eq!(block(111, [4.0, 4.0, 0.1], &one), [101, 101, 0]);
        // The drive fills the link, and what the GPUs still move is little: it is not alone for that.
        assert_eq!(block(112, [1.4, 1.4, 27.0], &one), [101, 101, 0]);
        // They rest: now it is.
        assert_eq!(block(113, [0.0, 0.0, 27.0], &one), [101, 101, 1]);
    }

    #[test]
    fn a_tree_without_end_costs_a_bounded_number_of_uplinks() {
        let path: Vec<u8> = (0..100).collect();
        let mut devices: Vec<PciDevice> = path.iter().map(|bus| device(*bus, PciKind::Bridge, &[])).collect();
        devices.extend((100..=255).map(|bus| device(bus, PciKind::Gpu, &path)));
        let signals = found(devices);
        assert!(signals.uplinks.len() <= MOST_DEPTH);
        assert!(signals.uplinks.values().all(|uplink| uplink.members.len() <= MOST_MEMBERS));
    }
}
