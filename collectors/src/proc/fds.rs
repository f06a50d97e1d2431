//! What a process has open. Links are only read, never followed: `stat` on a file of a dead NFS server does not
//! come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::mountinfo::{self, Line};
use crate::{Host, Missing, Reading, tree};

/// Open files of one process that are looked at.
const MAX_FDS: usize = 4096;
/// Different things behind them that are kept.
const MAX_OPENS: usize = 256;

/// The targets of a process's descriptors, as the links say.
///
/// # Errors
/// `Denied` for another user's process, `Unsupported` for one that is gone.
pub fn targets(host: &Host, pid: u32) -> Result<Vec<String>, Missing> {
    let dir = host.proc.join(pid.to_string()).join("fd");
    let names = tree::names(&dir).map_err(|error| error.missing)?;
    let links = names.iter().take(MAX_FDS);
    Ok(links
        .filter_map(|name| tree::link(&dir.join(name)).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect())
}

/// Inodes of the sockets among the targets.
pub fn sockets(targets: &[String]) -> impl Iterator<Item = u64> {
    targets.iter().filter_map(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
}

/// What is needed to tell what a path lies on. Lives for one collection.
pub struct Places<'a> {
    host: &'a Host,
    /// Names of block devices; none where sysfs does not list them.
    block: Option<BTreeSet<String>>,
    /// The node's mounts.
    node: Vec<Line>,
    /// Mounts by mount namespace: the workers of one container share it.
    seen: BTreeMap<String, Vec<Line>>,
}

impl<'a> Places<'a> {
    /// Reads the node's own mounts and devices.
    #[must_use]
    pub fn new(host: &'a Host) -> Self {
        let block = tree::names(&host.sys.join("class/block")).ok();
        Self {
            host,
            block: block.map(|names| names.into_iter().collect()),
            node: mountinfo::of_node(host).unwrap_or_default(),
            seen: BTreeMap::new(),
        }
    }

    /// Block devices and mount points behind the targets, sorted. Pseudo files, sockets and other device nodes
    /// are left out.
    #[must_use]
    pub fn behind(&mut self, pid: u32, targets: &[String]) -> Vec<String> {
        let mut opens = BTreeSet::new();
        for target in targets {
            if opens.len() == MAX_OPENS {
                break;
            }
            if let Some(name) = target.strip_prefix("/dev/") {
                if self.is_block(name) {
                    opens.insert(target.clone());
                }
            } else if target.starts_with('/') {
                opens.extend(self.mount(pid, target));
            }
        }
        opens.into_iter().collect()
    }

    fn is_block(&self, name: &str) -> bool {
        const PREFIXES: &[&str] = &["md", "nvme", "sd", "vd", "xvd", "dm-", "loop"];
        if name.starts_with("mapper/") {
            return name != "mapper/control";
        }
        match &self.block {
            Some(names) => names.contains(&name.replace('/', "!")),
            None => PREFIXES.iter().any(|prefix| name.starts_with(prefix)),
        }
    }

    /// The mount point in the node's namespace when the node has the same file system mounted, since devices and
    /// mounts are told from there; else the process's own.
    fn mount(&mut self, pid: u32, path: &str) -> Option<String> {
        let dir = self.host.proc.join(pid.to_string());
        let namespace = tree::link(&dir.join("ns/mnt"))
            .map_or_else(|_| pid.to_string(), |link| link.to_string_lossy().into_owned());
        let lines = self.seen.entry(namespace).or_insert_with(|| read(&dir));
        let own = if lines.is_empty() { &self.node } else { &*lines };
        let line = mountinfo::holding(own, path)?;
        if !line.on_block_device() && !line.on_network() {
            return None;
        }
        let mut same = self.node.iter().filter(|node| node.mount.dev == line.mount.dev);
        let exact = same.clone().find(|node| node.mount.point == line.mount.point);
        let whole = same.clone().find(|node| node.root == "/");
        let node = exact.or(whole).or_else(|| same.next()).unwrap_or(line);
        Some(node.mount.point.clone())
    }
}

fn read(dir: &Path) -> Vec<Line> {
    tree::text(&dir.join("mountinfo")).map(|text| mountinfo::parse(&text)).unwrap_or_default()
}

/// Whether one of the targets is an RDMA device: verbs, or Slingshot's own.
#[must_use]
pub fn rdma(targets: &[String]) -> bool {
    targets.iter().any(|target| target.starts_with("/dev/infiniband/uverbs") || target.starts_with("/dev/cxi"))
}

/// TCP sockets by network namespace. Lives for one collection.
pub struct Listeners<'a> {
    host: &'a Host,
    seen: BTreeMap<String, Reading<Table>>,
}

/// The sockets of a network namespace, by inode.
#[derive(Debug, Default)]
pub struct Table {
    /// Ports of those that listen.
    pub listening: BTreeMap<u64, u16>,
    /// Those that are connected with another host, on a port of 1024 or above.
    pub remote: BTreeSet<u64>,
}

impl<'a> Listeners<'a> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(host: &'a Host) -> Self {
        Self { host, seen: BTreeMap::new() }
    }

    /// Ports of the process's listening sockets, sorted; `who` is a pid or `self`.
    #[must_use]
    pub fn of(&mut self, who: &str, targets: &[String]) -> Reading<Vec<u16>> {
        let mut sockets = sockets(targets).peekable();
        if sockets.peek().is_none() {
            return Reading::Value(Vec::new());
        }
        self.table(who).as_ref().map(|table| {
            let ports: BTreeSet<u16> = sockets.filter_map(|inode| table.listening.get(&inode).copied()).collect();
            ports.into_iter().collect()
        })
    }

    /// How many of the process's sockets are connected with another host.
    #[must_use]
    pub fn remote(&mut self, who: &str, targets: &[String]) -> Reading<u32> {
        let mut sockets = sockets(targets).peekable();
        if sockets.peek().is_none() {
            return Reading::Value(0);
        }
        self.table(who).as_ref().map(|table| {
            let count = sockets.filter(|inode| table.remote.contains(inode)).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        })
    }

    /// The namespace's sockets.
    pub fn table(&mut self, who: &str) -> &Reading<Table> {
        let dir = self.host.proc.join(who);
        let namespace =
            tree::link(&dir.join("ns/net")).map_or_else(|_| who.to_owned(), |link| link.to_string_lossy().into_owned());
        self.seen.entry(namespace).or_insert_with(|| table(&dir.join("net")))
    }
}

/// IPv4 and IPv6 together; a kernel without one of them has no such file.
fn table(net: &Path) -> Reading<Table> {
    let four = tree::text(&net.join("tcp"));
    let six = tree::text(&net.join("tcp6"));
    match (four, six) {
        (Err(error), Err(_)) => Reading::Missing(error.missing),
        (four, six) => {
            let texts: Vec<String> = [four, six].into_iter().flatten().collect();
            Reading::Value(Table {
                listening: texts.iter().flat_map(|text| super::text::listening(text)).collect(),
                remote: super::text::remote(texts.iter().map(String::as_str)),
            })
        }
    }
}
