//! What a rule is: a function from a view to an outcome. It holds no state; holds, baselines and rings live in
//! shared tables.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use crate::facts::{HostFacts, UnitFacts};
use crate::hold::Held;
use crate::{Cause, Evidence, Holder, Part, Policy, Rejected, RuleId, Severity};

pub(crate) mod allocated_without_process;
mod around;
pub(crate) mod busy_but_starved;
pub(crate) mod cpu_starved_loader;
pub(crate) mod cross_socket_feeding;
pub(crate) mod engine_stall;
pub(crate) mod fabric_congestion;
pub(crate) mod gpu_fault;
pub(crate) mod headroom_breach;
pub(crate) mod io_stall;
pub(crate) mod kv_saturation;
pub(crate) mod latency_class_violation;
pub(crate) mod loading_slow;
pub(crate) mod memory_leak;
pub(crate) mod node_fit;
pub(crate) mod noisy_neighbour;
pub(crate) mod pcie_link_degraded;
pub(crate) mod preemption_thrash;
pub(crate) mod queue_instability;
mod queueing;
pub(crate) mod raid_rebuild_impact;
pub(crate) mod shared_uplink_contention;
pub(crate) mod silent_throttling;
pub(crate) mod squatter;
pub(crate) mod straggler_local;
pub(crate) mod stranded_capacity;
pub(crate) mod telemetry_degraded;
pub(crate) mod throughput_regression;

/// One unit and the host, with the thresholds in force: all that a rule may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) unit: &'a UnitFacts<'a>,
    pub(crate) host: &'a HostFacts<'a>,
    pub(crate) policy: &'a Policy,
    /// Whether this rule is active for this unit: the threshold to stay is lower than the one to enter.
    pub(crate) active: bool,
    /// What all rules hold against this unit.
    pub(crate) held: &'a Held,
    /// Whether its words are shown. If not, those that are held already stay, and none need be made.
    pub(crate) tells: bool,
}

impl View<'_> {
    /// Whether an object is blamed for this unit already.
    pub(crate) fn blames(&self, object: &str) -> bool {
        self.held.blames_on(object)
    }

    /// A sentence, if it is shown.
    pub(crate) fn words(&self, say: impl FnOnce() -> String) -> String {
        if self.tells { say() } else { String::new() }
    }

    /// A list of readings or rejected causes, if it is shown.
    pub(crate) fn list<T>(&self, list: impl FnOnce() -> Vec<T>) -> Vec<T> {
        if self.tells { list() } else { Vec::new() }
    }
}

/// What a rule says of a view.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It speaks.
    Claim(Claim),
    /// It has what it needs, and all is well.
    Silent,
    /// Its baseline is not learnt yet, or readings are missing for the moment.
    Suspended(Cow<'static, str>),
    /// This node does not have the readings that it needs.
    Unsupported(Cow<'static, str>),
    /// What it is about does not exist here.
    Absent,
}

/// A rule's word about one unit, before holds and merging.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Claim {
    /// Which of the rule's variants.
    pub variant: Option<String>,
    /// How bad. `Info` blames nobody and needs no hold.
    pub severity: Severity,
    /// What it did to the unit, when that is known.
    pub cause: Option<Cause>,
    /// The cause object: claims about the same object become one finding.
    pub object: String,
    /// Productivity deficit of the unit at this tick.
    pub deficit: Part,
    /// The first bad block (CLOCK_BOOTTIME): the hold runs from here.
    pub onset: Nanos,
    /// The largest part of the lost time that the evidence can carry.
    pub pressure: Part,
    /// How sure.
    pub confidence: Part,
    /// In one sentence.
    pub summary: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What it is not.
    pub rejected: Vec<Rejected>,
    /// What to do.
    pub advice: String,
    /// Which processes it is about.
    #[serde(default)]
    pub holders: Vec<Holder>,
}

impl Claim {
    /// Whether the words of another one fit it: both blame the same, or nobody.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let blames = |claim: &Self| claim.severity > Severity::Info;
        (blames(self), self.cause, &self.object, &self.variant)
            == (blames(other), other.cause, &other.object, &other.variant)
    }

    /// Takes over words that are held.
    pub(crate) fn take_words(&mut self, held: &mut Self) {
        self.summary = core::mem::take(&mut held.summary);
        self.evidence = core::mem::take(&mut held.evidence);
        self.rejected = core::mem::take(&mut held.rejected);
        self.advice = core::mem::take(&mut held.advice);
    }
}

/// How long a claim must stand before it is a finding, and how long it must be away before the finding ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// From the first bad block.
    pub enter: Nanos,
    /// Of silence.
    pub leave: Nanos,
}

/// What the documentation says of a rule; `docs/rules.md` is made of it. Plain sentences, numbers as keys of its thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it means when the rule speaks.
    pub means: &'static str,
    /// Which readings it looks at.
    pub inputs: &'static str,
    /// When it speaks, and when it ends.
    pub formula: &'static str,
    /// What keeps it silent.
    pub silent: &'static str,
    /// What to do.
    pub advice: &'static str,
    /// What it cannot tell.
    pub blind: &'static str,
}

/// An entry of the list of rules.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// Looks at a view.
    pub judge: fn(&View<'_>) -> Outcome,
    /// Its hold times.
    pub hold: fn(&Policy) -> Hold,
    /// Its page of the documentation.
    pub text: &'static Text,
}

const fn starved(policy: &Policy) -> Hold {
    Hold { enter: policy.starved_for_ns, leave: policy.starved_clear_ns }
}

const fn at_once(policy: &Policy) -> Hold {
    Hold { enter: Nanos(0), leave: policy.starved_clear_ns }
}

/// All rules, in order of precedence: of several that claim the same object, the first names the finding and
/// the others are attached to it.
pub const RULES: &[Rule] = &[
    Rule {
        id: RuleId::GpuFault,
        judge: gpu_fault::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.fault_hold_ns },
        text: &gpu_fault::TEXT,
    },
    // The times of its variants stand in its thresholds.
    Rule {
        id: RuleId::TelemetryDegraded,
        judge: telemetry_degraded::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.starved_clear_ns },
        text: &telemetry_degraded::TEXT,
    },
    // Its variants have hold times of their own, which the rule looks at.
    Rule {
        id: RuleId::Squatter,
        judge: squatter::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.starved_clear_ns },
        text: &squatter::TEXT,
    },
    // The share of the last minute is its hold.
    Rule {
        id: RuleId::SilentThrottling,
        judge: silent_throttling::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.silent_throttling.clear_ns },
        text: &silent_throttling::TEXT,
    },
    Rule {
        id: RuleId::RaidRebuildImpact,
        judge: raid_rebuild_impact::judge,
        hold: starved,
        text: &raid_rebuild_impact::TEXT,
    },
    Rule {
        id: RuleId::IoStall,
        judge: io_stall::judge,
        hold: |policy| Hold { enter: policy.io_stall.for_ns, leave: policy.io_stall.clear_ns },
        text: &io_stall::TEXT,
    },
    Rule {
        id: RuleId::CpuStarvedLoader,
        judge: cpu_starved_loader::judge,
        hold: starved,
        text: &cpu_starved_loader::TEXT,
    },
    // The last three look at their own times: half an hour, a kill, a failed link and a slow load are known at once.
    Rule { id: RuleId::MemoryLeak, judge: memory_leak::judge, hold: at_once, text: &memory_leak::TEXT },
    Rule {
        id: RuleId::CrossSocketFeeding,
        judge: cross_socket_feeding::judge,
        hold: |policy| Hold { enter: policy.cross_socket_feeding.for_ns, leave: policy.starved_clear_ns },
        text: &cross_socket_feeding::TEXT,
    },
    Rule {
        id: RuleId::SharedUplinkContention,
        judge: shared_uplink_contention::judge,
        hold: |policy| Hold { enter: policy.shared_uplink_contention.for_ns, leave: policy.starved_clear_ns },
        text: &shared_uplink_contention::TEXT,
    },
    Rule {
        id: RuleId::PcieLinkDegraded,
        judge: pcie_link_degraded::judge,
        hold: |policy| Hold { enter: policy.pcie_link_degraded.for_ns, leave: policy.starved_clear_ns },
        text: &pcie_link_degraded::TEXT,
    },
    Rule {
        id: RuleId::FabricCongestion,
        judge: fabric_congestion::judge,
        hold: at_once,
        text: &fabric_congestion::TEXT,
    },
    Rule {
        id: RuleId::EngineStall,
        judge: engine_stall::judge,
        // The rule looks at how long it lasts.
        hold: |policy| Hold { enter: Nanos(0), leave: policy.engine_stall.clear_ns },
        text: &engine_stall::TEXT,
    },
    Rule {
        id: RuleId::QueueInstability,
        judge: queue_instability::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.queue_instability.clear_ns },
        text: &queue_instability::TEXT,
    },
    Rule {
        id: RuleId::KvSaturation,
        judge: kv_saturation::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.kv_saturation.clear_ns },
        text: &kv_saturation::TEXT,
    },
    Rule {
        id: RuleId::PreemptionThrash,
        judge: preemption_thrash::judge,
        hold: |policy| Hold { enter: Nanos(0), leave: policy.preemption_thrash.clear_ns },
        text: &preemption_thrash::TEXT,
    },
    Rule {
        id: RuleId::LoadingSlow,
        judge: loading_slow::judge,
        hold: |_| Hold { enter: Nanos(0), leave: Nanos(0) },
        text: &loading_slow::TEXT,
    },
    Rule {
        id: RuleId::StragglerLocal,
        judge: straggler_local::judge,
        hold: |policy| Hold { enter: policy.straggler_local.for_ns, leave: policy.straggler_local.clear_ns },
        text: &straggler_local::TEXT,
    },
    Rule {
        id: RuleId::NoisyNeighbour,
        judge: noisy_neighbour::judge,
        hold: |policy| Hold { enter: policy.noisy_neighbour.for_ns, leave: policy.noisy_neighbour.clear_ns },
        text: &noisy_neighbour::TEXT,
    },
    Rule {
        id: RuleId::LatencyClassViolation,
        judge: latency_class_violation::judge,
        hold: |policy| Hold {
            enter: policy.latency_class_violation.for_ns,
            leave: policy.latency_class_violation.clear_ns,
        },
        text: &latency_class_violation::TEXT,
    },
    Rule {
        id: RuleId::HeadroomBreach,
        judge: headroom_breach::judge,
        hold: |policy| Hold { enter: policy.headroom_breach.for_ns, leave: policy.headroom_breach.clear_ns },
        text: &headroom_breach::TEXT,
    },
    Rule {
        id: RuleId::ThroughputRegression,
        judge: throughput_regression::judge,
        // The rule looks at how long it lasts.
        hold: |policy| Hold { enter: Nanos(0), leave: policy.throughput_regression.clear_ns },
        text: &throughput_regression::TEXT,
    },
    Rule {
        id: RuleId::StrandedCapacity,
        judge: stranded_capacity::judge,
        hold: |policy| Hold { enter: policy.stranded_capacity.for_ns, leave: policy.starved_clear_ns },
        text: &stranded_capacity::TEXT,
    },
    Rule {
        id: RuleId::NodeFit,
        judge: node_fit::judge,
        // It has hold times of its own, in both directions.
        hold: |_| Hold { enter: Nanos(0), leave: Nanos(0) },
        text: &node_fit::TEXT,
    },
    Rule {
        id: RuleId::AllocatedWithoutProcess,
        judge: allocated_without_process::judge,
        hold: |policy| Hold { enter: policy.allocated_without_process.for_ns, leave: Nanos(0) },
        text: &allocated_without_process::TEXT,
    },
    Rule { id: RuleId::BusyButStarved, judge: busy_but_starved::judge, hold: starved, text: &busy_but_starved::TEXT },
];
