//! `/proc/diskstats`, the devices behind `/sys/block`, and the mounts.

use std::fmt::Write as _;
use std::io;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::storage::{Block, BlockDevice, Fs, IoCounters};
use gpuprod_snapshot::topology::Pci;

use super::{Tree, sys, value};

pub(crate) fn write(tick: &Tick, tree: &Tree) -> io::Result<()> {
    let Some(block) = value!(tick, block) else { return Ok(()) };
    tree.put("proc/diskstats", diskstats(block))?;
    let mountinfo = mountinfo(block, value!(tick, fs));
    tree.put("proc/1/mountinfo", &mountinfo)?;
    tree.put("proc/self/mountinfo", &mountinfo)?;
    let pci = value!(tick, pci);
    let home = |name: &str| block.devices.iter().find(|device| device.name == name).map(|device| home(device, pci));
    for device in &block.devices {
        let dir = self::home(device, pci);
        let at = |name: &str| format!("sys/devices/{dir}/{name}");
        let (major, minor) = device.dev;
        tree.line(&at("dev"), format!("{major}:{minor}"))?;
        if let Some(io) = device.io.get() {
            tree.line(&at("stat"), counters(io))?;
        }
        let size =
            value!(tick, md).and_then(|md| md.arrays.iter().find(|array| array.name == device.name)?.size.copied());
        tree.line(&at("size"), size.map_or(3_750_748_848, |bytes| bytes.0 / 512))?;
        if let Some(spins) = device.rotational.get() {
            tree.line(&at("queue/rotational"), u8::from(*spins))?;
        }
        if let Some(requests) = device.nr_requests.get() {
            tree.line(&at("queue/nr_requests"), requests)?;
        }
        std::fs::create_dir_all(tree.path(&at("holders")))?;
        std::fs::create_dir_all(tree.path(&at("slaves")))?;
        for slave in &device.slaves {
            let Some(other) = home(slave) else { continue };
            tree.link(&at(&format!("slaves/{slave}")), format!("{}{other}", up(&dir, 1)))?;
            tree.link(&format!("sys/devices/{other}/holders/{}", device.name), format!("{}{dir}", up(&other, 1)))?;
        }
        tree.link(&format!("sys/block/{}", device.name), format!("../devices/{dir}"))?;
        tree.link(&format!("sys/class/block/{}", device.name), format!("../../devices/{dir}"))?;
    }
    Ok(())
}

/// From a folder so much deeper than the device up to `devices`.
fn up(dir: &str, deeper: usize) -> String {
    "../".repeat(dir.split('/').count() + deeper)
}

/// Below `sys/devices`.
fn home(device: &BlockDevice, pci: Option<&Pci>) -> String {
    let name = &device.name;
    let Some(address) = device.pci.copied() else { return format!("virtual/block/{name}") };
    let known = pci.and_then(|pci| pci.devices.iter().find(|known| known.address == address));
    let controller = known.map_or_else(|| format!("pci0000:00/{address}"), sys::home);
    match name.strip_suffix("n1").filter(|controller| controller.starts_with("nvme")) {
        Some(nvme) => format!("{controller}/nvme/{nvme}/{name}"),
        None => format!("{controller}/ata1/host0/target0:0:0/0:0:0:0/block/{name}"),
    }
}

/// The 17 counters, in the kernel's order.
fn counters(io: &IoCounters) -> String {
    format!(
        "{} {} {} {} {} {} {} {} {} {} {} {} 0 0 0 {} {}",
        io.reads,
        io.reads_merged,
        io.sectors_read,
        io.read_ms,
        io.writes,
        io.writes_merged,
        io.sectors_written,
        io.write_ms,
        io.in_flight,
        io.io_ticks_ms,
        io.weighted_ms,
        io.discards.copied().unwrap_or(0),
        io.flushes.copied().unwrap_or(0),
        io.flush_ms.copied().unwrap_or(0),
    )
}

fn diskstats(block: &Block) -> String {
    let mut text = String::new();
    for device in &block.devices {
        let Some(io) = device.io.get() else { continue };
        let _ = writeln!(text, "{:4} {:7} {} {}", device.dev.0, device.dev.1, device.name, counters(io));
    }
    text
}

/// `/`, `/proc`, `/sys`, and what the tick says.
pub(crate) fn mountinfo(block: &Block, fs: Option<&Fs>) -> String {
    let mut text = "21 1 0:20 / / rw,relatime shared:1 - tmpfs tmpfs rw\n\
        22 21 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n\
        23 21 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
        .to_owned();
    for (id, mount) in (30..).zip(&block.mounts) {
        let options = if mount.read_only { "ro" } else { "rw" };
        let _ = writeln!(
            text,
            "{id} 21 {}:{} / {} {options},relatime shared:{id} - {} {} {options}",
            mount.dev.0, mount.dev.1, mount.point, mount.fs, mount.source
        );
    }
    for (id, mount) in (60..).zip(fs.into_iter().flat_map(|fs| &fs.mounts)) {
        let (point, kind) = (&mount.point, &mount.fs);
        let _ = writeln!(text, "{id} 21 0:{id} / {point} rw,relatime shared:{id} - {kind} server:/export rw");
    }
    text
}
