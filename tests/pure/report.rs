//! `gpuprod report`: what is summed adds up, and money stands on firm ground alone.

use gpuprod::report::{By, Price, csv, sum, table};
use gpuprod::store::rows::{Key, Rows};
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
    // 3 h by tokens, steps and GPM at 2.5; with 4 h of the proxy 7 h; 110 h are not priced.
    assert_eq!(total.lost_cost_millionths, Some(7_500_000));
    assert_eq!(total.lost_cost_most_millionths, Some(17_500_000));
    assert_eq!(total.times.lost_unpriced_ns, 110 * HOUR);
    assert_eq!((total.times.observed_ns, total.times.lost_ns), (123 * HOUR, 117 * HOUR));
    let page = table(&report, 20 * HOUR);
    for words in ["lost{storage}", "7.50 to 17.50", "unknown{agent_down}", "not priced: 110.0000 h", "seen: 99.1 %"] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    let by_tenant = sum(&rows, 10, &[By::Tenant, By::Tenant], None);
    assert_eq!(by_tenant.by, [By::Tenant]);
    assert_eq!(by_tenant.rows[0].key["tenant"], None, "unknown is not a name");
    assert!(table(&by_tenant, 0).contains("(unknown)"));
    assert_eq!(csv(&by_tenant).lines().count(), 2);
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
    ) {
        let rows: Rows = rows.into_iter().collect();
        let report = sum(&rows, 0, &by, Some(Price(price)));
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
