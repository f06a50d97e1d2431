//! Single cases with figures worked out by hand; the laws over random schedules stand in `tests/pure/laws.rs`.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Stamp};

use super::Ledger;
use crate::{
    Bucket, Cause, Class, Judgement, Part, Progress, State, UnitId, UnitJudgement, Unknown, Weight, WeightSource,
};

const SEC: u64 = 1_000_000_000;
const PRODUCTIVE: State = State::Productive(Progress::Decode);

/// A tick of period 1 s: boot, boottime, monotonic, realtime.
fn tick(clocks: (&str, u64, u64, u64), units: Vec<UnitJudgement>) -> Judgement {
    let (boot, boottime, monotonic, realtime) = clocks;
    Judgement {
        stamp: Stamp {
            boot_id: BootId(String::from(boot)),
            boottime: Nanos(boottime),
            monotonic: Nanos(monotonic),
            realtime: Nanos(realtime),
        },
        period: Nanos(SEC),
        units,
        ..Judgement::default()
    }
}

/// All three clocks at the same time of boot a.
fn at(ns: u64, units: Vec<UnitJudgement>) -> Judgement {
    tick(("a", ns, ns, ns), units)
}

fn unit(id: &str, slices: (u32, u32), split: &[(Bucket, u32)]) -> UnitJudgement {
    let part = |&(bucket, part): &(Bucket, u32)| (bucket, Part(part));
    UnitJudgement {
        unit: UnitId(id.into()),
        gpu: (slices.1 > 1).then(|| UnitId("GPU-0".into())),
        index: None,
        slices: slices.0,
        slices_whole: slices.1,
        state: PRODUCTIVE,
        since: Nanos(0),
        weight: Weight { w: Part(0), source: WeightSource::Tokens },
        split: split.iter().map(part).collect(),
        cumulative: false,
        class: Class::Serving,
        class_inferred: false,
        tenant: None,
        tenants: Vec::new(),
        model: None,
        external: Vec::new(),
        meter: None,
    }
}

fn busy() -> Vec<UnitJudgement> {
    vec![unit("GPU-0", (1, 1), &[(Bucket::Productive, 1_000_000)])]
}

fn ledger(ticks: &[Judgement]) -> Ledger {
    let mut ledger = Ledger::default();
    for tick in ticks {
        ledger.charge(tick);
    }
    ledger
}

fn states(ledger: &Ledger, id: &str) -> Vec<(State, u64)> {
    let states = ledger.accounts[&UnitId(id.into())].states();
    states.into_iter().map(|(s, ns)| (s, ns.0)).collect()
}

fn buckets(ledger: &Ledger, id: &str) -> Vec<(Bucket, u64)> {
    let totals = ledger.accounts[&UnitId(id.into())].totals();
    totals.into_iter().map(|t| (t.bucket, t.time.0)).collect()
}

#[test]
fn a_tick_is_split_to_the_nanosecond_and_ties_go_to_the_first_bucket() {
    let halves = [(Bucket::Lost(Cause::Storage), 500_000), (Bucket::Productive, 500_000)];
    let judged = || vec![unit("GPU-0", (1, 1), &halves)];
    let ledger = ledger(&[at(0, judged()), at(1_000_000_001, judged())]);
    let expected = [(Bucket::Productive, 500_000_001), (Bucket::Lost(Cause::Storage), 500_000_000)];
    assert_eq!(buckets(&ledger, "GPU-0"), expected);
}

#[test]
fn suspend_is_what_boottime_gained_over_monotonic() {
    let suspended = State::Unknown(Unknown::Suspended);
    let slept = tick(("a", 601 * SEC, SEC, 601 * SEC), busy());
    let slept = ledger(&[at(0, busy()), slept]);
    assert_eq!(states(&slept, "GPU-0"), [(suspended, 600 * SEC), (PRODUCTIVE, SEC)]);
    // 100 ms is the reading of the clocks, one more nanosecond is not.
    for (apart, expected) in [
        (100_000_000, vec![(PRODUCTIVE, SEC)]),
        (100_000_001, vec![(suspended, 100_000_001), (PRODUCTIVE, 899_999_999)]),
    ] {
        let last = tick(("a", SEC, SEC - apart, SEC), busy());
        assert_eq!(states(&ledger(&[at(0, busy()), last]), "GPU-0"), expected);
    }
}

#[test]
fn a_verdict_speaks_for_two_and_a_half_periods_and_counters_for_ten_seconds() {
    let missed = State::Unknown(Unknown::Missed);
    for (length, cumulative, state) in [
        (2_500_000_000, false, PRODUCTIVE),
        (2_500_000_001, false, missed),
        (10_000_000_000, true, PRODUCTIVE),
        (10_000_000_001, true, missed),
    ] {
        let mut units = busy();
        units[0].cumulative = cumulative;
        let ledger = ledger(&[at(0, busy()), at(length, units)]);
        assert_eq!(states(&ledger, "GPU-0"), [(state, length)]);
    }
}

#[test]
fn a_new_process_books_its_absence_once() {
    let mut ledger = ledger(&[at(0, busy()), at(SEC, busy())]);
    ledger.resume();
    ledger.charge(&at(2 * SEC, busy()));
    ledger.charge(&at(3 * SEC, busy()));
    let down = State::Unknown(Unknown::AgentDown);
    assert_eq!(states(&ledger, "GPU-0"), [(down, SEC), (PRODUCTIVE, 2 * SEC)]);
}

#[test]
fn a_reboot_is_measured_on_the_wall_and_never_negative_or_over_a_week() {
    let week = 7 * 24 * 3600 * SEC;
    let down = State::Unknown(Unknown::HostDown);
    for (boot, wall, expected, steps) in [
        ("b", 100 * SEC, vec![(down, 90 * SEC)], 0),
        ("", 100 * SEC, vec![(down, 90 * SEC)], 0),
        ("b", 9 * SEC, vec![], 1),
        ("b", 10 * SEC + week + 1, vec![(down, week)], 0),
    ] {
        // The counting clocks start anew, here further on than before.
        let before = tick(("a", 0, 0, 10 * SEC), busy());
        let after = tick((boot, 500 * SEC, 400 * SEC, wall), busy());
        let ledger = ledger(&[before, after]);
        assert_eq!(states(&ledger, "GPU-0"), expected, "{boot} {wall}");
        assert_eq!(ledger.clock_steps, steps);
    }
}

#[test]
fn a_clock_that_goes_back_books_nothing_until_it_has_caught_up() {
    let times = [0, 2 * SEC, SEC, 3 * SEC / 2, 3 * SEC];
    let ledger = ledger(&times.map(|ns| at(ns, busy())));
    assert_eq!(states(&ledger, "GPU-0"), [(PRODUCTIVE, 3 * SEC)]);
    assert_eq!(ledger.clock_steps, 2);
}

#[test]
fn a_wall_clock_that_jumps_is_noted_and_changes_nothing() {
    let jumped = tick(("a", SEC, SEC, 3600 * SEC), busy());
    let ledger = ledger(&[at(0, busy()), jumped]);
    assert_eq!(states(&ledger, "GPU-0"), [(PRODUCTIVE, SEC)]);
    assert_eq!(ledger.clock_steps, 1);
}

#[test]
fn a_unit_that_nobody_speaks_for_is_unknown_and_a_new_one_starts_with_nothing() {
    let other = || vec![unit("GPU-1", (1, 1), &[(Bucket::Idle, 1_000_000)])];
    let ledger = ledger(&[at(0, busy()), at(SEC, other()), at(2 * SEC, other())]);
    let error = State::Unknown(Unknown::NvmlError);
    assert_eq!(states(&ledger, "GPU-0"), [(error, 2 * SEC)]);
    assert_eq!(states(&ledger, "GPU-1"), [(PRODUCTIVE, SEC)]);
}

#[test]
fn units_of_a_repartitioned_gpu_take_over_without_gap_or_overlap() {
    let idle = [(Bucket::Idle, 1_000_000)];
    let parts = || vec![unit("MIG-a", (3, 7), &idle), unit("GPU-0/rest", (4, 7), &idle)];
    let larger = || vec![unit("MIG-a", (4, 7), &idle), unit("GPU-0/rest", (3, 7), &idle)];
    let mut ledger = ledger(&[at(0, busy()), at(SEC, parts()), at(2 * SEC, larger()), at(3 * SEC, larger())]);
    let missed = State::Unknown(Unknown::Missed);
    assert_eq!(states(&ledger, "GPU-0"), [(missed, SEC)]);
    // 3/7 s, then 4/7 s; both sizes rounded down to a nanosecond.
    assert_eq!(buckets(&ledger, "MIG-a"), [(Bucket::Idle, 428_571_428 + 571_428_571)]);
    let rest = &ledger.accounts[&UnitId("GPU-0/rest".into())];
    assert_eq!(rest.observed(), Nanos(2 * SEC));
    assert_eq!(rest.observed_gpu(), Nanos(571_428_571 + 428_571_428));
    // Made whole again: the GPU goes on where it stood.
    ledger.charge(&at(4 * SEC, busy()));
    ledger.charge(&at(5 * SEC, busy()));
    assert_eq!(states(&ledger, "GPU-0"), [(missed, SEC), (PRODUCTIVE, SEC)]);
    assert_eq!(states(&ledger, "MIG-a"), [(missed, SEC), (PRODUCTIVE, 2 * SEC)]);
}

#[test]
fn parts_that_do_not_sum_to_one_never_make_a_gpu_look_better() {
    let unexplained = Bucket::Lost(Cause::Unexplained);
    for (split, expected) in [
        (vec![], vec![(unexplained, SEC)]),
        (vec![(Bucket::Productive, 700_000)], vec![(Bucket::Productive, 700_000_000), (unexplained, 300_000_000)]),
        (
            vec![(Bucket::Productive, 900_000), (Bucket::Idle, 300_000)],
            vec![(Bucket::Productive, 700_000_000), (Bucket::Idle, 300_000_000)],
        ),
        (vec![(Bucket::Productive, u32::MAX)], vec![(Bucket::Productive, SEC)]),
    ] {
        let judged = || vec![unit("GPU-0", (1, 1), &split)];
        let ledger = ledger(&[at(0, judged()), at(SEC, judged())]);
        assert_eq!(buckets(&ledger, "GPU-0"), expected);
        assert_eq!(ledger.mended, 1);
    }
}

#[test]
fn a_unit_that_is_judged_twice_is_booked_once_whatever_the_order() {
    let idle = unit("GPU-0", (1, 1), &[(Bucket::Idle, 1_000_000)]);
    let mut twice = busy();
    twice.push(idle);
    let mut turned = twice.clone();
    turned.reverse();
    let first = ledger(&[at(0, busy()), at(SEC, twice)]);
    assert_eq!(states(&first, "GPU-0"), [(PRODUCTIVE, SEC)]);
    assert_eq!(first, ledger(&[at(0, busy()), at(SEC, turned)]));
}

#[test]
fn the_ends_of_the_number_range_do_not_panic() {
    let most = u64::MAX;
    let huge = || vec![unit("GPU-0", (u32::MAX, 0), &[(Bucket::Idle, u32::MAX)])];
    let far = tick(("a", most, 0, most), huge());
    let ledger = ledger(&[at(0, huge()), far.clone(), far, at(0, huge())]);
    let account = &ledger.accounts[&UnitId("GPU-0".into())];
    assert_eq!(account.observed(), Nanos(most));
    assert_eq!(account.lost(), Nanos(0));
}
