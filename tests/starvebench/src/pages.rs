//! Who is woken how often: the findings of a run at the agent's own desk, every rule of which may page.

use std::collections::BTreeSet;
use std::path::Path;

use gpuprod::alerts::{Desk, Phase, plan};
use gpuprod::config::Config;
use gpuprod_rules::{Finding, RuleId};
use gpuprod_sim::{Blame, Scenario};
use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::to_f64;

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

/// The pages of the trouble that a run is about. What its author allows before that begins, and only then, is a trouble of its
/// own: a burst that fills a small cache for a minute, long before the demand rises for good.
pub(crate) fn of_trouble(sent: Vec<Page>, scenario: &Scenario) -> Vec<Page> {
    let Some(begins) = scenario.blames.iter().map(|blame| blame.from).min() else { return sent };
    let before = |may: &&Blame| may.to <= begins;
    let another = |(rule, object, second): &Page| {
        let names = |may: &Blame| may.cause == rule.as_str() && may.object.as_ref().is_none_or(|its| its == object);
        let mut allowed = scenario.may.iter().filter(before);
        allowed.any(|may| names(may) && (may.from.0..may.to.0).contains(&second.saturating_mul(1_000_000_000)))
    };
    sent.into_iter().filter(|page| !another(page)).collect()
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

/// Who was woken how often, in runs with one trouble each.
#[derive(Default)]
pub(crate) struct Paged {
    /// Runs in which somebody was.
    pub(crate) troubles: u64,
    pub(crate) pages: u64,
    /// Pages about an object that had been paged before.
    pub(crate) again: u64,
}

impl Paged {
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a [Page]>) -> Self {
        let mut paged = Self::default();
        for sent in runs.filter(|sent| !sent.is_empty()) {
            paged.troubles += 1;
            paged.pages += sent.iter().map(|_| 1).sum::<u64>();
            paged.again += renamed(sent).iter().flat_map(|(_, names)| names.iter().skip(1)).map(|_| 1).sum::<u64>();
        }
        paged
    }

    pub(crate) fn per_trouble(&self) -> Option<f64> {
        (self.troubles > 0).then(|| to_f64(self.pages) / to_f64(self.troubles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_before_the_trouble_only_is_another_one() {
        let text = "scenario s\nlength 20m\ngpu 1\njob j gpus 0\nblame 10m10s..20m preemption_thrash\n\
                    may 0s..10m preemption_thrash\nmay 8m..20m kv_saturation";
        let scenario = Scenario::parse(text).unwrap();
        let page = |rule, second| (rule, "e".to_owned(), second);
        let thrash = |second| page(RuleId::PreemptionThrash, second);
        let kv = |second| page(RuleId::KvSaturation, second);
        let sent = vec![thrash(290), kv(540), thrash(603), page(RuleId::IoStall, 30)];
        let left = vec![kv(540), thrash(603), page(RuleId::IoStall, 30)];
        assert_eq!(of_trouble(sent.clone(), &scenario), left);
        assert_eq!(of_trouble(sent.clone(), &Scenario { blames: Vec::new(), ..scenario }), sent);
    }

    #[test]
    fn a_page_about_an_object_that_was_paged_before_is_counted() {
        let page = |rule, object: &str, second| (rule, object.to_owned(), second);
        let runs = [
            vec![
                page(RuleId::KvSaturation, "e", 10),
                page(RuleId::QueueInstability, "e", 20),
                page(RuleId::IoStall, "md0", 9),
            ],
            vec![],
            vec![page(RuleId::IoStall, "md0", 9)],
        ];
        let paged = Paged::of(runs.iter().map(Vec::as_slice));
        assert_eq!((paged.troubles, paged.pages, paged.again, paged.per_trouble()), (2, 4, 1, Some(2.0)));
    }
}
