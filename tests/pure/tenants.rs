//! Whose the time was: the tenants of a unit sum to the unit, and the instances of a GPU sum to the GPU, whatever
//! comes and goes.

use std::collections::BTreeMap;

use gpuprod::store::rows::{self, Rows};
use gpuprod_rules::ledger::tenants::{MOST, OTHER};
use gpuprod_rules::{
    Bucket, Cause, Class, Judgement, Ledger, Part, Progress, State, UnitId, UnitJudgement, Weight, WeightSource,
};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Stamp};
use proptest::prelude::*;

const SEC: u64 = 1_000_000_000;

fn unit(id: &str, gpu: &str, slices: (u32, u32), tenants: &[(Option<String>, Part)]) -> UnitJudgement {
    let split = vec![(Bucket::Productive, Part(333_333)), (Bucket::Lost(Cause::Storage), Part(666_667))];
    UnitJudgement {
        unit: UnitId(id.to_owned()),
        gpu: (id != gpu).then(|| UnitId(gpu.to_owned())),
        index: None,
        slices: slices.0,
        slices_whole: slices.1,
        state: State::Productive(Progress::Decode),
        since: Nanos(0),
        weight: Weight { w: Part(333_333), source: WeightSource::Tokens },
        split,
        cumulative: true,
        class: Class::Serving,
        class_inferred: true,
        tenant: None,
        tenants: tenants.to_vec(),
        model: None,
    }
}

fn judgement(at: u64, units: Vec<UnitJudgement>) -> Judgement {
    let at = Nanos(at);
    let stamp = Stamp { boot_id: BootId("b".to_owned()), boottime: at, monotonic: at, realtime: at };
    Judgement { stamp, period: Nanos(SEC), units, ..Judgement::default() }
}

/// Named tenants of all shares of a unit, summed here and not by the ledger.
fn named(ledger: &Ledger, id: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for share in ledger.accounts[&UnitId(id.to_owned())].shares.iter() {
        for held in &share.tenants {
            *sums.entry(held.tenant.clone()).or_default() += held.buckets.iter().map(|b| b.2).sum::<u64>();
        }
    }
    sums
}

fn parts() -> impl Strategy<Value = Vec<(Option<String>, Part)>> {
    let name = prop::option::weighted(0.8, (0..24_u32).prop_map(|n| format!("t{n}")));
    // Parts that sum to less, to more, and names that come twice.
    prop::collection::vec((name, (0..1_200_000_u32).prop_map(Part)), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Law 3.
    #[test]
    fn tenants_and_nobody_sum_to_the_unit(
        ticks in prop::collection::vec((1..2_500_000_000_u64, parts(), parts()), 1..60),
        days in prop::collection::vec(0..60_usize, 0..3),
    ) {
        let (mut ledger, mut at, mut before) = (Ledger::default(), 0, BTreeMap::<String, u64>::new());
        let mut rows = Rows::new();
        ledger.charge(&judgement(0, vec![unit("a", "a", (1, 1), &[]), unit("m", "g", (3, 7), &[])]));
        for (place, (length, one, two)) in ticks.iter().enumerate() {
            at += length;
            // A day passes in which nobody is there: names are lost.
            at += if days.contains(&place) { 90_000 * SEC } else { 0 };
            let judged = judgement(at, vec![unit("a", "a", (1, 1), one), unit("m", "g", (3, 7), two)]);
            let old = ledger.clone();
            ledger.charge(&judged);
            rows::note(&mut rows, &old, &ledger, &judged);
            // Saved, loaded and gone on is the same.
            ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
            for id in ["a", "m"] {
                let account = &ledger.accounts[&UnitId(id.to_owned())];
                for share in &account.shares {
                    for (bucket, source, total) in &share.buckets {
                        let of = |held: &&gpuprod_rules::ledger::tenants::TenantShare| {
                            held.buckets.iter().filter(|b| b.0 == *bucket && b.1 == *source).map(|b| b.2).sum::<u64>()
                        };
                        let owned: u64 = share.tenants.iter().map(|held| of(&held)).sum();
                        prop_assert!(owned <= *total);
                        prop_assert_eq!(owned + share.unattributed(*bucket, *source), *total);
                    }
                    prop_assert!(share.tenants.len() <= MOST + 1);
                }
            }
            // What has a name never decreases; who loses it goes on as `other`.
            let now: BTreeMap<String, u64> = named(&ledger, "a");
            let lost: u64 = before.iter().filter(|(name, _)| !now.contains_key(*name)).map(|(_, ns)| ns).sum();
            for (name, ns) in &before {
                let floor = if name == OTHER { ns + lost } else { *ns };
                prop_assert!(now.get(name).is_none_or(|new| *new >= floor) || lost > 0, "{name}");
            }
            prop_assert!(now.values().sum::<u64>() >= before.values().sum::<u64>());
            before = now;
        }
        // The rows of a unit sum to its account, tenant or none.
        for id in ["a", "m"] {
            let account = &ledger.accounts[&UnitId(id.to_owned())];
            let booked: u64 = account.shares.iter().flat_map(|share| &share.buckets).map(|b| b.2).sum();
            let kept: u64 = rows.iter().filter(|(key, _)| key.unit.0 == id).map(|(_, ns)| ns).sum();
            prop_assert_eq!(booked, kept);
            let owned: u64 = rows.iter().filter(|(key, _)| key.unit.0 == id && key.tenant.is_some()).map(|(_, ns)| ns).sum();
            prop_assert_eq!(owned, named(&ledger, id).values().sum::<u64>());
        }
    }

    /// Law 4: a GPU that is cut anew now and then, into instances and what is left of it.
    #[test]
    fn instances_and_the_rest_sum_to_the_gpu(
        ticks in prop::collection::vec((1..2_400_000_000_u64, prop::option::weighted(0.1, prop::collection::vec(1..4_u32, 0..4))), 1..80),
    ) {
        let mut sizes: Vec<u32> = vec![];
        let (mut ledger, mut at) = (Ledger::default(), 0);
        let units = |sizes: &[u32]| {
            let mut left = 7_u32;
            let mut units = Vec::new();
            for (place, size) in sizes.iter().enumerate() {
                if *size <= left {
                    left -= size;
                    units.push(unit(&format!("MIG-{place}-{size}"), "g", (*size, 7), &[]));
                }
            }
            if units.is_empty() {
                return vec![unit("g", "g", (7, 7), &[])];
            }
            if left > 0 {
                units.push(unit("g/rest", "g", (left, 7), &[]));
            }
            units
        };
        ledger.charge(&judgement(0, units(&sizes)));
        for (length, anew) in ticks {
            at += length;
            sizes = anew.unwrap_or(sizes);
            ledger.charge(&judgement(at, units(&sizes)));
            let shares = ledger.accounts.values().flat_map(|account| &account.shares);
            let booked: u64 = shares.flat_map(|share| &share.buckets).map(|b| b.2).sum();
            prop_assert_eq!(booked, at * 7, "slice-nanoseconds of seven slices");
        }
    }
}

/// With room for all, each has what it used: two halves of a shared GPU, and all of its own.
#[test]
fn each_has_what_it_used() {
    let half = |a: &str, b: &str| vec![(Some(a.to_owned()), Part(500_000)), (Some(b.to_owned()), Part(500_000))];
    let mut ledger = Ledger::default();
    ledger.charge(&judgement(0, vec![unit("a", "a", (1, 1), &[])]));
    ledger.charge(&judgement(SEC, vec![unit("a", "a", (1, 1), &half("x", "y"))]));
    let sole = UnitJudgement { tenant: Some("x".to_owned()), ..unit("a", "a", (1, 1), &[]) };
    ledger.charge(&judgement(2 * SEC, vec![sole]));
    assert_eq!(named(&ledger, "a"), [("x".to_owned(), 3 * SEC / 2), ("y".to_owned(), SEC / 2)].into());
    // More than can be named: the seventeenth is `other` while all others are there.
    for n in 0..20 {
        let owner = UnitJudgement { tenant: Some(format!("t{n}")), ..unit("a", "a", (1, 1), &[]) };
        ledger.charge(&judgement((3 + n) * SEC, vec![owner]));
    }
    let names = named(&ledger, "a");
    assert_eq!(names.len(), MOST + 1);
    assert_eq!(names[OTHER], 6 * SEC, "22 tenants, 16 names");
}
