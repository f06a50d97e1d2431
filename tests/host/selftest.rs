//! `gpuprod selftest`: every built-in fault fires, and the page arrives.

use std::time::{Duration, Instant};

use gpuprod_rules::RULES;
use serde_json::Value;

use crate::cli::{Scratch, gpuprod};

fn told(args: &[&str]) -> (Value, bool) {
    let scratch = Scratch::new("selftest");
    let mut all = vec!["selftest", "--json", "--host-root", "/", "--nvml-library", "/nowhere/libnvidia-ml.so.1"];
    all.extend(args);
    let output = gpuprod(&scratch, &all).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value =
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (value, output.status.success())
}

#[test]
fn every_built_in_fault_fires_and_its_page_arrives() {
    let (report, fine) = told(&[]);
    let rules = report["rules"].as_array().unwrap();
    assert!(fine && report["failed"] == 0, "{report:#}");
    let (tested, untried): (Vec<&Value>, Vec<&Value>) = rules.iter().partition(|line| !line["fault"].is_null());
    assert_eq!((tested.len(), untried.len()), (RULES.len(), 0), "{report:#}");
    for line in tested {
        assert_eq!(line["fired"], true, "{line:#}");
        assert!(line["found_ns"].as_u64().is_some(), "{line:#}");
        let informs =
            ["node_fit", "allocated_without_process", "headroom_breach"].contains(&line["rule"].as_str().unwrap());
        assert_eq!(line["delivered_ns"].as_u64().is_some(), !informs, "{line:#}");
        // There is no GPU behind that library: nothing can fire here, and each rule says so.
        assert!(line["here"].as_str().unwrap().starts_with("cannot fire"), "{line:#}");
    }
}

#[test]
fn in_real_time_it_takes_as_long_as_it_takes() {
    let begun = Instant::now();
    // A call that does not come back is told after ten seconds: of a fault that is seen at once nothing would be shown.
    let (report, fine) = told(&["--only", "telemetry_degraded", "--real-time"]);
    let wall = begun.elapsed();
    let line = &report["rules"][0];
    assert!(fine && line["real_time"] == true && line["fired"] == true, "{report:#}");
    let found = line["found_ns"].as_u64().unwrap();
    assert!((9_000_000_000..=20_000_000_000).contains(&found), "{line:#}");
    assert!(wall >= Duration::from_nanos(found), "{wall:?}, {line:#}");
}
