//! Every threshold, in one place, with its reason and source.

use alloc::collections::BTreeSet;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{Gate, Part, RuleId};

mod declared;
pub(crate) mod table;

pub use declared::{Allocation, Declared, KvBytes, Shape};
pub use table::Threshold;

table::sections! {
/// The thresholds in force. Config overrides any of them by name. What all rules share stands here, what one rule
/// alone looks at beside that rule (`rule/NAME.rs`), as a section under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Rules that are switched off (config: `rules.modes`): they are not evaluated at all.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub off: BTreeSet<RuleId>,
    /// Gates that are taken out: for measuring what each is worth, and no config key.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without: BTreeSet<Gate>,
    /// What the operator says of the node (config: `rules.shapes`, `rules.allocations`).
    #[serde(skip)]
    pub declared: Declared,
    /// Length of a block: means over 5 s take out the autocorrelation that makes change-point tests cry wolf.
    pub block_ns: Nanos,
    /// Healthy blocks before an own baseline may be used (two minutes).
    pub baseline_min_blocks: u32,
    /// Productivity deficit of a warning. MLPerf Storage calls 10 % starved; below 15 % noise of healthy engines begins.
    pub starved_warn: Part,
    /// Productivity deficit that is critical.
    pub starved_critical: Part,
    /// Deficit below which starvation is over.
    pub starved_clear: Part,
    /// A bad block must be followed by badness for so long before a rule speaks.
    pub starved_for_ns: Nanos,
    /// How long it must be good before the rule is silent again.
    pub starved_clear_ns: Nanos,
    /// Distance from the own median, in spreads, that counts as a deviation.
    pub deviation_z: f64,
    /// An alarm of the change-point test that has lasted so long counts from half of that distance on, where a cause passes the
    /// gates. A minute: twelve blocks, whose mean scatters a third as much as one of them.
    pub deviation_lasts_ns: Nanos,
    /// CUSUM slack in spreads (k).
    pub cusum_slack: f64,
    /// CUSUM alarm level in spreads (h).
    pub cusum_alarm: f64,
    /// Latency of a plain disk against its own baseline from which it counts as the cause. Higher than for a sync:
    /// no event says when it began, and a disk answers later under more load of its reader's own.
    pub disk_await_ratio: f64,
    /// The same of a disk that mostly works for others (`io_stall.background`): whose load it is, is known there, and the
    /// workload that reads nothing else loses 1 - 1/1.2 = .17 to it.
    pub flooded_await_ratio: f64,
    /// A cause may begin so many blocks after its effect and still be one (blocks are coarse).
    pub order_slack_blocks: u32,
    /// Rank correlation between a cause's pressure and the deficit.
    pub coupling_rho: f64,
    /// An Xid marks the GPU broken for so long after the last one.
    pub fault_hold_ns: Nanos,
    /// So long a source that does not answer keeps up what is blamed on what it tells of. Collectors that hang are given up
    /// and begun anew within minutes; what is not seen for longer is no longer known.
    pub unread_holds_ns: Nanos,
}
rooms {
    attribution,
}
rules {
    gpu_fault,
    telemetry_degraded,
    squatter,
    silent_throttling,
    raid_rebuild_impact,
    io_stall,
    cpu_starved_loader,
    memory_leak,
    cross_socket_feeding,
    shared_uplink_contention,
    pcie_link_degraded,
    fabric_congestion,
    engine_stall,
    queue_instability,
    kv_saturation,
    preemption_thrash,
    loading_slow,
    straggler_local,
    noisy_neighbour,
    latency_class_violation,
    headroom_breach,
    throughput_regression,
    stranded_capacity,
    node_fit,
    allocated_without_process,
    busy_but_starved,
}
default {
    off: BTreeSet::new(),
    without: BTreeSet::new(),
    declared: Declared::default(),
    block_ns: Nanos::from_secs(5),
    baseline_min_blocks: 24,
    starved_warn: Part(150_000),
    starved_critical: Part(300_000),
    starved_clear: Part(80_000),
    starved_for_ns: Nanos::from_secs(30),
    starved_clear_ns: Nanos::from_secs(60),
    deviation_z: 4.0,
    deviation_lasts_ns: Nanos::from_secs(60),
    cusum_slack: 1.0,
    cusum_alarm: 12.0,
    disk_await_ratio: 1.5,
    flooded_await_ratio: 1.2,
    order_slack_blocks: 2,
    coupling_rho: 0.5,
    fault_hold_ns: Nanos::from_secs(60),
    unread_holds_ns: Nanos::from_secs(300),
}
}

impl Policy {
    /// Whether this gate is in force.
    pub(crate) fn asks(&self, gate: Gate) -> bool {
        !self.without.contains(&gate)
    }
}
