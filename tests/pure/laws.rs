//! The laws of accounting, over random schedules (`laws/schedule.rs`), on saved ledgers (`laws/check.rs`), against
//! an oracle that shares no code with the ledger (`laws/oracle.rs`). `cargo run --release -p gpuprod-rules
//! --example laws_bench` runs the same over a million.

#[path = "laws/check.rs"]
mod check;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/owners.rs"]
mod owners;
#[path = "laws/schedule.rs"]
mod schedule;
#[path = "laws/twin.rs"]
mod twin;
#[path = "laws/twin_whose.rs"]
mod twin_whose;
#[path = "laws/whose.rs"]
mod whose;

use std::collections::{BTreeMap, BTreeSet};

use check::{Book, Law, broken};
use gpuprod_rules::{Bucket, Ledger};
use schedule::{Schedule, Trouble};
use twin::{BUGS, Bug, Twin};

const SCHEDULES: u64 = 10_000;
const SCHEDULES_PER_BUG: u64 = 200;

#[test]
fn the_ledger_keeps_the_laws() {
    let (bad, ticks) = check::sweep(&(0..SCHEDULES));
    assert_eq!(bad, None);
    assert!(ticks >= SCHEDULES * 50, "{ticks} ticks only");
}

#[test]
fn schedules_are_long_and_troubled() {
    let mut seen: BTreeMap<Trouble, u32> = BTreeMap::new();
    for seed in 0..500 {
        let schedule = Schedule::new(seed);
        assert!(schedule.beats.len() >= 50, "schedule {seed} is short");
        assert!(schedule.troubles.len() >= 3, "schedule {seed} is too quiet");
        for trouble in schedule.troubles {
            *seen.entry(trouble).or_default() += 1;
        }
    }
    for trouble in Trouble::ALL {
        let times = seen.get(&trouble).copied().unwrap_or(0);
        assert!(times >= 100, "{trouble:?} in {times} of 500 schedules only");
    }
}

/// What laws 3, 4 and 8 are put to: of a thousand nodes so many share a unit, have more tenants than names, and so on.
#[test]
fn schedules_are_peopled() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..1_000 {
        let schedule = Schedule::new(seed);
        let mut names = BTreeSet::new();
        let mut kinds = BTreeSet::new();
        let mut blamed = BTreeSet::new();
        for unit in schedule.beats.iter().flat_map(|beat| &beat.judgement.units) {
            let owners = unit.tenants.iter().filter_map(|owner| owner.0.as_deref()).chain(unit.tenant.as_deref());
            let here: BTreeSet<&str> = owners.collect();
            let lost = |cause| unit.split.iter().any(|part| part.0 == Bucket::Lost(cause) && part.1.0 > 0);
            kinds.extend((here.len() > 1).then_some("shared"));
            kinds.extend((unit.gpu.is_some() && here.len() == 1).then_some("an instance's owner"));
            kinds.extend(unit.external.iter().any(|external| lost(external.resource)).then_some("blamed"));
            kinds
                .extend(unit.external.iter().any(|external| !lost(external.resource)).then_some("blamed without loss"));
            if unit.external.is_empty() {
                kinds.extend(blamed.remove(&unit.unit).then_some("cleared"));
            } else {
                blamed.insert(unit.unit.clone());
            }
            names.extend(here);
        }
        kinds.extend((names.len() > 16).then_some("more than have names"));
        for kind in kinds {
            *seen.entry(kind).or_default() += 1;
        }
    }
    println!("{seen:?}");
    assert_eq!(seen.len(), 6);
    assert!(seen.values().all(|times| *times >= 10), "{seen:?}");
}

#[test]
fn a_second_ledger_written_apart_keeps_the_same_accounts() {
    for seed in 0..SCHEDULES_PER_BUG {
        let (mut twin, mut ledger) = (Twin::with(Bug::None), Ledger::default());
        let schedule = Schedule::new(seed);
        let found = broken(&twin, &schedule);
        assert!(found.is_empty(), "schedule {seed}: {}", found[0]);
        for beat in &schedule.beats {
            if beat.restart {
                twin.resume();
                ledger.resume();
            }
            twin.charge(&beat.judgement);
            ledger.charge(&beat.judgement);
        }
        assert_eq!(twin.save(), ledger.save(), "schedule {seed}");
    }
}

#[test]
fn every_fault_breaks_its_law() {
    for (bug, law) in BUGS {
        let mut laws: BTreeSet<Law> = BTreeSet::new();
        for seed in 0..SCHEDULES_PER_BUG {
            let found = broken(&Twin::with(bug), &Schedule::new(seed));
            laws.extend(found.iter().map(|broken| broken.law));
            if laws.contains(&law) {
                break;
            }
        }
        assert!(laws.contains(&law), "{bug:?} breaks {laws:?}, not {law:?}");
    }
}
