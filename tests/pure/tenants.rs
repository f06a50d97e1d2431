//! Whose the time was: the tenants of a unit sum to the unit, and the instances of a GPU sum to the GPU, whatever
//! comes and goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuprod::pipeline::Pipeline;
use gpuprod::store::rows::Gains;
use gpuprod_rules::ledger::tenants::{MOST, OTHER};
use gpuprod_rules::{
    Bucket, Cause, Class, External, Judgement, Ledger, Part, Policy, Progress, State, TenantBy, UnitId, UnitJudgement,
    Weight, WeightSource,
};
use gpuprod_sim::Scenario;
use gpuprod_snapshot::gpu::MigInstance;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Reading, Stamp};
use proptest::prelude::*;

const SEC: u64 = 1_000_000_000;

fn unit(id: &str, gpu: &str, slices: (u32, u32), tenants: &[(Option<String>, Part)]) -> UnitJudgement {
    let split = vec![(Bucket::Productive, Part(333_333)), (Bucket::Lost(Cause::Storage), Part(666_667))];
    UnitJudgement {
        unit: UnitId(id.into()),
        gpu: (id != gpu).then(|| UnitId(gpu.into())),
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
        external: vec![],
        meter: None,
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
    for share in ledger.accounts[&UnitId(id.into())].shares.iter() {
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
        let mut gains = Gains::default();
        ledger.charge(&judgement(0, vec![unit("a", "a", (1, 1), &[]), unit("m", "g", (3, 7), &[])]));
        for (place, (length, one, two)) in ticks.iter().enumerate() {
            at += length;
            // A day passes in which nobody is there: names are lost.
            at += if days.contains(&place) { 90_000 * SEC } else { 0 };
            let judged = judgement(at, vec![unit("a", "a", (1, 1), one), unit("m", "g", (3, 7), two)]);
            let old = ledger.clone();
            ledger.charge(&judged);
            gains.note(&old, &ledger, &judged);
            // Saved, loaded and gone on is the same.
            ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
            for id in ["a", "m"] {
                let account = &ledger.accounts[&UnitId(id.into())];
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
            let account = &ledger.accounts[&UnitId(id.into())];
            let booked: u64 = account.shares.iter().flat_map(|share| &share.buckets).map(|b| b.2).sum();
            let kept: u64 = gains.rows.iter().filter(|(key, _)| *key.unit.0 == *id).map(|(_, ns)| ns).sum();
            prop_assert_eq!(booked, kept);
            let owned: u64 = gains.rows.iter().filter(|(key, _)| *key.unit.0 == *id && key.tenant.is_some()).map(|(_, ns)| ns).sum();
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

/// What a driver says of a GPU's partition in one tick: how it is cut if anew, and what cannot be read.
type Told = (Option<usize>, [bool; 3]);

fn told() -> impl Strategy<Value = Told> {
    let missing = || prop::bool::weighted(0.1);
    (prop::option::weighted(0.15, 0..5_usize), [missing(), missing(), missing()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Law 4 from the driver's words on: whatever it does not say at times, the units are one GPU.
    #[test]
    fn the_units_are_one_gpu_whatever_the_driver_does_not_say(plan in prop::collection::vec(told(), 1..60)) {
        const LAYOUTS: [&[u32]; 5] = [&[], &[3], &[3, 2], &[4, 3], &[1, 1, 1, 1]];
        let scenario = Scenario::parse("scenario cut\nlength 1m\ngpu 1\njob train gpus 0 util 90% power 500W mem 40GB\n");
        let mut pipeline = Pipeline::new(Policy::default());
        let (mut layout, mut made, mut began) = (LAYOUTS[0], 0, None);
        for (mut tick, (anew, missing)) in scenario.unwrap().ticks().zip(&plan) {
            if let Some(at) = anew {
                (layout, made) = (LAYOUTS[*at], made + 1);
            }
            if let Some(Reading::Value(gpus)) = tick.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
                let gpu = &mut gpus.devices[0];
                let hidden = |is: usize| missing[is];
                gpu.mig = if hidden(0) { Reading::default() } else { (!layout.is_empty()).into() };
                gpu.mig_slices = if hidden(1) { Reading::default() } else { 7.into() };
                let instance = |(place, slices): (usize, &u32)| MigInstance {
                    uuid: format!("MIG-{made}-{place}").into(),
                    gi: u32::try_from(place).unwrap(),
                    slices: if hidden(2) && place == 0 { Reading::default() } else { (*slices).into() },
                    mem_used: Reading::default(),
                    mem_total: Reading::default(),
                    gpm: gpu.gpm.clone(),
                };
                gpu.instances = if hidden(0) { vec![] } else { layout.iter().enumerate().map(instance).collect() };
            }
            let frame = pipeline.feed(&tick);
            let whole = frame.judgement.units[0].slices_whole;
            let sizes: Vec<(u32, u32)> = frame.judgement.units.iter().map(|unit| (unit.slices, unit.slices_whole)).collect();
            prop_assert!(sizes.iter().all(|size| size.1 == whole), "{sizes:?}");
            prop_assert_eq!(sizes.iter().map(|size| size.0).sum::<u32>(), whole, "{:?}", sizes);
            let upto = frame.ledger.upto.as_ref().unwrap().boottime.0;
            let passed = upto - *began.get_or_insert(upto);
            // Time of the whole GPU, in 420ths of a nanosecond: a whole of up to seven slices divides them.
            let shares = frame.ledger.accounts.values().flat_map(|account| &account.shares);
            let of = |share: &gpuprod_rules::ledger::Share| {
                share.observed.0 * u64::from(share.slices) * 420 / u64::from(share.slices_whole)
            };
            prop_assert_eq!(shares.map(of).sum::<u64>(), passed * 420);
        }
    }
}

fn externals() -> impl Strategy<Value = Vec<External>> {
    let cause = prop::sample::select(vec![Cause::Storage, Cause::HostCpu]);
    // Parts that sum to more than one, names that come twice, a cause that nothing was lost to.
    let one = (cause, 0..24_u32, 0..900_000_u32);
    let external = |(resource, n, part)| External { resource, tenant: format!("t{n}"), part: Part(part) };
    prop::collection::vec(one.prop_map(external), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Law 8, in the report's rows too.
    #[test]
    fn what_others_caused_is_never_more_than_what_was_lost(
        ticks in prop::collection::vec((1..2_500_000_000_u64, parts(), externals()), 1..60),
        days in prop::collection::vec(0..60_usize, 0..3),
    ) {
        let (mut ledger, mut at, mut before) = (Ledger::default(), 0, 0);
        let mut gains = Gains::default();
        // What was caused to the slice-nanosecond, by a sum of its own: within one for each part of each tick.
        let (mut due, mut parts) = (0.0, 0_u64);
        ledger.charge(&judgement(0, vec![unit("m", "g", (3, 7), &[])]));
        for (place, (length, owners, external)) in ticks.iter().enumerate() {
            at += length;
            let asleep = days.contains(&place);
            at += if asleep { 90_000 * SEC } else { 0 };
            let judged = UnitJudgement { external: external.clone(), ..unit("m", "g", (3, 7), owners) };
            let (old, judged) = (ledger.clone(), judgement(at, vec![judged]));
            ledger.charge(&judged);
            gains.note(&old, &ledger, &judged);
            ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
            let account = &ledger.accounts[&UnitId("m".into())];
            let caused: u64 = account.shares.iter().flat_map(|share| &share.external).map(|held| held.slice_ns).sum();
            let lost = |cause| {
                let buckets = account.shares.iter().flat_map(|share| &share.buckets);
                buckets.filter(|held| held.0 == Bucket::Lost(cause)).map(|held| held.2).sum::<u64>()
            };
            for cause in [Cause::Storage, Cause::HostCpu] {
                let held = account.shares.iter().flat_map(|share| &share.external);
                let of: u64 = held.filter(|held| held.resource == cause).map(|held| held.slice_ns).sum();
                prop_assert!(of <= lost(cause), "{of} of {} by {cause:?}", lost(cause));
            }
            prop_assert!(caused >= before, "never decreases, whoever loses a name");
            before = caused;
            // A gap that nobody saw has no causer, and its length is not known to this sum: it is not compared.
            if !asleep && *length <= 10 * SEC {
                let part: f64 = external.iter().filter(|e| e.resource == Cause::Storage).map(|e| f64::from(e.part.0)).sum();
                due += *length as f64 * 3.0 * 0.666_667 * (part / 1e6).min(1.0);
                parts += 8;
            }
        }
        if days.is_empty() {
            prop_assert!((before as f64 - due).abs() <= parts as f64 + due * 1e-6, "{before} is not {due}");
        }
        // The report's rows: in each hour and of each victim, what was caused is at most what was lost.
        let mut caused: BTreeMap<&gpuprod::store::rows::Key, u64> = BTreeMap::new();
        for ((key, _), amount) in &gains.caused {
            *caused.entry(key).or_default() += amount;
        }
        for (key, amount) in &caused {
            prop_assert!(*amount <= gains.rows[*key], "{key:?}: {amount} of {}", gains.rows[*key]);
        }
        // And they say what the counters say, within one for each part of each tick and victim.
        let kept: u64 = caused.values().sum();
        prop_assert!(kept.abs_diff(before) <= 16 * ticks.len() as u64, "{kept} is not {before}");
    }
}

type Charged = BTreeMap<(Cause, String, Option<String>), u64>;

/// Plays a story, and gives who cost whom what, and the ledger.
fn charged(story: &str, by: TenantBy) -> (Charged, Ledger) {
    let scenario = gpuprod_sim::Scenario::parse(story).unwrap();
    let mut pipeline = gpuprod::pipeline::Pipeline::new(gpuprod_rules::Policy::default());
    pipeline.set_tenancy(gpuprod_rules::Tenancy { by, ..Default::default() });
    let (mut ledger, mut first, mut last) = (Ledger::default(), None, BTreeMap::new());
    for tick in scenario.ticks() {
        ledger = pipeline.feed(&tick).ledger.into_owned();
        if let Some(gpus) = tick.gpu.as_ref().and_then(|sample| sample.value.get()) {
            let counter = |gpu: &gpuprod_snapshot::gpu::Gpu| Some((gpu.index, gpu.energy.copied()?.0));
            last = gpus.devices.iter().filter_map(counter).collect::<BTreeMap<u32, u64>>();
            first.get_or_insert_with(|| last.clone());
        }
    }
    // What the board's counters gained is somebody's or nobody's.
    let gained: u64 = last.iter().map(|(gpu, millijoules)| millijoules - first.as_ref().unwrap()[gpu]).sum();
    assert!(gained > 0);
    assert_eq!(ledger.energy().values().sum::<u64>(), gained * 1_000);
    let mut external = Charged::new();
    for account in ledger.accounts.values() {
        for ((resource, cause, victim), time) in account.external() {
            *external.entry((resource, cause.to_owned(), victim.map(str::to_owned))).or_insert(0) += time.0;
        }
    }
    (external, ledger)
}

fn lost(ledger: &Ledger, causes: &[Cause]) -> u64 {
    let of = |account: &gpuprod_rules::ledger::Account| {
        account.time_in(|bucket| matches!(bucket, Bucket::Lost(cause) if causes.contains(&cause))).0
    };
    ledger.accounts.values().map(of).sum()
}

/// Two trainers on one drive: what the one takes beyond its half costs the other. Told as a story, judged and booked.
#[test]
fn a_tenant_that_floods_the_drive_is_charged_and_its_victim_is_not() {
    let story = "scenario two_tenants\nabout one trainer takes the drive of another\nseed 5\nlength 16m\ngpu 2\n\
        disk nvme0n1 mount /data\n\
        job train gpus 0 util 90% power 600W mem 70GB cgroup /train.slice/a.service\n\
        job greedy gpus 1 util 90% power 600W mem 70GB cgroup /greedy.slice/b.service\n\
        reads train nvme0n1 400MB/s\nreads greedy nvme0n1 1600MB/s\n\
        at 10m load nvme0n1 1000MB/s slows train to 0.2 latency x40\nat 15m end nvme0n1\n";
    let (external, ledger) = charged(story, TenantBy::Slice);
    let all: u64 = external.values().sum();
    assert!(
        external.keys().all(|(_, cause, victim)| cause == "greedy.slice" && victim.as_deref() == Some("train.slice")),
        "{external:?}"
    );
    // Five minutes at .2 are four lost; what came before the finding is nobody's.
    let lost = lost(&ledger, &[Cause::Storage, Cause::BackgroundIo]);
    assert!(all > 120 * SEC && all <= lost, "{all} of {lost}: {external:?}");
    // Sixteen minutes at 400 and 1600 MB/s, of which the one had five at .2: but for the first look and the last seconds.
    for (tenant, rate, due) in [("train.slice", 400_000_000, 720), ("greedy.slice", 1_600_000_000, 960)] {
        let io = ledger.io.iter().find(|io| io.tenant.as_deref() == Some(tenant)).expect(tenant);
        let seconds = io.read.0 / rate;
        assert!((due - 15..=due).contains(&seconds), "{tenant}: {seconds} s of its rate, and not {due}");
    }
    // Where nobody is named, nobody is charged.
    assert_eq!(charged(story, TenantBy::None).0, Charged::new());
}

/// A loader behind the switch of an engine takes the link that both share.
#[test]
fn a_tenant_that_fills_the_uplink_is_charged() {
    let story = "scenario uplink_tenants\nabout a neighbour behind the same switch takes the uplink\nseed 921\n\
        length 16m\ngpu 4\ndisk nvme0n1 mount /data\nswitch gpu 0-1 with nvme0n1\n\
        engine vllm gpus 0 rate 1200tok/s running 16 waiting 4 h2d 20GB/s cgroup /serve.slice/a.service\n\
        job loader gpus 1 h2d 1GB/s cgroup /load.slice/b.service\njob other gpus 2-3 cgroup /other.slice/c.service\n\
        at 10m transfer loader 46GB/s slows vllm to 0.5\nat 15m end loader\n";
    let (external, ledger) = charged(story, TenantBy::Slice);
    let key = (Cause::PcieNuma, "load.slice".to_owned(), Some("serve.slice".to_owned()));
    assert_eq!(external.keys().collect::<Vec<_>>(), [&key], "{external:?}");
    // Five minutes at .5 are two and a half lost.
    let lost = lost(&ledger, &[Cause::PcieNuma]);
    assert!(external[&key] > 60 * SEC && external[&key] <= lost, "{external:?} of {lost}");
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

/// The tenant of an instance has its slices. The rest that no instance has is nobody's, and so is its energy, though the
/// driver lists the instance's processes for the board.
#[test]
fn the_rest_of_a_partitioned_gpu_is_nobodys() {
    let scenario =
        Scenario::parse("scenario mig\nlength 2m\ngpu 1\njob train gpus 0 util 90% power 500W mem 40GB\n").unwrap();
    let mut pipeline = Pipeline::new(Policy::default());
    for mut tick in scenario.ticks() {
        if let Some(Reading::Value(gpus)) = tick.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            let gpu = &mut gpus.devices[0];
            (gpu.mig, gpu.mig_slices) = (true.into(), 7.into());
            gpu.instances = vec![MigInstance {
                uuid: String::from("MIG-a").into(),
                gi: 2,
                slices: 3.into(),
                mem_used: Reading::default(),
                mem_total: Reading::default(),
                gpm: gpu.gpm.clone(),
            }];
            if let Reading::Value(processes) = &mut gpu.processes {
                assert!(!processes.is_empty(), "the job holds the GPU");
                processes.iter_mut().for_each(|process| process.gi = Some(2));
            }
        }
        pipeline.feed(&tick);
    }
    let ledger = pipeline.ledger();
    let owners = |id: &str| named(ledger, id).into_keys().collect::<Vec<String>>();
    assert_eq!(owners("MIG-a"), ["train"]);
    let (rest, account) = ledger.accounts.iter().find(|(id, _)| id.0.ends_with("/rest")).unwrap();
    assert!(owners(&rest.0).is_empty());
    assert!(account.energy.total_uj > 0, "its part of the board's energy is told");
    assert!(account.energy.tenants.is_empty(), "and nobody's");
}
