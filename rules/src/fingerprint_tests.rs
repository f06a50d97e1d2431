use super::*;
use crate::signals::steps::StepSignals;
use crate::unit::Units;

const FOUR: Hardware = Hardware { units: Some(4), product: Some(1), slices: Some(0) };
const TWO: Hardware = Hardware { units: Some(2), ..FOUR };

/// A page of a process that started at a time, at a second.
fn page(second: u64, process: u64, model: &str) -> Engine {
    Engine {
        at: Nanos::from_secs(second),
        model: String::from(model).into(),
        started: Nanos(process).into(),
        ..Engine::default()
    }
}

/// The first of some seconds in which its normals began anew.
fn anew(print: &mut Fingerprint, seconds: core::ops::Range<u64>, process: u64, on: Hardware) -> Option<u64> {
    seconds.into_iter().find(|second| print.see(&page(*second, process, "chat"), Seen { on, driver: Some("570") }))
}

fn learnt() -> Fingerprint {
    let mut print = Fingerprint::default();
    assert_eq!(anew(&mut print, 0..60, 7, FOUR), None, "what is seen first is no change");
    print
}

#[test]
fn another_process_on_other_gpus_is_another_workload() {
    for other in [TWO, Hardware { product: Some(2), ..FOUR }, Hardware { slices: Some(3), ..FOUR }] {
        let mut print = learnt();
        assert_eq!(anew(&mut print, 100..160, 8, other), Some(115), "{other:?}");
        assert_eq!(anew(&mut print, 116..200, 8, other), None, "once");
        assert_eq!(anew(&mut print, 200..260, 9, other), None, "a restart alone is none");
    }
}

#[test]
fn the_workers_of_the_process_before_leave_first() {
    let mut print = learnt();
    assert_eq!(anew(&mut print, 100..110, 8, FOUR), None);
    assert_eq!(anew(&mut print, 110..160, 8, TWO), Some(115));
}

#[test]
fn a_process_keeps_its_gpus_and_what_is_not_said_has_not_changed() {
    let mut print = learnt();
    assert_eq!(anew(&mut print, 100..200, 7, TWO), None, "somebody else in its cgroup ended");
    assert_eq!(anew(&mut print, 200..300, 8, Hardware::default()), None);
    assert_eq!(anew(&mut print, 300..400, 8, Hardware { product: None, slices: None, ..FOUR }), None);
    // A page that says nothing, in a second without the driver.
    assert!(!print.see(&Engine { at: Nanos::from_secs(401), ..Engine::default() }, Seen::default()));
    assert_eq!(print.model.as_deref(), Some("chat"));
    assert_eq!((print.on, print.changed()), (FOUR, None));
}

#[test]
fn an_engine_that_does_not_tell_its_process_is_known_by_a_difference_that_stays() {
    let mut print = Fingerprint::default();
    let see = |print: &mut Fingerprint, second: u64, on: Hardware| {
        let page = Engine { at: Nanos::from_secs(second), ..Engine::default() };
        print.see(&page, Seen { on, driver: None })
    };
    assert!(!(0..30).any(|second| see(&mut print, second, FOUR)));
    assert!(!(30..40).any(|second| see(&mut print, second, TWO)));
    assert!(!see(&mut print, 40, FOUR));
    assert_eq!((41..80).find(|second| see(&mut print, *second, TWO)), Some(56));
}

#[test]
fn another_model_is_another_workload_at_once_and_its_gpus_are_not_known_yet() {
    let mut print = learnt();
    assert!(print.see(&page(100, 8, "code"), Seen { on: FOUR, driver: Some("570") }));
    assert_eq!(print.rounds, 1);
    for second in 101..160 {
        assert!(!print.see(&page(second, 8, "code"), Seen { on: TWO, driver: Some("570") }));
    }
    assert_eq!(print.on, TWO);
}

#[test]
fn another_driver_keeps_the_normal_and_is_told_until_it_has_proved_itself() {
    let (mut print, now) = (learnt(), Nanos::from_secs(1_800_000_000));
    let see = |print: &mut Fingerprint, second: u64, driver| {
        assert!(!print.see(&page(second, 8, "chat"), Seen { on: FOUR, driver: Some(driver) }));
    };
    see(&mut print, 100, "580");
    let words = Some("driver 570 before, 580 now");
    assert_eq!(print.changed().as_deref(), words);
    // It does badly, or nothing.
    for _ in 0..100 {
        print.close(now, Some(false));
        print.close(now, None);
    }
    assert_eq!(print.changed().as_deref(), words);
    for block in 0..24 {
        assert!(print.changed().is_some(), "{block}");
        print.close(now, Some(true));
    }
    assert_eq!(print.changed(), None);
    let sglang = Engine { kind: EngineKind::Sglang.into(), ..page(200, 9, "chat") };
    print.learnt.kind = Some(EngineKind::Vllm);
    assert!(!print.see(&sglang, Seen { on: FOUR, driver: Some("590") }));
    assert_eq!(print.changed().as_deref(), Some("driver 580 before, 590 now; vllm before, sglang now"));
}

#[test]
fn a_normal_that_nothing_has_confirmed_for_two_weeks_begins_anew() {
    let day = |day: u64| Nanos::from_secs((20_000 + day) * 24 * 3600);
    let mut print = learnt();
    assert!(!print.close(day(0), None), "the first block is no old one, whenever it is");
    assert!(!print.close(day(13), Some(false)));
    assert!(!print.close(day(14), Some(true)));
    assert!(!print.close(day(28), None));
    assert!(print.close(day(29), Some(false)));
    assert_eq!(print.rounds, 1);
    assert!(!print.close(day(30), None));
    // A wall clock that steps back is no age.
    assert!(!print.close(day(1), None));
}

#[test]
fn units_of_different_kinds_have_no_kind_in_common() {
    let mut all = FOUR;
    all.join(Hardware { units: Some(1), product: Some(2), slices: Some(0) });
    assert_eq!(all, Hardware { units: Some(5), product: None, slices: Some(0) });
}

#[test]
fn the_own_normals_of_a_gpu_follow_those_of_its_page() {
    let uuid = String::from("GPU-1");
    let gpu = gpuprod_snapshot::gpu::Gpu { uuid: uuid.into(), ..Default::default() };
    let gpus = gpuprod_snapshot::gpu::Gpus { devices: alloc::vec![gpu], ..Default::default() };
    let (at, took) = (Nanos(1), Nanos(0));
    let sample = gpuprod_snapshot::Sample { at, took, value: gpus.into(), why: String::new(), hung: None };
    let mut units = Units::default();
    units.discover(&gpuprod_snapshot::Tick { gpu: Some(Arc::new(sample)), ..Default::default() });
    let (_, unit) = units.iter_mut().next().unwrap();
    let known = |rounds: u32| {
        let mut steps = StepSignals::default();
        steps.print.rounds = rounds;
        steps
    };
    let (first, later) = (known(0), known(1));
    let number = |unit: &mut Unit, signals| unit.workload(Some(7), None, &Trainer { signals, ..Trainer::default() });
    assert_eq!(number(unit, None), Some(7));
    assert_eq!(number(unit, Some(&first)), Some(7));
    let other = number(unit, Some(&later));
    assert!(other.is_some() && other != Some(7));
    assert_eq!(number(unit, None), other, "its page is silent for a moment");
}
