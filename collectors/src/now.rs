//! The system call behind every clock. Collectors read CLOCK_BOOTTIME alone, for samples that carry a time inside
//! (an engine's page); everything else is stamped by the [`crate::runner`], with the clock that the agent hands in.

#![expect(
    unsafe_code,
    reason = "std has no CLOCK_BOOTTIME; `Instant` is CLOCK_MONOTONIC, which stands still in suspend"
)]

use gpuprod_snapshot::units::Nanos;

/// Nanoseconds since boot, suspend included. Zero on a kernel without that clock (before Linux 2.6.39).
#[must_use]
pub fn boottime() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds since boot, suspend left out.
#[must_use]
pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch. Zero before it.
#[must_use]
pub fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the length of the call; nothing keeps the pointer.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    if failed {
        return Nanos(0);
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Nanos::from_secs(seconds).saturating_add(Nanos(nanos))
}
