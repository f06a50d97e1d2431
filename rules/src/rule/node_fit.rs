//! Whether the next job should be placed here: the sum of what the other rules found.

use alloc::format;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::node::Verdict;
use crate::policy::table::thresholds;
use crate::{Class, Part, Severity};

thresholds! {
    /// Thresholds of `node_fit`.
    pub struct Thresholds {
        /// Lost part of a victim's time from which a warning degrades the node, in millionths: ten percent is what
        /// MLPerf Storage calls a starved accelerator (an AU of .90 passes).
        lost_warn: Part = Part(100_000), Part(0)..=Part::ONE;
        /// What speaks against the node must last so long before the verdict falls. Findings have waited already, and
        /// facts (a GPU off the bus, a failed array) are believed at once.
        down_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// It must be better for so long before the verdict rises: a scheduler that fills a node again and again in
        /// every lull costs more than five idle minutes.
        up_ns: Nanos = Nanos::from_secs(300), Nanos(0)..=Nanos::from_secs(86_400);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Whether the next job should be placed on this node: fit, degraded, unfit, or cannot tell, for serving and for \
            batch. Information: it repeats no page of the rules that it rests on.",
    inputs: "States of the GPUs, findings, failed and degraded arrays, file systems that turned read-only, RDMA ports \
             that lost their link, a driver that does not come back.",
    formula: "Unfit: a faulted or lost GPU, a hung driver, a failed array, a file system that turned read-only, a critical \
              finding whose cause lies in the node. Degraded: another critical finding, a warning that costs a victim \
              lost_warn and more, an array that lacks members, an RDMA port without the link that it had. For serving a warning with a cause in the node that costs \
              as much is unfit, and any other warning degrades. It falls after down_ns, and rises after up_ns to the \
              worst of that time.",
    silent: "What belongs to the workload (its queue, its cache, its peers, an idle holder) never makes a node unfit.",
    advice: "Look at the reasons: each names the rule or the device. `gpuprod fit` gives the verdict in the form of a \
             scheduler's health check.",
    blind: "What only another node can see: a switch, a peer, a scheduler's own reasons.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let Some(batch) = view.host.node.fit_for(Class::Batch) else {
        return Outcome::Suspended("the node has not been judged yet".into());
    };
    let serving = view.host.node.fit_for(Class::Serving).unwrap_or(batch);
    match serving.verdict.max(batch.verdict) {
        Verdict::Fit => return Outcome::Silent,
        Verdict::CannotTell => {
            let why = serving.reasons.first().map_or("", |reason| reason.says.as_str());
            return Outcome::Suspended(format!("cannot tell: {why}").into());
        }
        Verdict::Degraded | Verdict::Unfit => {}
    }
    let says = || {
        let says: Vec<&str> = serving.reasons.iter().take(3).map(|reason| reason.says.as_str()).collect();
        let stays = || {
            let seconds = view.policy.node_fit.up_ns.0 / 1_000_000_000;
            format!("nothing speaks against it any more, and that has to stay so for {seconds} s")
        };
        let says = if says.is_empty() { stays() } else { says.join("; ") };
        format!("{} for serving, {} for batch: {says}", serving.verdict.as_str(), batch.verdict.as_str())
    };
    Outcome::Claim(Claim {
        variant: None,
        severity: Severity::Info,
        cause: None,
        object: "node".into(),
        deficit: Part(0),
        onset: serving.since.min(batch.since),
        pressure: Part(0),
        confidence: Part::ONE,
        summary: view.words(says),
        evidence: Vec::new(),
        rejected: Vec::new(),
        advice: view
            .words(|| "`gpuprod fit --format slurm` says it to a scheduler; drain the node while it is unfit".into()),
        holders: Vec::new(),
    })
}
