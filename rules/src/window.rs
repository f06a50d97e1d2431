//! The last sample of every source, and the one before it where they are compared.

use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading, Sample, Source, Tick};
use serde::{Deserialize, Serialize};

/// Pairs, for each source, its last two samples. A derivative is a function of the two and is never stored. The older one is
/// kept as long as it is asked for ([`Window::forget`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) last: Tick,
    pub(crate) prev: Tick,
}

/// Picks a source's sample out of a tick.
pub(crate) type Pick<T> = fn(&Tick) -> &Option<Arc<Sample<T>>>;

impl Window {
    pub(crate) fn push(&mut self, tick: &Tick) {
        self.last.advance(&mut self.prev, tick);
    }

    /// The signals have taken in the tick: lets go of older samples that are compared when a new one comes, and of those that
    /// never are. A page of an engine and the tree of PCI devices are large.
    pub(crate) fn forget(&mut self) {
        let Tick { engine, block, fs, xid, md, nvme, blklat, pci, numa, .. } = &mut self.prev;
        (*engine, *block, *fs) = (None, None, None);
        (*xid, *md, *nvme, *blklat, *pci, *numa) = (None, None, None, None, None, None);
    }

    /// The last value of a source; `Stale` when it is older than three of its periods.
    pub(crate) fn value<T>(&self, source: Source, pick: Pick<T>) -> Reading<&T> {
        let Some(sample) = pick(&self.last) else {
            return Reading::Missing(Missing::NotYet);
        };
        let Reading::Value(value) = &sample.value else {
            return sample.value.as_ref();
        };
        let age = self.last.stamp.boottime.saturating_sub(sample.at);
        let limit = self.last.period.0.saturating_mul(u64::from(source.period_ticks())).saturating_mul(3);
        if age.0 > limit { Reading::Missing(Missing::Stale) } else { Reading::Value(value) }
    }

    /// Sources that do not answer, or not in time, or with nonsense: what they would say is not known. What this node does
    /// not have, may not read or has let go of says nothing by right.
    pub(crate) fn unread(&self) -> Vec<Source> {
        let late = |source: Source, at: Nanos| {
            let limit = self.last.period.0.saturating_mul(u64::from(source.period_ticks())).saturating_mul(3);
            self.last.stamp.boottime.saturating_sub(at).0 > limit
        };
        let unread = |source: &Source| {
            self.last.status(*source).is_some_and(|sample| match sample.value {
                Reading::Missing(missing) => matches!(missing, Missing::TimedOut | Missing::Malformed | Missing::Stale),
                Reading::Value(()) => late(*source, sample.at),
            })
        };
        Source::ALL.iter().copied().filter(unread).collect()
    }

    /// The last two values of a source and the time between them, if both are there and in order.
    pub(crate) fn pair<T>(&self, pick: Pick<T>) -> Option<(&T, &T, Nanos)> {
        let (old, new) = (pick(&self.prev).as_ref()?, pick(&self.last).as_ref()?);
        let between = new.at.checked_sub(old.at).filter(|between| between.0 > 0)?;
        Some((old.value.get()?, new.value.get()?, between))
    }
}
