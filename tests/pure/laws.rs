//! The laws of accounting, over random schedules (`laws/schedule.rs`), on saved ledgers (`laws/check.rs`), against
//! an oracle that shares no code with the ledger (`laws/oracle.rs`). `cargo run --release -p gpuprod-rules
//! --example laws_bench` runs the same over a million.

#[path = "laws/check.rs"]
mod check;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/schedule.rs"]
mod schedule;
#[path = "laws/twin.rs"]
mod twin;

use std::collections::{BTreeMap, BTreeSet};

use check::{Book, Law, broken};
use gpuprod_rules::Ledger;
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
        }
        println!("{bug:?} breaks {laws:?}");
        assert!(laws.contains(&law), "{bug:?} breaks {laws:?}, not {law:?}");
    }
}
