//! Whether jobs of the shapes that come find room: a node can have some of everything and room for nothing.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::residual::{Residual, Resource, Share};
use crate::policy::Shape;

/// Whether one shape finds room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The shape's name.
    pub shape: alloc::string::String,
    /// So many such jobs find room beside each other; none when that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// What there is least of, for this shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Resource>,
    /// So many as the GPUs' compute alone would admit.
    pub gpus: u32,
    /// A GPU would be free for it, and another resource keeps it out.
    pub stranded: bool,
    /// What it asks for and nobody can read here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Resource>,
}

/// Whether the whole shape needs whole GPUs.
const WHOLE: u32 = 1_000;
const MIB: f64 = 1_048_576.0;

/// What the shape needs of the node's shared resources, in their units.
fn needs(shape: &Shape) -> [(Resource, f64); 7] {
    let of = f64::from;
    [
        (Resource::Pcie, of(shape.pcie_mb_per_s) * 1e6),
        (Resource::StorageBandwidth, of(shape.storage_mb_per_s) * 1e6),
        (Resource::StorageIops, of(shape.storage_iops)),
        (Resource::IoCpu, of(shape.io_cpu_percent) / 100.0),
        (Resource::Cpu, of(shape.cpu_milli) / 1e3),
        (Resource::HostMemory, of(shape.memory_mib) * MIB),
        (Resource::Network, of(shape.network_mb_per_s) * 1e6),
    ]
}

/// Room for one shape. A drive gives at least what it was seen to give: as long as it answers as it normally does, it may
/// give more than anybody has asked of it, and keeps nobody out.
pub(crate) fn room(shape: &Shape, shares: &[Share], residual: &[Residual], saturated: bool) -> Room {
    let (gpus, with_memory) = on_gpus(shape, shares);
    let mut least = (with_memory, if with_memory < gpus { Resource::Hbm } else { Resource::Gpu });
    let mut unread = Vec::new();
    for (resource, need) in needs(shape).into_iter().filter(|(_, need)| *need > 0.0) {
        match residual.iter().find(|residual| residual.resource == resource) {
            Some(residual) => {
                // I/O CPU is a share of time and not used up by the first who asks.
                let free = residual.free.as_f64();
                let jobs = match resource {
                    Resource::IoCpu => {
                        if free >= need {
                            u32::MAX
                        } else {
                            0
                        }
                    }
                    _ => whole(free / need),
                };
                let learnt = matches!(resource, Resource::StorageBandwidth | Resource::StorageIops);
                if jobs == 0 && learnt && !saturated {
                    unread.push(resource);
                } else if jobs < least.0 {
                    least = (jobs, resource);
                }
            }
            None => unread.push(resource),
        }
    }
    // What is known to be missing decides, whatever else is not known.
    let jobs = (unread.is_empty() || least.0 == 0).then_some(least.0);
    Room {
        shape: shape.name.clone(),
        jobs,
        binding: jobs.map(|_| least.1),
        gpus,
        stranded: gpus > 0 && jobs == Some(0),
        unread,
    }
}

/// So many such jobs as the GPUs' compute alone admits, and as it admits with their memory.
fn on_gpus(shape: &Shape, shares: &[Share]) -> (u32, u32) {
    let memory = f64::from(shape.hbm_mib) * MIB;
    let fits = |free: Option<f64>| memory <= 0.0 || free.is_some_and(|free| free >= memory);
    if shape.gpu_milli >= WHOLE {
        let each = shape.gpu_milli.div_ceil(WHOLE);
        let free = shares.iter().filter(|share| share.unallocated);
        let roomy = free.clone().filter(|share| fits(share.memory_total));
        let jobs = |n: usize| u32::try_from(n).unwrap_or(u32::MAX) / each;
        return (jobs(free.count()), jobs(roomy.count()));
    }
    let need = f64::from(shape.gpu_milli.max(1)) / f64::from(WHOLE);
    let by_compute = |share: &Share| whole(share.idle / need);
    let by_memory = |share: &Share| match share.memory {
        _ if memory <= 0.0 => u32::MAX,
        Some(free) => whole(free / memory),
        None => 0,
    };
    shares.iter().fold((0, 0), |(compute, both), share| {
        let jobs = by_compute(share);
        (compute.saturating_add(jobs), both.saturating_add(jobs.min(by_memory(share))))
    })
}

fn whole(jobs: f64) -> u32 {
    let most = gpuprod_snapshot::units::from_f64((jobs.max(0.0) - 0.5).max(0.0)).unwrap_or(0);
    // `from_f64` rounds: half a job less makes it a floor, but for what is a whole number of jobs already.
    let up = most.saturating_add(1);
    let floor = if gpuprod_snapshot::units::to_f64(up) <= jobs + 1e-9 { up } else { most };
    u32::try_from(floor).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(idle: f64, hbm_gib: f64, storage_mb: f64, io_cpu: f64) -> (Vec<Share>, Vec<Residual>) {
        let memory = hbm_gib * 1_024.0 * MIB;
        let share = Share { idle, memory: Some(memory), unallocated: false, memory_total: Some(80.0 * 1_024.0 * MIB) };
        let residual = [
            Residual::new(Resource::StorageBandwidth, storage_mb * 1e6, 2e9),
            Residual::new(Resource::IoCpu, io_cpu, 1.0),
        ];
        (alloc::vec![share], residual.into_iter().flatten().collect())
    }

    /// The article's three nodes: A has GPU, storage bandwidth and I/O CPU, its memory is nearly full; B has GPU, memory
    /// and I/O CPU, its storage is saturated; C has memory and storage, little GPU, and its I/O CPU is saturated. A job
    /// that wants a little of each fits nowhere, although the three together have plenty of everything.
    #[test]
    fn three_nodes_with_some_of_everything_have_room_for_nothing() {
        let job = Shape {
            name: "a_little_of_each".into(),
            gpu_milli: 250,
            hbm_mib: 10 * 1_024,
            storage_mb_per_s: 300,
            io_cpu_percent: 25,
            ..Shape::default()
        };
        let nodes = [
            (node(0.70, 4.0, 1_500.0, 0.60), Resource::Hbm),
            (node(0.60, 40.0, 0.0, 0.70), Resource::StorageBandwidth),
            (node(0.30, 50.0, 1_200.0, 0.05), Resource::IoCpu),
        ];
        let (mut idle, mut memory, mut storage, mut io_cpu) = (0.0, 0.0, 0.0, 0.0);
        for ((shares, residual), binding) in &nodes {
            let room = room(&job, shares, residual, true);
            assert_eq!((room.jobs, room.binding, room.stranded), (Some(0), Some(*binding), true));
            idle += shares[0].idle;
            memory += shares[0].memory.unwrap();
            storage += residual[0].free.as_f64();
            io_cpu += residual[1].free.as_f64();
        }
        assert!(idle >= 0.25 && memory >= 10.0 * 1_024.0 * MIB && storage >= 300e6 && io_cpu >= 0.25);
        // Each of them has room once the one thing is there.
        for (shares, residual) in
            [node(0.70, 14.0, 1_500.0, 0.60), node(0.60, 40.0, 300.0, 0.70), node(0.30, 50.0, 1_200.0, 0.25)]
        {
            assert_eq!(room(&job, &shares, &residual, true).jobs, Some(1));
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_room_and_no_want() {
        let job = Shape { gpu_milli: 250, network_mb_per_s: 100, ..Shape::default() };
        let (shares, residual) = node(1.0, 80.0, 0.0, 1.0);
        let told = room(&job, &shares, &residual, true);
        assert_eq!((told.jobs, told.stranded, told.unread), (None, false, alloc::vec![Resource::Network]));
        // A drive that answers as always is no bottleneck, however little it was ever asked for.
        let (shares, mut residual) = node(1.0, 80.0, 0.0, 1.0);
        residual[0] = Residual::new(Resource::StorageBandwidth, 1e6, 1.5e6).unwrap();
        let reader = Shape { gpu_milli: 250, storage_mb_per_s: 100, ..Shape::default() };
        assert_eq!(room(&reader, &shares, &residual, false).jobs, None);
        let (shares, residual) = node(1.0, 80.0, 0.0, 1.0);
        let both = Shape { storage_mb_per_s: 100, ..job };
        let told = room(&both, &shares, &residual, true);
        assert_eq!((told.jobs, told.binding, told.stranded), (Some(0), Some(Resource::StorageBandwidth), true));
    }

    #[test]
    fn whole_gpus_have_to_be_free() {
        let job = Shape { gpu_milli: 2_000, ..Shape::default() };
        let share = |unallocated| Share { idle: 1.0, memory: None, unallocated, memory_total: None };
        let of = |free: &[bool]| room(&job, &free.iter().map(|free| share(*free)).collect::<Vec<_>>(), &[], true);
        assert_eq!((of(&[true, false, false]).jobs, of(&[true, false, false]).stranded), (Some(0), false));
        assert_eq!(of(&[true, true, true, true, true]).jobs, Some(2));
    }

    #[test]
    fn jobs_are_whole() {
        assert_eq!([0.0, 0.4, 0.999, 1.0, 1.5, 2.999, 3.0, 1e12].map(whole), [0, 0, 0, 1, 1, 2, 3, u32::MAX]);
    }
}
