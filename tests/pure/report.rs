//! `gpuprod report`: what is summed adds up, and money stands on firm ground alone.

use gpuprod::report::{By, Price, csv, sum, table, whole};
use gpuprod::store::rows::{Gains, Key, Rows};
use gpuprod_rules::{Bucket, Cause, Class, UnitId, Unknown, WeightSource};
use proptest::prelude::*;

const HOUR: u64 = 3_600_000_000_000;

fn key(unit: &str, bucket: Bucket, source: WeightSource) -> Key {
    let (unit, class) = (UnitId(unit.into()), Class::Serving);
    Key { hour: 10, unit, tenant: None, class, bucket, source, slices_whole: 1 }
}

#[test]
fn money_is_what_was_lost_on_firm_ground_and_the_proxy_is_a_range() {
    let lost = Bucket::Lost(Cause::Storage);
    let rows: Rows = [
        (key("a", Bucket::Productive, WeightSource::Tokens), 5 * HOUR),
        (key("a", lost, WeightSource::Tokens), HOUR),
        (key("a", lost, WeightSource::Steps), HOUR),
        (key("a", lost, WeightSource::Gpm), HOUR),
        (key("a", lost, WeightSource::Proxy), 4 * HOUR),
        (key("a", lost, WeightSource::Util), 100 * HOUR),
        (key("a", Bucket::Lost(Cause::Fault), WeightSource::None), 10 * HOUR),
        (key("b", Bucket::Unknown(Unknown::AgentDown), WeightSource::None), HOUR),
    ]
    .into();
    let report = sum(&rows, 10, &[By::Gpu, By::Cause], Some(Price::parse("2.5").unwrap()));
    let total = &report.total;
    // 3 h by tokens, steps and GPM and 10 h of a broken GPU at 2.5; with 4 h of the proxy 17 h; 100 h are not priced.
    assert_eq!(total.lost_cost_millionths, Some(32_500_000));
    assert_eq!(total.lost_cost_most_millionths, Some(42_500_000));
    assert_eq!(total.times.lost_unpriced_ns, 100 * HOUR);
    assert_eq!((total.times.observed_ns, total.times.lost_ns), (123 * HOUR, 117 * HOUR));
    let page = table(&report, 20 * HOUR);
    for words in ["lost{storage}", "32.50 to 42.50", "unknown{agent_down}", "not priced: 100.0000 h", "seen: 99.1 %"] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    let by_tenant = sum(&rows, 10, &[By::Tenant, By::Tenant], None);
    assert_eq!(by_tenant.by, [By::Tenant]);
    assert_eq!(by_tenant.rows[0].key["tenant"], None, "unknown is not a name");
    assert!(table(&by_tenant, 0).contains("(unknown)"));
    assert_eq!(csv(&by_tenant).lines().count(), 2);
}

/// x took b's drive: of six hours lost to it three by tokens and one by the proxy, and of its own time nothing.
#[test]
fn who_cost_whom_is_told_at_the_price_of_the_victim() {
    let of = |unit: &str, tenant: Option<&str>, cause, source| Key {
        tenant: tenant.map(str::to_owned),
        ..key(unit, Bucket::Lost(cause), source)
    };
    let rows: Rows = [
        (of("a", Some("b"), Cause::BackgroundIo, WeightSource::Tokens), 5 * HOUR),
        (of("a", Some("b"), Cause::BackgroundIo, WeightSource::Proxy), HOUR),
        (of("a", None, Cause::HostCpu, WeightSource::Gpm), HOUR),
        (of("c", Some("x"), Cause::Fault, WeightSource::None), 9 * HOUR),
    ]
    .into();
    let caused = [
        ((of("a", Some("b"), Cause::BackgroundIo, WeightSource::Tokens), "x".to_owned()), 3 * HOUR),
        ((of("a", Some("b"), Cause::BackgroundIo, WeightSource::Proxy), "x".to_owned()), HOUR),
        ((of("a", None, Cause::HostCpu, WeightSource::Gpm), "y\u{1b}[2J".to_owned()), HOUR / 2),
    ];
    let gains = Gains { rows, caused: caused.into(), ..Gains::default() };
    let report = whole(&gains, 10, &[By::Gpu], Some(Price::parse("2.5").unwrap()));
    let found = &report.externality;
    assert_eq!(found.rows.len(), 2);
    let x = &found.rows[0];
    assert_eq!((x.cause_tenant.as_str(), x.victim_tenant.as_deref(), x.resource), ("x", Some("b"), "background_io"));
    assert_eq!((x.gpu_ns, x.firm_ns, x.proxy_ns), (4 * HOUR, 3 * HOUR, HOUR));
    assert_eq!((x.cost_millionths, x.cost_most_millionths), (Some(7_500_000), Some(10_000_000)));
    assert_eq!(found.rows[1].victim_tenant, None);
    let causes: Vec<_> = found.causes.iter().map(|cause| (cause.resource, cause.lost_ns, cause.caused_ns)).collect();
    assert_eq!(causes, [("background_io", 6 * HOUR, 4 * HOUR), ("host_cpu", HOUR, HOUR / 2)]);
    // Beside the bill: the sums of what was lost are the same without it.
    assert_eq!(report.total, sum(&gains.rows, 10, &[By::Gpu], Some(Price::parse("2.5").unwrap())).total);
    let page = table(&report, 20 * HOUR);
    for words in [
        "CAUSED BY  VICTIM     RESOURCE       GPU-HOURS           COST",
        "x          b          background_io     4.0000  7.50 to 10.00",
        "of 6.0000 h lost to background_io: 4.0000 h by the use of others",
    ] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    assert!(!page.contains('\x1b'), "{page}");
    // Without a price no money; without anything nothing is said.
    let free = whole(&gains, 10, &[], None);
    assert_eq!(free.externality.rows[0].cost_millionths, None);
    assert!(!table(&free, 0).contains("COST"), "{}", table(&free, 0));
    assert!(!table(&sum(&gains.rows, 10, &[], None), 0).contains("CAUSED"));
}

#[test]
fn hostile_names_break_no_table() {
    let mut row = key("=cmd|' /C calc'!A0,\"\n\x1b[2J", Bucket::Idle, WeightSource::Util);
    row.tenant = Some("a\u{7}".to_owned());
    let rows: Rows = [(row, 1)].into();
    let report = sum(&rows, 0, &[By::Gpu, By::Tenant], None);
    assert_eq!(csv(&report).lines().count(), 2, "{}", csv(&report));
    assert!(csv(&report).lines().nth(1).unwrap().starts_with("\"'=cmd"), "{}", csv(&report));
    assert!(!table(&report, 0).contains('\x1b'));
}

#[test]
fn prices_are_exact_or_refused() {
    assert_eq!(Price::parse("2.5"), Ok(Price(2_500_000)));
    assert_eq!(Price::parse("3"), Ok(Price(3_000_000)));
    assert_eq!(Price::parse("0.000001"), Ok(Price(1)));
    for wrong in ["", ".5", "-1", "1e3", "1,5", "2.1234567", "99999999999999999999", "1.-1"] {
        assert!(Price::parse(wrong).is_err(), "{wrong}");
    }
}

fn a_row() -> impl Strategy<Value = (Key, u64)> {
    let unit = prop::sample::select(vec!["a", "b", "c"]);
    let tenant = prop::sample::select(vec![None, Some("x"), Some("y")]);
    let bucket = prop::sample::select(vec![
        Bucket::Productive,
        Bucket::Idle,
        Bucket::Lost(Cause::Storage),
        Bucket::Lost(Cause::Unexplained),
        Bucket::Unknown(Unknown::HostDown),
    ]);
    let source = prop::sample::select(WeightSource::ALL.to_vec());
    let whole = prop::sample::select(vec![1_u32, 4, 7, 8]);
    (unit, tenant, bucket, source, whole, 0..5_u64, 0..10 * HOUR).prop_map(
        |(unit, tenant, bucket, source, slices_whole, hour, amount)| {
            let tenant = tenant.map(str::to_owned);
            (Key { hour, tenant, slices_whole, ..key(unit, bucket, source) }, amount)
        },
    )
}

proptest! {
    #[test]
    fn whatever_it_is_split_by_the_parts_sum_to_the_observed(
        rows in prop::collection::vec(a_row(), 0..60),
        by in prop::collection::vec(prop::sample::select(By::ALL.to_vec()), 0..4),
        price in 0..10_000_000_u64,
        causers in prop::collection::vec((0..60_usize, "[x-z]", 0..=1000_u64), 0..20),
    ) {
        let rows: Rows = rows.into_iter().collect();
        // Of a row at most all of it, over all who cause it.
        let (mut gains, mut left) = (Gains::default(), rows.clone());
        for (row, causer, permille) in causers {
            let Some((key, amount)) = rows.iter().nth(row) else { continue };
            let taken = (*amount / 1000 * permille).min(left[key]);
            left.insert(key.clone(), left[key] - taken);
            *gains.caused.entry((key.clone(), causer)).or_default() += taken;
        }
        gains.rows = rows.clone();
        let report = whole(&gains, 0, &by, Some(Price(price)));
        // Law 8, in the report's own figures: time by cause, and money in sum.
        for cause in &report.externality.causes {
            prop_assert!(cause.caused_ns <= cause.lost_ns, "{cause:?}");
            let of = report.externality.rows.iter().filter(|row| row.resource == cause.resource);
            prop_assert_eq!(of.map(|row| row.gpu_ns).sum::<u64>(), cause.caused_ns);
        }
        let money: u64 = report.externality.rows.iter().map(|row| row.cost_millionths.unwrap()).sum();
        prop_assert!(money <= report.total.lost_cost_millionths.unwrap_or(0));
        let lost: u64 = report.externality.causes.iter().map(|cause| cause.lost_ns).sum();
        prop_assert!(lost <= report.total.times.lost_ns);
        let total = &report.total;
        // An oracle of its own: GPU time of each unit, fractions and all, cut once.
        let mut units = std::collections::BTreeMap::<&str, u128>::new();
        for (key, amount) in &rows {
            *units.entry(&key.unit.0).or_default() += u128::from(*amount) * 840 / u128::from(key.slices_whole);
        }
        let observed: u128 = units.values().map(|parts| parts / 840).sum();
        prop_assert_eq!(u128::from(total.times.observed_ns), observed);
        let sum_of = |read: fn(&gpuprod::report::Row) -> u64| report.rows.iter().map(read).sum::<u64>();
        prop_assert_eq!(sum_of(|row| row.times.observed_ns), total.times.observed_ns);
        prop_assert_eq!(sum_of(|row| row.lost_cost_millionths.unwrap()), total.lost_cost_millionths.unwrap_or(0));
        prop_assert_eq!(sum_of(|row| row.lost_cost_most_millionths.unwrap()), total.lost_cost_most_millionths.unwrap_or(0));
        for row in report.rows.iter().chain([total]) {
            let times = &row.times;
            let parts = [times.productive_ns, times.headroom_ns, times.overhead_ns, times.idle_ns, times.unallocated_ns, times.unknown_ns, times.lost_ns];
            prop_assert_eq!(parts.iter().sum::<u64>(), times.observed_ns);
            prop_assert_eq!(times.lost_firm_ns + times.lost_proxy_ns + times.lost_unpriced_ns, times.lost_ns);
        }
    }
}
