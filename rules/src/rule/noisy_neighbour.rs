//! Another workload of the node takes what this one needs: whose doing it is when a shared drive or GPU is short.

mod suspect;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use self::suspect::Suspect;
use super::around::{percent, severity};
use super::io_stall::hungry;
use super::queueing::fresh;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{self, Weighed};
use crate::policy::table::thresholds;
use crate::{Cause, Class, Evidence, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `noisy_neighbour`.
    pub struct Thresholds {
        /// Points of 16 that the suspect must have at the gates: without its course going with the victim's loss, or others
        /// that were spared, nobody has eight.
        score: u32 = 8, 0..=16;
        /// A latency of so many times its own normal is a victim's, where its progress did not fall. 1.5 as for
        /// latency_class_violation.ratio: a latency half above its normal is what users notice first.
        latency: f64 = 1.5, 1.0..=1000.0;
        /// Share of a GPU's time, in millionths, from which a workload on a shared GPU counts at all. A twentieth, as
        /// squatter.util: what does no more does nothing.
        busy: Part = Part(50_000), Part(0)..=Part::ONE;
        /// How long it must last. As for any starvation.
        for_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// How long it must be good before the finding ends; what it did to the victim goes away first. Half a minute
        /// more than the victim's own trouble takes to be over (starved_clear_ns).
        clear_ns: Nanos = Nanos::from_secs(90), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "Another workload of this node takes more than its share of a drive (storage) or of the GPU's time (gpu) that this \
            one needs, and this one does worse since. class_mismatch: an engine shares a whole GPU, in time slices, with a \
            workload that serves nobody; information until it costs something.",
    inputs: "Bytes by cgroup and device (io.stat), latency and throughput of the drives in the victim's path; SM utilization by \
             process on a GPU that several cgroups use; the victim's progress, or its latencies.",
    formula: "The suspect left its own normal (deviation_z) or is new, takes more than one part of as many as use the resource, \
              and began before the victim's trouble; the drive answers disk_await_ratio times as late as it normally does. At \
              the gates it has score of 16. The victim makes less progress, or its latencies are latency times their normal. \
              It lasts for_ns. Ends after clear_ns.",
    silent: "A neighbour that does what it always does, one that began after the trouble, one within its fair share, a drive that \
             answers as always, a sync (raid_rebuild_impact), MIG instances.",
    advice: "Limit the named neighbour (io.max, MPS limits, MIG) or place one of the two elsewhere.",
    blind: "Workloads without a GPU are not read one by one: I/O of theirs is told by io_stall as background. Memory bandwidth of \
            the GPU and of the host, caches.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.rest || unit.work.family.is_empty() {
        return Outcome::Absent;
    }
    let Some(own) = unit.host.serves.as_ref().or(unit.work.ties.cgroup.as_ref()) else {
        return Outcome::Suspended("the cgroup of its workload is not known".into());
    };
    let neighbours = suspect::neighbours(view, own);
    if neighbours.is_empty() {
        return Outcome::Absent;
    }
    let Some((since, felt)) = suffers(view) else { return harmless(view) };
    let suspects = suspect::all(view, own, &neighbours);
    let mut rejected = suspects.rejected;
    let mut worst: Option<(Suspect, Weighed)> = None;
    for found in suspects.found {
        let name = found.name.clone();
        match attribution::weigh(view, found.candidate.clone()) {
            Ok(weighed) if !view.active && u32::from(weighed.score) < view.policy.noisy_neighbour.score => {
                let why = format!(
                    "{name}: {} points of 16, {} are needed: its course does not go with the loss",
                    weighed.score, view.policy.noisy_neighbour.score
                );
                rejected.push(Rejected { cause: weighed.cause, of: weighed.object, why });
            }
            Ok(weighed) if worst.as_ref().is_none_or(|(_, worst)| weighed.score > worst.score) => {
                worst = Some((found, weighed));
            }
            Ok(_) => {}
            Err(no) => rejected.push(Rejected { why: format!("{name}: {}", no.why), ..no }),
        }
    }
    match worst {
        Some((suspect, weighed)) => Outcome::Claim(claim(view, &suspect, weighed, (since, felt, rejected))),
        None => harmless(view),
    }
}

/// Since when the unit does worse, by its progress or by its latencies, and what shows it.
fn suffers(view: &View<'_>) -> Option<(Nanos, Vec<Evidence>)> {
    if let Some(since) = hungry(view) {
        return Some((since, Vec::new()));
    }
    let (engine, load) = fresh(view).ok()?;
    let latencies = [
        ("time to the first token, 95th percentile", &load.latencies.ttft),
        ("time between tokens, 95th percentile", &load.latencies.itl),
    ];
    latencies.into_iter().find_map(|(what, track)| {
        let now = track.deviation(view.policy)?;
        let ratio = view.policy.noisy_neighbour.latency;
        let stays = view.active && now.alarm && now.ratio() >= 1.0 + (ratio - 1.0) / 2.0;
        let far = now.alarm && now.z >= view.policy.deviation_z && now.ratio() >= ratio;
        let shown = Evidence { normal: Some(now.as_normal()), ..Evidence::plain(what, &engine.url, now.value, "s") };
        (far || stays).then(|| (now.onset.unwrap_or(view.host.now), alloc::vec![shown]))
    })
}

fn claim(
    view: &View<'_>,
    suspect: &Suspect,
    weighed: Weighed,
    (since, felt, mut rejected): (Nanos, Vec<Evidence>, Vec<Rejected>),
) -> Claim {
    let Weighed { object, confidence, pressure, evidence: found, says, advice, cause, .. } = weighed;
    let mut evidence = felt;
    evidence.extend(attribution::victim_evidence(view));
    evidence.extend(found);
    rejected.extend(attribution::cleared(view));
    let mismatch = suspect.gpu && view.unit.class() == Class::Serving;
    Claim {
        variant: Some(if mismatch { "class_mismatch" } else { suspect.variant() }.into()),
        severity: severity(view),
        cause: Some(cause),
        object,
        deficit: view.unit.weight.w.rest(),
        onset: suspect.candidate.onset.unwrap_or(since).max(since).min(view.host.now),
        pressure,
        confidence,
        summary: format!("{says}; its neighbour makes {} of its progress", percent(1.0 - view.unit.deficit())),
        evidence,
        rejected,
        advice,
        holders: Vec::new(),
    }
}

/// An engine on a GPU that is not its own: nothing has come of it yet.
fn harmless(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    let (Some(serves), Class::Serving) = (&unit.host.serves, unit.class()) else { return Outcome::Silent };
    let busy = view.policy.noisy_neighbour.busy.as_fraction();
    let Some(other) = unit.host.sharers.iter().find(|other| other.cgroup != *serves && other.share >= busy) else {
        return Outcome::Silent;
    };
    let name = suspect::name(view, &other.cgroup);
    Outcome::Claim(Claim {
        variant: Some("class_mismatch".into()),
        severity: Severity::Info,
        cause: None,
        object: unit.name.clone(),
        deficit: Part(0),
        onset: view.host.now,
        pressure: Part(0),
        confidence: Part::from_fraction(0.9),
        summary: format!(
            "{}: its engine shares the whole GPU in time slices with {name}: neither its latency nor its memory is guarded",
            unit.name
        ),
        evidence: alloc::vec![Evidence::plain("share of the GPU's time", &name, other.share * 100.0, "%")],
        rejected: alloc::vec![Rejected {
            cause: Cause::Unexplained,
            of: String::new(),
            why: "the engine does as well as it normally does".to_string(),
        }],
        advice: "give the engine a GPU or a MIG instance of its own if its latency is promised to anybody".into(),
        holders: Vec::new(),
    })
}
