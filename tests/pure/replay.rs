//! A recording gives the same bytes each time, and its ledger sums to the time that passed.

use std::io::Cursor;

use gpuprod::recording::{Header, Recording, Writer};
use gpuprod::replay::{page, replay};
use gpuprod_rules::Policy;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth, Gpus};
use gpuprod_snapshot::units::{Bytes, Milliwatts, Nanos, Permille};
use gpuprod_snapshot::{BootId, Part, Reading, Sample, Stamp, Tick};

fn gpu(index: u32, util: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}").into(),
        health: GpuHealth::Ok.into(),
        util: Permille(util).into(),
        power: Milliwatts(300_000).into(),
        mem_used: Bytes(40 << 30).into(),
        mem_total: Bytes(80 << 30).into(),
        processes: Reading::Value(Vec::new()),
        ..Gpu::default()
    }
}

/// Two GPUs for so many ticks of one second.
fn recorded(ticks: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::new(Nanos::from_secs(1), "node1"), 10).unwrap();
    for second in 0..ticks {
        let at = Nanos::from_secs(500 + second);
        let realtime = Nanos::from_secs(1_800_000_000 + second);
        let stamp = Stamp { boot_id: BootId("b".into()), boottime: at, monotonic: at, realtime };
        let mut tick = Tick { stamp, period: Nanos::from_secs(1), ..Tick::default() };
        let devices = vec![gpu(0, 990), gpu(1, if second % 20 < 10 { 900 } else { 50 })];
        let value = Reading::Value(Part::Gpu(Gpus { devices, ..Gpus::default() }));
        tick.put(Sample { at, took: Nanos(1), value, why: String::new(), hung: None });
        writer.write(&tick).unwrap();
    }
    writer.finish().unwrap()
}

fn report(bytes: &[u8]) -> (String, String) {
    let recording = Recording::read(Cursor::new(bytes.to_vec())).unwrap();
    let (report, torn) = replay(recording, Policy::default()).unwrap();
    assert_eq!(torn, None);
    (page(&report), serde_json::to_string(&report).unwrap())
}

#[test]
fn replay_twice_gives_the_same_bytes() {
    let bytes = recorded(300);
    assert_eq!(report(&bytes), report(&bytes));
}

#[test]
fn the_ledger_sums_to_the_time_between_first_and_last_tick() {
    let recording = Recording::read(Cursor::new(recorded(300))).unwrap();
    let (report, _) = replay(recording, Policy::default()).unwrap();
    assert_eq!(report.ticks, 300);
    assert_eq!(report.ledger.accounts.len(), 2);
    for (unit, account) in &report.ledger.accounts {
        let sum: u64 = account.totals().iter().map(|total| total.time.0).sum();
        assert_eq!(sum, 299_000_000_000, "{unit}");
    }
    let text = page(&report);
    assert!(text.contains("300 ticks of 1.0 s, 2027-01-15T08:00:00Z to 2027-01-15T08:04:59Z"), "{text}");
    assert!(text.contains("GPU-0  observed 299.000000000 s"), "{text}");
}

#[test]
fn a_recording_without_ticks_is_no_error() {
    let (text, json) = report(&recorded(0));
    assert!(text.contains("no unit was seen"), "{text}");
    assert!(json.contains("\"ticks\":0"), "{json}");
}
