//! The desk: findings come in, alerts go out. Pure: no clock, no I/O; what it must remember over a restart is
//! [`Kept`].
//!
//! Identity is the rule that told it first, cause object and mode. Severity, numbers and who tells it may change; the alert
//! stays the same.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_rules::{Finding, RuleId, Severity};
use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::{Alert, Alerts, Phase, Posts};
use crate::config::{self, Mode};

/// At most so many alerts at a time; a node with more has one problem, not sixty-five.
const MOST: usize = 64;
/// Pages are counted over an hour.
const HOUR: Nanos = Nanos::from_secs(3_600);
/// How long a restarted agent waits for the finding of an alert that fired before: holds run from 30 s on.
const CONFIRM: Nanos = Nanos::from_secs(120);
/// For so long a resolved alert is said to be, as Alertmanager's clients are asked to.
const TELL: Nanos = Nanos::from_secs(300);

/// The rule that told it first, its cause object, how loud.
type Identity = (RuleId, String, Mode);
/// What must fire, with the finding and the rule that tells it now.
type Wanted<'a> = BTreeMap<Identity, (&'a Finding, RuleId)>;

/// What the config says of alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The node's name.
    pub node: String,
    /// What each rule may do.
    pub modes: Vec<(RuleId, Mode)>,
    /// Limits and windows.
    pub alerts: config::Alerts,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Alerts that fired or were not yet told to be over.
    pub list: Vec<Alert>,
    /// When pages of the last hour began, wall clock.
    #[serde(rename = "pages_ns")]
    pub pages: Vec<Nanos>,
}

/// Keeps the list.
#[derive(Debug, Default)]
pub struct Desk {
    plan: Plan,
    told: Alerts,
    /// In their phase since, CLOCK_BOOTTIME: the wall clock may step. In the order of the list.
    since: Vec<Nanos>,
    pages: Vec<Nanos>,
    /// Findings that are held back now: each is counted once.
    silenced: BTreeSet<(RuleId, String)>,
    limited: BTreeSet<(RuleId, String)>,
}

impl Desk {
    /// Begins with nothing.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut desk = Self::default();
        desk.replan(plan);
        desk
    }

    /// Goes on where an agent before has stopped; it may come late, since whoever kept it can be slow to answer.
    pub fn resume(&mut self, kept: Kept, now: &Stamp) {
        for mut alert in kept.list {
            let same = |known: &&mut Alert| {
                let again = known.phase == Phase::Firing && known.is_of(&alert);
                known.mode == alert.mode && (again || (known.rule, &known.object) == (alert.rule, &alert.object))
            };
            if let Some(known) = self.told.list.iter_mut().find(same) {
                // Found anew in the meantime: it is the old one, by its old name, and no new page.
                if alert.is_active() {
                    (known.rule, known.told_by) = (alert.rule, alert.told_by);
                    known.starts_at = alert.starts_at;
                    if alert.mode == Mode::Page {
                        self.pages.pop();
                    }
                }
            } else if self.told.list.len() < MOST {
                alert.phase = if alert.is_active() { Phase::Resumed } else { Phase::Quiet };
                // What ended before goes on waiting, and does not begin to.
                let waited = alert.ended_at.map(|ended| now.realtime.saturating_sub(ended));
                self.since.push(now.boottime.saturating_sub(waited.unwrap_or_default()));
                self.told.list.push(alert);
            }
        }
        self.pages.extend(kept.pages);
    }

    /// Takes a new config. An alert whose rule may not alert any more ends.
    pub fn replan(&mut self, plan: Plan) {
        self.told.node.clone_from(&plan.node);
        self.told.modes.clone_from(&plan.modes);
        self.plan = plan;
    }

    /// How direct posts fare: for the series.
    pub fn posts(&mut self, posts: Vec<Posts>) {
        self.told.posts = posts;
    }

    /// What is to be remembered.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let mut list = self.told.list.clone();
        for alert in &mut list {
            // It changes with every tick, and nothing depends on it: not worth a write to the disk each second.
            if alert.is_active() {
                alert.summary.clear();
            }
        }
        Kept { list, pages: self.pages.clone() }
    }

    /// Who is told now.
    #[must_use]
    pub fn told(&self) -> &Alerts {
        &self.told
    }

    /// The findings of a tick.
    pub fn step(&mut self, findings: &[Finding], now: &Stamp) -> &Alerts {
        self.tidy_pages(now.realtime);
        let wanted = self.wanted(findings, now);
        self.end(&wanted, now);
        for ((rule, object, mode), (finding, teller)) in wanted {
            let known = self.fire((rule, object, mode), finding, now);
            if let Some(alert) = known.and_then(|place| self.told.list.get_mut(place)) {
                alert.told_by = (teller != rule).then_some(teller);
            }
        }
        &self.told
    }

    /// Pages older than an hour make room; a clock that stepped back must not keep it closed for longer.
    fn tidy_pages(&mut self, realtime: Nanos) {
        for page in &mut self.pages {
            *page = (*page).min(realtime);
        }
        self.pages.retain(|page| realtime.saturating_sub(*page) < HOUR);
    }

    /// What must fire now, and who tells it.
    fn wanted<'a>(&mut self, findings: &'a [Finding], now: &Stamp) -> Wanted<'a> {
        let silence = &self.plan.alerts.silence;
        let silent = silence.iter().any(|window| (window.from..window.to).contains(&now.realtime));
        let mut wanted = BTreeMap::new();
        let (mut silenced, mut limited) = (BTreeSet::new(), BTreeSet::new());
        let loud = findings.iter().filter(|finding| finding.severity > Severity::Info);
        let named: Vec<_> =
            loud.flat_map(|finding| self.names(finding).into_iter().map(move |n| (finding, n))).collect();
        for (finding, (rule, teller)) in named {
            if wanted.len() >= MOST {
                break;
            }
            let mode = self.mode(rule);
            let held = (rule, finding.subject.clone());
            if silent {
                self.told.suppressed.silence += u64::from(!self.silenced.contains(&held));
                silenced.insert(held);
                continue;
            }
            let mode = if mode == Mode::Page && !self.may_page(rule, &finding.subject, now) {
                self.told.suppressed.limit += u64::from(!self.limited.contains(&held));
                limited.insert(held);
                Mode::Ticket
            } else {
                mode
            };
            wanted.insert((rule, finding.subject.clone(), mode), (finding, teller));
        }
        self.silenced = silenced;
        self.limited = limited;
        wanted
    }

    /// By which names somebody is told of a finding, and who tells it: an alert that stands goes on by its own while its
    /// trouble is told. Only what may be louder than that, or is another trouble, begins by the name of the finding.
    fn names(&self, finding: &Finding) -> BTreeMap<RuleId, RuleId> {
        let mode = self.mode(finding.rule);
        let (mut names, mut told) = (BTreeMap::new(), mode < Mode::Ticket);
        let standing = || self.told.list.iter().filter(|alert| alert.phase != Phase::Resolved);
        for alert in standing() {
            let its = self.mode(alert.rule);
            let Some(teller) = alert.told_in(finding).filter(|_| its >= Mode::Ticket) else { continue };
            let about = alert.is_about(finding);
            let goes_on = |other: &Alert| other.is_of(alert) && other.told_in(finding).is_some();
            let outdone = standing().any(|other| self.mode(other.rule) > its && goes_on(other));
            if !outdone && (!about || its >= mode) {
                names.insert(alert.rule, teller);
                told |= about;
            }
        }
        if !told {
            names.insert(finding.rule, finding.rule);
        }
        names
    }

    fn mode(&self, rule: RuleId) -> Mode {
        self.plan.modes.iter().find(|(known, _)| *known == rule).map_or(Mode::Shadow, |(_, mode)| *mode)
    }

    /// A page that stands goes on; a new one needs room within the hour.
    fn may_page(&mut self, rule: RuleId, object: &str, now: &Stamp) -> bool {
        let stands = |alert: &Alert| {
            alert.rule == rule && alert.object == object && alert.mode == Mode::Page && alert.phase != Phase::Resolved
        };
        if self.told.list.iter().any(stands) {
            return true;
        }
        let most = usize::try_from(self.plan.alerts.max_pages_per_hour).unwrap_or(usize::MAX);
        let room = self.pages.len() < most;
        if room {
            self.pages.push(now.realtime);
        }
        room
    }

    /// Moves on what does not fire any more.
    fn end(&mut self, wanted: &Wanted<'_>, now: &Stamp) {
        let resolve_after = self.plan.alerts.resolve_after;
        let mut over = Vec::new();
        for (place, (alert, since)) in self.told.list.iter_mut().zip(&mut self.since).enumerate() {
            if wanted.contains_key(&(alert.rule, alert.object.clone(), alert.mode)) {
                continue;
            }
            let lasted = now.boottime.saturating_sub(*since);
            let next = match alert.phase {
                Phase::Firing => Phase::Quiet,
                Phase::Resumed if lasted >= CONFIRM => Phase::Quiet,
                Phase::Quiet if lasted >= resolve_after => Phase::Resolved,
                Phase::Resolved if lasted >= TELL => {
                    over.push(place);
                    continue;
                }
                same => same,
            };
            if next != alert.phase {
                alert.phase = next;
                *since = now.boottime;
                alert.ended_at.get_or_insert(now.realtime);
            }
        }
        for place in over.into_iter().rev() {
            self.told.list.remove(place);
            self.since.remove(place);
        }
    }

    /// Where it stands in the list then; nowhere, if that is full.
    fn fire(&mut self, (rule, object, mode): Identity, finding: &Finding, now: &Stamp) -> Option<usize> {
        let known = |alert: &Alert| alert.rule == rule && alert.object == object && alert.mode == mode;
        let summary = finding.summary.clone();
        if let Some(place) = self.told.list.iter().position(known)
            && let (Some(alert), Some(since)) = (self.told.list.get_mut(place), self.since.get_mut(place))
        {
            // What was told to be over begins anew.
            if alert.phase == Phase::Resolved {
                alert.starts_at = now.realtime;
            }
            if alert.phase != Phase::Firing {
                alert.phase = Phase::Firing;
                *since = now.boottime;
            }
            alert.ended_at = None;
            alert.summary = summary;
            return Some(place);
        }
        if self.told.list.len() >= MOST {
            // The oldest that is over makes room; if all fire, the newest waits.
            let place = self.told.list.iter().position(|alert| !alert.is_active())?;
            self.told.list.remove(place);
            self.since.remove(place);
        }
        let starts_at = finding.since_realtime.min(now.realtime);
        let alert =
            Alert { rule, told_by: None, object, mode, starts_at, phase: Phase::Firing, ended_at: None, summary };
        self.told.list.push(alert);
        self.since.push(now.boottime);
        Some(self.told.list.len() - 1)
    }
}
