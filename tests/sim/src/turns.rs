//! Engines with one port take turns: one is started in the place of another, on other GPUs.

use crate::scenario::Scenario;
use crate::world::{Job, World};

impl World<'_> {
    /// The workload that drives a GPU.
    pub(crate) fn owner(&self, gpu: usize) -> Option<usize> {
        owner(self.scenario, &self.jobs, gpu)
    }

    /// Whether the page at a workload's port is its own.
    pub(crate) fn has_page(&self, at: usize) -> bool {
        turn(self.scenario, &self.jobs, at) == at
    }
}

/// The first workload that has the GPU; of those with one port that whose turn it is.
pub(crate) fn owner(scenario: &Scenario, jobs: &[Job], gpu: usize) -> Option<usize> {
    let has = |at: usize| scenario.works.get(at).is_some_and(|work| work.gpus.contains(&gpu));
    let first = (0..scenario.works.len()).find(|at| has(*at))?;
    let now = turn(scenario, jobs, first);
    Some(if has(now) { now } else { first })
}

/// Of the workloads at one port the one that is up, else the first.
fn turn(scenario: &Scenario, jobs: &[Job], at: usize) -> usize {
    let port_of = |at: usize| scenario.works.get(at).and_then(|work| work.port);
    let Some(port) = port_of(at) else { return at };
    let mut same = (0..scenario.works.len()).filter(|other| port_of(*other) == Some(port));
    let up = same.clone().find(|other| jobs.get(*other).is_some_and(|job| job.pace.up));
    up.or_else(|| same.next()).unwrap_or(at)
}
