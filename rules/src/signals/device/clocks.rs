//! Whether a GPU's clocks are held down against the will of its load, and by how much.

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::trail::{Moment, Trail};
use crate::Policy;
use crate::baseline::{Track, Worse};

/// So far the clocks are looked back at, and so many readings of it are kept.
const TRAIL: Nanos = Nanos::from_secs(60);
const MOST_READINGS: usize = 64;
/// The state looks back so far, enters after as long, and ends after three times as long.
const SHORT: Nanos = Nanos::from_secs(10);
const LEAVES: Nanos = Nanos::from_secs(30);
/// Clocks count while the GPU works: below this utilization they are low of their own accord.
const WORKS: f64 = 0.5;
/// A software cap at a power so near to the limit is the limit doing its work.
const AT_LIMIT: f64 = 0.95;

/// What holds the clocks down. In the order in which it is named when several do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Held {
    /// The board's power input is asserted low: power supply, rack, or power management (0x80).
    PowerBrake,
    /// Too hot (0x20 by software, 0x40 by hardware).
    Thermal,
    /// The hardware, for a reason that it does not tell (0x8).
    Slowdown,
    /// A power limit that somebody set (0x4).
    PowerCap,
}

impl Held {
    fn of(reasons: u64) -> Option<Self> {
        let bits = [(0x80, Self::PowerBrake), (0x60, Self::Thermal), (0x8, Self::Slowdown), (0x4, Self::PowerCap)];
        bits.into_iter().find(|(bits, _)| reasons & bits != 0).map(|(_, held)| held)
    }
}

/// The clocks of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Clocks {
    trail: Trail,
    /// SM clock while it works, MHz.
    pub(crate) clock: Track,
    /// Power while it works, watts.
    pub(crate) power: Track,
    /// The highest limit that was in force since the agent began to learn.
    limit_seen: u64,
    largest: Option<f64>,
    hurts_since: Option<Nanos>,
    on: bool,
    hurt_at: Nanos,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            trail: Trail::default(),
            clock: Track::new(Worse::Lower, 2.0),
            power: Track::new(Worse::Lower, 2.0),
            limit_seen: 0,
            largest: None,
            hurts_since: None,
            on: false,
            hurt_at: Nanos(0),
        }
    }
}

/// What held the clocks in the last minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeldDown {
    pub(crate) held: Held,
    /// Share of the minute.
    pub(crate) share: f64,
    /// Its first moment in that minute.
    pub(crate) since: Nanos,
}

impl Clocks {
    /// Takes in a reading.
    pub(crate) fn read(&mut self, gpu: &Gpu, now: Nanos, policy: &Policy) {
        let works = gpu.util.copied().is_some_and(|util| util.as_fraction() >= WORKS);
        let megahertz = gpu.clock_sm.copied().filter(|_| works);
        let clock = megahertz.map(|clock| f64::from(clock.0));
        let watts = gpu.power.copied().filter(|_| works).map(|power| to_f64(power.0) / 1e3);
        self.largest =
            gpu.clock_sm_max.copied().filter(|most| most.0 > 0).map(|most| f64::from(most.0)).or(self.largest);
        let limit = gpu.power_limit.copied().map_or(0, |limit| limit.0);
        self.limit_seen = self.limit_seen.max(limit);
        let held = gpu.clock_reasons.copied().and_then(Held::of);
        let held = held.filter(|held| *held != Held::PowerCap || self.cap_counts(gpu, clock, watts, policy));
        self.trail.push(Moment::new(now, held, megahertz), MOST_READINGS, TRAIL);
        // Clocks that are held down are not the GPU's own normal.
        if held.is_none() {
            for (track, value) in [(&mut self.clock, clock), (&mut self.power, watts)] {
                if let Some(value) = value {
                    track.add(value, 1.0);
                }
            }
        }
        let hurts = self.share(now, SHORT) >= policy.silent_throttling.share.as_fraction()
            && self
                .deficit(now, policy)
                .is_none_or(|deficit| deficit >= policy.silent_throttling.deficit.as_fraction());
        if hurts {
            let since = *self.hurts_since.get_or_insert(now);
            self.hurt_at = now;
            self.on |= now.saturating_sub(since) >= SHORT;
        } else if now.saturating_sub(self.hurt_at) >= LEAVES {
            (self.hurts_since, self.on) = (None, false);
        }
    }

    /// A software power cap is normal for a GPU at its limit. It counts when somebody lowered the limit, or when the
    /// clocks are lower than they ever were at this power.
    fn cap_counts(&self, gpu: &Gpu, clock: Option<f64>, watts: Option<f64>, policy: &Policy) -> bool {
        let limit = gpu.power_limit.copied().map_or(0, |limit| limit.0);
        if self.lowered(gpu) {
            return true;
        }
        let (Some(clock), Some(watts)) = (clock, watts) else { return false };
        let (Some(usual), Some(power)) = (self.clock.normal(policy), self.power.normal(policy)) else { return false };
        let below = clock < usual * policy.silent_throttling.cap_clock.as_fraction();
        below && watts <= power && watts * 1e3 < to_f64(limit) * AT_LIMIT
    }

    /// The limit in force is lower than it was, or than the product's.
    pub(crate) fn lowered(&self, gpu: &Gpu) -> bool {
        let limit = gpu.power_limit.copied().map_or(0, |limit| limit.0);
        let product = gpu.power_limit_default.copied().map_or(0, |limit| limit.0);
        limit > 0 && limit < self.limit_seen.max(product)
    }

    pub(crate) fn close(&mut self, start: Nanos, policy: &Policy) {
        let healthy = self.trail.held().all(|moment| moment.at < start);
        self.clock.gauge(start, healthy, policy);
        self.power.gauge(start, healthy, policy);
    }

    /// Keeps the own normal and drops the present.
    pub(crate) fn rest(&mut self) {
        self.clock.rest();
        self.power.rest();
        self.trail.clear();
        (self.hurts_since, self.on) = (None, false);
    }

    fn share(&self, now: Nanos, length: Nanos) -> f64 {
        let held = self.trail.held().filter(|moment| moment.within(now, length)).count();
        let seconds = length.as_secs_f64();
        // Readings stand for a second each; what was not read was not held.
        (float(held) / seconds).min(1.0)
    }

    /// What held the clocks in the last minute, if anything.
    pub(crate) fn held(&self, now: Nanos) -> Option<HeldDown> {
        let held = self.trail.held().filter_map(|moment| moment.held).min()?;
        let since = self.trail.held().next()?.at;
        Some(HeldDown { held, share: self.share(now, TRAIL), since })
    }

    /// The clock of the last seconds in which it worked, MHz.
    pub(crate) fn recent(&self, now: Nanos) -> Option<f64> {
        let clocks = self.trail.iter().filter(|moment| moment.within(now, SHORT)).filter_map(Moment::clock);
        let (sum, n) = clocks.fold((0.0, 0_usize), |(sum, n), clock| (sum + clock, n + 1));
        (n > 0).then(|| sum / float(n))
    }

    /// The clock that it has when nothing holds it: its own normal, else the largest.
    pub(crate) fn usual(&self, policy: &Policy) -> Option<f64> {
        self.clock.normal(policy).or(self.largest)
    }

    /// Part of the clock that is missing; nothing while it cannot be told.
    pub(crate) fn deficit(&self, now: Nanos, policy: &Policy) -> Option<f64> {
        let (clock, usual) = (self.recent(now)?, self.usual(policy)?);
        (usual > 0.0).then(|| (1.0 - clock / usual).clamp(0.0, 1.0))
    }

    /// The GPU is slower than it could be because its clocks are held down.
    pub(crate) const fn throttled(&self) -> bool {
        self.on
    }

    /// Since when, at the earliest: what holds them is looked at over a minute.
    pub(crate) fn throttled_since(&self) -> Option<Nanos> {
        self.hurts_since.filter(|_| self.on).map(|since| since.saturating_sub(TRAIL))
    }
}

fn float(count: usize) -> f64 {
    to_f64(u64::try_from(count).unwrap_or(u64::MAX))
}
