//! The victim's side: whether it does worse than its own normal, what it shows, and what it is not.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::baseline::Deviation;
use crate::rule::{View, cpu_starved_loader};
use crate::{Cause, Evidence, Micro, Policy, Rejected};

/// The first gate of a cause that can be named: the victim does worse than its own normal, by far or for long.
pub(crate) fn deviates(deviation: &Deviation, view: &View<'_>) -> bool {
    far(deviation, view.policy) || lasts(deviation, view)
}

/// Under arrivals that come and go single blocks scatter too much to tell a fifth; that the change-point test has alarmed for a
/// while and the last block is half as far off, tells it as well.
fn lasts(deviation: &Deviation, view: &View<'_>) -> bool {
    let policy = view.policy;
    let age = deviation.onset.map(|onset| view.host.now.saturating_sub(onset));
    deviation.alarm
        && age.is_some_and(|age| age >= policy.deviation_lasts_ns)
        && deviation.z >= policy.deviation_z / 2.0
        && 1.0 - deviation.ratio() >= policy.starved_warn.as_fraction()
}

/// The same in a single block.
pub(crate) fn far(deviation: &Deviation, policy: &Policy) -> bool {
    let effect = 1.0 - deviation.ratio();
    deviation.z >= policy.deviation_z && effect >= policy.starved_warn.as_fraction() && deviation.alarm
}

/// What the victim itself shows: progress, utilization, waits.
pub(crate) fn victim_evidence(view: &View<'_>) -> Vec<Evidence> {
    let unit = view.unit;
    let mut evidence = Vec::new();
    if !view.tells {
        return evidence;
    }
    let engine = unit.engine.map_or(unit.name.as_str(), |engine| engine.url.as_str());
    if let Some(deviation) = &unit.deviation {
        let hundred = |value: f64| value * 100.0;
        let what = match unit.weight.source {
            _ if unit.engine.is_some() => "token rate, of its own normal",
            crate::WeightSource::Steps => "step rate, of its own normal",
            _ => "pace of the GPU, of its own normal",
        };
        let scaled = Deviation {
            value: hundred(deviation.value),
            normal: hundred(deviation.normal),
            spread: hundred(deviation.spread),
            ..*deviation
        };
        evidence
            .push(Evidence { normal: Some(scaled.as_normal()), ..Evidence::plain(what, engine, scaled.value, "%") });
    }
    if let Some(rate) = unit.signals.and_then(crate::signals::EngineSignals::rate) {
        evidence.push(Evidence::plain("token rate", engine, rate, "tok/s"));
    }
    if let (Some(page), Some(rate)) = (unit.trainer.page, unit.usage.block.steps) {
        evidence.push(Evidence::plain("steps", &page.url, rate, "steps/s"));
    }
    if let Some(util) = unit.util {
        evidence.push(Evidence::plain("utilization", &unit.name, util * 100.0, "%"));
    }
    if let Some((some, of)) = &unit.work.io_some {
        evidence.push(Evidence::plain("some task waited for I/O", of, some * 100.0, "%"));
    }
    if let Some((threads, wchan)) = &unit.work.blocked
        && *threads > 0
    {
        let place = wchan.as_deref().unwrap_or("unknown");
        evidence.push(Evidence::plain(
            format!("threads in uninterruptible sleep (first in {place})"),
            &unit.name,
            f64::from(*threads),
            "threads",
        ));
    }
    evidence
}

/// Causes other than storage that were looked at, and the figure that clears them.
pub(crate) fn cleared(view: &View<'_>) -> Vec<Rejected> {
    let unit = view.unit;
    let mut rejected = Vec::new();
    if !view.tells {
        return rejected;
    }
    let mut reject = |cause: Cause, why: String| rejected.push(Rejected { cause, of: String::new(), why });
    if let Some(reasons) = unit.gpu.and_then(|gpu| gpu.clock_reasons.copied())
        && !unit.throttled
    {
        reject(Cause::Throttle, format!("no thermal or brake clock event (reasons {reasons:#x})"));
    }
    // In the words of the rules that would blame them, and never beside a candidate that passed the gates.
    let cpu_waits = view.policy.cpu_starved_loader.wait_some;
    if let Some(some) = unit.work.cpu_some
        && some < cpu_waits.as_fraction()
        && !blamed(view)
    {
        let (some, most) = (percent(some), percent(cpu_waits.as_fraction()));
        reject(Cause::HostCpu, format!("some task waited for a CPU {some} % of the time, below {most} %"));
    }
    let full = view.policy.kv_saturation.full;
    if let Some(usage) = unit.engine.and_then(|engine| engine.kv_usage.copied())
        && usage.as_fraction() < full.as_fraction()
    {
        let (usage, full) = (percent(usage.as_fraction()), percent(full.as_fraction()));
        reject(Cause::Kv, format!("KV cache {usage} % full, below {full} %"));
    }
    if let crate::facts::Demand::Present { running, waiting } = unit.demand {
        reject(Cause::Upstream, format!("{running} requests run and {waiting} wait"));
    }
    rejected
}

/// Whether the CPUs pass every gate: a quota, stolen time or interrupts hold a workload back that waits little itself.
fn blamed(view: &View<'_>) -> bool {
    cpu_starved_loader::candidate(view).is_some_and(|(_, candidate)| super::weigh(view, candidate).is_ok())
}

fn percent(part: f64) -> Micro {
    Micro::from_f64(part * 100.0)
}
