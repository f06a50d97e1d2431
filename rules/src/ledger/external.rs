//! What others caused: parts of a share's lost time, by resource, causer and victim. Never more than was lost to that
//! cause; what nobody can be charged with is not kept here.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use super::account::{Account, Share};
use super::tenants::{OTHER, Roll};
use crate::{Cause, Part, UnitJudgement};

/// Slice-nanoseconds that one tenant's use of a resource cost another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalShare {
    /// What was used.
    pub resource: Cause,
    /// Whose use it was.
    pub tenant: String,
    /// Who lost it; none when that has no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<String>,
    /// How much.
    pub slice_ns: u64,
}

impl ExternalShare {
    fn key(&self) -> (Cause, &str, Option<&str>) {
        (self.resource, &self.tenant, self.victim.as_deref())
    }
}

impl Share {
    /// Books what others caused of an amount that a tenant, or nobody, lost to a cause: of each victim it is never more
    /// than it lost.
    pub(super) fn add_external(
        &mut self,
        cause: Cause,
        victim: Option<&str>,
        lost: u64,
        unit: &UnitJudgement,
        roll: &Roll,
    ) {
        if unit.external.is_empty() {
            return;
        }
        for (tenant, slice_ns) in split(cause, lost, unit) {
            let Some(tenant) = tenant else { continue };
            self.put(cause, roll.name(tenant), victim, slice_ns);
        }
    }

    fn put(&mut self, resource: Cause, tenant: &str, victim: Option<&str>, slice_ns: u64) {
        if slice_ns == 0 {
            return;
        }
        match self.external.binary_search_by(|held| held.key().cmp(&(resource, tenant, victim))) {
            Ok(at) => {
                if let Some(held) = self.external.get_mut(at) {
                    held.slice_ns = held.slice_ns.saturating_add(slice_ns);
                }
            }
            Err(at) => {
                let (tenant, victim) = (tenant.to_owned(), victim.map(ToOwned::to_owned));
                self.external.insert(at, ExternalShare { resource, tenant, victim, slice_ns });
            }
        }
    }

    /// A tenant goes on as `other`, as causer and as victim.
    pub(super) fn rename_external(&mut self, name: &str) {
        let is_named = |held: &ExternalShare| held.tenant == name || held.victim.as_deref() == Some(name);
        if !self.external.iter().any(is_named) {
            return;
        }
        for held in core::mem::take(&mut self.external) {
            let now = |tenant: String| if tenant == name { OTHER.to_owned() } else { tenant };
            let (tenant, victim) = (now(held.tenant), held.victim.map(now));
            self.put(held.resource, &tenant, victim.as_deref(), held.slice_ns);
        }
    }
}

/// An amount that was lost to a cause, split over those whose use caused it, and nobody; sums to the amount.
#[must_use]
pub fn split(cause: Cause, lost: u64, unit: &UnitJudgement) -> Vec<(Option<&str>, u64)> {
    super::split::distribute(lost, &parts(cause, unit))
}

/// The causers of what was lost to a cause, and what has none. The parts sum to one.
fn parts(cause: Cause, unit: &UnitJudgement) -> Vec<(Option<&str>, u64)> {
    let mut left = u64::from(Part::ONE.0);
    let mut named: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for external in unit.external.iter().filter(|external| external.resource == cause) {
        let part = u64::from(external.part.0).min(left);
        left -= part;
        let held = named.entry(Some(external.tenant.as_str())).or_default();
        *held = held.saturating_add(part);
    }
    named.insert(None, left);
    named.into_iter().collect()
}

impl Account {
    /// GPU time that one tenant's use of a resource cost another, in the order of resource, causer and victim.
    #[must_use]
    pub fn external(&self) -> BTreeMap<(Cause, &str, Option<&str>), Nanos> {
        let mut totals: BTreeMap<(Cause, &str, Option<&str>), Nanos> = BTreeMap::new();
        for share in &self.shares {
            for held in &share.external {
                let total = totals.entry(held.key()).or_default();
                *total = total.saturating_add(share.gpu_time(u128::from(held.slice_ns)).0);
            }
        }
        totals
    }
}
