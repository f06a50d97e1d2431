//! Weights come in slower than they used to.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::{Claim, Outcome, Text, View};
use crate::facts::host::Loader;
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Micro, Part, Severity};

thresholds! {
    /// Thresholds of `loading_slow`.
    pub struct Thresholds {
        /// A load that takes so many times the longest of its last eight is slow. Twice: the longest of eight was
        /// cold, so that a cold page cache alone does not reach it.
        ratio: f64 = 2.0, 1.0..=1_000.0;
        /// Bytes per second, as a part of its own normal in millionths, below which a load that waits for I/O is slow.
        /// Half its own normal: the same twice, seen while it loads.
        rate: Part = Part(500_000), Part(0)..=Part::ONE;
        /// So many loads must have been seen. The longest of fewer says little: three is the least that has a middle
        /// one.
        loads: u32 = 3, 1..=8;
        /// No load is slow before so long: page caches and schedulers scatter by that much.
        least_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "An engine's start takes much longer than its own last ones: capacity comes late, and autoscaling does not help.",
    inputs: "Age of the process whose page is still refused, bytes that it reads, its waits for I/O, what it has open; its last \
             eight loads.",
    formula: "It loads for more than ratio times its longest known load; or, while it waits for I/O, at less than rate of its \
              usual bytes per second; not before least_ns. Two workloads that load from one place at once are a \
              cold_start_storm. Ends when it serves.",
    silent: "Fewer than loads known loads, compilation and warm-up that read nothing (until ratio times the longest load).",
    advice: "Look at the device or server that the weights come from; keep them on local disks; stagger starts.",
    blind: "A load whose process is restarted over and over counts as many short ones.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let thresholds = &view.policy.loading_slow;
    let unit = view.unit;
    if unit.engine.is_none() {
        return Outcome::Absent;
    }
    let loads = &unit.host.loads;
    let Some((since, read, _)) = loads.current else { return Outcome::Silent };
    let Some((usual, usual_rate)) = loads.usual(thresholds.loads).zip(loads.usual_rate(thresholds.loads)) else {
        return Outcome::Suspended(
            format!("{} loads of it were seen, {} are needed", loads.done.len(), thresholds.loads).into(),
        );
    };
    let age = view.host.now.saturating_sub(since);
    if age < thresholds.least_ns {
        return Outcome::Silent;
    }
    let seconds = age.as_secs_f64();
    let rate = read / seconds.max(1.0);
    let waits = unit.usage.block.io_some.is_some_and(|some| some >= view.policy.io_stall.wait_some.as_fraction());
    let long = seconds >= usual.as_secs_f64() * thresholds.ratio;
    // Between files a load may stand for a moment: the mean over the whole load is what counts.
    let crawls = waits && usual_rate > 0.0 && rate < usual_rate * thresholds.rate.as_fraction();
    if !(long || crawls) {
        return Outcome::Silent;
    }
    let together = together(view);
    let (place, cause) = place(view, &together);
    let storm = !together.is_empty();
    let mut evidence = alloc::vec![
        Evidence::plain("loading", &unit.name, seconds, "s"),
        Evidence::plain("longest of its last loads", &unit.name, usual.as_secs_f64(), "s"),
        Evidence::plain("reads", &unit.name, rate / 1e6, "MB/s"),
        Evidence::plain("read in its last loads", &unit.name, usual_rate / 1e6, "MB/s"),
    ];
    if let Some((some, of)) = &unit.work.io_some {
        evidence.push(Evidence::plain("some task waited for I/O", of, *some * 100.0, "%"));
    }
    evidence
        .extend(together.iter().map(|other| Evidence::plain("loads at the same time from", &other.name, 1.0, "unit")));
    let others = if storm { ", together with others from the same place" } else { "" };
    Outcome::Claim(Claim {
        variant: storm.then(|| "cold_start_storm".into()),
        severity: Severity::Warn,
        // The state is loading, and its time is overhead: nothing of it is booked as lost.
        cause: cause.filter(|_| waits),
        deficit: unit.weight.w.rest(),
        onset: since,
        pressure: Part(0),
        confidence: Part::from_fraction(if crawls { 0.85 } else { 0.7 }),
        summary: format!(
            "it loads for {} s, its longest known load took {} s; it reads {} MB/s, usually {} MB/s{others}",
            Micro::from_f64(seconds),
            Micro::from_f64(usual.as_secs_f64()),
            Micro::from_f64(rate / 1e6),
            Micro::from_f64(usual_rate / 1e6),
        ),
        evidence,
        rejected: Vec::new(),
        advice: if storm {
            format!(
                "start replicas one after the other, or give each a copy of the weights; {place} serves all of them"
            )
        } else {
            format!("look at {place}: latency, other readers, the network behind it; keep weights on a local disk")
        },
        object: place,
        holders: Vec::new(),
    })
}

/// Other workloads that load from a place of this one.
fn together<'a>(view: &'a View<'_>) -> Vec<&'a Loader> {
    let own = places(view);
    let loading = view.host.around.loading.iter();
    loading
        .filter(|other| {
            other.unit != view.unit.id
                && other.family.is_disjoint(&view.unit.work.family)
                && !other.places.is_disjoint(&own)
        })
        .collect()
}

fn places(view: &View<'_>) -> BTreeSet<String> {
    view.unit.work.path.arrays.iter().chain(&view.unit.work.path.disks).chain(&view.unit.work.mounts).cloned().collect()
}

/// Where the weights come from: a server, else an array, else a disk; of several the one that others load from too.
fn place(view: &View<'_>, together: &[&Loader]) -> (String, Option<Cause>) {
    let unit = view.unit;
    let shared = |name: &&String| together.is_empty() || together.iter().any(|other| other.places.contains(*name));
    let mounts = unit.work.mounts.iter().map(|name| (name, Cause::Network));
    let local = unit.work.path.arrays.iter().chain(&unit.work.path.disks).map(|name| (name, Cause::Storage));
    let found = mounts.chain(local).find(|(name, _)| shared(name));
    found.map_or_else(|| (format!("load:{}", unit.name), None), |(name, cause)| (name.clone(), Some(cause)))
}
