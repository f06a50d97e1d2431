//! What may be to blame, in the one form that the gates take: a resource, what it shows, and how the victim hangs on it.

use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::switch::Switch;
use crate::facts::UnitFacts;
use crate::{Cause, Evidence, Part};

/// A resource that may have cost the victim its progress. Made by the family that knows the resource; the gates decide.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) cause: Cause,
    /// The cause object (`md0`, `nvme3n1`, `GPU-3`).
    pub(crate) object: String,
    /// The resource is in trouble since; none when that cannot be told, which clears nobody.
    pub(crate) onset: Option<Nanos>,
    /// The largest part of the time that the evidence can carry: share of waits, of a clock deficit, of latency above
    /// the own normal.
    pub(crate) pressure: Part,
    pub(crate) saturation: Saturation,
    pub(crate) link: Link,
    /// How bad the resource was in the last closed blocks, oldest first: higher is worse. Empty when it has no course.
    pub(crate) series: Vec<Option<f64>>,
    /// In which of the last blocks the trouble was there; none: since the onset.
    pub(crate) switch: Option<Switch>,
    /// Whether another unit hangs on the same object: those that do not are the control.
    pub(crate) uses: fn(&UnitFacts<'_>, &str) -> bool,
    /// What it rests on.
    pub(crate) evidence: Vec<Evidence>,
    /// A clause with the number that matters, for the summary: `md0 answers in 9.8 ms, normal 3.1 ms`.
    pub(crate) says: String,
    /// What to do, if it is the cause.
    pub(crate) advice: String,
}

/// How saturated a resource is, and the sentence with the number that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saturation {
    /// One point each for utilization, queue or latency beyond its own normal, and errors. None: it is not saturated.
    pub(crate) points: u8,
    /// With its number: why it is not, when it is not.
    pub(crate) why: String,
}

impl Saturation {
    /// Saturated, by so many of the three.
    pub(crate) const fn of(points: u8) -> Self {
        Self { points: if points > 3 { 3 } else { points }, why: String::new() }
    }

    /// Not saturated, and the number that shows it.
    pub(crate) const fn none(why: String) -> Self {
        Self { points: 0, why }
    }
}

/// How the victim's processes hang on the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Shown at the level of processes: own cgroup's pressure, place of a blocked thread, own PCIe and NUMA path, own
    /// array or mount.
    Proven,
    /// Nothing is known: the resource is the node's.
    #[allow(dead_code, reason = "for families whose resource is the whole node's")]
    Unknown,
    /// The victim does not use it, and what shows that.
    Missing(String),
}

/// A candidate that passed, with its points.
#[derive(Clone, Debug)]
pub(crate) struct Weighed {
    pub(crate) cause: Cause,
    pub(crate) object: String,
    /// Of [`super::gates::MOST`].
    pub(crate) score: u8,
    pub(crate) confidence: Part,
    pub(crate) pressure: Part,
    /// The candidate's own evidence, and what the gates found.
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) says: String,
    pub(crate) advice: String,
}
