//! What one tenant's use of a shared resource cost another (facts: fair shares of a resource; who takes more than its
//! share carries the loss of those that wait for it).
//!
//! Only a confirmed cause that *is* somebody's use has a causer: other cgroups on the workload's own storage, other
//! cgroups on the CPUs that its threads wait for, other GPUs on the PCIe uplink that it shares. A rebuild, a slow drive, a quota of one's own, a hypervisor are
//! nobody's use, and nobody is charged. A tenant's own use of what it waits for is its own affair.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::storage::SyncState;
use gpuprod_snapshot::tenant::Cgroup;
use gpuprod_snapshot::units::to_f64;

use crate::facts::UnitFacts;
use crate::gather::Gather;
use crate::hold::Holds;
use crate::ledger::tenants;
use crate::{Bucket, Cause, External, Part, RuleId, UnitJudgement, facts, merge};

/// A use by tenant, in whatever unit its resource has.
type Uses = BTreeMap<Option<String>, f64>;

/// Notes on every unit who caused what it lost in this tick, as far as that can be told.
pub(crate) fn note(gather: &Gather<'_>, facts: &[UnitFacts<'_>], holds: &Holds, units: &mut [UnitJudgement]) {
    for judged in units {
        let Some(unit) = facts.iter().find(|unit| unit.id == judged.unit) else { continue };
        let mut external = Vec::new();
        // Where nothing was lost nobody has caused a loss.
        let lost = judged.split.iter().any(|(bucket, part)| matches!(bucket, Bucket::Lost(_)) && part.0 > 0);
        if !lost {
            judged.external = external;
            continue;
        }
        for share in merge::shares(holds, &judged.unit) {
            let lost = judged.split.iter().any(|(bucket, part)| *bucket == Bucket::Lost(share.cause) && part.0 > 0);
            let uses = if lost { uses(gather, (unit, facts), holds, share.cause, share.object) } else { None };
            if let Some(uses) = uses {
                let victims = tenants::parts(judged).into_iter().filter_map(|(tenant, _)| tenant).collect();
                external.extend(carried(share.cause, &uses, &victims));
            }
        }
        judged.external = external;
    }
}

/// Who uses what the unit waits for; none where the cause is nobody's use.
fn uses(
    gather: &Gather<'_>,
    (unit, all): (&UnitFacts<'_>, &[UnitFacts<'_>]),
    holds: &Holds,
    cause: Cause,
    object: &str,
) -> Option<Uses> {
    match cause {
        Cause::Storage | Cause::BackgroundIo => {
            let arrays = gather.md.into_iter().flat_map(|md| &md.arrays);
            let syncs = arrays
                .filter(|array| array.name == object || unit.work.path.arrays.contains(&array.name))
                .any(|array| array.sync.get() == Some(&SyncState::Running));
            let own = &unit.work.io_by_device;
            if syncs || own.is_empty() { None } else { gather.uses(|old, new| bytes(old, new, own)) }
        }
        Cause::HostCpu => {
            let claim = &holds.of(&unit.id).get(RuleId::CpuStarvedLoader)?.claim;
            if claim.variant.as_deref() == Some("contended") { gather.uses(cpu) } else { None }
        }
        Cause::PcieNuma => uplink(gather, all, object),
        _ => None,
    }
}

/// Bytes per second that each tenant's GPUs move over a shared uplink, in its busier direction. What other devices move is
/// nobody's.
fn uplink(gather: &Gather<'_>, all: &[UnitFacts<'_>], object: &str) -> Option<Uses> {
    let (_, uplink) =
        gather.signals.pcie.shared_uplinks().find(|(bridge, _)| facts::pcie::object(*bridge) == object)?;
    let mut uses = Uses::new();
    for (address, member) in &uplink.members {
        let Some((to, from)) = member.rate else { continue };
        let moved = if uplink.down { to } else { from };
        let is_here = |unit: &&UnitFacts<'_>| {
            unit.gpu.and_then(|gpu| gpu.pci.copied()).is_some_and(|pci| pci.same_slot(*address)) && !unit.mig
        };
        let parts = all.iter().find(is_here).map(|unit| unit.ownership.parts.as_slice()).unwrap_or_default();
        if parts.is_empty() {
            *uses.entry(None).or_default() += moved;
        }
        for (tenant, part) in parts {
            *uses.entry(tenant.clone()).or_default() += moved * part.as_fraction();
        }
    }
    Some(uses)
}

/// Bytes that a cgroup moved to and from these devices.
fn bytes(old: &Cgroup, new: &Cgroup, devices: &BTreeMap<(u32, u32), f64>) -> Option<f64> {
    let (old, new) = (old.io.get()?, new.io.get()?);
    let moved = new.iter().filter(|io| devices.contains_key(&io.dev)).map(|io| {
        let before = old.iter().find(|before| before.dev == io.dev);
        before.map_or(0, |before| {
            let (read, written) =
                (io.read.0.saturating_sub(before.read.0), io.written.0.saturating_sub(before.written.0));
            read.saturating_add(written)
        })
    });
    Some(to_f64(moved.fold(0, u64::saturating_add)))
}

fn cpu(old: &Cgroup, new: &Cgroup) -> Option<f64> {
    Some(new.cpu_used.copied()?.saturating_sub(old.cpu_used.copied()?).as_secs_f64())
}

impl Gather<'_> {
    /// What every tenant used since the last sample of the cgroups; none before there are two.
    fn uses(&self, read: impl Fn(&Cgroup, &Cgroup) -> Option<f64>) -> Option<Uses> {
        let (old, new, _) = self.window.pair(|tick| &tick.cgroup)?;
        let before: BTreeMap<&str, &Cgroup> = old.cgroups.iter().map(|cgroup| (cgroup.path.as_str(), cgroup)).collect();
        let mut uses = Uses::new();
        for cgroup in &new.cgroups {
            let Some(used) = before.get(cgroup.path.as_str()).and_then(|before| read(before, cgroup)) else { continue };
            *uses.entry(self.tenant_of(cgroup)).or_default() += used;
        }
        Some(uses)
    }
}

/// The parts of a loss that others carry: each by what it uses beyond an equal share of all use. Where somebody has no
/// name, its part is nobody's.
fn carried(cause: Cause, uses: &Uses, victims: &BTreeSet<&str>) -> Vec<External> {
    let users = uses.values().filter(|used| **used > 0.0).count();
    let fair = uses.values().sum::<f64>() / to_f64(u64::try_from(users.max(2)).unwrap_or(u64::MAX));
    let beyond = |used: f64| (used - fair).max(0.0);
    let is_other = |tenant: &Option<String>| tenant.as_deref().is_none_or(|tenant| !victims.contains(tenant));
    let others = || uses.iter().filter(|(tenant, _)| is_other(tenant));
    let all: f64 = others().map(|(_, used)| beyond(*used)).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    // Cut, never rounded up: the parts sum to one at most.
    let part = |used: f64| Part(Part::from_fraction(libm::floor(beyond(used) / all * 1e6) / 1e6).0);
    let named = others().filter_map(|(tenant, used)| Some((tenant.clone()?, part(*used))));
    named.filter(|(_, part)| part.0 > 0).map(|(tenant, part)| External { resource: cause, tenant, part }).collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn carried_by(uses: &[(Option<&str>, f64)], victims: &[&str]) -> Vec<(String, u32)> {
        let uses: Uses = uses.iter().map(|(tenant, used)| (tenant.map(ToString::to_string), *used)).collect();
        let carried = carried(Cause::BackgroundIo, &uses, &victims.iter().copied().collect());
        carried.into_iter().map(|external| (external.tenant, external.part.0)).collect()
    }

    #[test]
    fn who_takes_more_than_its_share_carries_the_loss() {
        // Of 100 a third is fair; x takes 80.
        assert_eq!(
            carried_by(&[(Some("v"), 10.0), (Some("x"), 80.0), (Some("y"), 10.0)], &["v"]),
            [("x".into(), 1_000_000)]
        );
        // 40 and 50 of 96 with four users: 16 and 26 beyond 24.
        let two = carried_by(&[(Some("v"), 3.0), (Some("w"), 3.0), (Some("x"), 40.0), (Some("y"), 50.0)], &["v"]);
        assert_eq!(two, [("x".into(), 380_952), ("y".into(), 619_047)]);
    }

    #[test]
    fn nobody_is_charged_for_its_own_use_for_a_fair_share_or_without_a_name() {
        assert_eq!(carried_by(&[(Some("v"), 90.0), (Some("x"), 10.0)], &["v"]), []);
        assert_eq!(carried_by(&[(Some("v"), 50.0), (Some("x"), 50.0)], &["v"]), []);
        assert_eq!(carried_by(&[(Some("v"), 10.0), (None, 90.0)], &["v"]), []);
        assert_eq!(carried_by(&[(Some("x"), 0.0)], &["v"]), []);
        // Half of what is beyond the fair share has no name, and is nobody's.
        assert_eq!(carried_by(&[(Some("v"), 2.0), (None, 49.0), (Some("x"), 49.0)], &["v"]), [("x".into(), 500_000)]);
    }
}
