//! The history: segments within a budget, read back across their ends, torn or not.

use std::fs;
use std::sync::Arc;

use gpuprod::history::{Budget, Writer, between, segments};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Reading, Sample, Stamp, Tick, host, topology};

use crate::cli::Scratch;

const BEGIN: u64 = 1_795_837_575;

/// PSI is read every second, the NUMA nodes every tenth.
fn tick(second: u64) -> Tick {
    let at = Nanos::from_secs(1_000 + second);
    let stamp = Stamp {
        boot_id: BootId("b".to_owned()),
        boottime: at,
        monotonic: at,
        realtime: Nanos::from_secs(BEGIN + second),
    };
    let sample = |why: String| Sample { at, took: Nanos(second), value: Reading::Value(()), why, hung: None };
    let Sample { at, took, why, .. } = sample(format!("{:x}", second.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let psi = Sample { at, took, value: Reading::Value(host::Psi::default()), why: why.clone(), hung: None };
    let numa = Sample { at, took, value: Reading::Value(topology::Numa::default()), why, hung: None };
    Tick {
        stamp,
        period: Nanos::from_secs(1),
        psi: Some(Arc::new(psi)),
        numa: second.is_multiple_of(10).then(|| Arc::new(numa)),
        ..Tick::default()
    }
}

fn budget(bytes: u64) -> Budget {
    Budget { bytes, host: "node1".to_owned() }
}

fn read(dir: &std::path::Path, from: u64, to: u64) -> Vec<Tick> {
    let at = |second| Nanos::from_secs(BEGIN + second);
    between(dir, at(from), at(to)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn what_was_written_is_read_back_across_segments_and_processes() {
    let scratch = Scratch::new("history");
    let dir = scratch.0.join("history");
    let mut writer = Writer::open(&dir, budget(100_000)).unwrap();
    for second in 0..400 {
        writer.write(&tick(second)).unwrap();
    }
    // Killed: the segment has no end, and what was flushed of it is there.
    drop(writer);
    let flushed = read(&dir, 0, 1_000);
    assert!(flushed.len() >= 395, "{} ticks", flushed.len());
    assert_eq!(flushed, (0..flushed.len() as u64).map(tick).collect::<Vec<_>>());

    let mut writer = Writer::open(&dir, budget(100_000)).unwrap();
    for second in 500..600 {
        writer.write(&tick(second)).unwrap();
    }
    writer.close().unwrap();
    assert!(segments(&dir).unwrap().len() >= 3, "several segments");
    let all = read(&dir, 0, 1_000);
    let expected: Vec<Tick> = (0..flushed.len() as u64).chain(500..600).map(tick).collect();
    assert_eq!(all.len(), expected.len());
    // A segment begins with all that is known; what was seen before is left out again.
    assert_eq!(all, expected);

    // From the middle: the first tick carries what was known then, the rest is as it was written.
    let part = read(&dir, 233, 250);
    assert_eq!(part.len(), 18);
    assert_eq!(part[0].stamp, tick(233).stamp);
    assert_eq!(part[0].psi, tick(233).psi);
    assert_eq!(part[0].numa, tick(230).numa);
    assert_eq!(part[1..], (234..=250).map(tick).collect::<Vec<_>>());
    assert!(read(&dir, 2_000, 3_000).is_empty());
    assert!(read(&scratch.0.join("nowhere"), 0, 1).is_empty());
}

#[test]
fn the_budget_is_kept_and_the_oldest_go_first() {
    let scratch = Scratch::new("history-budget");
    let dir = scratch.0.join("history");
    let mut writer = Writer::open(&dir, budget(20_000)).unwrap();
    let size = || segments(&dir).unwrap().iter().map(|file| fs::metadata(&file.path).unwrap().len()).sum::<u64>();
    for second in 0..3_000 {
        writer.write(&tick(second)).unwrap();
        if second % 100 == 0 {
            assert!(size() <= 20_000, "{} bytes", size());
        }
    }
    assert_eq!(writer.bytes(), size());
    let kept = read(&dir, 0, 5_000);
    assert!(kept.len() > 100, "{} ticks", kept.len());
    let first = kept[0].stamp.realtime.0 / 1_000_000_000 - BEGIN;
    assert_eq!(kept[1..], (first + 1..first + kept.len() as u64).map(tick).collect::<Vec<_>>(), "no gap");
    // A smaller budget of the next process is kept at once.
    drop(writer);
    Writer::open(&dir, budget(5_000)).unwrap();
    assert!(size() <= 5_000, "{} bytes", size());
}

#[test]
fn damage_in_one_segment_costs_that_segment() {
    let scratch = Scratch::new("history-damage");
    let mut writer = Writer::open(&scratch.0, budget(20_000)).unwrap();
    for second in 0..200 {
        writer.write(&tick(second)).unwrap();
    }
    writer.close().unwrap();
    let files = segments(&scratch.0).unwrap();
    assert!(files.len() >= 3);
    let mut bytes = fs::read(&files[1].path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0xff);
    fs::write(&files[1].path, bytes).unwrap();
    // An empty file, and one that is not ours.
    fs::write(scratch.0.join("0000009999-1795999999.ticks"), "").unwrap();
    fs::write(scratch.0.join("notes.txt"), "hello").unwrap();
    let items: Vec<_> = between(&scratch.0, Nanos(0), Nanos(u64::MAX)).unwrap().collect();
    let damaged: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
    assert_eq!(damaged.iter().map(|damaged| &damaged.path).collect::<Vec<_>>(), [&files[1].path]);
    let last = items.into_iter().filter_map(Result::ok).last().unwrap();
    assert_eq!(last.stamp, tick(199).stamp);
}
