//! Energy and bytes by tenant: what the GPUs' counters gained is somebody's or nobody's, once, whatever comes and goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuprod::report::{By, csv, table, whole};
use gpuprod::store::rows::Gains;
use gpuprod_rules::ledger::tenants::MOST;
use gpuprod_rules::{
    Bucket, Class, Judge, Judgement, Ledger, Meter, Part, Policy, Progress, State, Tenancy, TenantBy, TenantIo, UnitId,
    UnitJudgement, Weight, WeightSource,
};
use gpuprod_snapshot::storage::{Block, BlockDevice};
use gpuprod_snapshot::tenant::{Cgroup, CgroupIo, Cgroups};
use gpuprod_snapshot::units::{Bytes, Millijoules, Milliwatts, Nanos};
use gpuprod_snapshot::{BootId, Reading, Sample, Stamp, Tick};
use proptest::prelude::*;

const SEC: u64 = 1_000_000_000;

fn unit(id: &str, gpu: &str, slices: (u32, u32), tenants: &[(Option<String>, Part)]) -> UnitJudgement {
    UnitJudgement {
        unit: UnitId(id.into()),
        gpu: (id != gpu).then(|| UnitId(gpu.into())),
        index: None,
        slices: slices.0,
        slices_whole: slices.1,
        state: State::Productive(Progress::Decode),
        since: Nanos(0),
        weight: Weight { w: Part::ONE, source: WeightSource::Tokens },
        split: vec![(Bucket::Productive, Part::ONE)],
        cumulative: true,
        class: Class::Batch,
        class_inferred: true,
        tenant: None,
        tenants: tenants.to_vec(),
        model: None,
        external: vec![],
        meter: None,
    }
}

fn metered(units: Vec<UnitJudgement>, meter: Option<Meter>) -> Vec<UnitJudgement> {
    units.into_iter().map(|unit| UnitJudgement { meter, ..unit }).collect()
}

fn judgement(boot: u32, at: u64, units: Vec<UnitJudgement>) -> Judgement {
    let at = Nanos(at);
    let stamp = Stamp { boot_id: BootId(format!("b{boot}")), boottime: at, monotonic: at, realtime: at };
    Judgement { stamp, period: Nanos(SEC), units, ..Judgement::default() }
}

fn counter(millijoules: u64) -> Option<Meter> {
    Some(Meter::Counter(Millijoules(millijoules)))
}

fn whose(tenants: &[(&str, u32)]) -> Vec<(Option<String>, Part)> {
    tenants.iter().map(|(name, part)| (Some((*name).to_owned()), Part(*part))).collect()
}

/// Microjoules by tenant; nobody's under the empty name.
fn energy(ledger: &Ledger) -> BTreeMap<String, u64> {
    ledger.energy().into_iter().map(|(tenant, amount)| (tenant.unwrap_or("").to_owned(), amount)).collect()
}

fn expect(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(tenant, amount)| ((*tenant).to_owned(), *amount)).collect()
}

fn charged(judgements: &[Judgement]) -> Ledger {
    let mut ledger = Ledger::default();
    judgements.iter().for_each(|judgement| ledger.charge(judgement));
    ledger
}

/// 700 J in a second that x has to three parts of ten: 210 and 490.
#[test]
fn energy_is_split_as_the_seconds_are() {
    let shared = whose(&[("x", 300_000), ("y", 700_000)]);
    let at = |second: u64, millijoules| {
        judgement(0, second * SEC, metered(vec![unit("a", "a", (1, 1), &shared)], counter(millijoules)))
    };
    let ledger = charged(&[at(0, 5_000_000), at(1, 5_700_000)]);
    assert_eq!(energy(&ledger), expect(&[("x", 210_000_000), ("y", 490_000_000)]));
    // One microjoule that cannot be halved goes to the first, as a nanosecond does; the counter has none finer than 1000.
    let thirds = whose(&[("x", 333_333), ("y", 333_333), ("z", 333_334)]);
    let at = |second: u64, millijoules| {
        judgement(0, second * SEC, metered(vec![unit("a", "a", (1, 1), &thirds)], counter(millijoules)))
    };
    assert_eq!(energy(&charged(&[at(0, 0), at(1, 1)])), expect(&[("x", 333), ("y", 333), ("z", 334)]));
    // Instances and the rest by their slices: 3, 3 and 1 of 7.
    let cut = |second: u64, millijoules| {
        let units = vec![
            unit("m", "g", (3, 7), &whose(&[("x", 1_000_000)])),
            unit("n", "g", (3, 7), &whose(&[("y", 1_000_000)])),
            unit("g/rest", "g", (1, 7), &[]),
        ];
        judgement(0, second * SEC, metered(units, counter(millijoules)))
    };
    let ledger = charged(&[cut(0, 100), cut(1, 170)]);
    assert_eq!(energy(&ledger), expect(&[("", 10_000), ("x", 30_000), ("y", 30_000)]));
}

#[test]
fn what_nobody_saw_is_nobodys_and_a_counter_that_begins_anew_is_not_believed() {
    let owned = whose(&[("x", 1_000_000)]);
    let at =
        |boot, second: u64, meter| judgement(boot, second * SEC, metered(vec![unit("a", "a", (1, 1), &owned)], meter));
    // A first look books nothing, whatever the counter has.
    let mut ledger = charged(&[at(0, 0, counter(9_000_000)), at(0, 1, counter(9_000_100))]);
    assert_eq!(energy(&ledger), expect(&[("x", 100_000)]));
    // The agent was away: the GPU went on, and nobody was looked at.
    ledger.resume();
    ledger.charge(&at(0, 100, counter(9_050_100)));
    assert_eq!(energy(&ledger), expect(&[("", 50_000_000), ("x", 100_000)]));
    // The driver was loaded anew; then it goes on.
    ledger.charge(&at(0, 101, counter(500)));
    ledger.charge(&at(0, 102, counter(700)));
    assert_eq!(energy(&ledger), expect(&[("", 50_000_000), ("x", 300_000)]));
    // The driver was silent for a moment, and for long.
    ledger.charge(&at(0, 103, None));
    ledger.charge(&at(0, 104, counter(800)));
    for second in 105..125 {
        ledger.charge(&at(0, second, None));
    }
    ledger.charge(&at(0, 125, counter(900)));
    assert_eq!(energy(&ledger), expect(&[("", 50_100_000), ("x", 400_000)]));
    // A reading that no board can have, and the one after it.
    ledger.charge(&at(0, 126, counter(u64::MAX)));
    ledger.charge(&at(0, 127, counter(1_000)));
    ledger.charge(&at(0, 128, counter(1_001)));
    assert_eq!(energy(&ledger), expect(&[("", 50_100_000), ("x", 401_000)]));
    // Another boot, with a counter that happens to be larger.
    ledger.charge(&at(1, 1, counter(2_000)));
    ledger.charge(&at(1, 2, counter(2_001)));
    assert_eq!(energy(&ledger), expect(&[("", 50_100_000), ("x", 402_000)]));
    // The same judgement again.
    ledger.charge(&at(1, 2, counter(2_001)));
    assert_eq!(energy(&ledger), expect(&[("", 50_100_000), ("x", 402_000)]));
}

#[test]
fn a_gpu_without_a_counter_is_metered_by_its_power_and_one_with_a_counter_never() {
    let owned = whose(&[("x", 1_000_000)]);
    let at = |ns: u64, meter| judgement(0, ns, metered(vec![unit("a", "a", (1, 1), &owned)], meter));
    let power = |milliwatts| Some(Meter::Power(Milliwatts(milliwatts)));
    // 300 W for a second and 100 W for half of one; a stretch that is too long for a verdict has none.
    let ledger =
        charged(&[at(0, power(1)), at(SEC, power(300_000)), at(3 * SEC / 2, power(100_000)), at(60 * SEC, power(9))]);
    assert_eq!(energy(&ledger), expect(&[("x", 350_000_000)]));
    // The counter was not read once: it has that second in it.
    let ledger = charged(&[at(0, counter(0)), at(SEC, power(300_000)), at(2 * SEC, counter(600_000))]);
    assert_eq!(energy(&ledger), expect(&[("x", 600_000_000)]));
}

/// What happens between two looks.
#[derive(Clone, Debug)]
struct Beat {
    length: u64,
    gained: u64,
    trouble: u8,
    tenants: Vec<(Option<String>, Part)>,
    slices: Vec<u32>,
}

fn beats() -> impl Strategy<Value = Vec<Beat>> {
    let name = prop::option::weighted(0.8, (0..24_u32).prop_map(|n| format!("t{n}")));
    let tenants = prop::collection::vec((name, (0..1_200_000_u32).prop_map(Part)), 0..4);
    let slices = prop::sample::select(vec![vec![], vec![3, 3], vec![1, 2, 4], vec![2]]);
    let beat = (1..4 * SEC, 0..2_000_000_u64, 0..40_u8, tenants, slices);
    let beat =
        beat.prop_map(|(length, gained, trouble, tenants, slices)| Beat { length, gained, trouble, tenants, slices });
    prop::collection::vec(beat, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Law: over units, and over tenants and nobody, the sums are what the counter gained while it was looked at.
    #[test]
    fn the_energy_of_all_is_what_the_counter_gained(beats in beats()) {
        let (mut ledger, mut gains) = (Ledger::default(), Gains::default());
        let (mut at, mut boot, mut meter, mut due) = (0, 0, 1_000_u64, 0_u64);
        let mut slices: Vec<u32> = vec![];
        let mut stands: Option<u64> = None;
        let mut before = 0;
        for beat in beats {
            at += beat.length;
            meter += beat.gained;
            let mut missing = false;
            match beat.trouble {
                0 => (boot, stands, meter) = (boot + 1, None, beat.gained),
                1 => ledger.resume(),
                2 => meter = beat.gained / 2,
                3..6 => missing = true,
                6 => slices = beat.slices.clone(),
                7 => at += 3_600 * SEC,
                _ => {}
            }
            let mut units: Vec<UnitJudgement> = slices.iter().enumerate()
                .map(|(place, size)| unit(&format!("m{place}-{size}"), "g", (*size, 7), &beat.tenants)).collect();
            let left = 7 - slices.iter().sum::<u32>();
            if units.is_empty() {
                units.push(unit("g", "g", (7, 7), &beat.tenants));
            } else if left > 0 {
                units.push(unit("g/rest", "g", (left, 7), &[]));
            }
            let judged = judgement(boot, at, metered(units, counter(meter).filter(|_| !missing)));
            let old = ledger.clone();
            ledger.charge(&judged);
            gains.note(&old, &ledger, &judged);
            ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
            if !missing {
                // The oracle: what a counter gained that did not go back.
                due += stands.and_then(|stands| meter.checked_sub(stands)).unwrap_or(0) * 1_000;
                stands = Some(meter);
            }
            let units: u64 = ledger.accounts.values().map(|account| account.energy.total_uj).sum();
            prop_assert_eq!(units, due);
            prop_assert_eq!(energy(&ledger).values().sum::<u64>(), due);
            for account in ledger.accounts.values() {
                let held = &account.energy;
                let named: u64 = held.tenants.iter().map(|held| held.1).sum();
                prop_assert_eq!(named + held.unattributed_uj(), held.total_uj);
                prop_assert!(held.tenants.len() <= MOST + 1);
            }
            let named: u64 = energy(&ledger).iter().filter(|(name, _)| !name.is_empty()).map(|(_, uj)| uj).sum();
            prop_assert!(named >= before, "never decreases, whoever loses a name");
            before = named;
        }
        // The rows say the same, by hour, and so does the report, whatever it is split by.
        prop_assert_eq!(gains.energy.values().sum::<u64>(), due);
        let owned: u64 = gains.energy.iter().filter(|(key, _)| key.tenant.is_some()).map(|(_, uj)| uj).sum();
        prop_assert_eq!(owned, before);
        for by in [By::Gpu, By::Tenant, By::Class, By::Hour] {
            let report = whole(&gains, 0, &[by], None);
            let sum: u64 = report.rows.iter().filter_map(|row| row.used.energy_microjoules).sum();
            prop_assert_eq!((sum, report.total.used.energy_microjoules.unwrap_or(0)), (due, due));
        }
    }
}

fn cgroup(path: &str, io: &[((u32, u32), u64, u64)]) -> Cgroup {
    let line =
        |&(dev, read, written): &((u32, u32), u64, u64)| CgroupIo { dev, read: Bytes(read), written: Bytes(written) };
    Cgroup { path: path.to_owned(), io: Reading::Value(io.iter().map(line).collect()), ..Cgroup::default() }
}

fn device(name: &str, dev: (u32, u32), slaves: &[&str], partition_of: Option<&str>) -> BlockDevice {
    BlockDevice {
        name: name.to_owned(),
        dev,
        slaves: slaves.iter().map(|name| (*name).to_owned()).collect(),
        partition_of: partition_of.map(str::to_owned),
        ..BlockDevice::default()
    }
}

fn sample<T>(second: u64, value: T) -> Option<Arc<Sample<T>>> {
    let value = Reading::Value(value);
    Some(Arc::new(Sample { at: Nanos(second * SEC), took: Nanos(0), value, why: String::new(), hung: None }))
}

fn tick(second: u64, cgroups: Option<Vec<Cgroup>>) -> Tick {
    let at = Nanos(second * SEC);
    let stamp = Stamp { boot_id: BootId("b".to_owned()), boottime: at, monotonic: at, realtime: at };
    let devices = vec![
        device("nvme0n1", (259, 0), &[], None),
        device("nvme0n1p1", (259, 1), &[], Some("nvme0n1")),
        device("nvme1n1", (259, 2), &[], None),
        device("md0", (9, 0), &["nvme0n1p1"], None),
    ];
    let cgroup = cgroups.and_then(|cgroups| sample(second, Cgroups { cgroups, ..Cgroups::default() }));
    Tick {
        stamp,
        period: Nanos(SEC),
        cgroup,
        block: sample(second, Block { devices, ..Block::default() }),
        ..Tick::default()
    }
}

/// An array on a partition of one drive, another drive, a loop device; cgroups within each other, and one made anew.
#[test]
fn bytes_are_counted_once() {
    let mut judge = Judge::new(Policy::default());
    judge.set_tenancy(Tenancy { by: TenantBy::Slice, ..Tenancy::default() });
    let mut ledger = Ledger::default();
    let mut gains = Gains::default();
    let mut feed = |second, cgroups| {
        let judged = judge.step(&tick(second, cgroups));
        let old = ledger.clone();
        ledger.charge(&judged);
        gains.note(&old, &ledger, &judged);
        (judged.io, ledger.io.clone(), gains.clone())
    };
    let io = |tenant: Option<&str>, read, written| TenantIo {
        tenant: tenant.map(str::to_owned),
        read: Bytes(read),
        written: Bytes(written),
    };
    let (md, part_disk, other, looped) = ((9, 0), (259, 0), (259, 2), (7, 3));
    let all = |n: u64| vec![(md, 100 * n, 10 * n), (part_disk, 100 * n, 20 * n), (other, 7 * n, 0), (looped, n, n)];
    let first = vec![
        cgroup("/", &all(1_000)),
        cgroup("/x.slice/a.service", &all(1)),
        cgroup("/y.slice", &all(1)),
        cgroup("/y.slice/b.scope", &all(1)),
    ];
    assert_eq!(feed(0, Some(first)).0, [], "what came before the first look is not known");
    assert_eq!(feed(1, None).0, []);
    let second = vec![
        cgroup("/", &all(9_000)),
        cgroup("/x.slice/a.service", &all(3)),
        cgroup("/y.slice", &all(2)),
        cgroup("/y.slice/b.scope", &all(2)),
        cgroup("/z.slice", &all(50)),
    ];
    // The array and the other drive: 107 and 10 a step; nothing below the array, of the loop device, or of z, which is new.
    let (moved, held, _) = feed(5, Some(second));
    assert_eq!(moved, [io(Some("x.slice"), 214, 20), io(Some("y.slice"), 107, 10)]);
    assert_eq!(held, moved);
    assert_eq!(feed(6, None).1, moved, "one sample is counted once");
    // x was made anew; y has died, and keeps what it had; z moves on, and on a device that is new to it.
    let third =
        vec![cgroup("/x.slice/a.service", &[(md, 40, 4)]), cgroup("/z.slice", &[(md, 5_001, 500), ((8, 0), 6, 0)])];
    let (moved, held, gains) = feed(10, Some(third));
    assert_eq!(moved, [io(Some("x.slice"), 40, 4), io(Some("z.slice"), 7, 0)]);
    assert_eq!(held, [io(Some("x.slice"), 254, 24), io(Some("y.slice"), 107, 10), io(Some("z.slice"), 7, 0)]);
    // The report by tenant has them, and one that is split by what bytes are not known by has not.
    let report = whole(&gains, 0, &[By::Tenant], None);
    let read: Vec<_> = report.rows.iter().map(|row| (row.key["tenant"].as_deref(), row.used.read_bytes)).collect();
    assert_eq!(read, [(Some("x.slice"), Some(254)), (Some("y.slice"), Some(107)), (Some("z.slice"), Some(7))]);
    assert_eq!(report.total.used.written_bytes, Some(34));
    assert!(table(&report, 0).contains("READ  WRITTEN"), "{}", table(&report, 0));
    assert!(csv(&report).lines().next().unwrap().ends_with(",read_bytes,written_bytes"), "{}", csv(&report));
    let by_cause = whole(&gains, 0, &[By::Cause], None);
    assert!(!table(&by_cause, 0).contains("READ"), "{}", table(&by_cause, 0));
    assert_eq!(by_cause.total.used.read_bytes, Some(368), "all of it is known all the same");
}
