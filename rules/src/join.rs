//! Who belongs to whom: GPU to processes, processes to engine, processes to arrays and disks. Pure functions
//! of the last samples, so that no collector needs to know another.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::host::Process;
use gpuprod_snapshot::local_port;
use gpuprod_snapshot::storage::{Block, BlockDevice, Md, MdArray, MdMember};

/// Block devices below what the processes have open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoragePath {
    /// Arrays, by name.
    pub(crate) arrays: BTreeSet<String>,
    /// Disks at the bottom, by name.
    pub(crate) disks: BTreeSet<String>,
}

/// The processes by pid.
pub(crate) fn by_pid(processes: &[Process]) -> BTreeMap<u32, &Process> {
    processes.iter().map(|process| (process.pid, process)).collect()
}

/// A process and its ancestors, as far as they were read.
fn line(pid: u32, processes: &BTreeMap<u32, &Process>) -> Vec<u32> {
    let mut line = Vec::new();
    let mut next = Some(pid);
    while let Some(pid) = next {
        if line.contains(&pid) {
            break;
        }
        line.push(pid);
        next = processes.get(&pid).and_then(|process| process.ppid.copied()).filter(|parent| *parent > 1);
    }
    line
}

/// The line of every process that was read: looked up once for all GPUs.
pub(crate) fn lines(processes: &BTreeMap<u32, &Process>) -> Vec<Vec<u32>> {
    processes.keys().map(|pid| line(*pid, processes)).collect()
}

/// The processes of a workload: the GPU's own, and those of the same line of descent. A line begins with its process.
pub(crate) fn family(pids: &[u32], lines: &[Vec<u32>]) -> BTreeSet<u32> {
    let mut family: BTreeSet<u32> = pids.iter().copied().collect();
    for line in lines {
        if line.first().is_some_and(|pid| pids.contains(pid)) {
            family.extend(line);
        } else if line.iter().any(|ancestor| pids.contains(ancestor)) {
            family.extend(line.first());
        }
    }
    family
}

/// The engine (or the training job) whose port one of the processes, or of their cgroup, listens on; failing that the only
/// one of a node on which all GPUs are held by one family.
pub(crate) fn engine_of<'a>(
    family: &BTreeSet<u32>,
    processes: &BTreeMap<u32, &Process>,
    engines: &'a [Engine],
    trains: bool,
    sole_family: bool,
) -> Option<&'a Engine> {
    let wanted = || engines.iter().filter(|engine| engine.trains() == trains);
    wanted().next()?;
    let cgroups: BTreeSet<&str> = family
        .iter()
        .filter_map(|pid| processes.get(pid)?.cgroup.get())
        .map(String::as_str)
        .filter(|path| *path != "/")
        .collect();
    let own = |pid: u32| family.contains(&pid);
    let near = |process: &Process| process.cgroup.get().is_some_and(|path| cgroups.contains(path.as_str()));
    let listens = |engine: &Engine, is: &dyn Fn(&Process) -> bool| {
        let port = local_port(&engine.url);
        let of = |process: &&Process| process.listens.get().is_some_and(|ports| ports.iter().any(|p| Some(*p) == port));
        port.is_some() && processes.values().any(|process| of(process) && is(process))
    };
    let linked = if trains {
        // Several jobs of one person's session are in one cgroup: each has its own page, and no rank a stranger's.
        let mut beside = wanted().filter(|engine| listens(engine, &near));
        let only = beside.next().filter(|_| beside.next().is_none());
        wanted().find(|engine| listens(engine, &|process| own(process.pid))).or(only)
    } else {
        wanted().find(|engine| listens(engine, &|process| own(process.pid) || near(process)))
    };
    linked.or_else(|| match engines {
        [only] if sole_family && only.trains() == trains && local_port(&only.url).is_some() => Some(only),
        _ => None,
    })
}

/// What is below everything that these processes have open.
pub(crate) fn storage_of(
    family: &BTreeSet<u32>,
    processes: &BTreeMap<u32, &Process>,
    (block, devices): (&Block, &Devices<'_>),
    md: Option<&Md>,
) -> StoragePath {
    let mut path = StoragePath::default();
    let opens = family.iter().filter_map(|pid| processes.get(pid)?.opens.get()).flatten();
    for opened in opens {
        if let Some(name) = device_behind(opened, block) {
            descend(name, devices, md, &mut path, 0);
        }
    }
    path
}

/// A device node is its own device; anything else is a mount point.
fn device_behind<'a>(opened: &'a str, block: &'a Block) -> Option<&'a str> {
    if let Some(name) = opened.strip_prefix("/dev/") {
        return Some(name);
    }
    let mount = block.mounts.iter().rev().find(|mount| mount.point == opened)?;
    let by_number = block.devices.iter().find(|device| device.dev == mount.dev).map(|device| device.name.as_str());
    by_number.or_else(|| mount.source.strip_prefix("/dev/"))
}

fn descend(name: &str, devices: &Devices<'_>, md: Option<&Md>, path: &mut StoragePath, depth: u32) {
    // Stacks of block devices are shallow; a loop in a hostile tree must not be followed.
    if depth > 8 {
        return;
    }
    let device = devices.get(name);
    if let Some(disk) = device.and_then(|device| device.partition_of.as_deref()) {
        return descend(disk, devices, md, path, depth + 1);
    }
    let array = md.and_then(|md| md.arrays.iter().find(|array| array.name == name));
    let below: Vec<&str> = match (array, device) {
        (Some(array), _) => {
            path.arrays.insert(name.into());
            array.members.iter().map(|member| member.name.as_str()).collect()
        }
        (None, Some(device)) => device.slaves.iter().map(String::as_str).collect(),
        (None, None) => Vec::new(),
    };
    if below.is_empty() {
        if device.is_some() {
            path.disks.insert(name.into());
        }
        return;
    }
    for name in below {
        descend(name, devices, md, path, depth + 1);
    }
}

/// The disks at the bottom of an array.
pub(crate) fn disks_of(array: &MdArray, devices: &Devices<'_>, md: &Md) -> BTreeSet<String> {
    let mut path = StoragePath::default();
    descend(&array.name, devices, Some(md), &mut path, 0);
    path.disks
}

/// Every array, and the disks at its bottom; without a reading of the block devices nothing is known to be there.
pub(crate) fn arrays<'a>(devices: Option<&Devices<'_>>, md: Option<&'a Md>) -> Vec<(&'a MdArray, BTreeSet<String>)> {
    let below = |array: &MdArray, md: &Md| devices.map_or_else(BTreeSet::new, |all| disks_of(array, all, md));
    md.into_iter().flat_map(|md| md.arrays.iter().map(move |array| (array, below(array, md)))).collect()
}

/// The disks below those members of an array that count.
pub(crate) fn disks_below(
    array: &MdArray,
    counts: fn(&MdMember) -> bool,
    devices: &Devices<'_>,
    md: &Md,
) -> BTreeSet<String> {
    let mut path = StoragePath::default();
    for member in array.members.iter().filter(|member| counts(member)) {
        descend(&member.name, devices, Some(md), &mut path, 1);
    }
    path.disks
}

/// Block devices by name: looked up once for all workloads and arrays.
pub(crate) type Devices<'a> = BTreeMap<&'a str, &'a BlockDevice>;

/// The devices by name.
pub(crate) fn by_name(block: &Block) -> Devices<'_> {
    block.devices.iter().map(|device| (device.name.as_str(), device)).collect()
}
