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
mod victim;

pub(crate) use candidate::{Candidate, Link, Saturation, Weighed};
pub(crate) use gates::{Verdict, rank, victim_onset, weigh};
pub(crate) use storage::{Blame, array, flooded, gates, others, own_disks, ratio};
pub(crate) use victim::{cleared, deviates, far, victim_evidence};

use alloc::vec::Vec;

use crate::rule::View;

/// Makes the candidates of one family of resources: those that are there, saturated or not.
type Family = fn(&View<'_>) -> Vec<Candidate>;

/// All families. The order decides nothing.
const FAMILIES: &[Family] = &[storage::candidates, host::candidates, pcie::candidates];

/// Everything on this node that could have starved the unit, weighed.
pub(crate) fn verdict(view: &View<'_>) -> Verdict {
    rank(view, FAMILIES.iter().flat_map(|family| family(view)))
}
