//! What a rule says of its fault, for the documentation: a finding with all its evidence.

use std::io::Cursor;

use gpuprod_rules::RuleId;
use gpuprod_snapshot::units::Nanos;

use super::cases::CASES;
use crate::config::Config;
use crate::pipeline::Pipeline;
use crate::prices::{Price, PriceRule};
use crate::recording::Recording;
use crate::{cost, replay, text};

/// The finding is shown so long after it was found, or at the end of the recording: by then it has cost something.
const LATER: Nanos = Nanos::from_secs(60);
/// An example.
const PRICE: Price = Price(2_500_000);

/// A finding in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What happens.
    pub about: &'static str,
    /// The finding, line by line.
    pub lines: Vec<String>,
}

/// The same each time; none for a rule without a built-in fault, or one that says nothing of it.
#[must_use]
pub fn sample(rule: RuleId) -> Option<Sample> {
    let case = CASES.iter().find(|case| case.rule == rule)?;
    let mut config = Config::default();
    (case.declare)(&mut config.rules);
    let mut pipeline = Pipeline::new(config.rules.policy());
    let list = [PriceRule { currency: "USD".to_owned(), ..PriceRule::flat(PRICE) }];
    let (mut begin, mut first, mut last) = (None, None, None);
    for tick in Recording::read(Cursor::new(case.bytes)).ok()? {
        let tick = tick.ok()?;
        let now = tick.stamp.boottime;
        let at = now.saturating_sub(*begin.get_or_insert(now));
        let frame = pipeline.feed(&tick);
        if at < Nanos::from_secs(case.onset) {
            continue;
        }
        let judged = &frame.judgement;
        let Some(finding) = judged.findings.iter().find(|finding| case.is_loud(finding)) else { continue };
        let since = *first.get_or_insert(now);
        if now.saturating_sub(since) > LATER {
            break;
        }
        // Its own finding, where it is not beside another one all the time.
        if last.is_some() && finding.rule != rule {
            continue;
        }
        let cost = cost::of(finding, &judged.units, &list, tick.stamp.realtime);
        let variant = finding.variant.as_deref().map(|variant| format!("/{variant}")).unwrap_or_default();
        let (severity, subject) = (finding.severity.as_str(), text::clean(&finding.subject));
        let mut lines =
            vec![format!("{severity} {}{variant} {subject}: {}", finding.rule, text::clean(&finding.summary))];
        lines.extend(replay::told(finding, cost.as_ref()).into_iter().map(|line| format!("  {line}")));
        last = Some(Sample { about: case.about, lines });
    }
    last
}
