//! GPUs are free and of no use, because another resource of the node is used up.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::node::Room;
use crate::policy::table::thresholds;
use crate::{Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `stranded_capacity`.
    pub struct Thresholds {
        /// Part of the catalogue's shapes that must be kept out, of those for which a GPU is free, in millionths: half.
        /// A catalogue always has a shape that a node is too small for.
        stranded: Part = Part(500_000), Part(0)..=Part::ONE;
        /// They must be kept out for so long: jobs come and go, and what they use with them.
        for_ns: Nanos = Nanos::from_secs(300), Nanos(0)..=Nanos::from_secs(86_400);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The GPU is free, in whole or in part, and the jobs that come cannot use it: storage, CPU, GPU memory or another \
            resource of the node is used up.",
    inputs: "What is left of each resource (gpuprod.residual), and the catalogue of shapes (rules.shapes).",
    formula: "A shape is kept out when a GPU would be free for it and another resource has less than it asks for. Speaks when \
              stranded and more of those shapes have been kept out for for_ns: a warning for a GPU that nobody has, information \
              for one that somebody uses in part. Nothing of the storage counts as free while io_stall or \
              raid_rebuild_impact is active.",
    silent: "A node without a free GPU; a shape that asks for more GPUs than are free; a resource that cannot be read.",
    advice: "Free the resource that is named, or send the node jobs that need less of it.",
    blind: "What other nodes have: the catalogue says what would fit here, not what would fit elsewhere. The most that a drive \
            gives is what it was seen to give: it counts as used up only while it answers later than normal \
            (disk_await_ratio), or while a rule has found it out.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let node = view.host.node;
    if node.rooms.is_empty() {
        return Outcome::Unsupported("the catalogue of shapes is empty (rules.shapes), or no GPU is read".into());
    }
    let Some(free) = node.free.iter().find(|free| free.unit == view.unit.id) else { return Outcome::Absent };
    let told: Vec<&Room> = node.rooms.iter().filter(|room| room.jobs.is_some()).collect();
    if told.is_empty() {
        let unread: Vec<&str> =
            node.rooms.iter().flat_map(|room| &room.unread).map(|resource| resource.as_str()).collect();
        return Outcome::Suspended(format!("not read or not learnt yet: {}", unread.join(", ")).into());
    }
    let Some(since) = free.stranded_since else { return Outcome::Silent };
    // Information needs no hold: the rule waits itself.
    if view.host.now.saturating_sub(since) < view.policy.stranded_capacity.for_ns {
        return Outcome::Silent;
    }
    let out: Vec<&&Room> = told.iter().filter(|room| room.stranded).collect();
    let binding = out.iter().find_map(|room| room.binding).map_or("another resource", |binding| binding.as_str());
    let names: Vec<&str> = out.iter().map(|room| room.shape.as_str()).collect();
    let left = |name: &str| node.residual.iter().find(|residual| residual.resource.as_str() == name);
    let evidence = node.residual.iter().map(|residual| {
        Evidence::plain(format!("{} left", residual.resource), "node", residual.ratio.as_fraction() * 100.0, "%")
    });
    let percent = left(binding).map_or_else(String::new, |residual| {
        format!(", of which {} % are left", Micro::from_f64(residual.ratio.as_fraction() * 100.0))
    });
    Outcome::Claim(Claim {
        variant: Some(binding.to_string()),
        severity: if free.whole { Severity::Warn } else { Severity::Info },
        cause: None,
        object: format!("node {binding}"),
        deficit: Part(0),
        onset: since,
        pressure: Part(0),
        confidence: Part::from_fraction(0.8),
        summary: format!(
            "{} is {} and cannot be used by {}: the node has too little {binding}{percent}",
            view.unit.name,
            if free.whole { "free" } else { "free in part" },
            names.join(", ")
        ),
        evidence: evidence.collect(),
        rejected: Vec::new(),
        advice: format!("free {binding}, or send this node jobs that need less of it (rules.shapes has the catalogue)"),
        holders: Vec::new(),
    })
}
