//! From tick to judgement.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Source, Tick};
use serde::{Deserialize, Serialize};

use crate::attribution::did::History;
use crate::facts::HostFacts;
use crate::facts::host::{Around, loading};
use crate::facts::work::Work;
use crate::gather::Gather;
use crate::hold::{Active, Holds, Now};
use crate::node::Node;
use crate::rule::{Outcome, RULES, View};
use crate::signals::steps::StepSignals;
use crate::signals::{EngineSignals, Signals, Suspect};
use crate::unit::{Units, settle};
use crate::window::Window;
use crate::{
    Cause, Judgement, Policy, Probe, RuleId, RuleReport, RuleStatus, Severity, Tenancy, externality, fingerprint, join,
    merge, peers, serving, tenant_io, vital,
};

/// What was learnt longer ago is learnt anew: the node is another one by now.
const LEARNT_FOR: Nanos = Nanos::from_secs(7 * 24 * 3600);
/// After a shorter gap findings and states go on too.
const GOES_ON: Nanos = Nanos::from_secs(120);

/// Everything that was learnt, the last sample of every source, and the one before it where they are compared. This is also
/// its saved form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judge {
    policy: Policy,
    window: Window,
    signals: Signals,
    suspect: Suspect,
    holds: Holds,
    units: Units,
    #[serde(default)]
    node: Node,
    /// Progress of the last minutes, for comparing units.
    #[serde(default)]
    history: History,
    #[serde(skip)]
    tenancy: Tenancy,
}

impl Judge {
    /// A judge that has learnt nothing yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Other thresholds from the next tick on. What was learnt stays; a rule that is switched off falls silent at once.
    pub fn set_policy(&mut self, policy: Policy) {
        for rule in &policy.off {
            self.holds.forget(*rule);
        }
        self.policy = policy;
    }

    /// Other names of tenants and classes from the next tick on.
    pub fn set_tenancy(&mut self, tenancy: Tenancy) {
        self.tenancy = tenancy;
    }

    /// How tenants and classes are named.
    #[must_use]
    pub fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    /// Another process goes on with what this judge has learnt, at the instant and with the samples of a tick. None
    /// when it was learnt under other thresholds, or too long ago. After a short gap within a boot everything goes on,
    /// findings too; after a longer one the own normals alone.
    #[must_use]
    pub fn resume(mut self, policy: &Policy, now: &Tick) -> Option<Self> {
        let switches = Policy { off: policy.off.clone(), declared: policy.declared.clone(), ..self.policy.clone() };
        let same = switches == *policy;
        let (then, now_at) = (&self.window.last.stamp, &now.stamp);
        let age = now_at.realtime.checked_sub(then.realtime).unwrap_or_default();
        if !same || age > LEARNT_FOR {
            return None;
        }
        let awake = (then.boot_id == now_at.boot_id && !then.boot_id.0.is_empty())
            .then(|| now_at.boottime.checked_sub(then.boottime))
            .flatten();
        if awake.is_none_or(|gap| gap > GOES_ON) {
            self.signals.rest();
            self = Self { signals: self.signals, ..Self::default() };
        }
        // No rate is taken over the gap.
        self.window = Window::default();
        self.window.push(now);
        self.set_policy(policy.clone());
        Some(self)
    }

    /// The thresholds in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The last sample of every source.
    #[must_use]
    pub fn known(&self) -> &Tick {
        &self.window.last
    }

    /// Judges what was newly read.
    pub fn step(&mut self, tick: &Tick) -> Judgement {
        self.window.push(tick);
        self.signals.update(&self.window, tick, &self.suspect, &self.policy);
        self.window.forget();
        self.units.discover(tick);
        let turned = self.history.turn(tick.stamp.boottime, &self.policy);

        let unread = self.window.unread();
        let now = Now { boottime: tick.stamp.boottime, realtime: tick.stamp.realtime, unread: &unread };
        let gather = Gather::new(&self.window, &self.signals, &self.tenancy);
        let facts = gather.all(&mut self.units, &self.policy);
        let md = self.window.value(Source::Md, |tick| &tick.md).get().copied();
        let block = self.window.value(Source::Block, |tick| &tick.block).get().copied();
        let engines = self.window.value(Source::Engine, |tick| &tick.engine).get().copied();
        let around = Around {
            cpu: self.window.value(Source::Cpu, |tick| &tick.cpu).get().copied(),
            net: self.window.value(Source::Net, |tick| &tick.net).get().copied(),
            loading: loading(&facts),
        };
        let (signals, history, node) = (&self.signals, &self.history, &self.node.last);
        let arrays = join::arrays(gather.devices.as_ref(), md);
        let host = HostFacts { now: now.boottime, md, block, arrays, signals, units: &facts, history, node, around };

        let mut reports = Vec::with_capacity(facts.len().saturating_mul(RULES.len()));
        let mut spoke = Spoke::default();
        for unit in &facts {
            let mut overruled = None;
            let mut held = self.holds.take(&unit.id);
            for rule in RULES.iter().filter(|rule| !self.policy.off.contains(&rule.id)) {
                let active = held.is_active(rule.id);
                let judge =
                    |tells| (rule.judge)(&View { unit, host: &host, policy: &self.policy, active, held: &held, tells });
                let mut tells = turned || !held.words(rule.id).is_some_and(|words| spoke.has(rule.id, &words.object));
                // The node's verdict rests on the fault, and is not overruled by it.
                let mut outcome = match overruled.filter(|_| rule.id != RuleId::NodeFit) {
                    None => judge(tells),
                    Some(by) => Outcome::Suspended(format!("{by} speaks of this GPU").into()),
                };
                if let Outcome::Claim(claim) = &outcome {
                    spoke.note(rule.id, &claim.object);
                    if !tells && !held.words(rule.id).is_some_and(|words| claim.is_like(words)) {
                        (tells, outcome) = (true, judge(true));
                    }
                }
                if let Outcome::Claim(claim) = &outcome
                    && !active
                    && claim.severity > Severity::Info
                    && let Some(object) = held.unread(claim, now, &self.policy)
                {
                    outcome = Outcome::Suspended(format!("{object} was the cause, and cannot be looked at now").into());
                }
                if let (RuleId::StragglerLocal, Outcome::Claim(claim)) = (rule.id, &outcome)
                    && let Some(by) = peers::common(claim, &held, &facts, &self.holds)
                {
                    outcome = Outcome::Suspended(format!("{by} holds up the whole job").into());
                    held.forget(rule.id);
                }
                let hold = (rule.hold)(&self.policy);
                if !matches!(outcome, Outcome::Claim(_)) {
                    held.hush((rule.id, hold), now, &self.policy);
                }
                let status = match outcome {
                    Outcome::Claim(claim) => {
                        held.hear((rule.id, hold), (claim, tells), now, &self.policy);
                        RuleStatus::Evaluated
                    }
                    Outcome::Silent => RuleStatus::Evaluated,
                    Outcome::Suspended(why) => RuleStatus::Suspended(why),
                    Outcome::Unsupported(why) => RuleStatus::Unsupported(why),
                    Outcome::Absent => RuleStatus::Absent,
                };
                let own = held.get(rule.id);
                overruled = overruled.or(own.filter(|own| is_fault(rule.id, own)).map(|_| rule.id));
                let active = held.is_active(rule.id);
                reports.push(RuleReport { rule: rule.id, unit: unit.id.clone(), status, active });
            }
            held.settle(merge::is_effect, merge::names);
            self.holds.put(&unit.id, held);
        }
        let others = peers::borrowed(&facts, &self.holds, &self.policy);
        let units = facts.iter().map(|unit| {
            let blame = self.holds.of(&unit.id).ranked().find_map(|(_, active)| {
                // A wait for a peer elsewhere is told and booked, and nobody is paged for it; a leak is told and has
                // cost nothing yet.
                let blames = active.claim.cause.is_some();
                // Holding ends with the first sign of life, whatever the finding waits for: it hides nobody else.
                let over =
                    matches!(active.claim.cause, Some(Cause::Fault | Cause::Throttle | Cause::Squat | Cause::Stall))
                        && !active.current;
                (blames && !over).then_some(active)
            });
            let mut shares = merge::shares(&self.holds, &unit.id);
            let borrowed = others.get(&unit.id).filter(|_| blame.is_none());
            if let Some((cause, pressure)) = borrowed.copied() {
                shares = alloc::vec![merge::Share { cause, object: "", pressure }];
            }
            (unit, blame, borrowed.map(|(cause, _)| *cause), shares)
        });
        let mut units = settle(units, &self.window, &mut self.units, now, &self.policy);
        externality::note(&gather, &facts, &self.holds, &mut units);
        self.suspect = suspect(&facts, &host, &self.holds, &self.policy);
        merge::charge(&mut self.holds, &units, self.history.step());
        let (findings, probes) = (merge::findings(&self.holds, &facts), probes(&self.window));
        self.history.add(&units, &facts, &self.policy);
        self.history.keep(&units);
        let node = self.node.step(&units, &findings, &probes, (&self.window, &self.signals), &self.policy);
        Judgement {
            stamp: tick.stamp.clone(),
            period: tick.period,
            units,
            findings,
            rules: reports,
            probes,
            io: if tick.cgroup.is_some() { tenant_io::of(&gather) } else { Vec::new() },
            serving: serving::all(&self.signals, (engines, &facts), now.boottime, &self.policy),
            vitals: vital::all(&self.signals, now.boottime, &self.policy),
            node,
        }
    }
}

/// What was said in this tick, and of which object. Eight GPUs say the same of one array, and one of them is shown: the
/// first finds its words every second, the others when a block ends.
#[derive(Default)]
struct Spoke(Vec<(RuleId, String)>);

impl Spoke {
    fn has(&self, rule: RuleId, object: &str) -> bool {
        self.0.iter().any(|(said, of)| *said == rule && of == object)
    }

    fn note(&mut self, rule: RuleId, object: &str) {
        if !self.has(rule, object) {
            self.0.push((rule, object.into()));
        }
    }
}

/// A GPU that is broken, or waits for one that is, has no other trouble that counts.
fn is_fault(rule: RuleId, held: &Active) -> bool {
    rule == RuleId::GpuFault && held.current && matches!(held.claim.cause, Some(Cause::Fault | Cause::Peer))
}

/// So long an unexplained deficit keeps the devices that its unit uses from being learnt.
const DOUBT: Nanos = Nanos::from_secs(600);

/// What may not be learnt from now: a baseline must not drink from the trouble that it is to recognise.
fn suspect(facts: &[crate::facts::UnitFacts<'_>], host: &HostFacts<'_>, holds: &Holds, policy: &Policy) -> Suspect {
    let mut suspect = Suspect { hardware: fingerprint::hardware(facts), ..Suspect::default() };
    let mut doubted: Vec<&Rc<Work<'_>>> = Vec::new();
    for unit in facts {
        // Slurm's daemon is an ancestor of every job, and a session's cgroup may hold several: both must be the same.
        let is_one = |other: &crate::facts::UnitFacts<'_>| {
            other.work.family.first() == unit.work.family.first() && other.work.ties.cgroup == unit.work.ties.cgroup
        };
        let owner = facts.iter().position(is_one).filter(|_| !unit.work.family.is_empty());
        suspect.owners.extend(unit.gpu.and_then(|gpu| gpu.pci.copied()).zip(owner));
        let blamed = holds.of(&unit.id).blames();
        let min = policy.baseline_min_blocks;
        let doubt = |blocks: Option<u32>| unit.doubt && blocks.is_none_or(|blocks| blocks < min);
        if (unit.deficit_since.is_some() || blamed || unit.throttled || doubt(unit.signals.map(EngineSignals::blocks)))
            && let Some(engine) = unit.engine
        {
            note(&mut suspect.engines, &engine.url);
        }
        if let Some((engine, since)) = unit.engine.zip(unit.deficit_since)
            && holds.of(&unit.id).slowed()
        {
            let known = suspect.slowed.entry(engine.url.clone()).or_insert(since);
            *known = since.min(*known);
        }
        if let Some(page) = unit.trainer.page {
            let doubt = doubt(unit.trainer.signals.map(StepSignals::blocks));
            let well = unit.deficit_since.is_none() && !blamed && !unit.throttled && !doubt && unit.trainer.steps();
            let lesson = unit.trainer.lesson(unit.work.number, well, unit.checkpoint);
            suspect.steps.entry(page.url.clone()).and_modify(|all| all.meet(lesson)).or_insert(lesson);
        }
        if let (Some(engine), Some(util)) = (unit.engine, unit.usage.block.util) {
            raise(&mut suspect.busy, &engine.url, util);
        }
        if let (Some(engine), Some(ratio)) = (unit.engine, unit.silicon) {
            raise(&mut suspect.silicon, &engine.url, ratio);
        }
        if unit.deficit_since.is_some() || blamed || unit.usage.hungry.since().is_some() {
            unit.work.ties.cgroup.iter().for_each(|cgroup| note(&mut suspect.workloads, cgroup));
        }
        // A deficit that nobody is blamed for yet may be the device's; after a while it is somebody else's, and devices
        // are learnt again.
        let doubt = unit.deficit_since.is_some_and(|since| host.now.saturating_sub(since) < DOUBT);
        // Eight GPUs of one workload have the same devices open.
        if (blamed || doubt) && !doubted.iter().any(|work| Rc::ptr_eq(work, &unit.work)) {
            doubted.push(&unit.work);
            suspect.disks.extend(unit.work.path.disks.iter().cloned());
            suspect.arrays.extend(unit.work.path.arrays.iter().cloned());
            suspect.mounts.extend(unit.work.mounts.iter().cloned());
        }
    }
    for (array, disks) in &host.arrays {
        if host.signals.arrays.get(&array.name).is_some_and(|signals| signals.sync_since.is_some()) {
            suspect.arrays.insert(array.name.clone());
            suspect.disks.extend(disks.iter().cloned());
        }
    }
    suspect
}

/// Eight GPUs of one engine name it eight times: it is written down once.
fn note(names: &mut BTreeSet<String>, name: &str) {
    if !names.contains(name) {
        names.insert(name.into());
    }
}

/// Likewise, with the largest of their figures; none is below zero.
fn raise(most: &mut BTreeMap<String, f64>, name: &str, value: f64) {
    match most.get_mut(name) {
        Some(known) => *known = known.max(value),
        None => {
            most.insert(name.into(), 0_f64.max(value));
        }
    }
}

fn probes(window: &Window) -> Vec<Probe> {
    let stuck = Source::ALL.iter().filter_map(|source| {
        let hung = window.last.status(*source)?.hung?;
        let age = window.last.stamp.boottime.saturating_sub(hung.since);
        Some(Probe { collector: source.as_str().to_string(), call: hung.call, age })
    });
    stuck.collect()
}
