//! PCI, NUMA, and the cgroups' files below `/sys`.

use std::fmt::Write as _;
use std::io;

use gpuprod_snapshot::host::{Pressure, Pressures, Stall};
use gpuprod_snapshot::tenant::Cgroup;
use gpuprod_snapshot::topology::{Numa, PciDevice};
use gpuprod_snapshot::units::Ppb;
use gpuprod_snapshot::{CpuList, Tick};

use super::{Tree, value};

pub(crate) fn write(tick: &Tick, tree: &Tree) -> io::Result<()> {
    std::fs::create_dir_all(tree.path("sys/bus/pci/devices"))?;
    for device in value!(tick, pci).into_iter().flat_map(|pci| &pci.devices) {
        pci(tree, device)?;
    }
    if let Some(numa) = value!(tick, numa) {
        nodes(tree, numa)?;
    }
    tree.line("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")?;
    for group in value!(tick, cgroup).into_iter().flat_map(|groups| &groups.cgroups) {
        cgroup(tree, group)?;
    }
    if let Some(psi) = value!(tick, psi) {
        pressures(tree, "proc/pressure/", "", &psi.system)?;
        for group in &psi.cgroups {
            pressures(tree, &format!("sys/fs/cgroup{}/", group.path), ".pressure", &group.pressures)?;
        }
    }
    Ok(())
}

/// The device's folder below `sys/devices`.
pub(crate) fn home(device: &PciDevice) -> String {
    let mut path = device.root_bus.get().cloned().unwrap_or_else(|| "pci0000:00".into());
    for address in device.bridges.iter().chain([&device.address]) {
        let _ = write!(path, "/{address}");
    }
    path
}

fn pci(tree: &Tree, device: &PciDevice) -> io::Result<()> {
    let dir = home(device);
    let put = |name: &str, text: Option<String>| match text {
        Some(text) => tree.line(&format!("sys/devices/{dir}/{name}"), text),
        None => Ok(()),
    };
    put("class", device.class.get().map(|class| format!("{class:#08x}")))?;
    put("vendor", device.vendor.get().map(|id| format!("{id:#06x}")))?;
    put("device", device.device.get().map(|id| format!("{id:#06x}")))?;
    put("numa_node", Some(device.numa_node.get().map_or("-1".into(), u32::to_string)))?;
    put("local_cpulist", device.local_cpulist.get().cloned())?;
    put("power_state", Some("D0".into()))?;
    let speed = |speed: u32| format!("{}.{} GT/s PCIe", speed / 1000, speed % 1000 / 100);
    put("current_link_speed", device.link.speed.get().map(|now| speed(now.0)))?;
    put("max_link_speed", device.link.speed_max.get().map(|most| speed(most.0)))?;
    put("current_link_width", device.link.width.get().map(u32::to_string))?;
    put("max_link_width", device.link.width_max.get().map(u32::to_string))?;
    put(
        "aer_dev_correctable",
        device.aer_correctable.get().map(|n| format!("RxErr {n}\nBadTLP 0\nTOTAL_ERR_COR {n}")),
    )?;
    put("aer_dev_fatal", device.aer_fatal.get().map(|n| format!("Undefined 0\nDLP {n}\nTOTAL_ERR_FATAL {n}")))?;
    tree.link(&format!("sys/bus/pci/devices/{}", device.address), format!("../../../devices/{dir}"))
}

fn nodes(tree: &Tree, numa: &Numa) -> io::Result<()> {
    for node in &numa.nodes {
        let at = |name: &str| format!("sys/devices/system/node/node{}/{name}", node.id);
        if let Some(cpus) = node.cpulist.get() {
            tree.line(&at("cpulist"), cpus)?;
            if let (Some(package), Some(first)) = (node.package.copied(), CpuList::parse(cpus).and_then(|c| c.first()))
            {
                let file = format!("sys/devices/system/cpu/cpu{first}/topology/physical_package_id");
                tree.line(&file, package)?;
            }
        }
        if let Some(distances) = node.distances.get() {
            tree.line(&at("distance"), distances.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?;
        }
        if let (Some(total), Some(free)) = (node.mem_total.get(), node.mem_free.get()) {
            let id = node.id;
            let (total, free) = (total.0 / 1024, free.0 / 1024);
            let used = total.saturating_sub(free);
            tree.put(
                &at("meminfo"),
                format!("Node {id} MemTotal:  {total:>13} kB\nNode {id} MemFree:   {free:>13} kB\nNode {id} MemUsed:   {used:>13} kB\n"),
            )?;
        }
    }
    Ok(())
}

fn cgroup(tree: &Tree, group: &Cgroup) -> io::Result<()> {
    let at = |name: &str| format!("sys/fs/cgroup{}/{name}", group.path);
    let usage = group.cpu_used.copied().map_or(0, |used| used.0 / 1000);
    let (periods, throttled) = (group.periods.copied().unwrap_or(0), group.throttled_periods.copied().unwrap_or(0));
    tree.put(
        &at("cpu.stat"),
        format!(
            "usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\nnr_periods {periods}\nnr_throttled {throttled}\n\
             throttled_usec 0\nnr_bursts 0\nburst_usec 0\n"
        ),
    )?;
    tree.line(&at("memory.current"), group.mem_used.copied().map_or(0, |used| used.0))?;
    tree.line(&at("memory.max"), group.mem_limit.get().map_or("max".into(), |limit| limit.0.to_string()))?;
    tree.put(
        &at("memory.stat"),
        format!(
            "anon 0\nfile 0\nworkingset_refault_anon 0\nworkingset_refault_file {}\n",
            group.refaults.copied().unwrap_or(0)
        ),
    )?;
    let kills = group.oom_kills.copied().unwrap_or(0);
    tree.put(&at("memory.events"), format!("low 0\nhigh 0\nmax 0\noom {kills}\noom_kill {kills}\noom_group_kill 0\n"))?;
    let mut io = String::new();
    for device in group.io.get().into_iter().flatten() {
        let (major, minor) = device.dev;
        let _ = writeln!(
            io,
            "{major}:{minor} rbytes={} wbytes={} rios={} wios={} dbytes=0 dios=0",
            device.read.0,
            device.written.0,
            device.read.0 / 131_072,
            device.written.0 / 131_072
        );
    }
    tree.put(&at("io.stat"), io)
}

fn pressures(tree: &Tree, before: &str, after: &str, pressures: &Pressures) -> io::Result<()> {
    for (name, reading) in [("cpu", &pressures.cpu), ("io", &pressures.io), ("memory", &pressures.memory)] {
        if let Some(pressure) = reading.get() {
            tree.put(&format!("{before}{name}{after}"), lines(pressure))?;
        }
    }
    Ok(())
}

fn lines(pressure: &Pressure) -> String {
    let mut text = line("some", &pressure.some);
    if let Some(full) = pressure.full.get() {
        text += &line("full", full);
    }
    text
}

/// `some avg10=1.53 avg60=0.87 avg300=0.73 total=1088168194`.
fn line(name: &str, stall: &Stall) -> String {
    let percent = |share: Ppb| {
        let hundredths = share.0 / 100_000;
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    };
    let (avg10, avg60, avg300) = (percent(stall.avg10), percent(stall.avg60), percent(stall.avg300));
    format!("{name} avg10={avg10} avg60={avg60} avg300={avg300} total={}\n", stall.total.0 / 1000)
}
