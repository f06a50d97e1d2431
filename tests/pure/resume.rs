//! What a judge that was saved takes with it into another process: everything after a short gap, its own normals after a
//! long one, nothing under other thresholds or after a week.

use std::path::Path;

use gpuprod_rules::{Finding, Judge, Policy, RuleId, Severity};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Tick};

fn ticks() -> Vec<Tick> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/raid_rebuild_serving.scn");
    gpuprod_sim::load(&path).unwrap().ticks().collect()
}

/// A judge in the middle of the rebuild, with its finding.
fn judge(ticks: &[Tick], upto: usize) -> Judge {
    let mut judge = Judge::new(Policy::default());
    let last = ticks[..=upto].iter().map(|tick| judge.step(tick)).last().unwrap();
    assert!(last.findings.iter().any(|finding| finding.rule == RuleId::RaidRebuildImpact), "{:?}", last.findings);
    judge
}

/// The tick as it would have been taken so much later, in this boot or in another.
fn later(tick: &Tick, by: Nanos, boot: Option<&str>) -> Tick {
    let mut tick = tick.clone();
    tick.stamp.realtime = tick.stamp.realtime.saturating_add(by);
    if let Some(boot) = boot {
        tick.stamp.boot_id = BootId(boot.to_owned());
        // The new boot began 60 s before the 700th tick.
        tick.stamp.boottime = Nanos(tick.stamp.boottime.0 + 60_000_000_000 - ticks()[700].stamp.boottime.0);
        tick.stamp.monotonic = tick.stamp.boottime;
    } else {
        tick.stamp.boottime = tick.stamp.boottime.saturating_add(by);
        tick.stamp.monotonic = tick.stamp.monotonic.saturating_add(by);
    }
    tick
}

/// Since when the array has been blamed, at the next tick. (That it rebuilds is information, which anybody sees at once.)
fn blamed(mut judge: Judge, next: &Tick) -> Option<Nanos> {
    let findings = judge.step(next).findings;
    let blames = |finding: &&Finding| finding.rule == RuleId::RaidRebuildImpact && finding.severity > Severity::Info;
    findings.iter().find(blames).map(|finding| finding.since)
}

fn stands(judge: Judge, next: &Tick) -> bool {
    blamed(judge, next).is_some()
}

#[test]
fn after_a_restart_of_seconds_the_finding_stands_with_its_time() {
    let ticks = ticks();
    let saved = judge(&ticks, 700);
    let before = blamed(saved.clone(), &ticks[701]);
    let after = blamed(saved.resume(&Policy::default(), &ticks[730]).unwrap(), &ticks[731]);
    assert!(before.is_some());
    assert_eq!(after, before, "one page, not two");
    // Who has learnt nothing finds nothing at once.
    assert!(!stands(Judge::new(Policy::default()), &ticks[731]));
}

#[test]
fn after_minutes_or_a_reboot_only_the_own_normals_go_on() {
    let ticks = ticks();
    let next = &ticks[701];
    for (gap, boot) in [(Nanos::from_secs(121), None), (Nanos::from_secs(60), Some("another"))] {
        let now = later(&ticks[700], gap, boot);
        let resumed = judge(&ticks, 700).resume(&Policy::default(), &now).unwrap();
        assert_eq!(resumed.known().stamp, now.stamp);
        let after = later(next, gap, boot);
        assert!(!stands(resumed.clone(), &after), "{gap:?} {boot:?}: a finding outlived what it was seen in");
        // The normals are known: the vitals of a fresh judge have none.
        let normals =
            |mut judge: Judge| judge.step(&after).vitals.iter().filter(|vital| vital.normal.is_some()).count();
        assert!(normals(resumed) > normals(Judge::new(Policy::default())), "{gap:?} {boot:?}");
    }
    // Just within: everything.
    let now = later(&ticks[700], Nanos::from_secs(120), None);
    let resumed = judge(&ticks, 700).resume(&Policy::default(), &now).unwrap();
    assert!(stands(resumed, &later(next, Nanos::from_secs(120), None)));
}

#[test]
fn nothing_is_taken_over_under_other_thresholds_or_after_a_week() {
    let ticks = ticks();
    let week = Nanos::from_secs(7 * 24 * 3600);
    let saved = judge(&ticks, 700);
    let at = |by| later(&ticks[700], by, None);
    assert!(saved.clone().resume(&Policy::default(), &at(week)).is_some());
    assert!(saved.clone().resume(&Policy::default(), &at(week.saturating_add(Nanos(1)))).is_none());
    let mut other = Policy::default();
    other.fault_hold_ns = Nanos(other.fault_hold_ns.0 + 1);
    assert!(saved.clone().resume(&other, &at(Nanos::from_secs(1))).is_none());
    // A rule that is switched off is no other threshold, and what it held is let go.
    let off = Policy { off: [RuleId::RaidRebuildImpact].into(), ..Policy::default() };
    let resumed = saved.clone().resume(&off, &ticks[701]).unwrap();
    assert!(!stands(resumed, &ticks[702]));
    // A wall clock that stepped back is no week.
    let mut back = at(Nanos::from_secs(1));
    back.stamp.realtime = Nanos(1);
    assert!(saved.resume(&Policy::default(), &back).is_some());
}
