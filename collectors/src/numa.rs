//! NUMA nodes: their CPUs, distances and memory.

use gpuprod_snapshot::CpuList;
use gpuprod_snapshot::topology::{Numa, NumaNode};
use gpuprod_snapshot::units::Bytes;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// Reads `devices/system/node`.
pub struct Nodes;

impl Collector for Nodes {
    fn source(&self) -> Source {
        Source::Numa
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let list = host.sys.join("devices/system/node");
        // Numbers have holes: POWER9 has 0, 8 and 250 to 255.
        let mut ids: Vec<u32> =
            tree::names(&list)?.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        ids.sort_unstable();
        let node = |id: u32| {
            let dir = list.join(format!("node{id}"));
            let file = |name: &str| tree::text(&dir.join(name));
            let meminfo = file("meminfo");
            let cpulist = read(file("cpulist"), |text| Some(text.trim().to_owned()));
            NumaNode {
                id,
                package: package(host, cpulist.get()),
                // Empty is a value here: a node without CPUs.
                cpulist,
                distances: read(file("distance"), distances),
                mem_total: read(meminfo.as_deref(), |text| memory(text, "MemTotal:")),
                mem_free: read(meminfo.as_deref(), |text| memory(text, "MemFree:")),
            }
        };
        Ok(Part::Numa(Numa { nodes: ids.into_iter().map(node).collect() }))
    }
}

/// The socket of a node's CPUs: that of the first of them.
fn package(host: &Host, cpus: Option<&String>) -> Reading<u32> {
    let first = cpus.and_then(|cpus| CpuList::parse(cpus)?.first());
    let Some(cpu) = first else { return Reading::Missing(Missing::Unsupported) };
    let file = host.sys.join(format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"));
    // -1 where firmware does not say.
    match tree::text(&file) {
        Ok(text) if text.trim() == "-1" => Reading::Missing(Missing::Unsupported),
        other => read(other, |text| text.trim().parse().ok()),
    }
}

fn read<T, S: AsRef<str>, E: std::borrow::Borrow<CollectError>>(
    text: Result<S, E>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Reading<T> {
    match text {
        Ok(text) => Reading::from_option(parse(text.as_ref()), Missing::Malformed),
        Err(error) => Reading::Missing(error.borrow().missing),
    }
}

fn distances(text: &str) -> Option<Vec<u32>> {
    let row: Option<Vec<u32>> = text.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
    row.filter(|row| !row.is_empty())
}

/// A line of a node's meminfo: `Node 0 MemTotal:  8743124 kB`.
fn memory(text: &str, key: &str) -> Option<Bytes> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        words.find(|word| *word == key)?;
        let kib: u64 = words.next()?.parse().ok()?;
        (words.next() == Some("kB")).then_some(())?;
        kib.checked_mul(1024).map(Bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_kib_under_its_key() {
        let text = "Node 0 MemTotal:        8743124 kB\nNode 0 MemFree:         3427580 kB\n";
        assert_eq!(memory(text, "MemTotal:"), Some(Bytes(8_743_124 * 1024)));
        assert_eq!(memory(text, "MemFree:"), Some(Bytes(3_427_580 * 1024)));
        assert_eq!(memory(text, "MemUsed:"), None);
        assert_eq!(memory("Node 0 MemTotal: 12 pages", "MemTotal:"), None);
        assert_eq!(memory(&format!("Node 0 MemTotal: {} kB", u64::MAX), "MemTotal:"), None);
    }

    #[test]
    fn a_row_of_distances_is_whole_or_nothing() {
        assert_eq!(distances("10 40 80\n"), Some(vec![10, 40, 80]));
        assert_eq!(distances("10 x 80\n"), None);
        assert_eq!(distances("\n"), None);
    }
}
