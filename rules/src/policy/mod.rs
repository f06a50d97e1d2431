//! Every threshold, in one place, with its reason and source.

use alloc::collections::BTreeSet;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{Part, RuleId};

pub(crate) mod table;

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
    /// CUSUM slack in spreads (k).
    pub cusum_slack: f64,
    /// CUSUM alarm level in spreads (h).
    pub cusum_alarm: f64,
    /// Member latency against its own baseline from which a sync counts as the cause. A reader that waits for
    /// storage alone loses a deficit d when latency rises to 1/(1-d): 1.18 for the deficit that warns, 1.43 for the
    /// one that is critical. What a small rise cannot carry stays unexplained by the split.
    pub sync_await_ratio: f64,
    /// Latency of a plain disk against its own baseline from which it counts as the cause. Higher than for a sync:
    /// no event says when it began, and a disk answers later under more load of its reader's own.
    pub disk_await_ratio: f64,
    /// A cause may begin so many blocks after its effect and still be one (blocks are coarse).
    pub order_slack_blocks: u32,
    /// Rank correlation between a cause's pressure and the deficit.
    pub coupling_rho: f64,
    /// An Xid marks the GPU broken for so long after the last one.
    pub fault_hold_ns: Nanos,
    /// Memory in use from which a GPU that does nothing counts as squatted: half. A context takes .004 to .07, the
    /// public cases hold .63 to .96, our H200 with 70 GB held .50; the .95 that the pattern is told with misses
    /// every engine at its default of .90.
    pub squat_mem: Part,
    /// Activity (utilization, SM, tensor, DRAM) up to which a GPU does nothing: 5 %, as in the published traces.
    pub squat_util: Part,
    /// A GPU must do nothing for so long: ten minutes, the shortest that a live fleet's pauses leave quiet.
    pub squat_for_ns: Nanos,
    /// For so long where a person works (login session, notebook, Slurm's interactive step): people pause.
    pub squat_interactive_ns: Nanos,
    /// A workload that has not served yet may load for so long.
    pub loading_cap_ns: Nanos,
    /// Memory that a dead holder must keep to count: 5 %, since a context alone is no harm.
    pub squat_dead_mem: Part,
    /// A holder must be dead for so long: a driver takes its time to tear down, two minutes is not that.
    pub squat_dead_ns: Nanos,
    /// An engine's page must be refused for so long before the engine counts as gone.
    pub squat_refused_ns: Nanos,
    /// Bytes per second of reading or writing from which a workload is loading or saving, and not squatting.
    pub squat_io_bytes: f64,
    /// Bytes per second on PCIe and NVLink up to which a GPU is cut off. The agent's own polling moves .6 to 1.0
    /// MB/s on an H200, batch-1 decode 25.
    pub quiet_link_bytes: f64,
    /// Utilization from which a GPU may spin.
    pub spin_util: Part,
    /// SM activity up to which full utilization is a spin: one block is .008 on an H200, batch-1 decode .80.
    pub spin_sm: Part,
    /// DRAM and tensor activity up to which it is one.
    pub spin_dram: Part,
    /// Without GPM: power, as a part of the span from bare idle to the limit, up to which it is one. Public hangs
    /// draw .14 to .24 of the limit, busy GPUs .65 and more.
    pub spin_power: Part,
    /// A GPU must spin for so long.
    pub spin_for_ns: Nanos,
    /// Share of time in which a task of the workload waits for I/O, from which it is held up.
    pub io_wait_some: Part,
    /// Share of samples with a thread blocked in an I/O path, from which it is.
    pub io_wait_blocked: Part,
    /// A workload without a progress source starves when its GPU is no busier than this.
    pub io_hungry_util: Part,
    /// Latency of a solid-state drive below which no wait is a stall, in milliseconds.
    pub io_await_ms: f64,
    /// The same of a spinning disk.
    pub io_await_spinning_ms: f64,
    /// Latency of a network file system below which no wait is a stall, in milliseconds.
    pub io_await_remote_ms: f64,
    /// Latency over the own normal from which a device answers too late.
    pub io_await_ratio: f64,
    /// Others' share of a device's bytes from which they are the cause.
    pub io_background: Part,
    /// A stall must last so long before a rule speaks.
    pub io_stall_for_ns: Nanos,
    /// How long it must be good before the rule is silent again.
    pub io_stall_clear_ns: Nanos,
    /// A burst of the workload's own writing is a checkpoint for so long.
    pub checkpoint_ns: Nanos,
}
rules {
    busy_but_starved,
}
default {
    off: BTreeSet::new(),
    block_ns: Nanos::from_secs(5),
    baseline_min_blocks: 24,
    starved_warn: Part(150_000),
    starved_critical: Part(300_000),
    starved_clear: Part(80_000),
    starved_for_ns: Nanos::from_secs(30),
    starved_clear_ns: Nanos::from_secs(60),
    deviation_z: 4.0,
    cusum_slack: 1.0,
    cusum_alarm: 12.0,
    sync_await_ratio: 1.2,
    disk_await_ratio: 1.5,
    order_slack_blocks: 2,
    coupling_rho: 0.5,
    fault_hold_ns: Nanos::from_secs(60),
    squat_mem: Part(500_000),
    squat_util: Part(50_000),
    squat_for_ns: Nanos::from_secs(600),
    squat_interactive_ns: Nanos::from_secs(3_600),
    loading_cap_ns: Nanos::from_secs(1_800),
    squat_dead_mem: Part(50_000),
    squat_dead_ns: Nanos::from_secs(120),
    squat_refused_ns: Nanos::from_secs(60),
    squat_io_bytes: 100e6,
    quiet_link_bytes: 4e6,
    spin_util: Part(950_000),
    spin_sm: Part(100_000),
    spin_dram: Part(20_000),
    spin_power: Part(350_000),
    spin_for_ns: Nanos::from_secs(300),
    io_wait_some: Part(200_000),
    io_wait_blocked: Part(300_000),
    io_hungry_util: Part(350_000),
    io_await_ms: 5.0,
    io_await_spinning_ms: 20.0,
    io_await_remote_ms: 50.0,
    io_await_ratio: 3.0,
    io_background: Part(600_000),
    io_stall_for_ns: Nanos::from_secs(15),
    io_stall_clear_ns: Nanos::from_secs(30),
    checkpoint_ns: Nanos::from_secs(120),
}
}
