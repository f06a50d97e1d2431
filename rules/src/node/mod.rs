//! The node as a whole: whether the next job should be placed here, what is left of each resource, what is stranded.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::Source;
use serde::{Deserialize, Serialize};

use crate::window::Window;
use crate::{Class, Finding, Policy, Probe, UnitJudgement};

pub mod fit;

pub use fit::{ClassFit, Reason, Verdict};

/// What is said of the node at one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeJudgement {
    /// Whether jobs should be placed here, by class.
    pub fit: Vec<ClassFit>,
}

/// What is remembered of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    /// What was said at the last tick: the rules look at this.
    pub(crate) last: NodeJudgement,
    standing: Vec<fit::Standing>,
    /// Mount points that were seen writable.
    writable: BTreeSet<String>,
}

/// More mount points than this are not remembered.
const MOUNTS: usize = 256;

impl Node {
    pub(crate) fn step(
        &mut self,
        units: &[UnitJudgement],
        findings: &[Finding],
        probes: &[Probe],
        window: &Window,
        policy: &Policy,
    ) -> NodeJudgement {
        let seen = fit::Seen {
            units,
            findings,
            probes,
            known: &window.last,
            read_only: &self.read_only(window),
            lost_warn: policy.node_fit.lost_warn,
        };
        let now = window.last.stamp.boottime;
        self.last.fit.clear();
        self.standing.resize(fit::CLASSES.len(), fit::Standing::default());
        for (class, standing) in fit::CLASSES.iter().zip(&mut self.standing) {
            self.last.fit.push(standing.step(*class, fit::reasons(&seen, *class), now, policy));
        }
        self.last.clone()
    }

    /// Mount points that were writable and are not any more: what a file system does with itself after errors.
    fn read_only(&mut self, window: &Window) -> Vec<String> {
        let Some(block) = window.value(Source::Block, |tick| &tick.block).get().copied() else { return Vec::new() };
        let mut turned = Vec::new();
        for mount in &block.mounts {
            if mount.read_only {
                if self.writable.contains(&mount.point) {
                    turned.push(mount.point.clone());
                }
            } else if self.writable.len() < MOUNTS && !self.writable.contains(&mount.point) {
                self.writable.insert(mount.point.clone());
            }
        }
        turned
    }
}

impl NodeJudgement {
    /// The verdict for a class; batch for those that have none of their own.
    #[must_use]
    pub fn fit_for(&self, class: Class) -> Option<&ClassFit> {
        let of = |class: Class| self.fit.iter().find(|fit| fit.class == class);
        of(class).or_else(|| of(Class::Batch))
    }
}
