//! The faults that are built in, one per rule. `tests/recordings/selftest/make` makes the recordings.

use gpuprod_rules::{Allocation, RuleId};

/// A recording of a fault.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) rule: RuleId,
    /// What happens.
    pub(super) about: &'static str,
    pub(super) bytes: &'static [u8],
    /// When the fault begins, in seconds from the start.
    pub(super) onset: u64,
    /// The rule informs and pages nobody.
    pub(super) informs: bool,
    /// What the operator declared.
    pub(super) declared: fn() -> Vec<Allocation>,
}

macro_rules! recording {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/recordings/selftest/", $name, ".ticks"))
    };
}

const fn case(rule: RuleId, about: &'static str, bytes: &'static [u8], onset: u64) -> Case {
    Case { rule, about, bytes, onset, informs: false, declared: Vec::new }
}

fn a_job_has_it() -> Vec<Allocation> {
    vec![Allocation { gpu: "0".to_owned(), owner: "job 4711".to_owned(), ..Allocation::default() }]
}

/// All of them. A rule without one says so.
pub(super) const CASES: &[Case] = &[
    case(RuleId::GpuFault, "a GPU falls off the bus", recording!("gpu_fault"), 120),
    case(RuleId::Squatter, "a process becomes a zombie and its GPU memory stays taken", recording!("squatter"), 180),
    case(RuleId::SilentThrottling, "a GPU gets hot: its clocks fall to 60 %", recording!("silent_throttling"), 300),
    case(RuleId::RaidRebuildImpact, "an array is rebuilt under a serving engine", recording!("stranded_capacity"), 300),
    case(RuleId::IoStall, "a drive stops answering", recording!("io_stall"), 300),
    case(
        RuleId::StrandedCapacity,
        "a GPU is free, and the array that jobs would read is being rebuilt",
        recording!("stranded_capacity"),
        300,
    ),
    Case {
        informs: true,
        ..case(RuleId::NodeFit, "a GPU falls off the bus: the node is unfit", recording!("gpu_fault"), 120)
    },
    Case {
        informs: true,
        declared: a_job_has_it,
        ..case(
            RuleId::AllocatedWithoutProcess,
            "a job has a GPU and never starts",
            recording!("allocated_without_process"),
            0,
        )
    },
    case(
        RuleId::BusyButStarved,
        "an engine loses half of its rate for a reason outside of the node",
        recording!("busy_but_starved"),
        300,
    ),
];
