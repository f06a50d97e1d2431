//! Who is woken how often: the findings of a run at the agent's own desk, every rule of which may page.

use std::collections::BTreeSet;
use std::path::Path;

use gpuprod::alerts::{Desk, Phase, plan};
use gpuprod::config::Config;
use gpuprod_rules::{Finding, RuleId};
use gpuprod_snapshot::Stamp;

/// One page: its name, what it is about, and its second.
pub(crate) type Page = (RuleId, String, u64);

/// The pages of a run, in the order in which they went out.
pub(crate) struct Pages {
    desk: Desk,
    /// Sent and not yet told to be over.
    open: BTreeSet<(RuleId, String)>,
    pub(crate) sent: Vec<Page>,
}

impl Pages {
    pub(crate) fn new() -> Result<Self, String> {
        let all = "rules: {mode: page}\nalerts: {max_pages_per_hour: 1000}";
        let config = Config::parse(all, Path::new("bench")).map_err(|error| error.to_string())?;
        Ok(Self { desk: Desk::new(plan(&config, "bench")), open: BTreeSet::new(), sent: Vec::new() })
    }

    /// What is found in a second.
    pub(crate) fn step(&mut self, second: u64, findings: &[Finding], stamp: &Stamp) {
        let told = self.desk.step(findings, stamp);
        let stands = told.list.iter().filter(|alert| alert.phase != Phase::Resolved);
        let open = stands.map(|alert| (alert.rule, alert.object.clone())).collect();
        let new = |page: &&(RuleId, String)| !self.open.contains(*page);
        let sent = BTreeSet::iter(&open).filter(new).map(|(rule, object)| (*rule, object.clone(), second));
        self.sent.extend(sent);
        self.open = open;
    }
}

/// The objects of a run that were paged by more than one name, with the names.
pub(crate) fn renamed(sent: &[Page]) -> Vec<(&str, Vec<String>)> {
    let objects: BTreeSet<&str> = sent.iter().map(|(_, object, _)| object.as_str()).collect();
    let names = |object: &str| -> Vec<String> {
        let its = sent.iter().filter(|(_, of, _)| of == object);
        its.map(|(rule, _, second)| format!("{rule} at {second} s")).collect()
    };
    objects.into_iter().map(|object| (object, names(object))).filter(|(_, names)| names.len() > 1).collect()
}
