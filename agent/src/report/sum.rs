//! From rows to sums.
//!
//! GPU time is slice-nanoseconds over the slices of a whole GPU. Where that leaves fractions (MIG), they are carried
//! from row to row of the unit, so that the parts of a unit sum to its whole, to the nanosecond.

use std::collections::BTreeMap;

use gpuprod_rules::{Bucket, Cause, Class, UnitId, WeightSource};
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;

use super::external::{self, Externality};
use super::used::{self, Used};
use crate::prices::{self, Price, PriceRule, millionths};
use crate::store::rows::{Gains, Key, Rows};
use crate::text;

/// Divisible by every number of slices from 1 to 8.
const FRACTION: u128 = 840;

/// What the sums are split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// GPU, or MIG instance.
    Gpu,
    /// Whose it was.
    Tenant,
    /// The bucket and its reason.
    Cause,
    /// What it was for.
    Class,
    /// Hour of the wall clock (UTC).
    Hour,
}

impl By {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Gpu, Self::Tenant, Self::Cause, Self::Class, Self::Hour];

    /// The word of the flag and the column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Tenant => "tenant",
            Self::Cause => "cause",
            Self::Class => "class",
            Self::Hour => "hour",
        }
    }

    /// Reads a word of the flag.
    ///
    /// # Errors
    /// In words.
    pub fn parse(word: &str) -> Result<Self, String> {
        let names: Vec<&str> = Self::ALL.iter().map(|by| by.as_str()).collect();
        let known = Self::ALL.iter().find(|by| by.as_str() == word).copied();
        known.ok_or_else(|| format!("words: {}", names.join(", ")))
    }

    /// None where nobody could tell.
    pub(super) fn of(self, of: &Of<'_>) -> Option<String> {
        match self {
            Self::Gpu => of.unit.map(|unit| unit.0.to_string()),
            Self::Tenant => of.tenant.map(str::to_owned),
            Self::Class => Some(of.class.as_str().to_owned()),
            Self::Hour => Some(text::utc(Nanos::from_secs(of.hour.saturating_mul(3600)))),
            Self::Cause => of.bucket.map(|bucket| match bucket.reason() {
                "" => bucket.as_str().to_owned(),
                reason => format!("{}{{{reason}}}", bucket.as_str()),
            }),
        }
    }
}

/// What a row speaks of.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) hour: u64,
    pub(super) unit: Option<&'a UnitId>,
    pub(super) tenant: Option<&'a str>,
    pub(super) class: Class,
    pub(super) bucket: Option<Bucket>,
}

impl<'a> Of<'a> {
    pub(super) const fn hour(hour: u64) -> Self {
        Self { hour, unit: None, tenant: None, class: Class::Unspecified, bucket: None }
    }

    fn row(key: &'a Key) -> Self {
        let (unit, tenant, bucket) = (Some(&key.unit), key.tenant.as_deref(), Some(key.bucket));
        Self { hour: key.hour, unit, tenant, class: key.class, bucket }
    }
}

/// What is put to the times: one price for all, or the list of the config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pricing {
    /// For every GPU, whatever the list says.
    pub flat: Option<Price>,
    /// The list.
    pub list: Vec<PriceRule>,
    /// Product names by unit.
    pub models: BTreeMap<String, String>,
}

impl From<Option<Price>> for Pricing {
    fn from(flat: Option<Price>) -> Self {
        Self { flat, ..Self::default() }
    }
}

impl Pricing {
    pub(super) fn is_there(&self) -> bool {
        self.flat.is_some() || !self.list.is_empty()
    }

    /// The price of a row: the one that held when its hour began.
    pub(super) fn of(&self, key: &Key) -> Option<Price> {
        let began = Nanos::from_secs(key.hour.saturating_mul(3600));
        let model = self.models.get(&*key.unit.0).map(String::as_str);
        self.flat.or_else(|| prices::at(&self.list, model, key.class, began).map(|rule| rule.per_gpu_hour))
    }

    fn currency(&self) -> Option<String> {
        self.list.first().filter(|_| self.flat.is_none()).map(|rule| rule.currency.clone())
    }
}

/// Time, and the money of what was lost of it, not yet rounded.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    times: Times,
    firm: u128,
    most: u128,
    used: Used,
}

/// GPU time by bucket, in nanoseconds of a whole GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// All of it.
    pub observed_ns: u64,
    /// Useful work.
    pub productive_ns: u64,
    /// Serving with its demand met.
    pub headroom_ns: u64,
    /// Loading, checkpoints, evaluation.
    pub overhead_ns: u64,
    /// Allocated and not asked.
    pub idle_ns: u64,
    /// Nobody had it.
    pub unallocated_ns: u64,
    /// Nothing can be said.
    pub unknown_ns: u64,
    /// Work was there and was not done.
    pub lost_ns: u64,
    /// Of the lost: by tokens, steps or GPM, or by a state in which no work is done (faulted, squatted, stalled).
    pub lost_firm_ns: u64,
    /// Of the lost: by power and utilization. As money it is a range, from nothing to all of it.
    pub lost_proxy_ns: u64,
    /// Of the lost: by utilization alone, or on nobody's word. Never money.
    pub lost_unpriced_ns: u64,
}

impl Times {
    pub(super) fn add(&mut self, bucket: Bucket, source: WeightSource, ns: u64) {
        let field = match bucket {
            Bucket::Productive => &mut self.productive_ns,
            Bucket::Headroom => &mut self.headroom_ns,
            Bucket::Overhead(_) => &mut self.overhead_ns,
            Bucket::Idle => &mut self.idle_ns,
            Bucket::Unallocated => &mut self.unallocated_ns,
            Bucket::Unknown(_) => &mut self.unknown_ns,
            Bucket::Lost(_) => &mut self.lost_ns,
        };
        *field = field.saturating_add(ns);
        self.observed_ns = self.observed_ns.saturating_add(ns);
        if let Bucket::Lost(cause) = bucket {
            let ground = match source {
                WeightSource::Tokens | WeightSource::Steps | WeightSource::Gpm => &mut self.lost_firm_ns,
                // These states need no weight: w is 0 in them, and that is a fact.
                WeightSource::None if matches!(cause, Cause::Fault | Cause::Squat | Cause::Stall) => {
                    &mut self.lost_firm_ns
                }
                WeightSource::Proxy => &mut self.lost_proxy_ns,
                WeightSource::Util | WeightSource::None => &mut self.lost_unpriced_ns,
            };
            *ground = ground.saturating_add(ns);
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        let pairs = [
            (&mut self.observed_ns, other.observed_ns),
            (&mut self.productive_ns, other.productive_ns),
            (&mut self.headroom_ns, other.headroom_ns),
            (&mut self.overhead_ns, other.overhead_ns),
            (&mut self.idle_ns, other.idle_ns),
            (&mut self.unallocated_ns, other.unallocated_ns),
            (&mut self.unknown_ns, other.unknown_ns),
            (&mut self.lost_ns, other.lost_ns),
            (&mut self.lost_firm_ns, other.lost_firm_ns),
            (&mut self.lost_proxy_ns, other.lost_proxy_ns),
            (&mut self.lost_unpriced_ns, other.lost_unpriced_ns),
        ];
        for (sum, part) in pairs {
            *sum = sum.saturating_add(part);
        }
    }
}

/// The sums of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// By what, in the order asked for; null where nobody could tell.
    pub key: BTreeMap<&'static str, Option<String>>,
    /// Its time.
    #[serde(flatten)]
    pub times: Times,
    /// Money of what was lost on firm ground, in millionths; absent without a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_cost_millionths: Option<u64>,
    /// The same with what was lost by the proxy: the upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_cost_most_millionths: Option<u64>,
    /// What was used beside the time.
    #[serde(flatten)]
    pub used: Used,
}

/// What is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Start of the first hour (Unix time).
    pub from_realtime_ns: u64,
    /// What it is split by.
    pub by: Vec<By>,
    /// Money per GPU-hour in millionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_millionths: Option<Price>,
    /// In what money, where the list of the config says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Lost on firm ground by GPUs for which the list has no price: in no sum of money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_without_price_ns: Option<u64>,
    /// Rows of the store in words that this version does not know: in no sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_skipped: Option<u64>,
    /// The groups, in order.
    pub rows: Vec<Row>,
    /// Their sum.
    pub total: Row,
    /// What one tenant's use cost another: a part of what was lost.
    pub externality: Externality,
}

impl Report {
    /// Whether there is money in it.
    #[must_use]
    pub const fn is_priced(&self) -> bool {
        self.price_millionths.is_some() || self.currency.is_some()
    }
}

/// Sums rows of time up, with nothing beside them.
#[must_use]
pub fn sum(rows: &Rows, from_hour: u64, by: &[By], pricing: impl Into<Pricing>) -> Report {
    whole(&Gains { rows: rows.clone(), ..Gains::default() }, from_hour, by, pricing)
}

/// Sums up. Of `by`, a word that comes twice counts once.
#[must_use]
pub fn whole(gains: &Gains, from_hour: u64, by: &[By], pricing: impl Into<Pricing>) -> Report {
    let pricing = pricing.into();
    let rows = &gains.rows;
    let mut lost: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut keys: Vec<By> = Vec::new();
    for key in by {
        if !keys.contains(key) {
            keys.push(*key);
        }
    }
    let mut groups: BTreeMap<Vec<Option<String>>, Group> = BTreeMap::new();
    let mut carried: BTreeMap<&str, u128> = BTreeMap::new();
    let mut without_price = 0_u64;
    for (key, slice_ns) in rows {
        let carry = carried.entry(&key.unit.0).or_default();
        let parts = u128::from(*slice_ns) * FRACTION / u128::from(key.slices_whole.max(1)) + *carry;
        *carry = parts % FRACTION;
        let ns = u64::try_from(parts / FRACTION).unwrap_or(u64::MAX);
        let group = groups.entry(keys.iter().map(|by| by.of(&Of::row(key))).collect()).or_default();
        let mut own = Times::default();
        own.add(key.bucket, key.source, ns);
        group.times.join(&own);
        if let Bucket::Lost(cause) = key.bucket {
            let lost = lost.entry(cause.as_str()).or_default();
            *lost = lost.saturating_add(ns);
        }
        match pricing.of(key) {
            Some(price) => {
                group.firm = group.firm.saturating_add(price.exact(own.lost_firm_ns));
                group.most = group.most.saturating_add(price.exact(own.lost_firm_ns + own.lost_proxy_ns));
            }
            None => without_price = without_price.saturating_add(own.lost_firm_ns),
        }
    }
    let (used, all) = used::sum(gains, &keys);
    for (key, used) in used {
        groups.entry(key).or_default().used = used;
    }
    let priced = pricing.is_there();
    let mut total = Row {
        key: BTreeMap::new(),
        times: Times::default(),
        lost_cost_millionths: None,
        lost_cost_most_millionths: None,
        used: all,
    };
    // Costs are differences of running sums, so that they add up as well.
    let (mut firm, mut most) = (0_u128, 0_u128);
    let mut list = Vec::new();
    for (group, sums) in groups {
        total.times.join(&sums.times);
        firm = firm.saturating_add(sums.firm);
        most = most.saturating_add(sums.most);
        let step = |sum, before: Option<u64>| priced.then(|| millionths(sum).saturating_sub(before.unwrap_or(0)));
        let cost = step(firm, total.lost_cost_millionths);
        let cost_most = step(most, total.lost_cost_most_millionths);
        total.lost_cost_millionths = priced.then(|| millionths(firm));
        total.lost_cost_most_millionths = priced.then(|| millionths(most));
        let key = keys.iter().map(|by| by.as_str()).zip(group).collect();
        list.push(Row {
            key,
            times: sums.times,
            lost_cost_millionths: cost,
            lost_cost_most_millionths: cost_most,
            used: sums.used,
        });
    }
    Report {
        from_realtime_ns: from_hour.saturating_mul(3_600_000_000_000),
        by: keys,
        price_millionths: pricing.flat,
        currency: pricing.currency(),
        lost_without_price_ns: priced.then_some(without_price).filter(|ns| *ns > 0),
        rows_skipped: None,
        rows: list,
        total,
        externality: external::sum(gains, &lost, &pricing),
    }
}
