//! A GPU is fed from CPUs of another socket.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::around::{self, Raised, percent, raised};
use super::io_stall::hungry;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation};
use crate::policy::table::thresholds;
use crate::signals::pcie::Board;
use crate::{Cause, Evidence, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `cross_socket_feeding`.
    pub struct Thresholds {
        /// Share of the CPU time of the GPU's processes, in millionths, that is spent on other sockets from which the
        /// GPU counts as fed from there. Half: below it most of the feeding is local, and what is not is the
        /// scheduler's ordinary balancing.
        away: Part = Part(500_000), Part(10_000)..=Part(1_000_001);
        /// Bytes per second into the GPU from which that is worth a warning without a loss of progress: below a gigabyte
        /// a second the link between the sockets is not felt.
        feed: f64 = 1e9, 0.0..=1e15;
        /// How long it must last. The balancer of the kernel moves threads for seconds; half a minute is a placement.
        /// As for any starvation.
        for_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "The processes that hold a GPU, and their loaders, run on CPUs of another socket: all that they feed it crosses \
            the link between the sockets.",
    inputs: "CPU time of their threads by NUMA node (the CPU on which each ran last, weighted by what it used), the node of the \
             GPU, sockets of the nodes, bytes that the GPU receives, progress of the workload.",
    formula: "away of their CPU time and more on sockets on which none of their GPUs is, for for_ns: information; a warning when \
              the GPU receives feed bytes per second; with a workload that lost progress when it moved there, it is the \
              cause, and critical from starved_critical.",
    silent: "Nodes with one socket, several NUMA nodes of one socket (NPS, SNC), processes that may run anywhere and do run near, \
             processes that drive GPUs of several sockets, threads that use no CPU time.",
    advice: "Bind the workload to CPUs near its GPU: numactl --cpunodebind, --cpu-bind=map_ldom, the Topology Manager; `topo` tells \
             which.",
    blind: "Where memory lies is not read: numa_maps holds up the process that it is asked of. A thread that moves between \
            two readings counts where it was last.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let signals = &view.host.signals.pcie;
    if view.unit.rest || view.unit.work.family.is_empty() || !signals.several_sockets() {
        return Outcome::Absent;
    }
    if view.unit.gpu.is_none() {
        return Outcome::Suspended("the driver does not answer".into());
    }
    let Some(board) = view.unit.pcie.board else { return Outcome::Suspended("the GPU was not read yet".into()) };
    if board.node.is_none() {
        return Outcome::Unsupported("firmware does not say on which node the GPU is".into());
    }
    let Some(away) = board.away.latest() else {
        return Outcome::Suspended("its processes used too little CPU time, or may not be looked at".into());
    };
    let floor = view.policy.cross_socket_feeding.away.as_fraction();
    if away < if view.active { floor / 2.0 } else { floor } {
        return Outcome::Silent;
    }
    let mut rejected = Vec::new();
    if hungry(view).is_some() {
        let candidate = raised(view, &board.away, floor)
            .map(|raised| candidate_of(view, board, raised))
            .map_err(|calm| Rejected { cause: Cause::PcieNuma, of: object(view), why: calm.why(percent) });
        match candidate.and_then(|candidate| around::blame(view, None, candidate)) {
            Ok(claim) => return Outcome::Claim(claim),
            Err(why) => rejected.push(why),
        }
    }
    Outcome::Claim(told(view, board, away, rejected))
}

/// The placement as a candidate, where most of the CPU time is spent away.
pub(crate) fn candidate(view: &View<'_>) -> Option<Candidate> {
    let signals = &view.host.signals.pcie;
    let board = view.unit.pcie.board.filter(|board| board.node.is_some() && signals.several_sockets())?;
    let raised = raised(view, &board.away, view.policy.cross_socket_feeding.away.as_fraction()).ok()?;
    Some(candidate_of(view, board, raised))
}

fn candidate_of(view: &View<'_>, board: &Board, raised: Raised) -> Candidate {
    let object = object(view);
    let feeds = board.received.latest().is_some_and(|rate| rate >= view.policy.cross_socket_feeding.feed);
    let mut found =
        alloc::vec![raised.evidence("CPU time of its processes on other sockets", &view.unit.name, 100.0, "%")];
    found.extend(evidence(view, board).into_iter().skip(1));
    Candidate {
        cause: Cause::PcieNuma,
        object,
        onset: raised.onset,
        pressure: Part::from_fraction(raised.value),
        saturation: Saturation::of(1 + u8::from(feeds)),
        // Its own processes, and its own place.
        link: Link::Proven,
        series: raised.series.clone(),
        switch: raised.switch,
        uses: |unit, name| name.strip_prefix("placement:") == Some(who(unit.work.ties.cgroup.as_ref(), &unit.name)),
        says: says(raised.value),
        evidence: found,
        advice: advice(view),
    }
}

fn who<'a>(cgroup: Option<&'a String>, name: &'a str) -> &'a str {
    cgroup.map_or(name, String::as_str)
}

fn object(view: &View<'_>) -> String {
    format!("placement:{}", who(view.unit.work.ties.cgroup.as_ref(), &view.unit.name))
}

fn says(away: f64) -> String {
    format!(
        "{} of the CPU time of its processes is spent on another socket than the GPU's",
        percent(libm::round(away * 1e3) / 1e3)
    )
}

fn told(view: &View<'_>, board: &Board, away: f64, rejected: Vec<Rejected>) -> Claim {
    let feeds = board.received.latest().is_some_and(|rate| rate >= view.policy.cross_socket_feeding.feed);
    Claim {
        variant: None,
        severity: if feeds { Severity::Warn } else { Severity::Info },
        cause: None,
        object: object(view),
        deficit: Part(0),
        onset: board.away_since.unwrap_or(view.host.now),
        pressure: Part(0),
        confidence: Part::from_fraction(0.6),
        summary: format!("{}; no loss of progress is proven", says(away)),
        evidence: evidence(view, board),
        rejected,
        advice: advice(view),
        holders: Vec::new(),
    }
}

fn evidence(view: &View<'_>, board: &Board) -> Vec<Evidence> {
    let name = view.unit.name.as_str();
    let mut evidence = Vec::new();
    if let Some(away) = board.away.latest() {
        evidence.push(Evidence::plain(
            "CPU time of its processes on other sockets",
            name,
            libm::round(away * 1e3) / 10.0,
            "%",
        ));
    }
    evidence.extend(board.node.map(|node| Evidence::plain("node of the GPU", name, f64::from(node), "")));
    evidence.extend(
        board.received.latest().map(|rate| Evidence::plain("received", name, libm::round(rate / 1e7) / 100.0, "GB/s")),
    );
    evidence
}

fn advice(view: &View<'_>) -> String {
    let node = view.unit.pcie.board.and_then(|board| board.node);
    let node = node.map_or_else(String::new, |node| format!("={node}"));
    format!(
        "bind the workload to CPUs near the GPU (numactl --cpunodebind{node} --membind{node}, --cpu-bind=map_ldom, Topology Manager)"
    )
}
