//! What tenants read from block devices and wrote there: the kernel's counters per cgroup (`io.stat`), of the cgroups in
//! which workloads of GPUs run.
//!
//! Nothing is counted twice. A cgroup whose parent is in the sample is in the parent's figures. A request to an array or a
//! volume is counted by the kernel there and once more on each disk below it: only the uppermost device counts, and no
//! loop device, whose requests are those of the disk below its file.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::storage::Block;
use gpuprod_snapshot::tenant::Cgroup;
use gpuprod_snapshot::units::Bytes;

use crate::TenantIo;
use crate::gather::Gather;

/// The kernel's number of loop devices.
const LOOP: u32 = 7;

/// By tenant, what its cgroups moved between the last two samples; nothing while the devices cannot be told apart.
pub(crate) fn of(gather: &Gather<'_>) -> Vec<TenantIo> {
    let Some((block, (old, new, _))) = gather.block.zip(gather.window.pair(|tick| &tick.cgroup)) else {
        return Vec::new();
    };
    let below = below(block);
    let before: BTreeMap<&str, &Cgroup> = old.cgroups.iter().map(|cgroup| (cgroup.path.as_str(), cgroup)).collect();
    let counted: BTreeSet<&str> =
        new.cgroups.iter().filter(|cgroup| counts(cgroup)).map(|cgroup| cgroup.path.as_str()).collect();
    let mut all: BTreeMap<Option<String>, (u64, u64)> = BTreeMap::new();
    for cgroup in new.cgroups.iter().filter(|cgroup| counts(cgroup) && !is_inside(&cgroup.path, &counted)) {
        let Some(before) = before.get(cgroup.path.as_str()) else { continue };
        let (read, written) = moved(before, cgroup, &below);
        if read > 0 || written > 0 {
            let held = all.entry(gather.tenant_of(cgroup)).or_default();
            *held = (held.0.saturating_add(read), held.1.saturating_add(written));
        }
    }
    let io = |(tenant, (read, written))| TenantIo { tenant, read: Bytes(read), written: Bytes(written) };
    all.into_iter().map(io).collect()
}

/// The root's figures are the whole node's.
fn counts(cgroup: &Cgroup) -> bool {
    cgroup.path.len() > 1 && cgroup.io.get().is_some()
}

fn is_inside(path: &str, others: &BTreeSet<&str>) -> bool {
    let mut outer = path;
    while let Some((parent, _)) = outer.rsplit_once('/') {
        if others.contains(parent) {
            return true;
        }
        outer = parent;
    }
    false
}

/// Devices of which others are made, and the disks of such partitions.
fn below(block: &Block) -> BTreeSet<(u32, u32)> {
    let slaves: BTreeSet<&str> = block.devices.iter().flat_map(|device| &device.slaves).map(String::as_str).collect();
    let parts = block.devices.iter().filter(|device| slaves.contains(device.name.as_str()));
    let disks: BTreeSet<&str> = parts.filter_map(|device| device.partition_of.as_deref()).collect();
    let is_below = |name: &str| slaves.contains(name) || disks.contains(name);
    block.devices.iter().filter(|device| is_below(&device.name)).map(|device| device.dev).collect()
}

/// Bytes read and written between two samples of a cgroup. One that counts less was made anew under its old name.
fn moved(old: &Cgroup, new: &Cgroup, below: &BTreeSet<(u32, u32)>) -> (u64, u64) {
    let (Some(old), Some(new)) = (old.io.get(), new.io.get()) else { return (0, 0) };
    let upper = new.iter().filter(|io| io.dev.0 != LOOP && !below.contains(&io.dev));
    upper.fold((0, 0), |(read, written): (u64, u64), io| {
        let before = old.iter().find(|before| before.dev == io.dev);
        let (r, w) = before.map_or((0, 0), |before| (before.read.0, before.written.0));
        // Both or neither: reads alone never go back.
        let (r, w) = if io.read.0 < r || io.written.0 < w { (0, 0) } else { (r, w) };
        (read.saturating_add(io.read.0 - r), written.saturating_add(io.written.0 - w))
    })
}
