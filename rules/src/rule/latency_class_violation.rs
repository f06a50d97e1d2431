//! Answers come later than was promised, or than they normally do.

use alloc::format;
use alloc::string::String;

use gpuprod_snapshot::units::Nanos;

use super::queueing::{claim, fresh};
use super::{Claim, Outcome, Text, View};
use crate::baseline::Track;
use crate::policy::table::thresholds;
use crate::{Evidence, Micro, Severity};

thresholds! {
    /// Thresholds of `latency_class_violation`.
    pub struct Thresholds {
        /// Time to the first token that is promised for 95 of 100 requests; 0: nothing is promised, own normal alone counts.
        ttft_slo_ns: Nanos = Nanos(0), Nanos(0)..=Nanos::from_secs(3_600);
        /// The same of the time between tokens.
        itl_slo_ns: Nanos = Nanos(0), Nanos(0)..=Nanos::from_secs(60);
        /// Times its own normal from which a latency violates its class (and deviation_z spreads, and the change-point test):
        /// 1.5, the productive GPU-hours article's story has 1.6.
        ratio: f64 = 1.5, 1.0..=1000.0;
        /// Blocks of 5 s, of the last twelve, that must break a promise. Forty seconds of a minute: a promise for 95
        /// of 100 requests is broken by chance in single blocks.
        blocks: u32 = 8, 1..=12;
        /// How long it must last. As for any starvation: one long prompt delays everybody behind it for seconds.
        for_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long it must be good before the finding ends. As starved_clear_ns: one good minute.
        clear_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Answers come later than was promised (slo), or than this engine normally gives them (own_normal, information).",
    inputs: "Histograms of the time to the first token and between tokens of the engine's page: their 95th percentile, block by \
             block, against the promise and against its own normal.",
    formula: "slo: blocks of the last twelve blocks are above ttft_slo_ns or itl_slo_ns. own_normal: ratio times the own normal and \
              more, by deviation_z spreads and the change-point test, for for_ns. Ends after clear_ns.",
    silent: "Fewer than ten observations in a block, and a normal that is not learnt yet.",
    advice: "The findings beside this one say why: a queue, a full cache, storage, a neighbour.",
    blind: "Latency in front of the engine (router, network).",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let (engine, load) = match fresh(view) {
        Ok(found) => found,
        Err(outcome) => return *outcome,
    };
    if engine.ttft.get().is_none() && engine.itl.get().is_none() {
        return Outcome::Unsupported("the engine's page has no latency histograms".into());
    }
    let rule = &view.policy.latency_class_violation;
    let signals = [
        ("time to the first token", &load.latencies.ttft, rule.ttft_slo_ns),
        ("time between tokens", &load.latencies.itl, rule.itl_slo_ns),
    ];
    let mut known = false;
    for (what, track, promised) in signals {
        if let Some(found) = promise(track, promised, rule.blocks) {
            known = true;
            if let Some(latest) = found {
                let says = format!(
                    "{what}: {} s for 95 of 100 requests, promised {} s",
                    Micro::from_f64(latest),
                    Micro::from_f64(promised.as_secs_f64())
                );
                let proof = alloc::vec![Evidence::plain(format!("{what}, 95th percentile"), &engine.url, latest, "s")];
                return speak(view, ("slo", says, proof, view.host.now.saturating_sub(rule.for_ns)));
            }
        }
        let Some(deviation) = track.deviation(view.policy) else { continue };
        known = true;
        let far = deviation.ratio() >= rule.ratio && deviation.z >= view.policy.deviation_z && deviation.alarm;
        let stays = view.active && deviation.ratio() >= 1.0 + (rule.ratio - 1.0) / 2.0 && deviation.alarm;
        if far || stays {
            let says = view.words(|| {
                format!(
                    "{what}: {} s for 95 of 100 requests, normally {} s",
                    Micro::from_f64(deviation.value),
                    Micro::from_f64(deviation.normal)
                )
            });
            let proof = || Evidence {
                normal: Some(deviation.as_normal()),
                ..Evidence::plain(format!("{what}, 95th percentile"), &engine.url, deviation.value, "s")
            };
            let proof = view.list(|| alloc::vec![proof()]);
            return speak(view, ("own_normal", says, proof, deviation.onset.unwrap_or(view.host.now)));
        }
    }
    if known { Outcome::Silent } else { Outcome::Suspended("its normal latency is not learnt yet".into()) }
}

/// The last value where a promise is broken; an empty answer where one is kept, none where nothing is promised or known.
fn promise(track: &Track, promised: Nanos, blocks: u32) -> Option<Option<f64>> {
    if promised.0 == 0 {
        return None;
    }
    let limit = promised.as_secs_f64();
    let last = || track.recent().rev().take(12).flatten();
    last().next()?;
    let broken = u32::try_from(last().filter(|value| *value > limit).count()).unwrap_or(0);
    Some(track.latest().filter(|_| broken >= blocks))
}

fn speak(
    view: &View<'_>,
    (variant, summary, proof, onset): (&str, String, alloc::vec::Vec<Evidence>, Nanos),
) -> Outcome {
    let Some(engine) = view.unit.engine else { return Outcome::Absent };
    Outcome::Claim(Claim {
        variant: Some(variant.into()),
        summary,
        evidence: proof,
        advice: view.words(|| TEXT.advice.into()),
        // Only a promise that is broken is somebody's trouble; a normal that was left is worth knowing.
        ..claim(view, engine, if variant == "slo" { Severity::Warn } else { Severity::Info }, onset)
    })
}
