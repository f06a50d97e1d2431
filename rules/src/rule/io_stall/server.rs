//! A network file system whose server answers too late or not at all.

use alloc::format;
use alloc::vec::Vec;

use super::{Trouble, behind, confidence, far, kind, paced, stuck};
use crate::attribution::{self, Blame};
use crate::rule::View;
use crate::{Cause, Micro, Part, Rejected};

/// Confidence in a server for which only the workload's own waits speak.
const WAITS_ONLY: f64 = 0.7;

/// A network file system that the workload has open.
pub(super) fn trouble(view: &View<'_>, point: &str) -> Result<Trouble, Rejected> {
    let reject = |why: &str| Rejected { cause: Cause::Network, of: point.into(), why: why.into() };
    let signals = view.host.signals.mounts.get(point);
    if let Some(since) = signals.and_then(|signals| signals.stuck_since) {
        return stuck(view, point, since, Cause::Network, "server_stuck");
    }
    let remote = view.unit.usage.waits_remote.since();
    if let Some(signals) = signals {
        let policy = view.policy;
        let floor = policy.io_stall.await_remote_ms.min(far(view, signals));
        let late = signals.latency.latest().is_some_and(|latency| latency >= floor);
        let paced = paced(view);
        let behind = behind(signals);
        if late || paced || behind || view.active {
            let merely = paced || (behind && !late);
            let ratio = if merely { policy.disk_await_ratio } else { policy.io_stall.await_ratio };
            let blame = attribution::gates(view, point, signals, ratio);
            if let Ok(Blame { object, confidence, pressure, latency, mut evidence }) = blame {
                let kind = kind::small(view, point, signals);
                let more = kind.as_ref().map_or("", |kind| kind.says.as_str());
                let says = format!(
                    "the server of {object} answers in {} ms, normal {} ms{more}",
                    Micro::from_f64(latency.value),
                    Micro::from_f64(latency.normal)
                );
                let variant = kind.as_ref().map_or("server_late", |kind| kind.variant);
                evidence.extend(kind.into_iter().flat_map(|kind| kind.evidence));
                return Ok(Trouble {
                    says,
                    object,
                    variant,
                    cause: Cause::Network,
                    onset: latency.onset.unwrap_or(view.host.now),
                    pressure,
                    confidence,
                    evidence,
                });
            }
        }
        if signals.latency.latest().is_some() {
            return Err(reject("its server answers as it normally does"));
        }
    }
    let since = remote.ok_or_else(|| reject("no thread is blocked in a network file system"))?;
    if view.unit.work.mounts.len() > 1 && signals.is_none() {
        return Err(reject("threads wait for a server, and which of several cannot be told"));
    }
    Ok(Trouble {
        object: point.into(),
        variant: "server_stuck",
        cause: Cause::Network,
        onset: since,
        pressure: Part::ONE,
        confidence: Part::from_fraction(WAITS_ONLY).min(confidence(view)),
        says: format!("threads of the workload are blocked in the client of {point}: its server does not answer"),
        evidence: Vec::new(),
    })
}
