//! What one tenant's use of a resource cost another, beside the bill and not on top of it: each figure is a part of what
//! was lost to that cause, and its money is the victim's.

use std::collections::BTreeMap;

use gpuprod_rules::Bucket;
use serde::Serialize;

use super::sum::{Pricing, Times};
use crate::prices::millionths;
use crate::store::rows::Gains;

/// All of it, in the hours of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Externality {
    /// Who cost whom what, by causer, victim and resource.
    pub rows: Vec<Charge>,
    /// What was lost to each cause, and how much of that somebody's use caused.
    pub causes: Vec<OfCause>,
}

/// What one tenant cost another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// Whose use it was.
    pub cause_tenant: String,
    /// Who lost it; null where nobody could tell.
    pub victim_tenant: Option<String>,
    /// What was used: the cause of the loss.
    pub resource: &'static str,
    /// GPU time of the victim.
    pub gpu_ns: u64,
    /// Of that: on firm ground, as in [`Times::lost_firm_ns`].
    pub firm_ns: u64,
    /// Of that: by power and utilization.
    pub proxy_ns: u64,
    /// Money at the victim's price, in millionths: what is on firm ground; absent without a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_millionths: Option<u64>,
    /// The same with what was lost by the proxy: the upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_most_millionths: Option<u64>,
}

/// A cause of which a part was somebody's use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfCause {
    /// Which.
    pub resource: &'static str,
    /// GPU time that was lost to it.
    pub lost_ns: u64,
    /// Of that, what somebody's use caused: never more.
    pub caused_ns: u64,
}

#[derive(Default)]
struct Sum {
    times: Times,
    firm: u128,
    most: u128,
}

/// Sums up. GPU time is cut to whole nanoseconds row by row, as the loss's own is at least.
pub(super) fn sum(gains: &Gains, lost: &BTreeMap<&'static str, u64>, pricing: &Pricing) -> Externality {
    let mut sums: BTreeMap<(&str, Option<&str>, &'static str), Sum> = BTreeMap::new();
    let mut causes: BTreeMap<&'static str, u64> = BTreeMap::new();
    for ((key, causer), slice_ns) in &gains.caused {
        let Bucket::Lost(cause) = key.bucket else { continue };
        let ns = slice_ns / u64::from(key.slices_whole.max(1));
        let sum = sums.entry((causer, key.tenant.as_deref(), cause.as_str())).or_default();
        let mut own = Times::default();
        own.add(key.bucket, key.source, ns);
        sum.times.join(&own);
        if let Some(price) = pricing.of(key) {
            sum.firm = sum.firm.saturating_add(price.exact(own.lost_firm_ns));
            sum.most = sum.most.saturating_add(price.exact(own.lost_firm_ns.saturating_add(own.lost_proxy_ns)));
        }
        let caused = causes.entry(cause.as_str()).or_default();
        *caused = caused.saturating_add(ns);
    }
    let priced = pricing.is_there();
    let charge = |((causer, victim, resource), sum): ((&str, Option<&str>, &'static str), Sum)| Charge {
        cause_tenant: causer.to_owned(),
        victim_tenant: victim.map(str::to_owned),
        resource,
        gpu_ns: sum.times.lost_ns,
        firm_ns: sum.times.lost_firm_ns,
        proxy_ns: sum.times.lost_proxy_ns,
        cost_millionths: priced.then(|| millionths(sum.firm)),
        cost_most_millionths: priced.then(|| millionths(sum.most)),
    };
    let cause =
        |(resource, caused_ns)| OfCause { resource, lost_ns: lost.get(resource).copied().unwrap_or(0), caused_ns };
    Externality { rows: sums.into_iter().map(charge).collect(), causes: causes.into_iter().map(cause).collect() }
}
