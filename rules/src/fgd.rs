//! Fragmentation of GPUs as FGD measures it (Weng et al., USENIX ATC 2023): the share of idle GPU that the typical
//! tasks cannot use, each task type weighted by how often it comes.
//!
//! `F_n(M) = sum over m of p_m x (idle GPU on n that a task of type m cannot use)`. Integers only: a task type's
//! weight is its count, so that the sum is exact and the division is the caller's.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What a task asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    /// Thousandths of each GPU; 1,000 for whole ones, 0 for a task without a GPU.
    pub gpu_milli: u64,
    /// GPUs.
    pub gpus: u64,
    /// Models that it accepts; none: any.
    pub models: Vec<String>,
}

/// What is free on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    /// Thousandths of each GPU.
    pub gpus: Vec<u64>,
    /// What kind of GPU.
    pub model: String,
}

/// A task type and how often it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typical {
    /// What it asks for.
    pub shape: Shape,
    /// How many tasks asked for exactly that.
    pub count: u64,
}

/// The most frequent shapes, until they make up the given part of all tasks (in thousandths; FGD takes 950). Of
/// equals the one that came first.
#[must_use]
pub fn typical(tasks: impl Iterator<Item = Shape>, share_milli: u64) -> Vec<Typical> {
    let mut counts: BTreeMap<Shape, (u64, u64)> = BTreeMap::new();
    let mut all = 0_u64;
    for shape in tasks {
        counts.entry(shape).or_insert((all, 0)).1 += 1;
        all += 1;
    }
    let mut shapes: Vec<_> = counts.into_iter().collect();
    shapes.sort_by_key(|(_, (first, count))| (core::cmp::Reverse(*count), *first));
    let mut covered = 0_u64;
    let typical = shapes.into_iter().map(|(shape, (_, count))| Typical { shape, count });
    typical
        .take_while(|typical| {
            let needed = covered.saturating_mul(1000) < all.saturating_mul(share_milli);
            covered = covered.saturating_add(typical.count);
            needed
        })
        .collect()
}

/// Idle GPU (thousandths) that one task of the shape could not use.
#[must_use]
pub fn unusable(free: &Free, shape: &Shape) -> u64 {
    let idle: u64 = free.gpus.iter().sum();
    let refused = !shape.models.is_empty() && !shape.models.contains(&free.model);
    if shape.gpus == 0 || refused {
        return idle;
    }
    let fit = free.gpus.iter().filter(|gpu| **gpu >= shape.gpu_milli).count();
    if u64::try_from(fit).unwrap_or(u64::MAX) < shape.gpus || free.cpu_milli < shape.cpu_milli {
        return idle;
    }
    free.gpus.iter().filter(|gpu| **gpu < shape.gpu_milli).sum()
}

/// Fragmentation of a node in thousandths of a GPU: the weighted sum, and the sum of the weights that divides it.
#[must_use]
pub fn fragmentation(free: &Free, tasks: &[Typical]) -> (u128, u128) {
    tasks.iter().fold((0, 0), |(sum, weights), task| {
        let weight = u128::from(task.count);
        (sum + weight * u128::from(unusable(free, &task.shape)), weights + weight)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cpu_milli: u64, gpu_milli: u64, gpus: u64) -> Shape {
        Shape { cpu_milli, gpu_milli, gpus, models: Vec::new() }
    }

    /// The paper's cases: too few GPUs, too little CPU, no GPU asked for, a wrong model, slivers beside a fit.
    #[test]
    fn what_a_task_cannot_use() {
        let free = Free { cpu_milli: 8_000, gpus: alloc::vec![1_000, 400, 300], model: "G2".into() };
        assert_eq!(unusable(&free, &shape(4_000, 1_000, 1)), 700, "slivers are of no use to it");
        assert_eq!(unusable(&free, &shape(4_000, 1_000, 2)), 1_700, "there is one whole GPU");
        assert_eq!(unusable(&free, &shape(9_000, 300, 1)), 1_700, "CPUs are missing");
        assert_eq!(unusable(&free, &shape(1_000, 0, 0)), 1_700, "it takes none");
        assert_eq!(unusable(&free, &shape(1_000, 300, 3)), 0);
        let other = Shape { models: alloc::vec!["T4".into()], ..shape(1_000, 300, 1) };
        assert_eq!(unusable(&free, &other), 1_700);
    }

    #[test]
    fn typical_shapes_cover_their_share_and_no_more() {
        let tasks = [(1, 90), (2, 6), (3, 4)];
        let all = tasks.iter().flat_map(|(cpu, n)| (0..*n).map(|_| shape(*cpu, 1_000, 1)));
        let typical = typical(all, 950);
        assert_eq!(typical.iter().map(|typical| typical.count).collect::<Vec<_>>(), [90, 6]);
    }
}
