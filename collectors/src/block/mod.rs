//! Block devices and what stands on them: counters, the chain disk -> partition -> md/dm, the PCI address of the
//! disk, the mounts.
//!
//! A tick costs one read of `/proc/diskstats` and one listing per device; what hardly changes (parent, PCI
//! address, queue) is kept while the list of devices stays the same, and looked up again now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpuprod_snapshot::storage::{Block, BlockDevice, IoCounters, Mount};
use gpuprod_snapshot::topology::PciAddress;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, mountinfo, tree};

pub mod diskstats;
#[cfg(test)]
mod tests;

/// Mounts beyond this are left out.
const MAX_MOUNTS: usize = 512;
/// After so many ticks the static attributes are read again although the list of devices is the same: an
/// operator may have changed the queue, a device may have been swapped for one of the same name.
const REFRESH: u32 = 60;

/// The devices.
#[derive(Default)]
pub struct Devices {
    /// The list of devices that `fixed` belongs to.
    listed: Vec<((u32, u32), String)>,
    fixed: BTreeMap<String, Fixed>,
    age: u32,
}

/// What does not change while a device is there.
#[derive(Clone)]
struct Fixed {
    dir: Option<PathBuf>,
    partition_of: Option<String>,
    pci: Reading<PciAddress>,
    rotational: Reading<bool>,
    nr_requests: Reading<u32>,
}

impl Collector for Devices {
    fn source(&self) -> Source {
        Source::Block
    }

    fn collect(&mut self, host: &Host, focus: &Focus) -> Result<Part, CollectError> {
        let mut lines = diskstats::parse(&tree::text(&host.proc.join("diskstats"))?);
        let names = tree::names(&host.sys.join("class/block")).unwrap_or_default();
        lines.extend(hidden(host, &names, &lines));
        self.keep(host, &lines);
        let mut devices: Vec<BlockDevice> = lines.into_iter().map(|line| self.device(line, &names)).collect();
        let wanted = wanted(&devices, |name| self.held(name), focus);
        devices.retain(|device| wanted.contains(&device.name));
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Part::Block(Block { devices, mounts: mounts(host) }))
    }
}

impl Devices {
    /// Forgets what is kept when the devices changed.
    fn keep(&mut self, host: &Host, lines: &[diskstats::Line]) {
        let listed: Vec<_> = lines.iter().map(|line| (line.dev, line.name.clone())).collect();
        self.age += 1;
        if listed == self.listed && self.age < REFRESH {
            return;
        }
        self.age = 0;
        self.fixed = lines.iter().map(|line| (line.name.clone(), fixed(host, &line.name))).collect();
        self.listed = listed;
    }

    fn device(&self, line: diskstats::Line, names: &[String]) -> BlockDevice {
        let fixed = self.fixed.get(&line.name);
        let dir = fixed.and_then(|fixed| fixed.dir.as_deref());
        let mut slaves: Vec<String> = list(dir, "slaves");
        slaves.extend(paths(&line.name, names));
        BlockDevice {
            partition_of: fixed.and_then(|fixed| fixed.partition_of.clone()),
            pci: fixed.map_or(Reading::Missing(Missing::Gone), |fixed| fixed.pci),
            rotational: fixed.map_or(Reading::Missing(Missing::Gone), |f| f.rotational),
            nr_requests: fixed.map_or(Reading::Missing(Missing::Gone), |f| f.nr_requests),
            slaves,
            dev: line.dev,
            io: line.io,
            name: line.name,
        }
    }

    fn held(&self, name: &str) -> bool {
        let dir = self.fixed.get(name).and_then(|fixed| fixed.dir.as_deref());
        !list(dir, "holders").is_empty()
    }
}

/// Those that did I/O, are made of others, are part of others, or matter now; and the disks of all these.
fn wanted(devices: &[BlockDevice], held: impl Fn(&str) -> bool, focus: &Focus) -> BTreeSet<String> {
    let matters = |device: &&BlockDevice| {
        device.io.get().is_none_or(did_io)
            || !device.slaves.is_empty()
            || focus.devices.contains(&device.name)
            || held(&device.name)
    };
    let mut wanted = BTreeSet::new();
    for device in devices.iter().filter(matters) {
        wanted.insert(device.name.clone());
        wanted.extend(device.partition_of.clone());
        wanted.extend(device.slaves.iter().cloned());
    }
    wanted
}

fn did_io(io: &IoCounters) -> bool {
    let discards = io.discards.copied().unwrap_or(0);
    io.reads > 0 || io.writes > 0 || discards > 0 || io.in_flight > 0
}

/// sysfs writes `!` where a name has a slash (`cciss/c0d0`).
fn dir(host: &Host, name: &str) -> Option<PathBuf> {
    let name = name.replace('/', "!");
    let sane = !name.is_empty() && name != "." && name != "..";
    [host.sys.join("class/block"), host.sys.join("block")]
        .into_iter()
        .map(|base| base.join(&name))
        .find(|dir| sane && tree::exists(dir))
        .and_then(|dir| tree::real(&dir).ok())
}

fn fixed(host: &Host, name: &str) -> Fixed {
    let Some(dir) = dir(host, name) else {
        return Fixed {
            dir: None,
            partition_of: None,
            pci: Reading::Missing(Missing::Unsupported),
            rotational: Reading::Missing(Missing::Unsupported),
            nr_requests: Reading::Missing(Missing::Unsupported),
        };
    };
    let parent = tree::exists(&dir.join("partition")).then(|| dir.parent()).flatten();
    let disk = parent.unwrap_or(&dir);
    let flag: Reading<u32> = tree::value(&disk.join("queue/rotational"));
    Fixed {
        partition_of: parent.and_then(|disk| disk.file_name()?.to_str()).map(|name| name.replace('!', "/")),
        pci: Reading::from_option(pci(&dir), Missing::Unsupported),
        rotational: flag.map(|flag| flag != 0),
        nr_requests: tree::value(&disk.join("queue/nr_requests")),
        dir: Some(dir),
    }
}

/// The last PCI address on the way from the root bus to the disk: its controller.
fn pci(dir: &Path) -> Option<PciAddress> {
    let last = |path: &Path| {
        path.components()
            .filter_map(|part| part.as_os_str().to_str())
            .filter(|part| part.contains('.'))
            .filter_map(PciAddress::parse)
            .next_back()
    };
    last(dir).or_else(|| last(&tree::real(&dir.join("device")).ok()?))
}

fn list(dir: Option<&Path>, what: &str) -> Vec<String> {
    let names = dir.and_then(|dir| tree::names(&dir.join(what)).ok());
    names.unwrap_or_default().into_iter().map(|name| name.replace('!', "/")).collect()
}

/// The paths of a multipath namespace: `nvme0n1` has `nvme0c0n1`, `nvme0c1n1` …, hidden disks without a node.
/// The kernel has no `slaves` folder for them.
fn paths<'a>(name: &str, names: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let head = name.to_owned();
    names.iter().filter(move |path| head_of(path).is_some_and(|of| of == head)).cloned()
}

/// The namespace that a hidden path belongs to.
fn head_of(path: &str) -> Option<String> {
    let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (number(subsystem) && number(controller) && number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// Hidden paths that diskstats leaves out, by their own `stat` file.
fn hidden(host: &Host, names: &[String], lines: &[diskstats::Line]) -> Vec<diskstats::Line> {
    let unlisted = |name: &&String| head_of(name).is_some() && !lines.iter().any(|line| line.name == **name);
    names
        .iter()
        .filter(unlisted)
        .map(|name| {
            let dir = host.sys.join("class/block").join(name);
            let dev = tree::word(&dir.join("dev"));
            let io = match tree::text(&dir.join("stat")) {
                Ok(text) => {
                    let counters = diskstats::counters(text.split_whitespace());
                    Reading::from_option(counters, Missing::Malformed)
                }
                Err(error) => Reading::Missing(error.missing),
            };
            diskstats::Line {
                dev: dev.get().and_then(|text| mountinfo::dev(text)).unwrap_or_default(),
                name: name.clone(),
                io,
            }
        })
        .collect()
}

/// Those on block devices. A list that cannot be read is empty: the devices stand without it.
fn mounts(host: &Host) -> Vec<Mount> {
    mountinfo::of_node(host)
        .unwrap_or_default()
        .into_iter()
        .filter(mountinfo::Line::on_block_device)
        .map(|line| line.mount)
        .take(MAX_MOUNTS)
        .collect()
}
