//! From findings to alerts: which finding reaches a person, as what, and until when. Both paths, the series that the
//! shipped Prometheus rules read and the direct posts, are projections of the one list that [`Desk`] keeps.

mod desk;
mod memory;
mod trouble;

use gpuprod_rules::{Finding, RuleId};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Mode};

pub use desk::{Desk, Kept, Plan};
pub use memory::Memory;

/// What the operator is told now: part of each frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// The node's name in alerts; empty where nobody is told anything (a replay).
    pub node: String,
    /// What each rule may do.
    pub modes: Vec<(RuleId, Mode)>,
    /// Alerts that fire, and those that ended a short while ago.
    pub list: Vec<Alert>,
    /// What was held back since the start.
    pub suppressed: Suppressed,
    /// How direct posts fare, by Alertmanager.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub posts: Vec<Posts>,
}

/// An alert: one trouble of one cause object of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// The rule that told it first: its name, whoever tells it later.
    pub rule: RuleId,
    /// The rule that tells it now, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_by: Option<RuleId>,
    /// The cause object.
    pub object: String,
    /// Ticket or page.
    pub mode: Mode,
    /// Since when, wall clock: stays, whatever restarts.
    #[serde(rename = "starts_at_ns")]
    pub starts_at: Nanos,
    /// Where it stands.
    pub phase: Phase,
    /// When its finding ended, wall clock; set unless it fires.
    #[serde(default, rename = "ended_at_ns", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Nanos>,
    /// The finding in one sentence, as it was last.
    pub summary: String,
}

/// The life of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Its finding stands.
    Firing,
    /// It fired before the agent restarted; whether its finding still stands is not known yet.
    Resumed,
    /// Its finding has ended; nothing is posted until Prometheus must have seen it too.
    Quiet,
    /// It is over, and is said to be for a while.
    Resolved,
}

impl Alert {
    /// Whether it counts as active for whoever reads the series.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Firing | Phase::Resumed)
    }

    /// The finding that it is about.
    #[must_use]
    pub fn finding<'a>(&self, findings: &'a [Finding]) -> Option<&'a Finding> {
        findings.iter().find(|finding| self.told_in(finding).is_some())
    }
}

/// Alerts that were held back: each counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressed {
    /// In a maintenance window: nobody was told.
    pub silence: u64,
    /// Pages above the hour's limit: they went as tickets.
    pub limit: u64,
}

/// Direct posts to one Alertmanager since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posts {
    /// Its address, without a password.
    pub alertmanager: String,
    /// Posts that it took.
    pub taken: u64,
    /// Posts that failed.
    pub failed: u64,
    /// Wall clock of the last one that it took.
    #[serde(default, rename = "last_taken_ns", skip_serializing_if = "Option::is_none")]
    pub last_taken: Option<Nanos>,
    /// Why the last one failed; none while it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The alert's name of a rule: `GpuprodRaidRebuildImpact`.
#[must_use]
pub fn alert_name(rule: RuleId) -> String {
    let mut name = String::from("Gpuprod");
    for word in rule.as_str().split('_') {
        let mut chars = word.chars();
        name.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(chars.as_str());
    }
    name
}

/// What the config says of alerts, for the node of this name.
#[must_use]
pub fn plan(config: &Config, host_name: &str) -> Plan {
    let modes = RuleId::ALL.iter().map(|rule| (*rule, config.rules.mode_of(*rule))).collect();
    let node = config.alerts.node.clone().unwrap_or_else(|| host_name.to_owned());
    Plan { node, modes, alerts: config.alerts.clone() }
}
