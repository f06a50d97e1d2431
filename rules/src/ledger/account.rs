//! One unit's time, and what readers may ask of it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::energy::Energy;
use super::external::ExternalShare;
use super::split;
use super::tenants::{self, Roll, TenantShare};
use crate::{Bucket, Part, State, UnitId, UnitJudgement, Unknown, WeightSource};

/// One unit's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// The GPU that the unit is a part of; none for a whole GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<UnitId>,
    /// Slices of the unit now: what is booked next is booked at this size.
    pub slices: u32,
    /// Slices of the whole GPU now.
    pub slices_whole: u32,
    /// The GPU's product name, for prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Replaced by other units of its GPU: nothing is booked any more, the figures stay.
    pub retired: bool,
    /// Energy of its GPU, as far as it is the unit's.
    #[serde(skip_serializing_if = "Energy::is_none")]
    pub energy: Energy,
    /// Its figures, one set per size that it had, in the order in which the sizes came.
    pub shares: Vec<Share>,
}

/// A unit's time at one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Slices of the unit.
    pub slices: u32,
    /// Slices of the whole GPU.
    pub slices_whole: u32,
    /// Time observed, the unknown included.
    #[serde(rename = "observed_ns")]
    pub observed: Nanos,
    /// Time per state, in the order of states; sums to `observed`.
    pub states: Vec<(State, Nanos)>,
    /// Slice-nanoseconds per bucket and weight source, in their order; sums to `observed` x `slices`.
    pub buckets: Vec<(Bucket, WeightSource, u64)>,
    /// Of that, what had an owner, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantShare>,
    /// Of what was lost, what another tenant's use has caused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<ExternalShare>,
}

/// Time of a whole GPU that a unit spent in one bucket: a counter to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Where it was booked.
    pub bucket: Bucket,
    /// On whose word; [`WeightSource::None`] where no weight applied.
    pub source: WeightSource,
    /// GPU time: slice-nanoseconds over the slices of the whole GPU, rounded down to a nanosecond per size that
    /// the unit had. So it never decreases, and without MIG it is exact.
    pub time: Nanos,
}

impl Account {
    /// Time observed, the unknown included, as the clock counts it (not weighted by slices).
    #[must_use]
    pub fn observed(&self) -> Nanos {
        sum(self.shares.iter().map(|share| share.observed))
    }

    /// Time observed as time of a whole GPU: the denominator of every ratio of [`Account::totals`].
    #[must_use]
    pub fn observed_gpu(&self) -> Nanos {
        sum(self.shares.iter().map(|share| {
            let slice_ns = u128::from(share.observed.0).saturating_mul(u128::from(share.slices));
            share.gpu_time(slice_ns).0
        }))
    }

    /// Time per state as the clock counts it, in the order of states; sums to [`Account::observed`].
    #[must_use]
    pub fn states(&self) -> Vec<(State, Nanos)> {
        let mut states: BTreeMap<State, Nanos> = BTreeMap::new();
        for (state, time) in self.shares.iter().flat_map(|share| &share.states) {
            let total = states.entry(*state).or_default();
            *total = total.saturating_add(*time);
        }
        states.into_iter().collect()
    }

    /// GPU time per bucket and weight source, in their order.
    #[must_use]
    pub fn totals(&self) -> Vec<Total> {
        let mut totals: BTreeMap<(Bucket, WeightSource), Nanos> = BTreeMap::new();
        for share in &self.shares {
            for &(bucket, source, slice_ns) in &share.buckets {
                let total = totals.entry((bucket, source)).or_default();
                *total = total.saturating_add(share.gpu_time(u128::from(slice_ns)).0);
            }
        }
        let total = |((bucket, source), time)| Total { bucket, source, time };
        totals.into_iter().map(total).collect()
    }

    /// GPU time of the buckets that are wanted, whatever their weight source.
    #[must_use]
    pub fn time_in(&self, wanted: impl Fn(Bucket) -> bool) -> Nanos {
        let totals = self.totals().into_iter();
        sum(totals.filter(|t| wanted(t.bucket)).map(|t| t.time))
    }

    /// Productive GPU time. Hours are a matter of printing: [`Nanos::as_secs_f64`] over 3600.
    #[must_use]
    pub fn productive(&self) -> Nanos {
        self.time_in(|bucket| bucket == Bucket::Productive)
    }

    /// Lost GPU time, whatever the cause.
    #[must_use]
    pub fn lost(&self) -> Nanos {
        self.time_in(|bucket| matches!(bucket, Bucket::Lost(_)))
    }

    /// Takes the unit as it is now; what is booked next is booked so.
    pub(super) fn meet(&mut self, unit: &UnitJudgement) {
        self.gpu.clone_from(&unit.gpu);
        (self.slices, self.slices_whole) = (unit.slices, unit.slices_whole);
        self.retired = false;
        if unit.model.is_some() {
            self.model.clone_from(&unit.model);
        }
    }

    /// Books a stretch for which nobody can speak.
    pub(super) fn book_unknown(&mut self, reason: Unknown, length: Nanos) {
        let whole = [(Bucket::Unknown(reason), u64::from(Part::ONE.0))];
        self.book(State::Unknown(reason), WeightSource::None, &whole, length, None);
    }

    /// Books a stretch at the size that the unit has now. The parts sum to one. Whose it is, where anybody is named.
    pub(super) fn book(
        &mut self,
        state: State,
        source: WeightSource,
        parts: &[(Bucket, u64)],
        length: Nanos,
        owner: Option<(&UnitJudgement, &Roll)>,
    ) {
        if length.0 == 0 {
            return;
        }
        let amount = length.0.saturating_mul(u64::from(self.slices));
        let share = self.share();
        share.observed = share.observed.saturating_add(length);
        match share.states.binary_search_by_key(&state, |held| held.0) {
            Ok(at) => {
                if let Some((_, time)) = share.states.get_mut(at) {
                    *time = time.saturating_add(length);
                }
            }
            Err(at) => share.states.insert(at, (state, length)),
        }
        for (bucket, slice_ns) in split::distribute(amount, parts) {
            add(&mut share.buckets, bucket, source, slice_ns);
            let Some((unit, roll)) = owner else { continue };
            for (tenant, part) in tenants::split(slice_ns, unit) {
                let tenant = tenant.map(|tenant| roll.name(tenant));
                if let Bucket::Lost(cause) = bucket {
                    share.add_external(cause, tenant, part, unit, roll);
                }
                if let Some(tenant) = tenant {
                    share.add_tenant(tenant, bucket, source, part);
                }
            }
        }
    }

    /// The share of the present size; begun if there is none.
    fn share(&mut self) -> &mut Share {
        let (slices, slices_whole) = (self.slices, self.slices_whole);
        let same = |held: &Share| held.slices == slices && held.slices_whole == slices_whole;
        let at = self.shares.iter().position(same).unwrap_or_else(|| {
            self.shares.push(Share { slices, slices_whole, ..Share::default() });
            self.shares.len().saturating_sub(1)
        });
        &mut self.shares[at]
    }
}

impl Share {
    /// Time of a whole GPU in whole nanoseconds, and the slice-nanoseconds that remain.
    #[must_use]
    pub fn gpu_time(&self, slice_ns: u128) -> (Nanos, u32) {
        let whole = u128::from(self.slices_whole.max(1));
        let time = u64::try_from(slice_ns / whole).unwrap_or(u64::MAX);
        (Nanos(time), u32::try_from(slice_ns % whole).unwrap_or(0))
    }
}

/// Adds to a list in the order of buckets and sources.
pub(super) fn add(buckets: &mut Vec<(Bucket, WeightSource, u64)>, bucket: Bucket, source: WeightSource, slice_ns: u64) {
    if slice_ns == 0 {
        return;
    }
    let key = |held: &(Bucket, WeightSource, u64)| (held.0, held.1);
    match buckets.binary_search_by_key(&(bucket, source), key) {
        Ok(at) => {
            if let Some((_, _, total)) = buckets.get_mut(at) {
                *total = total.saturating_add(slice_ns);
            }
        }
        Err(at) => buckets.insert(at, (bucket, source, slice_ns)),
    }
}

fn sum(times: impl Iterator<Item = Nanos>) -> Nanos {
    times.fold(Nanos(0), Nanos::saturating_add)
}
