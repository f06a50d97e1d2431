//! The faults that are built in, one per rule. `tests/recordings/selftest/make` makes the recordings.

use gpuprod_rules::{Allocation, RuleId};
use gpuprod_snapshot::units::Nanos;

use crate::config::{Mode, Rules};

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
    /// What the operator must have said for the rule to have anything to judge, and to tell it itself.
    pub(super) declare: fn(&mut Rules),
}

macro_rules! recording {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/recordings/selftest/", $name, ".ticks"))
    };
}

const fn case(rule: RuleId, about: &'static str, bytes: &'static [u8], onset: u64) -> Case {
    Case { rule, about, bytes, onset, informs: false, declare: |_| {} }
}

fn a_job_has_it(rules: &mut Rules) {
    rules.allocations = vec![Allocation { gpu: "0".to_owned(), owner: "job 4711".to_owned(), ..Allocation::default() }];
}

fn a_promise(rules: &mut Rules) {
    rules.policy.latency_class_violation.itl_slo_ns = Nanos::from_millis(100);
}

/// Its latency rises with the queue, and that rule comes first: what stands beside it has no sentence of its own.
fn no_word_of_latency(rules: &mut Rules) {
    rules.modes.insert(RuleId::LatencyClassViolation, Mode::Off);
}

/// All of them; a test holds that no rule lacks one without a reason ([`UNTRIED`]).
pub(super) const CASES: &[Case] = &[
    case(RuleId::GpuFault, "a GPU falls off the bus", recording!("gpu_fault"), 120),
    case(RuleId::TelemetryDegraded, "the driver does not come back from a call", recording!("telemetry_degraded"), 120),
    case(RuleId::Squatter, "a process becomes a zombie and its GPU memory stays taken", recording!("squatter"), 180),
    case(RuleId::SilentThrottling, "a GPU gets hot: its clocks fall to 60 %", recording!("silent_throttling"), 300),
    case(RuleId::RaidRebuildImpact, "an array is rebuilt under a serving engine", recording!("stranded_capacity"), 300),
    case(RuleId::IoStall, "a drive stops answering", recording!("io_stall"), 300),
    case(
        RuleId::CpuStarvedLoader,
        "the loaders of a trainer run into the CPU quota of their cgroup",
        recording!("cpu_starved_loader"),
        300,
    ),
    case(RuleId::MemoryLeak, "the kernel kills a process of a job for want of memory", recording!("memory_leak"), 180),
    case(
        RuleId::CrossSocketFeeding,
        "the loaders of a trainer are moved to the other socket",
        recording!("cross_socket_feeding"),
        120,
    ),
    case(
        RuleId::SharedUplinkContention,
        "a neighbour behind the same PCIe switch fills the uplink of both",
        recording!("shared_uplink_contention"),
        300,
    ),
    case(
        RuleId::PcieLinkDegraded,
        "the PCIe link of a GPU that works comes up with four of sixteen lanes",
        recording!("pcie_link_degraded"),
        120,
    ),
    case(
        RuleId::FabricCongestion,
        "the link of the port that a job uses goes down",
        recording!("fabric_congestion"),
        180,
    ),
    case(RuleId::EngineStall, "an engine hangs with requests in it", recording!("engine_stall"), 240),
    case(
        RuleId::QueueInstability,
        "more requests come than an engine can hold contexts for",
        recording!("queue_instability"),
        240,
    ),
    case(
        RuleId::KvSaturation,
        "the cache of an engine fills up and requests wait for room",
        recording!("kv_saturation"),
        180,
    ),
    case(
        RuleId::PreemptionThrash,
        "an engine takes in more than its cache holds and computes it again",
        recording!("queue_instability"),
        240,
    ),
    case(
        RuleId::LoadingSlow,
        "an engine starts, and the drive that its weights come from has become slow",
        recording!("loading_slow"),
        360,
    ),
    case(
        RuleId::StragglerLocal,
        "one rank of a job takes longer for the same work, and the other waits for it",
        recording!("straggler_local"),
        240,
    ),
    case(
        RuleId::NoisyNeighbour,
        "a batch job wakes up on the GPU of an engine, and they take turns",
        recording!("noisy_neighbour"),
        300,
    ),
    Case {
        declare: a_promise,
        ..case(
            RuleId::LatencyClassViolation,
            "an engine that was promised 100 ms between tokens slows down to half of its rate",
            recording!("busy_but_starved"),
            300,
        )
    },
    Case {
        informs: true,
        declare: no_word_of_latency,
        ..case(
            RuleId::HeadroomBreach,
            "requests spend a third of their time in the queue of an engine",
            recording!("headroom_breach"),
            180,
        )
    },
    case(
        RuleId::ThroughputRegression,
        "an engine is restarted with a slower build",
        recording!("throughput_regression"),
        300,
    ),
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
        declare: a_job_has_it,
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

/// Rules without a fault of their own, and why.
pub(super) const UNTRIED: &[(RuleId, &str)] = &[];

#[cfg(test)]
mod tests {
    use gpuprod_rules::RULES;

    use super::{CASES, UNTRIED};

    #[test]
    fn no_rule_lacks_a_fault_without_a_reason() {
        for rule in RULES {
            let faults = CASES.iter().filter(|case| case.rule == rule.id).count();
            let reasons = UNTRIED.iter().filter(|(id, _)| *id == rule.id).count();
            assert_eq!(faults + reasons, 1, "{}: {faults} faults in CASES, {reasons} reasons in UNTRIED", rule.id);
        }
    }
}
