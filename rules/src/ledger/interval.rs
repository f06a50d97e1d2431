//! The time between two charges, cut into stretches by what the clocks say.
//!
//! - Same boot: the length is the difference of `boottime`. Backwards books nothing and the ledger stays where it
//!   was, at the larger time, so that no instant is counted twice.
//! - Of that, what `boottime` gained over `monotonic`, if over 100 ms, is `unknown{suspended}`.
//! - The rest is `unknown{agent_down}` if a new process took over, else it is the unit's own: by verdict, or
//!   `unknown{missed}` when it is too long for one.
//! - Another boot, or one whose id could not be read: the counting clocks say nothing, and the difference of
//!   `realtime`, between zero and seven days, is `unknown{host_down}`.
//! - A wall clock that jumps within a boot has no effect at all.

use alloc::vec::Vec;

use gpuprod_snapshot::Stamp;
use gpuprod_snapshot::units::Nanos;

use crate::Unknown;

/// Clocks are read one after the other: a smaller difference is no suspend.
const SUSPEND_FLOOR: Nanos = Nanos::from_millis(100);
/// A wall clock that disagrees by more than this has jumped.
const WALL_JUMP: Nanos = Nanos::from_secs(1);
/// A host that seems to have been down for longer has a broken clock.
const HOST_DOWN_MOST: Nanos = Nanos::from_secs(7 * 24 * 3600);
/// Counters can speak for a stretch up to this, however long the period.
const CUMULATIVE_MOST: Nanos = Nanos::from_secs(10);

/// What lies between two charges.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    /// Nobody can speak for these.
    pub unknown: Vec<(Unknown, Nanos)>,
    /// The units' own verdicts speak for this, unless it is too long for them.
    pub rest: Nanos,
    /// Whether the ledger moves to the newer stamp.
    pub advances: bool,
    /// Clocks seen to step.
    pub steps: u64,
}

impl Interval {
    /// Cuts the time between two stamps. `resumed`: another process made the older one.
    pub(super) fn between(from: &Stamp, to: &Stamp, resumed: bool) -> Self {
        if from.boot_id != to.boot_id || to.boot_id.0.is_empty() {
            let gap = to.realtime.checked_sub(from.realtime);
            return Self {
                unknown: stretch(Unknown::HostDown, gap.unwrap_or_default().min(HOST_DOWN_MOST)),
                rest: Nanos(0),
                advances: true,
                steps: u64::from(gap.is_none()),
            };
        }
        let Some(length) = to.boottime.checked_sub(from.boottime) else {
            return Self { steps: 1, ..Self::default() };
        };
        let awake = to.monotonic.checked_sub(from.monotonic);
        let asleep = length.saturating_sub(awake.unwrap_or(length));
        let asleep = if asleep > SUSPEND_FLOOR { asleep } else { Nanos(0) };
        let mut unknown = stretch(Unknown::Suspended, asleep);
        let mut rest = length.saturating_sub(asleep);
        if resumed {
            unknown.extend(stretch(Unknown::AgentDown, rest));
            rest = Nanos(0);
        }
        let jumped = apart(to.realtime, from.realtime.saturating_add(length)) > WALL_JUMP;
        Self { unknown, rest, advances: true, steps: u64::from(jumped).saturating_add(u64::from(awake.is_none())) }
    }
}

/// Whether a stretch is too long for the verdict at its end: over 2.5 periods, unless every source of it counts
/// on by itself and it is 10 s or less.
pub(super) fn is_missed(rest: Nanos, period: Nanos, cumulative: bool) -> bool {
    let long = u128::from(rest.0).saturating_mul(2) > u128::from(period.0).saturating_mul(5);
    long && !(cumulative && rest <= CUMULATIVE_MOST)
}

fn stretch(reason: Unknown, length: Nanos) -> Vec<(Unknown, Nanos)> {
    let some = (length.0 > 0).then_some((reason, length));
    some.into_iter().collect()
}

fn apart(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.abs_diff(b.0))
}
