//! Whose doing it was: candidates of every cause, and the gates that they have to pass.
//!
//! To add a family: write `fn candidates(view: &View<'_>) -> Vec<Candidate>` in a file of its own and hang it into
//! [`FAMILIES`]. A rule that looks at one object hands its candidate to [`weigh`].
//!
//! A family of resources makes [`Candidate`]s ([`FAMILIES`]: one line each); [`gates()`] weighs them, whatever they are.
//! What fails a gate is named among the rejected, with the number that failed.

mod candidate;
mod coupling;
pub(crate) mod did;
mod gates;
mod host;
mod memo;
mod pcie;
mod storage;
mod switch;
mod victim;

pub(crate) use candidate::{Candidate, Link, Saturation, Weighed};
pub(crate) use gates::{Verdict, rank, victim_onset, weigh};
pub(crate) use storage::{Blame, array, flooded, gates, others, own_disks, ratio};
pub(crate) use switch::Switch;
pub(crate) use victim::{cleared, deviates, far, victim_evidence};

use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use crate::Part;
use crate::policy::table::thresholds;
use crate::rule::View;

thresholds! {
    /// What the gates ask of every candidate, and of storage.
    pub struct Thresholds {
        /// Requests out on the disks of a workload, on average, below which it waits for none of them, however late the
        /// few are answered. Little's mean of a reader that waits is one and more; a reader throttled into bursts had .15
        /// at two to four times the latency (measured with a real md).
        waiting: f64 = 0.5, 0.0..=1_000.0;
        /// Part of the lost progress, in millionths, by which the share of time in which some task of the workload waits
        /// for I/O must grow, where it shows. A lone reader that loses a third waits a third of the time more; several at
        /// once, whose waits cover each other, less. A quarter is a choice with room for four of them.
        waits_grow: Part = Part(250_000), Part(0)..=Part::ONE;
        /// Share of time, in millionths, that a workload waits for I/O while it is well, from which its waits show at all:
        /// those of io_uring and of direct reads into the GPU do not.
        waits_show: Part = Part(5_000), Part(0)..=Part::ONE;
        /// Share of time, in millionths, from which no growth is asked for: somebody waits half of the time, and more
        /// readers at it make no more of it.
        waits_much: Part = Part(500_000), Part(0)..=Part::ONE;
        /// A beginning that came slowly, or is hardly told from the noise, is off by no more than this: a block of noise may have stood where the course was
        /// still within the noise. A minute: twice what a deviation takes to be told.
        onset_blur_ns: Nanos = Nanos::from_secs(60), Nanos(0)..=Nanos::from_secs(3_600);
        /// Least difference between victim and control that counts, as a part of full progress, in millionths. A tenth:
        /// healthy neighbours differ by some hundredths.
        least: Part = Part(100_000), Part(0)..=Part::ONE;
        /// Pooled spreads that it must measure: two, 1 in 20 by chance.
        spreads: f64 = 2.0, 0.0..=1_000.0;
    }
}

/// Makes the candidates of one family of resources: those that are there, saturated or not.
type Family = fn(&View<'_>) -> Vec<Candidate>;

/// All families. The order decides nothing.
const FAMILIES: &[Family] = &[storage::candidates, host::candidates, pcie::candidates];

/// Everything on this node that could have starved the unit, weighed.
pub(crate) fn verdict(view: &View<'_>) -> Verdict {
    rank(view, FAMILIES.iter().flat_map(|family| family(view)))
}
