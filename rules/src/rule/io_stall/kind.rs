//! What kind of reading it is that a late device or server holds up: small files, or a page cache that does not hold.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::rule::View;
use crate::rule::around::raised;
use crate::signals::StorageSignals;
use crate::{Evidence, Micro};

/// A kind with the number that shows it.
pub(super) struct Kind {
    pub(super) variant: &'static str,
    pub(super) says: String,
    pub(super) evidence: Vec<Evidence>,
}

/// What the workload read falls out of the page cache before it is read again, more than it normally does.
pub(super) fn thrashes(view: &View<'_>) -> Option<Kind> {
    let path = view.unit.work.ties.cgroup.as_ref()?;
    let workload = view.host.signals.host.workloads.get(path)?;
    let reads: f64 = workload.io.values().filter_map(|track| track.latest()).sum();
    let floor = (reads * view.policy.io_stall.refault.as_fraction()).max(f64::MIN_POSITIVE);
    let refaults = raised(view, &workload.refaults, floor).ok().filter(|_| reads > 0.0)?;
    let share = refaults.value / reads;
    Some(Kind {
        variant: "cache_thrash",
        says: format!(
            "; {} of its reads are of pages that the page cache had and lost",
            format_args!("{} %", Micro::from_f64(libm::round(share * 1e3) / 10.0))
        ),
        evidence: alloc::vec![refaults.evidence("read again after it fell out of the page cache", path, 1e-6, "MB/s")],
    })
}

/// Its reads are small: latency, not bandwidth, is what it lives on.
pub(super) fn small(view: &View<'_>, name: &str, signals: &StorageSignals) -> Option<Kind> {
    let size = signals.read_size.latest()?;
    (size < view.policy.io_stall.small_read).then(|| Kind {
        variant: "metadata",
        says: format!(", in reads of {} KiB", Micro::from_f64(libm::round(size / 102.4) / 10.0)),
        evidence: alloc::vec![Evidence::plain("mean read", name, size / 1024.0, "KiB")],
    })
}
