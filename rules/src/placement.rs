//! Which socket things are on: GPUs, drives, and the CPUs on which processes may run and ran.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::CpuList;
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::host::Process;
use gpuprod_snapshot::storage::{Block, Md};
use gpuprod_snapshot::topology::{Numa, Pci, PciAddress};

use crate::join;

/// Nodes of one socket are this near: 10 to itself, 11 or 12 within it, 20 and
/// more across (`topology` of the ACPI tables that vendors ship).
const NEAR: u32 = 15;

/// The nodes that have CPUs, and their sockets. A node without CPUs is memory of a device and no place to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    nodes: BTreeMap<u32, Home>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Home {
    cpus: CpuList,
    package: Option<u32>,
    near: BTreeSet<u32>,
}

impl Sockets {
    /// Of the node as it was read.
    #[must_use]
    pub fn of(numa: &Numa) -> Self {
        // A row of distances is in the order of the online nodes.
        let ids: Vec<u32> = numa.nodes.iter().map(|node| node.id).collect();
        let home = |node: &gpuprod_snapshot::topology::NumaNode| {
            let cpus = CpuList::parse(node.cpulist.get()?).filter(|cpus| !cpus.is_empty())?;
            let row = node.distances.get().filter(|row| row.len() == ids.len()).map(Vec::as_slice).unwrap_or_default();
            let near = ids.iter().zip(row).filter(|(_, far)| **far <= NEAR).map(|(id, _)| *id).collect();
            Some((node.id, Home { cpus, package: node.package.copied(), near }))
        };
        Self { nodes: numa.nodes.iter().filter_map(home).collect() }
    }

    /// Whether the two nodes are on one socket; nothing where one of them has no CPUs or is not known.
    #[must_use]
    pub fn same(&self, one: u32, other: u32) -> Option<bool> {
        let (home, away) = (self.nodes.get(&one)?, self.nodes.get(&other)?);
        Some(match (home.package, away.package) {
            _ if one == other => true,
            (Some(one), Some(other)) if one != other => false,
            // QEMU puts virtual nodes that are far apart into one socket: there the distance tells.
            (Some(_), Some(_)) => home.near.is_empty() || home.near.contains(&other),
            _ => home.near.contains(&other),
        })
    }

    /// Whether there are two sockets to choose from.
    #[must_use]
    pub fn several(&self) -> bool {
        self.nodes
            .keys()
            .next()
            .is_some_and(|first| self.nodes.keys().any(|node| self.same(*first, *node) == Some(false)))
    }

    /// The nodes on which these CPUs are.
    #[must_use]
    pub fn nodes_of(&self, cpus: &CpuList) -> Vec<u32> {
        self.nodes.iter().filter(|(_, home)| home.cpus.meets(cpus)).map(|(id, _)| *id).collect()
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, home)| home.cpus.contains(cpu)).map(|(id, _)| *id)
    }

    /// Whether none of the nodes is on the socket of `home`; nothing where one cannot be told.
    #[must_use]
    pub fn all_away(&self, nodes: &[u32], home: u32) -> Option<bool> {
        let same: Option<Vec<bool>> = nodes.iter().map(|node| self.same(*node, home)).collect();
        same.filter(|same| !same.is_empty()).map(|same| !same.contains(&true))
    }
}

/// The node of a GPU: where firmware says that it, or a bridge above it, is.
#[must_use]
pub fn gpu_node(gpu: &Gpu, pci: &Pci) -> Option<u32> {
    let address = gpu.pci.copied()?;
    pci.devices.iter().find(|device| device.address.same_slot(address))?.near_node()
}

/// The drives below everything that these processes have open, with their nodes. Nothing when none of the processes
/// let its open files be seen.
#[must_use]
pub fn storage(
    processes: &[&Process],
    block: Option<&Block>,
    md: Option<&Md>,
    pci: Option<&Pci>,
) -> Option<Vec<(String, Option<u32>)>> {
    let block = block?;
    processes.iter().any(|process| process.opens.get().is_some()).then_some(())?;
    let by_pid: BTreeMap<u32, &Process> = processes.iter().map(|process| (process.pid, *process)).collect();
    let path = join::storage_of(&by_pid.keys().copied().collect(), &by_pid, (block, &join::by_name(block)), md);
    let node = |address: PciAddress| pci?.devices.iter().find(|device| device.address == address)?.near_node();
    let place = |name: &String| block.devices.iter().find(|device| device.name == *name)?.pci.copied().and_then(node);
    Some(path.disks.iter().map(|name| (name.clone(), place(name))).collect())
}
