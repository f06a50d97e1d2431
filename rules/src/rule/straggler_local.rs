//! Ranks of one job wait for one of them that lags, on this node.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::around::percent;
use super::{Claim, Outcome, Text, View};
use crate::baseline::Deviation;
use crate::facts::UnitFacts;
use crate::facts::peers::{Lag, Laggard, is_kin};
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Part, Rejected, Severity};

/// Confidence in a laggard by how it lags: held clocks are known from the driver, gaps in its work are seen, and one that
/// merely goes on as it always did is known from the others alone.
const SURE: [(Lag, f64); 3] = [(Lag::Throttled, 0.9), (Lag::Starved, 0.8), (Lag::Slow, 0.7)];

thresholds! {
    /// Thresholds of `straggler_local`.
    pub struct Thresholds {
        /// Utilization from which a rank counts as waiting in a resident kernel, in millionths: collectives of NCCL read 100 %
        /// while they wait (NCCL issue 968).
        resident: Part = Part(950_000), Part(500_000)..=Part::ONE;
        /// Utilization that a rank whose data are late lies below every rank that waits, in millionths. A choice above
        /// the noise of a counter that is sampled; no public figure is known.
        gap: Part = Part(50_000), Part(0)..=Part::ONE;
        /// Activity of a slow rank, as a part of its own normal, over that of those who wait for it (one labelled straggler of
        /// a public trace had 2.35, the next rank 1.05; ranks without trouble stayed below 1.23).
        ratio: f64 = 1.2, 1.0..=100.0;
        /// How long the ranks must wait before the rule speaks: five blocks.
        for_ns: Nanos = Nanos::from_secs(25), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long they must work again before the finding ends: as long as a stall of what feeds the laggard.
        clear_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// A rank that was started less than this ago warms up, and is no laggard. Compilation, allocation and cold
        /// caches: the first minutes of a rank are slower than all later ones.
        warm_ns: Nanos = Nanos::from_secs(120), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Ranks of one job wait for one of them, on this node, that lags: its clocks are held down (throttled), its work \
            has gaps (starved), or it does what it always does while the others have less to do (slow). The finding is \
            about the GPU that lags, or about what is to blame for that where a rule knows it; those that wait are its victims.",
    inputs: "Which GPUs are one workload (processes, cgroup, job); utilization and SM, tensor and DRAM activity of each of them \
             (power where there is no GPM) against its own normal with this workload; clock event reasons.",
    formula: "A rank waits when its utilization is resident and more and its activity fell by starved_warn and more below its own \
              normal (deviation_z, and the change-point test). It waits for the one rank that does not: one that is throttled, \
              whose utilization lies gap below the others' where it did not (it fell, or theirs rose), or whose activity is ratio times theirs. It \
              lasts for_ns. Beside a throttled rank those that lose as much since then wait at any utilization. Ends after \
              clear_ns.",
    silent: "All ranks wait alike (what they wait for is not on this node), more than one does not wait, the one that they wait \
             for writes a checkpoint or was started within warm_ns, an engine without requests, ranks that always differed.",
    advice: "Look at the named GPU: its clocks, its data, its process; on the same node the others are fine.",
    blind: "Ranks on other nodes. A phase in which one rank works alone by design looks the same until it is part of the own \
            normal. MIG instances.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.mig || unit.rest || unit.work.family.is_empty() || !view.host.units.iter().any(|other| is_kin(unit, other))
    {
        return Outcome::Absent;
    }
    if unit.usage.block.util.is_none() {
        return Outcome::Suspended("no utilization is read".into());
    }
    let Some(activity) = unit.activity else {
        return Outcome::Suspended("what its silicon normally does with this workload is not learnt yet".into());
    };
    // To stay takes half of what it takes to enter.
    let fell = 1.0 - activity.ratio();
    let enters = fell >= view.policy.starved_warn.as_fraction()
        && activity.z >= view.policy.deviation_z
        && activity.alarm
        && activity.onset.is_some();
    if !(view.active || enters) || !unit.peers.waits {
        return Outcome::Silent;
    }
    let Some(laggard) = &unit.peers.laggard else {
        return if unit.peers.why.is_empty() {
            Outcome::Silent
        } else {
            Outcome::Suspended(unit.peers.why.to_string().into())
        };
    };
    if laggard.age.is_some_and(|age| age < view.policy.straggler_local.warm_ns) {
        return Outcome::Suspended(format!("{} was started a moment ago", laggard.name).into());
    }
    // Held clocks are told by the driver; the rest shows in the utilization of one block by noise as well.
    if !view.active && laggard.kind != Lag::Throttled && unit.peers.blocks < lasting(view) {
        return Outcome::Silent;
    }
    Outcome::Claim(claim(view, &activity, laggard))
}

/// Blocks of the last ones in which the same rank must have been waited for: all of for_ns but one.
fn lasting(view: &View<'_>) -> u32 {
    let blocks = view.policy.straggler_local.for_ns.0 / view.policy.block_ns.0.max(1);
    u32::try_from(blocks).unwrap_or(u32::MAX).saturating_sub(1).min(u8::BITS)
}

fn claim(view: &View<'_>, activity: &Deviation, laggard: &Laggard) -> Claim {
    let unit = view.unit;
    let name = &laggard.name;
    let says = match laggard.kind {
        Lag::Throttled => "its clocks are held down".to_string(),
        Lag::Starved => format!(
            "its own work has gaps ({} utilization{})",
            percent(laggard.util),
            laggard.usual.map_or_else(String::new, |usual| format!(", normally {}", percent(usual)))
        ),
        Lag::Slow => {
            format!("it does {} of what it normally does, they {}", percent(laggard.activity), percent(laggard.others))
        }
    };
    let sure = SURE.iter().find(|(kind, _)| *kind == laggard.kind).map_or(0.5, |(_, sure)| *sure);
    Claim {
        variant: Some(laggard.kind.as_str().into()),
        severity: Severity::Warn,
        cause: Some(Cause::Peer),
        object: name.clone(),
        deficit: unit.weight.w.rest(),
        onset: activity.onset.unwrap_or(view.host.now),
        pressure: Part::ONE,
        confidence: Part::from_fraction(sure).min(unit.weight.source.confidence()),
        summary: format!("{name} holds up the other ranks of its job: {says}"),
        evidence: evidence(unit, activity, laggard),
        rejected: alloc::vec![
            Rejected {
                cause: Cause::Network,
                of: String::new(),
                why: format!("if they waited for another node, {name} would wait as well"),
            },
            Rejected {
                cause: Cause::Stall,
                of: unit.name.clone(),
                why: "a GPU that waits for a peer is a victim".into()
            },
        ],
        advice: format!(
            "look at {name}: its clocks and temperature, what its process waits for (`py-spy dump`), its share of the data; replace the GPU if it stays slow with another job"
        ),
        holders: Vec::new(),
    }
}

fn evidence(unit: &UnitFacts<'_>, activity: &Deviation, laggard: &Laggard) -> Vec<Evidence> {
    let scaled = Deviation {
        value: activity.value * 100.0,
        normal: activity.normal * 100.0,
        spread: activity.spread * 100.0,
        ..*activity
    };
    let mut evidence = alloc::vec![Evidence {
        normal: Some(scaled.as_normal()),
        ..Evidence::plain("activity", &unit.name, scaled.value, "%")
    }];
    evidence.extend(unit.usage.block.util.map(|util| Evidence::plain("utilization", &unit.name, util * 100.0, "%")));
    evidence.push(Evidence::plain("activity, of its own normal", &laggard.name, laggard.activity * 100.0, "%"));
    evidence.push(Evidence::plain("utilization", &laggard.name, laggard.util * 100.0, "%"));
    evidence
}
