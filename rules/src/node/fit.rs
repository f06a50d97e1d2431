//! Whether the next job should be placed here.
//!
//! Unfit is what harms any job on this node: a broken GPU, a hung driver, storage that has failed or starves the GPUs.
//! What belongs to the workload (its queue, its cache, its peers, an idle holder) says nothing about the node. "Cannot
//! tell" is an answer of its own, and drains nobody by itself.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth};
use gpuprod_snapshot::storage::MdState;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{
    Bucket, Cause, Class, Finding, Micro, Part, Policy, Probe, RuleId, Severity, State, UnitId, UnitJudgement,
};

/// The verdict, worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Place jobs.
    Fit,
    /// The evidence does not say.
    #[default]
    CannotTell,
    /// Jobs run here, and lose time.
    Degraded,
    /// Place none.
    Unfit,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::CannotTell => "cannot tell",
            Self::Degraded => "degraded",
            Self::Unfit => "unfit",
        }
    }
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What it makes of the node.
    pub verdict: Verdict,
    /// In one line; it carries foreign names.
    pub says: String,
    /// Since when (CLOCK_BOOTTIME); none for a fact that is believed at once.
    #[serde(default, rename = "since_ns", skip_serializing_if = "Option::is_none")]
    pub since: Option<Nanos>,
}

/// The verdict for one class of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassFit {
    /// For whom.
    pub class: Class,
    /// What stands: it falls after `down_ns` and rises after `up_ns`.
    pub verdict: Verdict,
    /// It stands since (CLOCK_BOOTTIME).
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// What speaks against the node now, worst first. None while the verdict waits to rise.
    pub reasons: Vec<Reason>,
}

/// The classes for which the answer differs: a batch job can live with what costs it a little time.
pub(crate) const CLASSES: [Class; 2] = [Class::Serving, Class::Batch];

/// What the reasons are made of.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Every unit.
    pub units: &'a [UnitJudgement],
    /// Active findings.
    pub findings: &'a [Finding],
    /// Sources that do not come back.
    pub probes: &'a [Probe],
    /// The last sample of every source.
    pub known: &'a Tick,
    /// Mount points that turned read-only.
    pub read_only: &'a [String],
    /// RDMA ports that had a link and have none, since.
    pub dark: &'a [(String, Nanos)],
    /// Lost part of a victim's time from which a warning counts.
    pub lost_warn: Part,
}

/// Everything that speaks against the node now, worst first.
#[must_use]
pub fn reasons(seen: &Seen<'_>, class: Class) -> Vec<Reason> {
    let mut reasons = Vec::new();
    gpus(seen, &mut reasons);
    storage(seen, &mut reasons);
    reasons.extend(seen.dark.iter().map(|(port, since)| Reason {
        verdict: Verdict::Degraded,
        says: format!("port {port} has lost its link"),
        since: Some(*since),
    }));
    reasons.extend(seen.findings.iter().filter_map(|finding| of_finding(seen, finding, class)));
    reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.says.cmp(&b.says)));
    reasons
}

/// Causes that lie in the node: the next job would meet them too.
const fn is_host_side(cause: Cause) -> bool {
    match cause {
        Cause::Fault
        | Cause::Throttle
        | Cause::Storage
        | Cause::HostMem
        | Cause::HostCpu
        | Cause::PcieNuma
        | Cause::Network => true,
        Cause::BackgroundIo
        | Cause::Squat
        | Cause::Stall
        | Cause::Kv
        | Cause::Peer
        | Cause::Upstream
        | Cause::Unexplained => false,
    }
}

fn gpus(seen: &Seen<'_>, reasons: &mut Vec<Reason>) {
    let mut say = |verdict, since, says: String| reasons.push(Reason { verdict, says, since });
    for unit in seen.units {
        let about = || unit.index.map_or_else(|| unit.unit.0.as_ref().into(), |index| format!("GPU {index}"));
        match unit.state {
            State::Faulted(fault) => say(Verdict::Unfit, None, format!("{} is faulted ({fault})", about())),
            State::Unknown(why) => say(Verdict::CannotTell, Some(unit.since), format!("{}: unknown ({why})", about())),
            _ => {}
        }
    }
    let listed = seen.known.gpu.as_ref().and_then(|sample| sample.value.get());
    for gpu in listed.map_or(&[][..], |gpus| &gpus.devices) {
        let faulted = |unit: &UnitJudgement| unit.index == Some(gpu.index) && matches!(unit.state, State::Faulted(_));
        if let Some(health) = gpu.health.get().filter(|health| is_broken(health))
            && !seen.units.iter().any(faulted)
        {
            say(Verdict::Unfit, None, format!("GPU {} is {}", gpu.index, health.as_str().replace('_', " ")));
        }
    }
    let stuck = seen.probes.iter().find(|probe| probe.collector == "gpu");
    if let Some(probe) = stuck {
        let seconds = Micro::from_f64(probe.age.as_secs_f64());
        let since = seen.known.stamp.boottime.saturating_sub(probe.age);
        say(Verdict::Unfit, Some(since), format!("the driver hangs: {} for {seconds} s", probe.call));
    }
    let none: &[Gpu] = &[];
    if seen.units.is_empty() && listed.map_or(none, |gpus| &gpus.devices).is_empty() && stuck.is_none() {
        say(Verdict::CannotTell, None, "no GPU can be read".into());
    }
}

fn is_broken(health: &GpuHealth) -> bool {
    matches!(health, GpuHealth::Lost | GpuHealth::ResetRequired)
}

fn storage(seen: &Seen<'_>, reasons: &mut Vec<Reason>) {
    let md = seen.known.md.as_ref().and_then(|sample| sample.value.get());
    for array in md.map_or(&[][..], |md| &md.arrays) {
        let name = &array.name;
        let mut say = |verdict, says: String| reasons.push(Reason { verdict, says, since: None });
        if array.state.get() == Some(&MdState::Broken) {
            say(Verdict::Unfit, format!("array {name} has failed"));
        } else if let Some(missing) = array.degraded.copied().filter(|missing| *missing > 0) {
            let noun = if missing == 1 { "member" } else { "members" };
            say(Verdict::Degraded, format!("array {name} lacks {missing} {noun}"));
        }
    }
    for point in seen.read_only {
        reasons.push(Reason {
            verdict: Verdict::Unfit,
            says: format!("file system {point} turned read-only"),
            since: None,
        });
    }
}

fn of_finding(seen: &Seen<'_>, finding: &Finding, class: Class) -> Option<Reason> {
    if matches!(finding.rule, RuleId::NodeFit | RuleId::StrandedCapacity) || finding.severity == Severity::Info {
        return None;
    }
    let costs = finding.victims.iter().any(|unit| lost(seen.units, unit) >= seen.lost_warn);
    let host_side = finding.cause.is_some_and(is_host_side);
    let verdict = match (finding.severity, class) {
        (Severity::Critical, _) if host_side => Verdict::Unfit,
        (Severity::Warn, Class::Serving) if host_side && costs => Verdict::Unfit,
        (Severity::Critical, _) | (_, Class::Serving) => Verdict::Degraded,
        _ if costs => Verdict::Degraded,
        _ => return None,
    };
    let cause = finding.cause.map_or_else(String::new, |cause| format!(" ({cause})"));
    let (count, noun) = (finding.victims.len(), if finding.victims.len() == 1 { "GPU" } else { "GPUs" });
    let says = format!("{} {}{cause}, {count} {noun}", finding.rule, finding.subject);
    // A finding has waited out its own hold.
    Some(Reason { verdict, says, since: None })
}

/// The part of a unit's time that is lost now.
fn lost(units: &[UnitJudgement], unit: &UnitId) -> Part {
    let split = units.iter().filter(|judged| judged.unit == *unit).flat_map(|judged| &judged.split);
    let lost = split.filter(|(bucket, _)| matches!(bucket, Bucket::Lost(_)));
    Part(lost.fold(0, |sum, (_, part)| sum.saturating_add(part.0)))
}

/// A verdict that neither falls nor rises at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standing {
    verdict: Option<Verdict>,
    since: Nanos,
    /// Since when it has been better, and the worst of that time.
    better: Option<(Nanos, Verdict)>,
}

impl Standing {
    pub(crate) fn step(&mut self, class: Class, reasons: Vec<Reason>, now: Nanos, policy: &Policy) -> ClassFit {
        let limits = &policy.node_fit;
        let young = |reason: &&Reason| {
            self.verdict.is_some() && reason.since.is_some_and(|since| now.saturating_sub(since) < limits.down_ns)
        };
        let worst = reasons.iter().filter(|reason| !young(reason)).map(|reason| reason.verdict).max();
        let worst = worst.unwrap_or(Verdict::Fit);
        match self.verdict {
            Some(standing) if worst < standing => {
                let (began, until_now) = self.better.unwrap_or((now, worst));
                let until_now = until_now.max(worst);
                self.better = Some((began, until_now));
                // Ignorance ends with knowledge, without a wait.
                if standing == Verdict::CannotTell || now.saturating_sub(began) >= limits.up_ns {
                    self.stand(until_now, now);
                }
            }
            _ => self.stand(worst, now),
        }
        ClassFit { class, verdict: self.verdict.unwrap_or_default(), since: self.since, reasons }
    }

    fn stand(&mut self, verdict: Verdict, now: Nanos) {
        if self.verdict.replace(verdict) != Some(verdict) {
            self.since = now;
        }
        self.better = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(verdict: Verdict, since: Option<u64>) -> Vec<Reason> {
        alloc::vec![Reason { verdict, says: "x".into(), since: since.map(Nanos::from_secs) }]
    }

    fn step(standing: &mut Standing, at: u64, reasons: Vec<Reason>) -> Verdict {
        standing.step(Class::Batch, reasons, Nanos::from_secs(at), &Policy::default()).verdict
    }

    #[test]
    fn it_falls_after_half_a_minute_and_rises_after_five() {
        let mut standing = Standing::default();
        assert_eq!(step(&mut standing, 0, Vec::new()), Verdict::Fit, "the first word needs no wait");
        let hang = |at| reason(Verdict::Unfit, Some(at));
        assert_eq!(step(&mut standing, 10, hang(10)), Verdict::Fit);
        assert_eq!(step(&mut standing, 39, hang(10)), Verdict::Fit);
        assert_eq!(step(&mut standing, 40, hang(10)), Verdict::Unfit);
        assert_eq!(step(&mut standing, 50, Vec::new()), Verdict::Unfit);
        assert_eq!(step(&mut standing, 200, reason(Verdict::Degraded, None)), Verdict::Unfit);
        assert_eq!(step(&mut standing, 349, Vec::new()), Verdict::Unfit);
        assert_eq!(step(&mut standing, 350, Vec::new()), Verdict::Degraded, "the worst of the five minutes");
        assert_eq!(step(&mut standing, 360, Vec::new()), Verdict::Degraded);
        assert_eq!(step(&mut standing, 660, Vec::new()), Verdict::Fit);
        assert_eq!(
            step(&mut standing, 661, reason(Verdict::Unfit, None)),
            Verdict::Unfit,
            "a fact is believed at once"
        );
    }

    #[test]
    fn a_relapse_begins_the_wait_anew() {
        let mut standing = Standing::default();
        step(&mut standing, 0, reason(Verdict::Unfit, None));
        step(&mut standing, 10, Vec::new());
        step(&mut standing, 300, reason(Verdict::Unfit, None));
        assert_eq!(step(&mut standing, 311, Vec::new()), Verdict::Unfit);
        assert_eq!(step(&mut standing, 610, Vec::new()), Verdict::Unfit);
        assert_eq!(step(&mut standing, 611, Vec::new()), Verdict::Fit);
    }

    #[test]
    fn ignorance_ends_with_knowledge() {
        let mut standing = Standing::default();
        assert_eq!(step(&mut standing, 0, reason(Verdict::CannotTell, Some(0))), Verdict::CannotTell);
        assert_eq!(step(&mut standing, 1, Vec::new()), Verdict::Fit);
        assert_eq!(step(&mut standing, 2, reason(Verdict::CannotTell, Some(2))), Verdict::Fit);
        assert_eq!(step(&mut standing, 32, reason(Verdict::CannotTell, Some(2))), Verdict::CannotTell);
    }
}
