//! What a rule's word is about, so that one trouble is one page: an alert keeps the name that it began with, whichever
//! rule tells the same trouble of its object later.

use gpuprod_rules::{Finding, RuleId};

use super::Alert;

/// What a rule tells of an object. Two of one kind are the same trouble, told twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What any cause does to whoever suffers from it: the same trouble as the cause that is told of the object.
    Effect,
    /// An engine that cannot keep up, from a full cache to standing still.
    Engine,
    /// A device or file system that is late.
    Storage,
    /// The way between host and GPU.
    Way,
    /// A GPU that nobody uses.
    Held,
    /// Told by one rule alone.
    Only(RuleId),
}

const fn kind(rule: RuleId) -> Kind {
    use RuleId as R;
    match rule {
        R::BusyButStarved
        | R::ThroughputRegression
        | R::LatencyClassViolation
        | R::HeadroomBreach
        | R::StragglerLocal
        | R::LoadingSlow
        | R::NoisyNeighbour => Kind::Effect,
        R::KvSaturation | R::QueueInstability | R::PreemptionThrash | R::EngineStall => Kind::Engine,
        R::RaidRebuildImpact | R::IoStall => Kind::Storage,
        R::CrossSocketFeeding | R::SharedUplinkContention | R::PcieLinkDegraded => Kind::Way,
        R::Squatter | R::AllocatedWithoutProcess => Kind::Held,
        R::GpuFault
        | R::TelemetryDegraded
        | R::SilentThrottling
        | R::CpuStarvedLoader
        | R::MemoryLeak
        | R::FabricCongestion
        | R::StrandedCapacity
        | R::NodeFit => Kind::Only(rule),
    }
}

impl Kind {
    /// Never what a slow workload suffers from: a broken GPU, one that nobody uses, blind sensors. Each is told by itself.
    const fn stands_alone(self) -> bool {
        matches!(self, Self::Held | Self::Only(RuleId::GpuFault | RuleId::TelemetryDegraded))
    }
}

/// Whether two rules tell the same trouble of an object.
fn same(one: RuleId, other: RuleId) -> bool {
    let (one, other) = (kind(one), kind(other));
    one == other || (one == Kind::Effect && !other.stands_alone()) || (other == Kind::Effect && !one.stands_alone())
}

/// Rules that tell a finding, the one that names it first.
fn tellers(finding: &Finding) -> impl Iterator<Item = RuleId> {
    core::iter::once(finding.rule).chain(finding.also.iter().copied())
}

impl Alert {
    /// The rule that tells its trouble now.
    fn teller(&self) -> RuleId {
        self.told_by.unwrap_or(self.rule)
    }

    /// Who tells the trouble of this alert in a finding about its object: none, if the finding is another trouble. A
    /// rule that knows the cause is heard before one that sees the effect.
    pub(super) fn told_in(&self, finding: &Finding) -> Option<RuleId> {
        if finding.subject != self.object {
            return None;
        }
        let its = || tellers(finding).filter(|rule| same(self.teller(), *rule));
        its().find(|rule| kind(*rule) != Kind::Effect).or_else(|| its().next().map(|_| self.teller()))
    }

    /// Whether both are about the same trouble of the same object.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.object == other.object && same(self.teller(), other.teller())
    }

    /// Whether the finding itself tells the trouble of this alert, so that a page about it was sent already.
    pub(super) fn is_about(&self, finding: &Finding) -> bool {
        finding.subject == self.object && same(self.teller(), finding.rule)
    }
}
