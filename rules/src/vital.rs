//! The learnt tables as readers may see them: each signal's last value beside its own normal. For screens and
//! series; nothing here decides anything.

use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::baseline::Track;
use crate::signals::Signals;
use crate::{Micro, Policy};

/// What a vital is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VitalKind {
    /// Work per second of an engine over the last 10 s: a generated token is 1, a computed prompt token 1/10.
    Work,
    /// Progress of an engine or a training job as a part of its own normal; its normal is 1.
    Progress,
    /// Steps per second of a training job over its last steps.
    Steps,
    /// Mean latency of an array's members in sync, in milliseconds, over the last block.
    ArrayLatency,
    /// Mean latency of a disk in milliseconds, over the last block.
    DiskLatency,
}

/// One signal of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vital {
    /// Which signal.
    pub what: VitalKind,
    /// Of what: an engine's or a job's URL, an array, a disk.
    pub of: String,
    /// Its value; none when there was too little to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Micro>,
    /// Its own normal; none until it is learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal: Option<Micro>,
    /// Healthy blocks that were learnt from.
    pub n: u32,
}

/// All of them, in the order of kinds and names.
pub(crate) fn all(signals: &Signals, now: Nanos, policy: &Policy) -> Vec<Vital> {
    let mut vitals = Vec::new();
    for (url, engine) in &signals.engines {
        let (rate, progress) = (engine.rate(), engine.progress(now));
        let usual = rate.zip(progress).filter(|(_, progress)| *progress > 0.0).map(|(rate, progress)| rate / progress);
        let n = engine.blocks();
        let vital = |what, value: Option<f64>, normal: Option<f64>| Vital {
            what,
            of: url.clone(),
            value: value.map(Micro::from_f64),
            normal: normal.map(Micro::from_f64),
            n,
        };
        vitals.push(vital(VitalKind::Work, rate.filter(|_| engine.is_fresh(now)), usual));
        vitals.push(vital(VitalKind::Progress, progress, progress.map(|_| 1.0)));
    }
    for (url, job) in signals.steps.iter().filter(|(_, job)| job.is_fresh(now)) {
        let progress = job.progress(now, policy);
        let vital = |what, value: Option<f64>, normal: Option<f64>| Vital {
            what,
            of: url.clone(),
            value: value.map(Micro::from_f64),
            normal: normal.map(Micro::from_f64),
            n: job.blocks(),
        };
        vitals.push(vital(VitalKind::Steps, job.rate(now, policy), job.step(policy).map(|step| 1.0 / step)));
        vitals.push(vital(VitalKind::Progress, progress, progress.map(|_| 1.0)));
    }
    for (name, array) in &signals.arrays {
        vitals.push(of_track(VitalKind::ArrayLatency, name, &array.latency, policy));
    }
    for (name, disk) in &signals.disks {
        vitals.push(of_track(VitalKind::DiskLatency, name, &disk.latency, policy));
    }
    vitals.sort_by(|a, b| (a.what, &a.of).cmp(&(b.what, &b.of)));
    vitals
}

fn of_track(what: VitalKind, of: &str, track: &Track, policy: &Policy) -> Vital {
    Vital {
        what,
        of: of.into(),
        value: track.latest().map(Micro::from_f64),
        normal: track.normal(policy).map(Micro::from_f64),
        n: track.blocks(),
    }
}
