//! The night that the product is for, in numbers. At ten past two a member of the array fails and its rebuild takes the
//! readers' bandwidth. Every GPU goes on at 84 % utilization, so no dashboard moves, and makes less than half of its
//! tokens. Within a minute the productive share says so; one page goes out, and it is about the array; in the morning the
//! report says how many GPU-seconds it took, and what they cost.

use std::collections::BTreeMap;
use std::path::Path;

use gpuprod::alerts::{Desk, plan};
use gpuprod::config::{Config, Mode};
use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod::report::{By, Price, table, whole};
use gpuprod::store::rows::Gains;
use gpuprod_rules::{Bucket, Cause, Ledger};
use gpuprod_snapshot::units::Nanos;

/// Of one GPU-hour, in millionths.
const PRICE: Price = Price(2_500_000);
const HOUR_NS: u64 = 3_600_000_000_000;

/// What the dashboards show: the mean over the GPUs.
fn utilization(frame: &Frame<'_>) -> f64 {
    let gpus = frame.known.gpu.as_ref().and_then(|sample| sample.value.get()).unwrap();
    let each = gpus.devices.iter().map(|gpu| gpu.util.copied().unwrap().as_fraction());
    each.sum::<f64>() / gpus.devices.len() as f64
}

#[test]
fn utilization_stays_the_page_names_the_array_and_the_report_prices_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/two_am.scn");
    let scenario = gpuprod_sim::load(&path).unwrap();
    let trouble = scenario.truth().into_iter().find(|truth| truth.state == "starved").unwrap();
    let config = Config::parse("rules: {mode: page}", Path::new("gpuprod.yaml")).unwrap();
    let mut pipeline = Pipeline::new(config.rules.policy());
    let mut desk = Desk::new(plan(&config, "gpu-17"));
    let (mut ledger, mut gains) = (Ledger::default(), Gains::default());
    let (mut begin, mut before) = (None, None);
    // When w of every GPU was first below a half, and what the dashboards showed then; utilization all the while.
    let (mut low, mut shown) = (None, Vec::new());
    // Who was told of what, first.
    let mut told = BTreeMap::new();
    // GPU-seconds lost, by hand.
    let (mut storage, mut lost) = (0.0, 0.0);
    for tick in scenario.ticks() {
        let (real, now) = (tick.stamp.realtime, tick.stamp.boottime);
        let at = real.saturating_sub(*begin.get_or_insert(real));
        let seconds = now.saturating_sub(before.replace(now).unwrap_or(now)).as_secs_f64();
        let frame = pipeline.feed(&tick);
        let booked = ledger.clone();
        ledger.charge(&frame.judgement);
        gains.note(&booked, &ledger, &frame.judgement);
        for unit in &frame.judgement.units {
            for (bucket, part) in &unit.split {
                if let Bucket::Lost(cause) = bucket {
                    lost += part.as_fraction() * seconds;
                    storage += if *cause == Cause::Storage { part.as_fraction() * seconds } else { 0.0 };
                }
            }
        }
        if at >= trouble.from && at < trouble.to {
            shown.push(utilization(&frame));
            let halved = frame.judgement.units.iter().all(|unit| unit.weight.w.as_fraction() < 0.5);
            low = low.or(halved.then(|| (at, utilization(&frame))));
        }
        for alert in &desk.step(&frame.judgement.findings, &frame.known.stamp).list {
            let key = (alert.object.clone(), alert.mode);
            told.entry(key).or_insert_with(|| (at, alert.summary.clone()));
        }
    }

    let (below, util) = low.unwrap();
    let minute = trouble.from.saturating_add(Nanos::from_secs(60));
    assert!(below <= minute, "w is below a half at {below} only, {} is when it began", trouble.from);
    assert!(util >= 0.8, "utilization {util:.3} while w is below a half");
    let mean = shown.iter().sum::<f64>() / shown.len() as f64;
    assert!((mean - 0.84).abs() < 0.01, "utilization {mean:.3} while the array is rebuilt");

    let pages: Vec<_> = told.keys().collect();
    assert_eq!(pages, [&("md0".to_owned(), Mode::Page)], "one page, about the array");
    let (paged, summary) = &told[&("md0".to_owned(), Mode::Page)];
    assert!(*paged <= minute && summary.contains("md0"), "{paged}: {summary}");

    let hour = begin.unwrap().0 / HOUR_NS;
    let report = whole(&gains, hour, &[By::Cause], Some(PRICE));
    let row = report.rows.iter().find(|row| row.key["cause"].as_deref() == Some("lost{storage}")).unwrap();
    let cost = row.lost_cost_millionths.unwrap();
    assert_eq!(row.lost_cost_most_millionths, Some(cost), "tokens are firm ground: no range");
    // By the report's own seconds to the millionth, and by those that were added up here to the cent.
    assert!(cost > 0 && cost.abs_diff(PRICE.of(row.times.lost_ns)) <= 1, "{cost}");
    let by_hand = storage / 3_600.0 * 2.5;
    assert!((by_hand - cost as f64 / 1e6).abs() < 0.005, "{by_hand} by hand, {cost} millionths in the report");
    assert!((storage - Nanos(row.times.lost_ns).as_secs_f64()).abs() < 0.01, "{storage} s by hand, {row:?}");
    // 55 % of eight GPUs, for as long as it lasts: what came before the cause was known is lost too.
    let truth = 8.0 * 0.55 * trouble.to.saturating_sub(trouble.from).as_secs_f64();
    assert!((lost / truth - 1.0).abs() < 0.05, "{lost} of {truth} GPU-seconds");
    assert!(storage > 0.85 * truth, "{storage} of {truth} GPU-seconds are the array's");
    let page = table(&report, (hour + 1) * HOUR_NS);
    let priced = format!("{}.{:02}", cost / 1_000_000, cost / 10_000 % 100);
    let line = page.lines().find(|line| line.contains("lost{storage}")).unwrap();
    assert!(line.trim_end().ends_with(&priced), "{line}: {priced}");
}
