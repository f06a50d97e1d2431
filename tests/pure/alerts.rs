//! Alerts: what of the findings reaches a person, what one Alertmanager is told and when. Instants are made up; what
//! Alertmanager does with the posts is `tests/e2e`'s.

use std::collections::BTreeMap;
use std::path::Path;

use gpuprod::alerts::{Alert, Alerts, Desk, Kept, Phase, alert_name, plan};
use gpuprod::config::{Config, Mode};
use gpuprod::sink::alertmanager::body::{Item, items};
use gpuprod::sink::alertmanager::courier::{Courier, Now};
use gpuprod_rules::{Cause, Evidence, Finding, Micro, Normal, Part, Rejected, RuleId, Severity, UnitId};
use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;
use serde_json::{Value, json};

/// 2026-11-28T02:00:00Z, by `date`.
const TWO: u64 = 1_795_831_200;

fn config(yaml: &str) -> Config {
    Config::parse(yaml, Path::new("g.yaml")).unwrap()
}

fn desk(yaml: &str) -> Desk {
    Desk::new(plan(&config(yaml), "gpu-17"))
}

fn stamp(boottime: u64, realtime: u64) -> Stamp {
    Stamp { boottime: Nanos::from_secs(boottime), realtime: Nanos::from_secs(realtime), ..Stamp::default() }
}

/// Seconds after two, the clocks in step.
fn at(second: u64) -> Stamp {
    stamp(1_000 + second, TWO + second)
}

fn finding(rule: RuleId, subject: &str, severity: Severity) -> Finding {
    Finding {
        rule,
        variant: Some("recover".to_owned()),
        severity,
        subject: subject.to_owned(),
        victims: vec![UnitId("GPU-1".into())],
        onset: Nanos::from_secs(960),
        since: Nanos::from_secs(1_000),
        since_realtime: Nanos::from_secs(TWO),
        confidence: Part(910_000),
        cause: Some(Cause::Storage),
        summary: format!("{subject} recover 15.4 % at 180 MB/s"),
        evidence: vec![Evidence {
            what: "latency of the members".into(),
            of: subject.to_owned(),
            value: Micro(305_000),
            unit: "ms".into(),
            normal: Some(Normal { median: Micro(149_000), spread: Micro(4_000), n: 116, z: Micro(35_600_000) }),
        }],
        rejected: vec![Rejected { cause: Cause::Kv, of: String::new(), why: "KV cache 60 % full".to_owned() }],
        lost: Nanos(0),
        also: Vec::new(),
        advice: "find the failed disk".to_owned(),
        holders: Vec::new(),
    }
}

fn rebuild() -> Finding {
    finding(RuleId::RaidRebuildImpact, "md0", Severity::Critical)
}

/// Rule, object, mode and phase of the list.
fn shown(alerts: &Alerts) -> Vec<(RuleId, &str, Mode, Phase)> {
    alerts.list.iter().map(|a| (a.rule, a.object.as_str(), a.mode, a.phase)).collect()
}

const REBUILD: RuleId = RuleId::RaidRebuildImpact;

#[test]
fn a_fresh_install_tells_nobody_and_info_never_pages() {
    let mut fresh = desk("");
    assert_eq!(shown(fresh.step(&[rebuild()], &at(0))), []);
    let mut loud = desk("rules: {mode: page}");
    let info = finding(REBUILD, "md1", Severity::Info);
    assert_eq!(shown(loud.step(&[info], &at(0))), []);
    assert_eq!(shown(loud.step(&[rebuild()], &at(1))), [(REBUILD, "md0", Mode::Page, Phase::Firing)]);
    let mut one = desk("rules: {mode: off, modes: {raid_rebuild_impact: ticket}}");
    let other = finding(RuleId::IoStall, "nvme0n1", Severity::Warn);
    assert_eq!(shown(one.step(&[rebuild(), other], &at(0))), [(REBUILD, "md0", Mode::Ticket, Phase::Firing)]);
}

#[test]
fn severity_and_numbers_change_and_the_alert_stays() {
    let mut desk = desk("rules: {mode: page}\nlabels: {cluster: a}");
    let site = config("labels: {cluster: a}").labels;
    let mut warn = rebuild();
    warn.severity = Severity::Warn;
    let first = items(desk.step(&[warn.clone()], &at(0)), &[warn], &[], &site);
    let mut worse = rebuild();
    worse.summary = "md0 recover 80 %".to_owned();
    worse.victims.push(UnitId("GPU-2".into()));
    let second = items(desk.step(&[worse.clone()], &at(600)), &[worse], &[], &site);
    let (first, second) = (post(&first[0], 0), post(&second[0], 600));
    assert_eq!(
        second["labels"],
        json!({"alertname": "GpuprodRaidRebuildImpact", "node": "gpu-17", "object": "md0", "rule": "raid_rebuild_impact",
            "mode": "page", "cluster": "a"})
    );
    assert_eq!(first["labels"], second["labels"]);
    assert_eq!(
        (&first["annotations"]["severity"], &second["annotations"]["severity"]),
        (&json!("warn"), &json!("critical"))
    );
    for post in [&first, &second] {
        assert_eq!(post["startsAt"], "2026-11-28T02:00:00.000Z");
    }
    let annotations = &second["annotations"];
    assert_eq!(
        annotations["evidence"],
        "latency of the members of md0 is 0.305 ms, normal 0.149 +- 0.004 (n 116, z 35.6)"
    );
    assert_eq!(annotations["rejected"], "not kv: KV cache 60 % full");
    assert_eq!(annotations["victims"], "GPU-1, GPU-2");
    assert_eq!(annotations["advice"], "find the failed disk");
    assert_eq!(annotations["summary"], "md0 recover 80 %");
}

fn post(item: &Item, second: u64) -> Value {
    let posted = item.postable(Nanos::from_secs(TWO + second), Nanos::from_secs(240));
    serde_json::to_value(posted).unwrap()
}

#[test]
fn an_alert_ends_quietly_first_and_is_then_told_to_be_over_for_five_minutes() {
    let mut desk = desk("rules: {mode: page}");
    let mut phases = Vec::new();
    for second in 0..800 {
        let now: &[Finding] = if second < 100 { &[rebuild()] } else { &[] };
        let told = desk.step(now, &at(second));
        let phase = told.list.first().map(|alert| alert.phase);
        if phases.last().map(|(_, last)| *last) != Some(phase) {
            phases.push((second, phase));
        }
        // Prometheus sees the end at once; the direct post waits for it.
        let posted = items(told, now, &[], &BTreeMap::new());
        assert_eq!(posted.is_empty(), (100..280).contains(&second) || second >= 580, "{second}");
    }
    let wanted = [(0, Some(Phase::Firing)), (100, Some(Phase::Quiet)), (280, Some(Phase::Resolved)), (580, None)];
    assert_eq!(phases, wanted);
}

#[test]
fn what_comes_back_in_time_is_the_same_alert_and_what_comes_later_a_new_one() {
    let mut desk = desk("rules: {mode: page}");
    desk.step(&[rebuild()], &at(0));
    desk.step(&[], &at(10));
    assert_eq!(desk.step(&[rebuild()], &at(60)).list[0].starts_at, Nanos::from_secs(TWO));
    desk.step(&[], &at(100));
    desk.step(&[], &at(280));
    assert_eq!(desk.step(&[], &at(281)).list[0].phase, Phase::Resolved);
    let again = desk.step(&[rebuild()], &at(300));
    assert_eq!((again.list.len(), again.list[0].phase, again.list[0].ended_at), (1, Phase::Firing, None));
    assert_eq!(again.list[0].starts_at, Nanos::from_secs(TWO + 300));
}

#[test]
fn a_restart_goes_on_with_the_same_alert_and_ends_what_ended_meanwhile() {
    let yaml = "rules: {mode: page}";
    let mut before = desk(yaml);
    before.step(&[rebuild(), finding(REBUILD, "md1", Severity::Critical)], &at(0));
    let kept: Kept = serde_json::from_value(serde_json::to_value(before.kept()).unwrap()).unwrap();

    // The host has booted anew: the boot's clock begins again.
    let mut after = desk(yaml);
    after.resume(kept, &stamp(5, TWO + 60));
    let told = after.step(&[], &stamp(5, TWO + 60));
    assert_eq!(told.list.iter().filter(|alert| alert.is_active()).count(), 2, "no gap in the series");
    assert!(items(told, &[], &[], &BTreeMap::new()).is_empty(), "nothing is claimed that is not known");
    let mut late = rebuild();
    late.since_realtime = Nanos::from_secs(TWO + 90);
    let told = after.step(&[late.clone()], &stamp(35, TWO + 90));
    let firing = items(told, &[late.clone()], &[], &BTreeMap::new());
    assert_eq!((firing.len(), post(&firing[0], 90)["startsAt"].clone()), (1, json!("2026-11-28T02:00:00.000Z")));
    // md1 ended while nobody looked: after two minutes that is certain, and after three more it is said.
    let phase = |alerts: &Alerts| alerts.list.iter().find(|alert| alert.object == "md1").map(|alert| alert.phase);
    for (boottime, wanted) in [(124, Phase::Resumed), (125, Phase::Quiet), (304, Phase::Quiet), (305, Phase::Resolved)]
    {
        assert_eq!(
            phase(after.step(&[late.clone()], &stamp(boottime, TWO + 55 + boottime))),
            Some(wanted),
            "{boottime}"
        );
    }
    assert_eq!(after.kept().pages.len(), 2, "the hour's pages are remembered, and a resumed alert is no new one");
}

#[test]
fn a_restart_does_not_make_an_end_wait_anew() {
    let mut before = desk("rules: {mode: page}");
    before.step(&[rebuild()], &at(0));
    before.step(&[], &at(100));
    let mut after = desk("rules: {mode: page}");
    after.resume(before.kept(), &at(200));
    assert_eq!(after.step(&[], &at(200)).list[0].phase, Phase::Quiet);
    assert_eq!(after.step(&[], &at(279)).list[0].phase, Phase::Quiet);
    let told = after.step(&[], &at(280));
    assert_eq!(told.list[0].phase, Phase::Resolved);
    let over = items(told, &[], &[], &BTreeMap::new());
    assert_eq!(post(&over[0], 280)["endsAt"], "2026-11-28T02:01:40.000Z");
    assert_eq!(over[0].annotations["summary"], "md0 recover 15.4 % at 180 MB/s");
}

#[test]
fn what_was_kept_may_come_late() {
    let yaml = "rules: {mode: page}";
    let mut before = desk(yaml);
    before.step(&[rebuild()], &at(0));
    let mut after = desk(yaml);
    let mut anew = rebuild();
    anew.since_realtime = Nanos::from_secs(TWO + 40);
    after.step(&[anew.clone()], &at(45));
    after.resume(before.kept(), &at(45));
    let told = after.step(&[anew], &at(46));
    assert_eq!(shown(told), [(REBUILD, "md0", Mode::Page, Phase::Firing)]);
    assert_eq!(told.list[0].starts_at, Nanos::from_secs(TWO));
    assert_eq!(after.kept().pages, [Nanos::from_secs(TWO)], "one page");
}

#[test]
fn pages_above_the_hours_limit_are_tickets_until_there_is_room() {
    let mut desk = desk("rules: {mode: page}\nalerts: {max_pages_per_hour: 2}");
    let many: Vec<Finding> = ["md0", "md1", "md2"].map(|md| finding(REBUILD, md, Severity::Critical)).into();
    for second in 0..3_600 {
        let told = desk.step(&many, &at(second));
        let modes: Vec<Mode> = told.list.iter().map(|alert| alert.mode).collect();
        assert_eq!(modes, [Mode::Page, Mode::Page, Mode::Ticket], "{second}");
        assert_eq!((told.suppressed.limit, told.suppressed.silence), (1, 0));
    }
    let told = desk.step(&many, &at(3_600));
    let md2: Vec<_> = shown(told).into_iter().filter(|(_, object, ..)| *object == "md2").collect();
    assert_eq!(md2, [(REBUILD, "md2", Mode::Ticket, Phase::Quiet), (REBUILD, "md2", Mode::Page, Phase::Firing)]);
    // A clock that is set back an hour does not close the door for longer than an hour.
    let md3 = [finding(REBUILD, "md3", Severity::Critical), finding(REBUILD, "md4", Severity::Critical)];
    desk.step(&md3, &stamp(5_000, TWO));
    let told = desk.step(&md3, &stamp(8_600, TWO + 3_600));
    assert!(told.list.iter().any(|alert| alert.object == "md4" && alert.mode == Mode::Page), "{:?}", told.list);
}

#[test]
fn a_maintenance_window_holds_everything_back_and_counts_it_once() {
    let mut desk =
        desk("rules: {mode: page}\nalerts: {silence: [{from: 2026-11-28T02:01:00Z, to: 2026-11-28T03:02:00+01:00}]}");
    for second in 0..200 {
        let told = desk.step(&[rebuild()], &at(second));
        assert_eq!(told.list[0].phase == Phase::Firing, !(60..120).contains(&second), "{second}");
        assert_eq!(told.suppressed.silence, u64::from(second >= 60), "{second}");
    }
}

#[test]
fn a_new_config_ends_what_may_not_alert_any_more() {
    let mut desk = desk("rules: {mode: page}");
    desk.step(&[rebuild()], &at(0));
    desk.replan(plan(&config("rules: {mode: shadow}"), "gpu-17"));
    assert_eq!(desk.step(&[rebuild()], &at(1)).list[0].phase, Phase::Quiet);
}

#[test]
fn the_list_is_bounded_whatever_the_rules_say() {
    let mut desk = desk("rules: {mode: ticket}");
    let many = |from: u32| -> Vec<Finding> {
        (from..from + 200).map(|n| finding(REBUILD, &format!("md{n}"), Severity::Warn)).collect()
    };
    for round in 0..50 {
        let told = desk.step(&many(round * 7), &at(u64::from(round)));
        assert!(told.list.len() <= 64, "{}", told.list.len());
    }
}

/// What is posted and what the series say over minutes of findings: each alert's name and object, with the minutes after
/// two in which it began; an alert that is told to be over begins anew.
fn told(desk: &mut Desk, minutes: &[Vec<Finding>]) -> Vec<(String, String, u64)> {
    let (mut posted, mut series, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for second in 0..60 * u64::try_from(minutes.len()).unwrap() {
        let findings = &minutes[usize::try_from(second / 60).unwrap()];
        let alerts = desk.step(findings, &at(second));
        let shown = |name: &str, object: &str| (name.to_owned(), object.to_owned());
        let active = alerts.list.iter().filter(|alert| alert.is_active());
        series.extend(active.map(|alert| shown(&alert_name(alert.rule), &alert.object)));
        let now = items(alerts, findings, &[], &BTreeMap::new());
        let firing = now.iter().filter(|item| item.ended_at.is_none());
        let firing: Vec<_> = firing.map(|item| shown(&item.labels["alertname"], &item.labels["object"])).collect();
        let new = firing.iter().filter(|alert| !open.contains(*alert));
        posted.extend(new.map(|(name, object)| (name.clone(), object.clone(), second / 60)));
        let over = |alert: &(String, String)| {
            now.iter().any(|item| {
                item.ended_at.is_some() && (&item.labels["alertname"], &item.labels["object"]) == (&alert.0, &alert.1)
            })
        };
        open.retain(|alert| !over(alert));
        open.extend(firing.into_iter().filter(|alert| !open.contains(alert)).collect::<Vec<_>>());
    }
    series.sort_unstable();
    series.dedup();
    let mut names: Vec<_> = posted.iter().map(|(name, object, _)| (name.clone(), object.clone())).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, series, "the series and the posts are two views of one list");
    posted
}

/// A finding of a rule that others tell too.
fn also(rule: RuleId, object: &str, others: &[RuleId]) -> Finding {
    Finding { also: others.to_vec(), ..finding(rule, object, Severity::Warn) }
}

use RuleId as R;

#[test]
fn a_trouble_that_two_rules_tell_one_after_the_other_is_one_page() {
    for (first, second, object) in [
        (R::BusyButStarved, R::RaidRebuildImpact, "md0"),
        (R::BusyButStarved, R::IoStall, "nvme0n1"),
        (R::RaidRebuildImpact, R::IoStall, "md0"),
        (R::IoStall, R::NoisyNeighbour, "nvme0n1"),
        (R::BusyButStarved, R::KvSaturation, "http://127.0.0.1:8000/metrics"),
        (R::KvSaturation, R::QueueInstability, "http://127.0.0.1:8000/metrics"),
        (R::KvSaturation, R::PreemptionThrash, "http://127.0.0.1:8000/metrics"),
        (R::KvSaturation, R::EngineStall, "http://127.0.0.1:8000/metrics"),
        (R::QueueInstability, R::KvSaturation, "http://127.0.0.1:8000/metrics"),
        (R::SilentThrottling, R::StragglerLocal, "GPU-3"),
        (R::StragglerLocal, R::SilentThrottling, "GPU-3"),
    ] {
        let mut desk = desk("rules: {mode: page}");
        let alone = |rule| vec![finding(rule, object, Severity::Warn)];
        let both = vec![also(second, object, &[first])];
        // The first is told alone, beside the second, not at all, and after it.
        let minutes = [alone(first), both, alone(second), vec![], alone(second), alone(first), vec![]];
        let posted = told(&mut desk, &minutes);
        assert_eq!(posted, [(alert_name(first), object.to_owned(), 0)], "{first}, then {second}");
        assert_eq!(desk.kept().pages.len(), 1, "{first}, then {second}");
        let one = desk.told().list.iter().map(|alert| alert.starts_at).collect::<Vec<_>>();
        assert_eq!(one, [Nanos::from_secs(TWO)], "{first}, then {second}");
    }
}

#[test]
fn another_trouble_of_the_same_object_is_a_page_of_its_own() {
    for (first, second, third, object) in [
        (R::SilentThrottling, R::GpuFault, R::BusyButStarved, "GPU-3"),
        (R::BusyButStarved, R::GpuFault, R::SilentThrottling, "GPU-3"),
        (R::StragglerLocal, R::Squatter, R::BusyButStarved, "GPU-3"),
        (R::EngineStall, R::TelemetryDegraded, R::BusyButStarved, "http://127.0.0.1:8000/metrics"),
        (R::PcieLinkDegraded, R::SilentThrottling, R::BusyButStarved, "GPU-3"),
    ] {
        let mut desk = desk("rules: {mode: page}");
        // What stood before goes on beside it, and after it.
        let minutes = [
            vec![also(first, object, &[third])],
            vec![also(second, object, &[first])],
            vec![also(second, object, &[first, third])],
            vec![also(first, object, &[third])],
        ];
        let posted = told(&mut desk, &minutes);
        let wanted = [(alert_name(first), object.to_owned(), 0), (alert_name(second), object.to_owned(), 1)];
        assert_eq!(posted, wanted, "{first}, then {second}");
    }
    // An effect that has found its cause is that cause's trouble, and no other's.
    let mut one = desk("rules: {mode: page}");
    let minutes = [
        vec![finding(R::BusyButStarved, "GPU-3", Severity::Warn)],
        vec![also(R::SilentThrottling, "GPU-3", &[R::BusyButStarved])],
        vec![also(R::PcieLinkDegraded, "GPU-3", &[R::SilentThrottling, R::BusyButStarved])],
    ];
    let posted = told(&mut one, &minutes);
    let wanted = [(R::BusyButStarved, 0), (R::PcieLinkDegraded, 2)];
    assert_eq!(posted, wanted.map(|(rule, minute)| (alert_name(rule), "GPU-3".to_owned(), minute)));
    // Of one array, hours apart; of two disks at once; of an engine and its GPU at once.
    let disk = |object| finding(R::IoStall, object, Severity::Warn);
    let mut hours = vec![vec![rebuild()]];
    hours.extend(vec![vec![]; 180]);
    hours.push(vec![disk("md0")]);
    assert_eq!(told(&mut desk("rules: {mode: page}"), &hours).len(), 2);
    let elsewhere = [vec![rebuild()], vec![rebuild(), disk("nvme3n1")]];
    assert_eq!(told(&mut desk("rules: {mode: page}"), &elsewhere).len(), 2);
    let kv = finding(R::KvSaturation, "http://127.0.0.1:8000/metrics", Severity::Warn);
    let hot = finding(R::SilentThrottling, "cooling", Severity::Warn);
    assert_eq!(told(&mut desk("rules: {mode: page}"), &[vec![kv.clone()], vec![hot, kv]]).len(), 2);
}

#[test]
fn what_joins_an_alert_makes_it_louder_and_never_quieter() {
    let starved = || finding(R::BusyButStarved, "md0", Severity::Warn);
    let both = || also(REBUILD, "md0", &[R::BusyButStarved]);
    let modes = |yaml: &str, minutes: &[Vec<Finding>]| {
        let mut desk = desk(yaml);
        for (minute, findings) in (0..).zip(minutes) {
            desk.step(findings, &at(60 * minute));
        }
        shown(desk.told()).into_iter().map(|(rule, _, mode, phase)| (rule, mode, phase)).collect::<Vec<_>>()
    };
    let steps = [vec![starved()], vec![both()], vec![starved()]];
    // A ticket stands, and what joins it may page: it does.
    assert_eq!(
        modes("rules: {mode: page, modes: {busy_but_starved: ticket}}", &steps),
        [(R::BusyButStarved, Mode::Ticket, Phase::Quiet), (REBUILD, Mode::Page, Phase::Firing)]
    );
    for yaml in [
        "rules: {mode: page, modes: {raid_rebuild_impact: ticket}}",
        "rules: {mode: page, modes: {raid_rebuild_impact: shadow}}",
    ] {
        assert_eq!(modes(yaml, &steps[..2]), [(R::BusyButStarved, Mode::Page, Phase::Firing)], "{yaml}");
    }
    // Nobody trusts the rule that told it first any more: what tells it now speaks for itself.
    let mut desk = desk("rules: {mode: page}");
    desk.step(&steps[0], &at(0));
    desk.step(&steps[1], &at(60));
    desk.replan(plan(&config("rules: {mode: page, modes: {busy_but_starved: shadow}}"), "gpu-17"));
    let told = shown(desk.step(&steps[1], &at(61))).into_iter().map(|(rule, .., phase)| (rule, phase));
    assert_eq!(told.collect::<Vec<_>>(), [(R::BusyButStarved, Phase::Quiet), (REBUILD, Phase::Firing)]);
}

#[test]
fn an_alert_keeps_its_name_over_a_restart_and_says_what_is_known_now() {
    let yaml = "rules: {mode: page}";
    let mut before = desk(yaml);
    before.step(&[finding(R::BusyButStarved, "md0", Severity::Warn)], &at(0));
    let both = [also(REBUILD, "md0", &[R::BusyButStarved])];
    let told = before.step(&both, &at(30));
    let one = &items(told, &both, &[], &BTreeMap::new())[0];
    assert_eq!(
        (one.labels["alertname"].as_str(), one.labels["rule"].as_str()),
        ("GpuprodBusyButStarved", "busy_but_starved")
    );
    assert_eq!(one.annotations["summary"], "md0 recover 15.4 % at 180 MB/s");
    assert_eq!(one.annotations["told_by"], "raid_rebuild_impact");
    let kept: Kept = serde_json::from_value(serde_json::to_value(before.kept()).unwrap()).unwrap();
    // What was over before and what stands are two, even if they tell the same trouble.
    let mut past = kept.clone();
    past.list.insert(
        0,
        Alert {
            rule: R::IoStall,
            told_by: None,
            phase: Phase::Resolved,
            ended_at: Some(Nanos::from_secs(TWO - 600)),
            ..past.list[0].clone()
        },
    );
    let mut third = desk(yaml);
    third.resume(past, &at(35));
    let phases: Vec<_> = shown(third.step(&[], &at(36))).into_iter().map(|(rule, .., phase)| (rule, phase)).collect();
    assert_eq!(phases, [(R::IoStall, Phase::Resolved), (R::BusyButStarved, Phase::Resumed)]);
    // The finding stands before what was kept has come.
    let mut after = desk(yaml);
    after.step(&[finding(R::IoStall, "md0", Severity::Warn)], &at(35));
    after.resume(kept, &at(35));
    let told = after.step(&[finding(R::IoStall, "md0", Severity::Warn)], &at(36));
    assert_eq!(shown(told), [(R::BusyButStarved, "md0", Mode::Page, Phase::Firing)]);
    assert_eq!(told.list[0].starts_at, Nanos::from_secs(TWO));
    assert_eq!(after.kept().pages.len(), 1, "one page");
}

#[test]
fn names_of_alerts() {
    assert_eq!(alert_name(RuleId::KvSaturation), "GpuprodKvSaturation");
    assert_eq!(alert_name(RuleId::Squatter), "GpuprodSquatter");
}

// ---- what one Alertmanager is told -------------------------------------------------------------------------------

fn now(second: u64) -> Now {
    Now { boottime: Nanos::from_secs(1_000 + second), realtime: Nanos::from_secs(TWO + second) }
}

fn item(object: &str, over: Option<u64>) -> Item {
    Item {
        labels: [("alertname", "A".to_owned()), ("object", object.to_owned())].into(),
        site: BTreeMap::new(),
        annotations: BTreeMap::new(),
        starts_at: Nanos::from_secs(TWO),
        ended_at: over.map(|second| Nanos::from_secs(TWO + second)),
    }
}

#[test]
fn it_repeats_in_time_tells_news_at_once_and_everything_together() {
    let mut courier = Courier::new(Nanos::from_secs(60));
    let mut posted = Vec::new();
    for second in 0..300 {
        let mut list = vec![item("md0", (second >= 200).then_some(150))];
        if second >= 90 {
            list.push(item("md1", None));
        }
        let posts = courier.due(&list, now(second));
        if !posts.is_empty() {
            posted.push((second, posts.len()));
            courier.taken(&list, now(second));
        }
    }
    assert_eq!(posted, [(0, 1), (60, 1), (90, 2), (150, 2), (200, 2), (260, 2)]);
    assert_eq!(courier.wait(&[item("md1", None)], now(270)), Nanos::from_secs(50));
    assert!(Courier::new(Nanos::from_secs(60)).due(&[], now(0)).is_empty());
}

#[test]
fn a_failure_is_tried_again_ever_more_slowly_and_at_least_once_a_minute() {
    let mut courier = Courier::new(Nanos::from_secs(60));
    let list = [item("md0", None)];
    let mut tried = Vec::new();
    for second in 0..200 {
        if !courier.due(&list, now(second)).is_empty() {
            tried.push(second);
            courier.failed(now(second));
        }
    }
    assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    // It is back: at once to the beat, and a later failure begins with a second again.
    courier.taken(&list, now(243));
    assert!(courier.due(&list, now(302)).is_empty());
    assert_eq!(courier.due(&list, now(303)).len(), 1);
    courier.failed(now(303));
    assert_eq!(courier.due(&list, now(304)).len(), 1);
}

#[test]
fn an_end_lies_after_its_beginning_and_before_now_whatever_the_clock_did() {
    let firing = item("md0", None).postable(Nanos::from_secs(TWO + 30), Nanos::from_secs(240));
    let json = serde_json::to_value(firing).unwrap();
    assert_eq!(
        (json["startsAt"].as_str(), json["endsAt"].as_str()),
        (Some("2026-11-28T02:00:00.000Z"), Some("2026-11-28T02:04:30.000Z"))
    );
    // The clock was an hour ahead when the alert began.
    for (second, over) in [(3_600, Some(3_600)), (10, Some(3_500)), (0, Some(0))] {
        let mut item = item("md0", over);
        item.starts_at = Nanos::from_secs(TWO + 3_600);
        let json = post(&item, second);
        let (starts, ends) = (json["startsAt"].as_str().unwrap(), json["endsAt"].as_str().unwrap());
        assert!(starts < ends, "{starts} {ends}");
        assert!(
            ends <= serde_json::to_value(item.postable(Nanos::from_secs(TWO + second), Nanos(0))).unwrap()["endsAt"]
                .as_str()
                .unwrap()
        );
        assert_eq!(ends, format!("2026-11-28T0{}:{:02}:{:02}.000Z", 2 + second / 3_600, second / 60 % 60, second % 60));
    }
    let mut ahead = item("md0", None);
    ahead.starts_at = Nanos::from_secs(TWO + 3_600);
    assert_eq!(post(&ahead, 5)["startsAt"], "2026-11-28T02:00:05.000Z", "never in the future");
}

#[test]
fn hostile_text_stays_on_its_line_and_within_bounds() {
    let mut desk = desk("rules: {mode: page}");
    let mut finding = rebuild();
    finding.subject = format!("md0\u{1b}[2J\n{}", "x".repeat(10_000));
    finding.summary = "s\n\u{0}".repeat(100_000);
    finding.victims = (0..500).map(|n| UnitId(format!("GPU-{n}").into())).collect();
    let told = desk.step(std::slice::from_ref(&finding), &at(0));
    let json = post(&items(told, &[finding], &[], &BTreeMap::new())[0], 0);
    let text = json.to_string();
    assert!(text.len() < 20_000, "{}", text.len());
    assert_eq!(json["labels"]["object"].as_str().unwrap().chars().count(), 256);
    assert!(json["annotations"].as_object().unwrap().values().all(|value| !value.as_str().unwrap().contains('\u{0}')));
    assert!(json["annotations"]["victims"].as_str().unwrap().ends_with("and 484 more"));
}
