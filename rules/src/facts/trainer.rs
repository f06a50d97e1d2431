//! What a unit's training job says of its steps, and whether it is believed.

use gpuprod_snapshot::engine::Engine;
use gpuprod_snapshot::local_port;
use gpuprod_snapshot::units::Nanos;

use crate::baseline::Deviation;
use crate::gather::Gather;
use crate::signals::steps::{Lesson, StepSignals};
use crate::unit::Unit;
use crate::{Part, Policy, Weight, WeightSource};

/// Steps that are rarer than this tell a fall too late: where the GPU's own pace has left its normal, that is told.
const RARE: f64 = 10.0;

/// The training job of a unit without an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trainer<'a> {
    /// Its page.
    pub(crate) page: Option<&'a Engine>,
    /// What was learnt of it; nothing where it is not believed.
    pub(crate) signals: Option<&'a StepSignals>,
    /// Its page counts, whether that is believed or not.
    pub(crate) counts: bool,
    /// The step under way is so late that it may be doing something else.
    pub(crate) late: bool,
    /// It evaluates.
    pub(crate) evaluates: bool,
}

impl<'a> Gather<'a> {
    /// The job whose page this unit's processes serve. A page that counts while the GPU below it rests, or has long
    /// contradicted it, speaks of another GPU, or lies.
    pub(crate) fn trainer(&self, unit: &Unit, page: Option<&'a Engine>, policy: &Policy) -> Trainer<'a> {
        let known = page.and_then(|page| self.signals.steps.get(&page.url)).map(|steps| &**steps);
        let counts = known.and_then(|known| known.rate(self.now, policy)).is_some_and(|rate| rate > 0.0);
        let contradicted = unit.contradicted(self.now, policy.telemetry_degraded.conflict_ns);
        let lies = contradicted || (counts && unit.usage.block.rests());
        let signals = known.filter(|_| !lies);
        let late = signals.is_some_and(|signals| signals.is_late(self.now, policy));
        Trainer { page, signals, counts, late, evaluates: unit.evals.on() }
    }
}

impl Trainer<'_> {
    /// The productive part by its steps.
    pub(crate) fn weight(&self, now: Nanos, policy: &Policy) -> Option<Weight> {
        let w = self.signals?.weight(now, policy)?;
        self.exact()?;
        Some(Weight { w: Part::from_fraction(w), source: WeightSource::Steps })
    }

    pub(crate) fn exact(&self) -> Option<f64> {
        self.signals?.exact()
    }

    /// Progress that it claims, believed or not.
    pub(crate) fn claims(&self) -> Option<f64> {
        self.page.map(|_| if self.counts { 1.0 } else { 0.0 })
    }

    /// Its pace against its own normal, where it tells more than that of the GPU.
    pub(crate) fn deviation(&self, gpu: Option<Deviation>, policy: &Policy) -> Option<Deviation> {
        let Some(steps) = self.signals.and_then(|signals| signals.deviation(policy)) else { return gpu };
        let rare = self.signals.and_then(|signals| signals.step(policy)).is_some_and(|step| step > RARE);
        match gpu {
            Some(gpu) if rare && gpu.alarm && !steps.alarm => Some(gpu),
            _ => Some(steps),
        }
    }

    /// Whether it has work and does it, at whatever pace.
    pub(crate) fn steps(&self) -> bool {
        self.signals.is_some() && self.counts && !self.evaluates
    }

    /// A port of its page.
    pub(crate) fn port(&self) -> Option<u16> {
        self.page.and_then(|page| local_port(&page.url))
    }

    /// What may be learnt from it.
    pub(crate) const fn lesson(&self, workload: Option<u64>, well: bool, checkpoint: bool) -> Lesson {
        Lesson { workload, well: well && !self.evaluates, aside: checkpoint || self.evaluates }
    }
}
