//! The model against what its scenario says: the numbers are the scenario's own, not the code's.

use std::path::Path;

use gpuprod_snapshot::storage::{MdAction, MdArray};
use gpuprod_snapshot::units::{Nanos, to_f64};
use gpuprod_snapshot::{Missing, Tick};

use crate::{Scenario, load_all};

fn scenarios() -> Vec<Scenario> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    load_all(&dir).unwrap().into_iter().map(|(_, scenario)| scenario).collect()
}

fn parse(text: &str) -> Scenario {
    Scenario::parse(text).unwrap()
}

const REBUILD: &str = "scenario t\nseed 3\nlength 6m\nnoise 2%\ngpu 2\n\
    engine e gpus 0-1 rate 1000tok/s waiting 4\n\
    array md0 raid5 members nvme0n1 nvme1n1 nvme2n1 spare nvme3n1 size 1TB mount /data\n\
    reads e md0 900MB/s\n\
    at 2m rebuild md0 speed 180MB/s done 10% slows e to 0.5\nat 5m end md0\n\
    expect 2m..5m gpu 0-1 starved storage w 0.5\n";

fn between(ticks: &[Tick], from: usize, to: usize, value: impl Fn(&Tick) -> u64) -> f64 {
    to_f64(value(&ticks[to]) - value(&ticks[from]))
}

fn array(tick: &Tick) -> &MdArray {
    &tick.md.as_ref().unwrap().value.get().unwrap().arrays[0]
}

fn tokens(tick: &Tick) -> u64 {
    let engines = tick.engine.as_ref().unwrap().value.get().unwrap();
    engines.engines[0].generation_tokens.copied().unwrap()
}

/// Milliseconds per read of a device between two ticks.
fn await_of(ticks: &[Tick], name: &str, from: usize, to: usize) -> f64 {
    let io = |tick: &Tick| {
        let block = tick.block.as_ref().unwrap().value.get().unwrap();
        block.devices.iter().find(|device| device.name == name).unwrap().io.get().unwrap().clone()
    };
    let (before, after) = (io(&ticks[from]), io(&ticks[to]));
    f64::from(after.read_ms - before.read_ms) / to_f64(after.reads - before.reads)
}

#[test]
fn a_rebuild_halves_the_tokens_and_doubles_the_latency_and_leaves_utilization() {
    let scenario = parse(REBUILD);
    let ticks: Vec<Tick> = scenario.ticks().collect();
    assert_eq!(ticks.len(), 360);
    let healthy = between(&ticks, 10, 110, tokens) / 100.0;
    let starved = between(&ticks, 130, 290, tokens) / 160.0;
    assert!((healthy / 1000.0 - 1.0).abs() < 0.05, "{healthy} tokens per second instead of 1000");
    assert!((starved / healthy - 0.5).abs() < 0.05, "{starved} instead of half of {healthy}");
    for member in ["nvme1n1", "nvme2n1", "md0"] {
        let ratio = await_of(&ticks, member, 130, 290) / await_of(&ticks, member, 10, 110);
        assert!((ratio - 2.0).abs() < 0.4, "{member} answers {ratio} times as slowly");
    }
    let util = |tick: &Tick| {
        let gpus = tick.gpu.as_ref().unwrap().value.get().unwrap();
        f64::from(gpus.devices[0].util.copied().unwrap().0) / 1000.0
    };
    assert!((util(&ticks[200]) - 0.84).abs() < 0.1 && (util(&ticks[50]) - 0.84).abs() < 0.1);
    let pressure = between(&ticks, 130, 290, |tick| {
        let psi = tick.psi.as_ref().unwrap().value.get().unwrap();
        psi.cgroups[0].pressures.io.get().unwrap().some.total.0
    });
    assert!((pressure / 160e9 - 0.53).abs() < 0.08, "{pressure}");
}

#[test]
fn the_array_goes_through_a_rebuild_as_md_does() {
    let scenario = parse(REBUILD);
    let ticks: Vec<Tick> = scenario.ticks().collect();
    let (before, during, after) = (array(&ticks[60]), array(&ticks[179]), array(&ticks[320]));
    assert_eq!(before.action.get(), Some(&MdAction::Idle));
    assert_eq!(before.sync_done_fine.missing(), Some(Missing::Gone));
    assert_eq!((during.action.get(), during.degraded.copied()), (Some(&MdAction::Recover), Some(1)));
    assert_eq!(during.slots.get().map(String::as_str), Some("_UU"));
    // 10 % of 1 TB, and 60 seconds at 180 MB/s.
    let done = to_f64(during.sync_done_fine.copied().unwrap().0);
    assert!((done / 110.8e9 - 1.0).abs() < 0.002, "{done}");
    let rebuilding: Vec<_> = during.members.iter().filter(|member| member.is_rebuilding()).collect();
    assert_eq!(rebuilding.len(), 1);
    assert_eq!(rebuilding[0].name, "nvme3n1");
    assert_eq!((after.action.get(), after.degraded.copied()), (Some(&MdAction::Idle), Some(0)));
    assert_eq!(after.last_action.get(), Some(&MdAction::Recover));
    assert_eq!(before.size.copied().unwrap().0 % 1_048_576, 0);
}

#[test]
fn a_scenario_gives_the_same_bytes_each_time() {
    for scenario in scenarios().iter().take(3) {
        let write = || {
            let mut bytes = Vec::new();
            crate::write_recording_to(scenario, &mut bytes).unwrap();
            bytes
        };
        let bytes = write();
        assert!(bytes == write(), "{}", scenario.name);
        let last = bytes.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
        let tick: Tick = serde_json::from_slice(last).unwrap();
        assert_eq!(Some(tick), scenario.ticks().last());
    }
}

#[test]
fn the_files_are_understood_and_make_sense() {
    let all = scenarios();
    assert!(all.len() >= 12);
    for scenario in &all {
        let says = !scenario.expects.is_empty() || !scenario.silent.is_empty();
        assert!(says, "{} expects neither a state nor silence", scenario.name);
        assert!(!scenario.blames.is_empty() || !scenario.silent.is_empty(), "{} says nothing of blame", scenario.name);
        for truth in scenario.truth() {
            assert!(
                truth.from < truth.to && truth.to <= Nanos::from_secs(scenario.length),
                "{}: {truth:?}",
                scenario.name
            );
        }
    }
}

/// No counter of any scenario steps back within a boot and a process.
#[test]
fn counters_count() {
    for scenario in scenarios() {
        let mut last: Option<Tick> = None;
        // A source that fails for a while counts on where it was.
        let read = |tick: &Tick| tick.block.as_ref().is_some_and(|block| block.value.get().is_some());
        for tick in scenario.ticks().filter(read) {
            if let Some(last) = last.filter(|last| last.stamp.boot_id == tick.stamp.boot_id) {
                assert!(last.stamp.boottime < tick.stamp.boottime);
                let reads = |tick: &Tick| {
                    let block = tick.block.as_ref().unwrap().value.get().unwrap();
                    block.devices.iter().map(|device| device.io.get().unwrap().reads).collect::<Vec<_>>()
                };
                assert!(reads(&last).iter().zip(reads(&tick)).all(|(old, new)| *old <= new), "{}", scenario.name);
            }
            last = Some(tick);
        }
    }
}

#[test]
fn dark_stretches_show_in_the_clocks_and_in_the_truth() {
    let text = |event: &str| {
        format!("scenario t\nlength 5m\ngpu 1\nengine e gpus 0\n{event}\nexpect 0s..5m gpu 0 productive\n")
    };
    let ends = |event: &str| {
        let scenario = parse(&text(event));
        let ticks: Vec<Tick> = scenario.ticks().collect();
        let (first, last) = (ticks[0].stamp.clone(), ticks[ticks.len() - 1].stamp.clone());
        (ticks.len(), first, last, scenario.truth())
    };
    let (n, first, last, truth) = ends("at 1m gap for 30s");
    assert_eq!(n, 270);
    assert_eq!(last.boottime.0 - first.boottime.0, 299_000_000_000);
    assert_eq!(last.monotonic.0 - first.monotonic.0, 299_000_000_000);
    let states: Vec<_> = truth.iter().map(|truth| (truth.from, truth.to, truth.cause.as_deref())).collect();
    let seconds = Nanos::from_secs;
    assert_eq!(
        states,
        [
            (seconds(0), seconds(60), None),
            (seconds(60), seconds(90), Some("agent_down")),
            (seconds(90), seconds(300), None)
        ]
    );

    let (n, first, last, _) = ends("at 1m suspend for 100s");
    assert_eq!(n, 200);
    assert_eq!(last.boottime.0 - first.boottime.0, 299_000_000_000);
    assert_eq!(last.monotonic.0 - first.monotonic.0, 199_000_000_000);

    let (n, first, last, _) = ends("at 1m reboot for 100s");
    assert_eq!(n, 200);
    assert_ne!(last.boot_id, first.boot_id);
    assert!(last.boottime < first.boottime);
    assert_eq!(last.realtime.0 - first.realtime.0, 299_000_000_000);

    let (_, first, last, _) = ends("at 1m clock -1h");
    assert_eq!(first.realtime.0 - last.realtime.0, (3600 - 299) * 1_000_000_000);
}

#[test]
fn a_restart_is_a_new_process_with_new_counters() {
    let scenario = parse("scenario t\nlength 4m\ngpu 1\nengine e gpus 0\nat 1m restart e for 20s\n");
    let ticks: Vec<Tick> = scenario.ticks().collect();
    let pids = |tick: &Tick| {
        let processes = tick.proc.as_ref().unwrap().value.get().unwrap();
        processes.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    assert_ne!(pids(&ticks[59]), pids(&ticks[80]));
    assert!(pids(&ticks[70]).is_empty());
    assert!(tokens(&ticks[80]) < tokens(&ticks[59]));
    let engine = &ticks[70].engine.as_ref().unwrap().value.get().unwrap().engines[0];
    assert!(engine.page.get().is_none());
}

#[test]
fn what_is_not_understood_says_where_and_what_would_be() {
    let head = "scenario t\nlength 1m\ngpu 2\nengine e gpus 0\narray md0 raid5 members nvme0n1 nvme1n1 nvme2n1\n";
    let cases = [
        ("gpuz 8", "line 6: `gpuz` is no verb; there are scenario"),
        ("engine f gpus 0-7", "line 6: there is no GPU 2: the `gpu` line says 2"),
        ("engine f gpus 1 rate 12MB/s", "line 6: rate: `12MB/s` is not a rate (for instance 1200tok/s)"),
        ("reads x md0", "line 6: there is no engine or job `x` above this line"),
        ("reads e md7", "line 6: there is no array, disk or share `md7` above this line"),
        ("at soon rebuild md0", "line 6: the time: `soon` is not a time (for instance 90s, 4m, 1h30m)"),
        ("at 4m explode", "line 6: `explode` cannot happen; there are rebuild"),
        ("at 4m rebuild md0", "line 6: `md0` has no spare to rebuild on"),
        ("at 4m gap", "line 6: `gap` needs `for` and how long"),
        ("at 4m end md0", "line 6: nothing about `md0` is going on before this time"),
        ("expect 4m gpu 0 idle", "line 6: `4m` is no range of time (for instance 4m..8m)"),
        ("expect 4m..8m gpu 0 lazy", "line 6: `lazy` is no state; there are faulted"),
        ("seed 1 2", "line 6: `2` is not understood here"),
        ("about \"open", "line 6: a quote is not closed"),
    ];
    for (line, want) in cases {
        let got = Scenario::parse(&format!("{head}{line}\n")).unwrap_err().to_string();
        assert!(got.starts_with(want), "{line}: {got}");
    }
    assert_eq!(Scenario::parse("length 1m").unwrap_err().to_string(), "line 0: there is no `scenario NAME` line");
}

/// What grows is half there after half of its time, what comes again comes again, and the twin has no trouble.
#[test]
fn trouble_grows_comes_again_and_is_not_in_the_twin() {
    let text = "scenario s\nlength 20m\nnoise 0%\ngpu 1\nengine e gpus 0 rate 1000tok/s\n\
        fault at 5m slow e to 0.5 over 100s for 5m\nat 12m set e rate 800tok/s for 30s every 2m\n";
    let scenario = Scenario::parse(text).unwrap();
    let twin = scenario.twin();
    let (mut twin, mut ticks) = (twin.run(), scenario.ticks());
    let mut done = Vec::new();
    while ticks.next().is_some() {
        twin.step(ticks.second());
        done.push((ticks.done(0).useful, twin.done(0).useful));
    }
    let near = |second: usize, useful: f64, without: f64| {
        let (a, b) = done[second];
        assert!((a - useful).abs() < 0.01 && (b - without).abs() < 0.01, "at {second}: {a} {b}");
    };
    near(299, 1.0, 1.0);
    near(349, 0.75, 1.0);
    near(450, 0.5, 1.0);
    near(600, 1.0, 1.0);
    near(725, 0.8, 0.8);
    near(760, 1.0, 1.0);
    near(845, 0.8, 0.8);
}

#[test]
fn what_is_lost_fails_or_begins_anew() {
    let text = "scenario s\nlength 10m\nnoise 0%\ngpu 1\nengine e gpus 0\nat 2m drop 50% psi for 4m\n\
        at 3m fail gpu for 1m\nat 5m reset e\n";
    let scenario = Scenario::parse(text).unwrap();
    let ticks: Vec<_> = scenario.ticks().collect();
    let there = ticks[120..360].iter().filter(|tick| tick.psi.is_some()).count();
    assert!((80..160).contains(&there), "{there} of 240");
    assert!(ticks[200].gpu.as_ref().unwrap().value.get().is_none());
    assert!(ticks[250].gpu.as_ref().unwrap().value.get().is_some());
    let tokens = |second: usize| {
        let engine = &ticks[second].engine.as_ref().unwrap().value.get().unwrap().engines[0];
        (*engine.generation_tokens.get().unwrap(), *engine.started.get().unwrap())
    };
    assert_eq!(tokens(299).1, tokens(301).1);
    assert!(tokens(301).0 < tokens(299).0);
}

/// The same text with another seed is another scenario, and each seed always the same.
#[test]
fn a_template_makes_one_scenario_per_seed() {
    let text = "scenario s\nlength 10m\ngpu 4\nengine e gpus 0-3\ndraw left 0.4..0.9\ndraw at 2m..5m\n\
        fault at $at slow e to $left\nexpect $at+30s..10m gpu 0-3 starved upstream\n";
    let make = |seed| Scenario::parse_seeded(text, Some(seed)).unwrap();
    assert_eq!(make(3), make(3));
    assert_ne!(make(3).drawn, make(4).drawn);
    assert_eq!(make(3).seed, 3);
    let scenario = make(5);
    let begins = gpuprod_snapshot::units::Nanos::from_secs(scenario.events[0].at + 30);
    assert_eq!(scenario.expects[0].from, begins);
}

/// A word that no finding can say would be a check that never fails.
#[test]
fn a_word_that_is_none_is_refused_with_its_line_and_with_those_that_are() {
    let head = "scenario t\nlength 10m\ngpu 1\njob j gpus 0\n";
    for (line, right) in [
        ("expect 1m..2m gpu 0 starved bogus", "storage"),
        ("expect 1m..2m gpu 0 productive trian", "train"),
        ("expect 1m..2m gpu 0 idle storage", "w SHARE"),
        ("expect 1m..2m gpu 0 busy", "productive"),
        ("blame 1m..2m bogus nvme99", "io_stall"),
        ("may 1m..2m io_stal", "io_stall"),
        ("silent io_stal", "io_stall"),
        ("silent storage io_stal", "io_stall"),
    ] {
        let error = Scenario::parse(&format!("{head}{line}\n")).unwrap_err();
        assert!(error.line == 5 && error.message.contains(right), "{line}: {error}");
    }
    for line in [
        "expect 1m..2m gpu 0 starved background_io w 0.5",
        "expect 1m..2m gpu 0 productive every 4m",
        "blame 1m..2m hung_spin anything",
        "silent critical storage squatter mrqi",
        "silent",
    ] {
        parse(&format!("{head}{line}\n"));
    }
}

/// Every word stands in the page that authors read.
#[test]
fn the_page_lists_every_word() {
    let page = include_str!("../../../docs/scenarios.md");
    let reasons = crate::vocabulary::STATES
        .iter()
        .flat_map(|(state, reasons)| [*state].into_iter().chain(reasons.iter().copied()));
    let rules = crate::vocabulary::RULES
        .iter()
        .flat_map(|(rule, variants)| [*rule].into_iter().chain(variants.iter().copied()));
    for word in reasons.chain(rules) {
        assert!(page.contains(&format!("`{word}`")), "docs/scenarios.md does not say `{word}`");
    }
}

/// A process that exits leaves nothing on the GPU, and need not come back.
#[test]
fn who_exits_is_gone_with_its_memory() {
    let ticks: Vec<Tick> =
        parse("scenario t\nlength 3m\ngpu 1\njob j gpus 0 mem 70GB\nat 1m exit j\nat 2m end j").ticks().collect();
    let gpu = |tick: &Tick| tick.gpu.as_ref().unwrap().value.get().unwrap().devices[0].clone();
    let held = |at: usize| {
        (gpu(&ticks[at]).processes.get().unwrap().len(), gpu(&ticks[at]).mem_used.copied().unwrap().0 > 1 << 30)
    };
    assert_eq!([held(50), held(90), held(150)], [(1, true), (0, false), (1, true)]);
}
