//! Findings as alerts: from when to when one was said, and whether it was right.

use std::collections::BTreeMap;

use gpuprod_rules::{Finding, RuleId, Severity};
use gpuprod_sim::{Blame, Scenario};

/// A finding may stay so long after its trouble: the time that it must be good before it is lifted, and a block.
const LINGERS: u64 = 75;
/// A finding that is away for no longer is the same one.
const SAME: u64 = 5;

/// One trouble that was told, from its first second to its last. Its name may change as more is known: it is about the
/// same object, and one page.
#[derive(Clone, Debug)]
pub(crate) struct Alert {
    /// The rule that told it first.
    pub(crate) rule: String,
    /// Every rule, variant and cause that was named, each with the second in which it was named first.
    pub(crate) words: Vec<(String, u64)>,
    pub(crate) subject: String,
    pub(crate) critical: bool,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) summary: String,
    /// What became of it.
    pub(crate) verdict: Verdict,
}

/// Whether an alert was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It named a trouble that is there.
    Right,
    /// Nobody asked for it, and it is not wrong.
    Allowed,
    /// Nothing of the kind is there.
    False,
    /// The same was said before, of the same trouble.
    Again,
}

/// A trouble that had to be named, and whether it was.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) word: String,
    pub(crate) object: Option<String>,
    pub(crate) from: u64,
    /// Largest deficit of a unit over a minute; none where useful work does not tell.
    pub(crate) effect: Option<f64>,
    /// Its effect is the machine's own, not what the variant says in its place.
    pub(crate) measured: bool,
    pub(crate) found: bool,
    /// Seconds from the first second in which it could be seen.
    pub(crate) latency: Option<u64>,
    /// Seconds from the first one in which it was large: what grows slowly is not late while it is small.
    pub(crate) latency_large: Option<u64>,
    /// What was said instead, for the table of confusions.
    pub(crate) instead: Option<String>,
}

/// Rules that page nobody: what they are asked for, they tell as information.
const INFORMATION: &[&str] = &["headroom_breach", "node_fit"];

/// All alerts of a run, in which seconds such a rule spoke, and what was told as information alone.
#[derive(Debug, Default)]
pub(crate) struct Alerts(pub(crate) Vec<Alert>, pub(crate) Vec<(String, u64)>, pub(crate) Informed);

/// Information: it pages nobody and stands on every screen.
#[derive(Debug, Default)]
pub(crate) struct Informed {
    /// The last second of each, by rule and object, whatever its severity was.
    last: BTreeMap<(RuleId, String), u64>,
    pub(crate) of: Beginnings,
}

/// By rule: how much information began, and how much of it had been told before, had ended, and came again.
pub(crate) type Beginnings = BTreeMap<RuleId, (u64, u64)>;

/// Adds those of another run.
pub(crate) fn add(sum: &mut Beginnings, of: &Beginnings) {
    for (rule, (told, flips)) in of {
        let (all, again) = sum.entry(*rule).or_default();
        *all += told;
        *again += flips;
    }
}

impl Informed {
    fn step(&mut self, second: u64, finding: &Finding) {
        let before = self.last.insert((finding.rule, finding.subject.clone()), second);
        if finding.severity == Severity::Info && before.is_none_or(|last| second > last + SAME) {
            let (told, flips) = self.of.entry(finding.rule).or_default();
            *told += 1;
            *flips += u64::from(before.is_some());
        }
    }
}

impl Alerts {
    /// What is said in a second.
    pub(crate) fn step(&mut self, second: u64, findings: &[Finding]) {
        let told =
            findings.iter().flat_map(|finding| std::iter::once(finding.rule).chain(finding.also.iter().copied()));
        let told = told.map(|rule| rule.as_str()).filter(|rule| INFORMATION.contains(rule));
        self.1.extend(told.map(|rule| (rule.to_owned(), second)));
        findings.iter().for_each(|finding| self.2.step(second, finding));
        for finding in findings.iter().filter(|finding| finding.severity > Severity::Info) {
            let known = self.0.iter().rposition(|alert| alert.subject == finding.subject && second <= alert.to + SAME);
            let at = known.unwrap_or_else(|| {
                self.0.push(Alert {
                    rule: finding.rule.as_str().to_owned(),
                    words: Vec::new(),
                    subject: finding.subject.clone(),
                    critical: false,
                    from: second,
                    to: second,
                    summary: finding.summary.clone(),
                    verdict: Verdict::False,
                });
                self.0.len() - 1
            });
            let Some(alert) = self.0.get_mut(at) else { continue };
            alert.to = second;
            alert.critical |= finding.severity == Severity::Critical;
            let also = finding.also.iter().map(|rule| rule.as_str());
            let named =
                [Some(finding.rule.as_str()), finding.variant.as_deref(), finding.cause.map(|cause| cause.as_str())];
            for word in named.into_iter().flatten().chain(also) {
                if alert.words.iter().all(|(known, _)| known != word) {
                    alert.words.push((word.to_owned(), second));
                }
            }
        }
    }

    /// Compares what was said with what had to be. `effects` are those of `scenario.blames`, with the seconds from
    /// which each could be seen and was large. If it is `strict`, whatever no line speaks of is false; else only what must be silent is.
    pub(crate) fn judge(
        &mut self,
        scenario: &Scenario,
        effects: &[(Option<f64>, [u64; 2])],
        strict: bool,
    ) -> Vec<Asked> {
        let mut asked = Vec::new();
        for (blame, (effect, [seen, large])) in scenario.blames.iter().zip(effects) {
            let mut first: Option<u64> = None;
            let mut told: Vec<&str> = Vec::new();
            for alert in self.0.iter_mut().filter(|alert| overlaps(alert, blame)) {
                let Some(named) = alert.names(blame) else { continue };
                // What is too small to be seen is not there for whoever says it.
                if effect.is_none_or(|effect| effect >= 0.05) && alert.verdict != Verdict::Right {
                    // The same object, told again after it was over: one page too many.
                    let again = told.contains(&alert.subject.as_str());
                    alert.verdict = if again { Verdict::Again } else { Verdict::Right };
                    told.push(&alert.subject);
                }
                first = Some(first.map_or(named, |known| known.min(named)));
            }
            let (from, to) = span(blame);
            let mut told = self.1.iter().filter(|(word, at)| *word == blame.cause && (from..to).contains(at));
            first = first.or_else(|| told.next().map(|(_, at)| *at));
            let instead = self.0.iter().filter(|alert| overlaps(alert, blame)).min_by_key(|alert| alert.from);
            asked.push(Asked {
                word: blame.cause.clone(),
                object: blame.object.clone(),
                from: span(blame).0,
                effect: *effect,
                measured: scenario.effect.is_none(),
                found: first.is_some(),
                latency: first.map(|first| first.saturating_sub(*seen)),
                latency_large: first.map(|first| first.saturating_sub(*large)),
                instead: instead.map(|alert| format!("{} {}", alert.named(), alert.subject)),
            });
        }
        // What only tells is wrong as well, where it must be silent by name.
        for word in scenario.silent.iter().filter(|word| INFORMATION.contains(&word.as_str())) {
            let mut told = self.1.iter().filter(|(rule, _)| rule == word).map(|(_, at)| *at);
            let Some(from) = told.next() else { continue };
            self.0.push(Alert {
                rule: word.clone(),
                words: vec![(word.clone(), from)],
                subject: "told as information".to_owned(),
                critical: false,
                from,
                to: told.next_back().unwrap_or(from),
                summary: "it must be silent here".to_owned(),
                verdict: Verdict::False,
            });
        }
        // A name that may not fall is wrong beside any that is right.
        for alert in self.0.iter_mut().filter(|alert| alert.verdict == Verdict::Right) {
            let asked = |word: &str| scenario.blames.iter().chain(&scenario.may).any(|blame| blame.cause == word);
            let mut banned =
                scenario.silent.iter().filter(|word| *word != "all" && *word != "critical" && !asked(word));
            if banned.any(|word| alert.says(word).is_some()) {
                alert.verdict = Verdict::False;
            }
        }
        let listed = !scenario.silent.is_empty() && scenario.silent.iter().all(|word| word != "all");
        for alert in self.0.iter_mut().filter(|alert| alert.verdict == Verdict::False) {
            let silent = scenario.silent.iter().any(|word| word != "all" && alert.says(word).is_some());
            let may = scenario.may.iter().any(|blame| overlaps(alert, blame) && alert.names(blame).is_some());
            if !silent && (may || (!strict && listed)) {
                alert.verdict = Verdict::Allowed;
            }
        }
        asked
    }
}

impl Alert {
    /// When it first said a word.
    fn says(&self, word: &str) -> Option<u64> {
        let critical = (word == "critical" && self.critical).then_some(self.from);
        self.words.iter().find(|(known, _)| known == word || word == "all").map(|(_, at)| *at).or(critical)
    }

    fn names(&self, blame: &Blame) -> Option<u64> {
        self.says(&blame.cause).filter(|_| blame.object.as_ref().is_none_or(|object| *object == self.subject))
    }

    /// All that it was called.
    pub(crate) fn named(&self) -> String {
        self.words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join("+")
    }

    /// Whether a rule has spoken in it.
    pub(crate) fn by(&self, rule: &str) -> bool {
        self.words.iter().any(|(word, _)| word == rule)
    }
}

fn span(blame: &Blame) -> (u64, u64) {
    (blame.from.0 / 1_000_000_000, blame.to.0 / 1_000_000_000)
}

fn overlaps(alert: &Alert, blame: &Blame) -> bool {
    let (from, to) = span(blame);
    alert.from < to + LINGERS && alert.to >= from
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprod_rules::{Cause, Part, RuleId};
    use gpuprod_snapshot::units::Nanos;

    fn finding(rule: RuleId, subject: &str, cause: Option<Cause>) -> Finding {
        Finding {
            rule,
            variant: None,
            severity: Severity::Warn,
            subject: subject.into(),
            victims: Vec::new(),
            onset: Nanos(0),
            since: Nanos(0),
            since_realtime: Nanos(0),
            confidence: Part::ONE,
            cause,
            summary: String::new(),
            evidence: Vec::new(),
            rejected: Vec::new(),
            lost: Nanos(0),
            also: Vec::new(),
            advice: String::new(),
            holders: Vec::new(),
        }
    }

    /// Plays findings by second, and what came of them under a scenario of ten minutes.
    fn judged(lines: &str, said: &[(u64, u64, Finding)], effect: Option<f64>) -> (Vec<Verdict>, Vec<Asked>) {
        let text = format!("scenario s\nlength 10m\ngpu 1\njob j gpus 0\n{lines}");
        let scenario = Scenario::parse(&text).unwrap();
        let mut alerts = Alerts::default();
        for second in 0..600 {
            let now: Vec<Finding> =
                said.iter().filter(|(from, to, _)| (*from..*to).contains(&second)).map(|(.., f)| f.clone()).collect();
            alerts.step(second, &now);
        }
        let effects = vec![(effect, [120; 2]); scenario.blames.len()];
        let asked = alerts.judge(&scenario, &effects, true);
        (alerts.0.iter().map(|alert| alert.verdict).collect(), asked)
    }

    #[test]
    fn an_alert_is_right_false_allowed_or_said_again() {
        let stall = || finding(RuleId::IoStall, "md0", Some(Cause::Storage));
        let blame = "blame 2m..5m io_stall md0\n";
        let (verdicts, asked) = judged(blame, &[(150, 300, stall())], None);
        assert_eq!((verdicts, asked[0].found, asked[0].latency), (vec![Verdict::Right], true, Some(30)));
        // A cause is a name too, another object is not the same, and too early is too early.
        assert_eq!(judged("blame 2m..5m storage\n", &[(150, 300, stall())], None).0, [Verdict::Right]);
        assert_eq!(judged("blame 2m..5m io_stall md1\n", &[(150, 300, stall())], None).0, [Verdict::False]);
        assert_eq!(judged(blame, &[(20, 60, stall())], None).0, [Verdict::False]);
        // It may linger as long as findings do, and no longer.
        assert_eq!(judged(blame, &[(370, 390, stall())], None).0, [Verdict::Right]);
        assert_eq!(judged(blame, &[(380, 390, stall())], None).0, [Verdict::False]);
        // Away for a while and back: one page too many. Another name for the same object is not.
        assert_eq!(
            judged(blame, &[(150, 180, stall()), (200, 250, stall())], None).0,
            [Verdict::Right, Verdict::Again]
        );
        let effect = finding(RuleId::BusyButStarved, "md0", Some(Cause::Storage));
        let (verdicts, asked) = judged(blame, &[(140, 160, effect), (160, 250, stall())], None);
        assert_eq!((verdicts, asked[0].latency), (vec![Verdict::Right], Some(40)));
        assert_eq!(judged("may 2m..5m io_stall\n", &[(150, 300, stall())], None).0, [Verdict::Allowed]);
        assert_eq!(judged("may 2m..5m io_stall\nsilent storage\n", &[(150, 300, stall())], None).0, [Verdict::False]);
    }

    /// Information is no alert, and wrong where its name must be silent.
    #[test]
    fn information_that_must_be_silent_is_false() {
        let told = [(150, 300, Finding { severity: Severity::Info, ..finding(RuleId::NodeFit, "node", None) })];
        assert_eq!(judged("silent all\n", &told, None).0, []);
        assert_eq!(judged("silent all node_fit\n", &told, None).0, [Verdict::False]);
        assert_eq!(judged("silent all node_fit\n", &[], None).0, []);
        let (verdicts, asked) = judged("blame 2m..5m node_fit\n", &told, None);
        assert_eq!((verdicts, asked[0].latency), (vec![], Some(30)));
    }

    /// What comes again after it had ended has flipped; what was more than information in between has not.
    #[test]
    fn information_is_counted_by_beginnings() {
        let info = |subject| Finding { severity: Severity::Info, ..finding(RuleId::NodeFit, subject, None) };
        let mut alerts = Alerts::default();
        for second in 0..100 {
            let mut now = Vec::new();
            now.extend((10..20).contains(&second).then(|| info("a")));
            now.extend((23..30).contains(&second).then(|| finding(RuleId::NodeFit, "a", None)));
            now.extend((31..40).contains(&second).then(|| info("a")));
            now.extend((60..70).contains(&second).then(|| info("a")));
            now.extend((60..70).contains(&second).then(|| info("b")));
            alerts.step(second, &now);
        }
        assert_eq!(alerts.2.of, Beginnings::from([(RuleId::NodeFit, (3, 1))]));
    }

    #[test]
    fn what_is_too_small_to_be_seen_is_not_there() {
        let said = [(150, 300, finding(RuleId::IoStall, "md0", None))];
        assert_eq!(judged("blame 2m..5m io_stall\n", &said, Some(0.03)).0, [Verdict::False]);
        assert_eq!(judged("blame 2m..5m io_stall\n", &said, Some(0.3)).0, [Verdict::Right]);
        let (_, asked) = judged("blame 2m..5m kv_saturation\n", &said, Some(0.3));
        assert_eq!((asked[0].found, asked[0].instead.as_deref()), (false, Some("io_stall md0")));
    }
}
