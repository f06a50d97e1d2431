//! The queue of an engine grows without an end in sight.

use alloc::format;

use gpuprod_snapshot::units::{Nanos, to_f64};

use super::queueing::{before_deficit, claim, fresh};
use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `queue_instability`.
    pub struct Thresholds {
        /// Requests by which the queue must grow within two minutes. Five: a queue of one or two breathes with single
        /// long prompts.
        growth: u64 = 5, 1..=1_000_000;
        /// Or this part of what it was, in millionths, if that is more: large queues breathe.
        growth_share: Part = Part(200_000), Part(0)..=Part(10_000_000);
        /// A queue that is served within this time is a rush, and no trouble. Half a minute: who waits no longer than
        /// that is served within what clients wait before they ask again.
        drain_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(86_400);
        /// Requests must come so many times as fast in the second minute as in the first (or finish so many times as slowly,
        /// with work done twice) for a queue that speeds up: chance moves a trace's arrivals by 1.5 at most, clients that ask
        /// again by 1.9 and more (chat of Azure and Mooncake, engine simulated).
        push: f64 = 1.7, 1.0..=100.0;
        /// What a trouble that is over has left in the queue and the cache is its consequence until it has drained, for so long
        /// at most: a quarter of an hour is more than drained in any trace (four minutes), and ends where arrivals keep it full.
        backlog_ns: Nanos = Nanos::from_secs(900), Nanos(0)..=Nanos::from_secs(86_400);
        /// Share of the variance that a straight line through the logarithm must explain for it, more than through the queue
        /// itself (.97 to .99 with clients that ask again after 30 s).
        log_fit: f64 = 0.95, 0.0..=1.0;
        /// It must not grow for so long before the finding ends. Half of what the growth is measured over.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "More requests come than are finished, and the queue grows: in a straight line when demand is beyond capacity, faster \
            and faster when clients send again or work is done twice.",
    inputs: "Running, waiting and finished requests of the engine's page, second by second over two minutes.",
    formula: "The queue grows for certain (Mann-Kendall, ties corrected, p < .01; Theil-Sen slope above zero), by growth and \
              growth_share, in the second minute too (half of the whole slope), more comes than finishes, and the queue takes longer than drain_ns. accelerating: the slope of the \
              second minute is twice the first's, the logarithm is the straighter line (log_fit), and arrivals grew by push, or finished \
              requests fell by it while requests are preempted or swapped (preemption_thrash.rate, .swapped); else linear. mrqi: accelerating with a full KV cache. Ends after clear_ns without growth.",
    silent: "A rush that is served in time, and a queue that grows because the engine was slowed down, or that this has left behind, until it has drained or for backlog_ns (told as information).",
    advice: "linear: add a replica or shed load. accelerating: stop the retries first (back-off, admission limit), capacity does \
             not catch up with them.",
    blind: "Whether a request is a client's second try: the page counts both, and a demand that itself grows by push within a minute \
            looks the same.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    let rule = &view.policy.queue_instability;
    let Some(trend) = load.trend else {
        return Outcome::Suspended("less than two minutes were seen".into());
    };
    let share = i64::try_from(u64::from(rule.growth_share.0)).unwrap_or(0);
    let least = i64::try_from(rule.growth).unwrap_or(i64::MAX).max(trend.began.saturating_mul(share) / 1_000_000);
    let more = trend.came.0.0.saturating_add(trend.came.1.0) > trend.finished.0.0.saturating_add(trend.finished.1.0);
    // It grows still: a step that is over is no growth.
    let goes_on = trend.halves.1.saturating_mul(2) >= trend.slope;
    let grows = trend.certain && trend.slope > 0 && goes_on && trend.growth >= least && more;
    let stays = view.active && trend.slope > 0 && trend.growth > 0;
    if !grows && !stays {
        return Outcome::Silent;
    }
    let waiting = load.seconds.back().map_or(0, |second| second.waiting);
    // Nothing finishes at all: that queue takes for ever.
    let drain = load.drain();
    if drain.is_some_and(|drain| drain < rule.drain_ns) && !view.active {
        return Outcome::Silent;
    }
    let since = load.growing.0.unwrap_or(view.host.now);
    let full = load.full.0.is_some();
    let variant = match (load.accelerating, full) {
        (true, true) => "mrqi",
        (true, false) => "accelerating",
        (false, _) => "linear",
    };
    let first = before_deficit(view, load, since);
    let severity = match (first, load.accelerating) {
        (false, _) => Severity::Info,
        (true, true) => Severity::Critical,
        (true, false) => Severity::Warn,
    };
    let slope = to_f64(trend.slope.unsigned_abs()) / 1e6;
    let mut proof = alloc::vec![
        Evidence::plain("requests that wait", &engine.url, f64::from(waiting), "requests"),
        Evidence::plain("growth of the queue (Theil-Sen, two minutes)", &engine.url, slope, "requests/s"),
        Evidence::plain("the same in the first minute", &engine.url, signed(trend.halves.0), "requests/s"),
        Evidence::plain("the same in the second minute", &engine.url, signed(trend.halves.1), "requests/s"),
    ];
    for (what, value) in [
        ("requests that came, first minute", trend.came.0),
        ("requests that came, second minute", trend.came.1),
        ("requests that finished, second minute", trend.finished.1),
    ] {
        proof.push(crate::Evidence { value, ..Evidence::plain(what, &engine.url, 0.0, "requests/s") });
    }
    proof
        .extend(drain.map(|drain| Evidence::plain("time that the queue takes", &engine.url, drain.as_secs_f64(), "s")));
    let rejected = if first {
        alloc::vec::Vec::new()
    } else {
        alloc::vec![Rejected {
            cause: Cause::Upstream,
            of: engine.url.clone(),
            why: "the queue began to grow after the engine had slowed down: a consequence".into()
        }]
    };
    Outcome::Claim(Claim {
        variant: Some(variant.into()),
        summary: format!(
            "{waiting} requests wait, {} more every second{}",
            Micro::from_f64(if load.accelerating { signed(trend.halves.1) } else { slope }),
            if load.accelerating { " of the last minute, faster and faster" } else { "" }
        ),
        evidence: proof,
        rejected,
        advice: TEXT.advice.into(),
        ..claim(view, engine, severity, since)
    })
}

fn signed(slope: i64) -> f64 {
    let size = to_f64(slope.unsigned_abs()) / 1e6;
    if slope < 0 { -size } else { size }
}
