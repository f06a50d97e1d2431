//! The words of scenarios are a copy, since the generator may not know the rules: the copy is whole, and nothing more.

use std::collections::BTreeSet;

use gpuprod_rules::node::Resource;
use gpuprod_rules::{Cause, Fault, Loading, Progress, RuleId, State, Unknown};
use gpuprod_sim::vocabulary::{CAUSES, RULES, STATES};

/// Every state with every reason.
fn states() -> Vec<State> {
    // A new state does not compile here: it belongs below, and into the list of the scenarios.
    let all = |state: State| match state {
        State::Faulted(_) => Fault::ALL.iter().map(|fault| State::Faulted(*fault)).collect(),
        State::Unknown(_) => Unknown::ALL.iter().map(|unknown| State::Unknown(*unknown)).collect(),
        State::Loading(_) => Loading::ALL.iter().map(|loading| State::Loading(*loading)).collect(),
        State::Starved(_) => Cause::ALL.iter().map(|cause| State::Starved(*cause)).collect(),
        State::Productive(_) => Progress::ALL.iter().map(|progress| State::Productive(*progress)).collect(),
        State::Unallocated | State::Stalled | State::Squatted | State::Throttled | State::Headroom | State::Idle => {
            vec![state]
        }
    };
    [
        State::Faulted(Fault::ALL[0]),
        State::Unknown(Unknown::ALL[0]),
        State::Unallocated,
        State::Loading(Loading::ALL[0]),
        State::Stalled,
        State::Squatted,
        State::Throttled,
        State::Starved(Cause::ALL[0]),
        State::Productive(Progress::ALL[0]),
        State::Headroom,
        State::Idle,
    ]
    .into_iter()
    .flat_map(all)
    .collect::<Vec<State>>()
}

#[test]
fn scenarios_have_the_words_of_the_rules() {
    let theirs: BTreeSet<(&str, &str)> = states().into_iter().map(|state| (state.as_str(), state.reason())).collect();
    let reasons = |(state, reasons): &(&'static str, &'static [&'static str])| -> Vec<(&str, &str)> {
        let none: &'static [&'static str] = &[""];
        let reasons = if reasons.is_empty() { none } else { reasons };
        reasons.iter().map(|reason| (*state, *reason)).collect()
    };
    let ours: BTreeSet<(&str, &str)> = STATES.iter().flat_map(reasons).collect();
    assert_eq!(ours, theirs);
    let theirs: BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert_eq!(CAUSES.iter().copied().collect::<BTreeSet<_>>(), theirs);
    let theirs: BTreeSet<&str> = RuleId::ALL.iter().map(|rule| rule.as_str()).collect();
    assert_eq!(RULES.iter().map(|(rule, _)| *rule).collect::<BTreeSet<_>>(), theirs);
    let theirs: Vec<&str> = Resource::ALL.iter().map(|resource| resource.as_str()).collect();
    let ours = RULES.iter().find(|(rule, _)| *rule == RuleId::StrandedCapacity.as_str()).unwrap().1;
    assert_eq!(ours, theirs);
}
