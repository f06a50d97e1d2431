//! Who takes how much of a GPU that several workloads use in turns, by cgroup.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::attribution::Switch;
use crate::baseline::{Deviation, Track, Worse};

/// Workloads on one GPU that are told apart.
const MOST: usize = 8;

/// Of one unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sharing {
    shares: BTreeMap<String, Track>,
    open: Option<u64>,
}

/// One of those that share a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sharer {
    pub(crate) cgroup: String,
    /// Its share of the GPU's time in the last block.
    pub(crate) share: f64,
    pub(crate) deviation: Option<Deviation>,
    pub(crate) series: Vec<Option<f64>>,
    pub(crate) switch: Switch,
}

impl Sharing {
    /// Takes in a tick: who has a context, and the share of the time that each had. Nobody, where one has it alone.
    pub(crate) fn step(
        &mut self,
        open: Option<u64>,
        sharers: &[(String, f64)],
        well: bool,
        policy: &Policy,
    ) -> Vec<Sharer> {
        self.shares.retain(|cgroup, _| sharers.iter().any(|(other, _)| other == cgroup));
        if let Some(open) = open.filter(|open| self.open != Some(*open)) {
            self.open = Some(open);
            let begin = Nanos(open.saturating_sub(1).saturating_mul(policy.block_ns.0));
            self.shares.values_mut().for_each(|track| track.close(begin, well, policy));
        }
        for (cgroup, share) in sharers {
            if self.shares.len() < MOST && !self.shares.contains_key(cgroup) {
                self.shares.insert(cgroup.clone(), Track::new(Worse::Higher, 1.0));
            }
            if let Some(track) = self.shares.get_mut(cgroup) {
                track.add(*share, 1.0);
            }
        }
        let told = |(cgroup, track): (&String, &Track)| Sharer {
            cgroup: cgroup.clone(),
            share: track.latest().unwrap_or(0.0),
            deviation: track.deviation(policy),
            series: track.recent().collect(),
            switch: track.switch(),
        };
        self.shares.iter().map(told).collect()
    }
}
