//! What a normal was learnt on: what makes an old one not comparable, and what has only changed beside it.
//!
//! Another model, another number or kind of GPUs, a MIG instance in place of a GPU: that is another workload, and its normal
//! is learnt anew. Another driver, another kind of engine: that is the same workload on other software. Its normal stays,
//! since a loss that comes with the change is what `throughput_regression` looks for, and the change is told with it. What
//! a tick does not say has not changed. (Image and executable are not in a tick.)

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use gpuprod_snapshot::engine::{Engine, EngineKind};
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::facts::UnitFacts;
use crate::facts::trainer::Trainer;
use crate::signals::EngineSignals;
use crate::unit::Unit;

/// A normal that nothing has confirmed for two weeks is learnt anew.
const KEPT: Nanos = Nanos::from_secs(14 * 24 * 3600);
/// A new process has its GPUs so long after its first page: those of the one before have left by then.
const SETTLES: Nanos = Nanos::from_secs(15);
/// So many blocks that are judged by the normal, and well, make the software at hand the one that it is of: two minutes.
const CONFIRMS: u16 = 24;

/// Number of some bytes (FNV-1a).
pub(crate) fn number(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The GPUs of one workload. What cannot be told is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Hardware {
    /// GPUs or MIG instances: the tensor-parallel size of an engine (times its replicas behind one page), the ranks of a job.
    pub(crate) units: Option<u32>,
    /// A number for the product.
    product: Option<u64>,
    /// Compute slices of a MIG instance; zero for a whole GPU.
    slices: Option<u32>,
}

impl Hardware {
    fn of(unit: &UnitFacts<'_>) -> Self {
        let product = unit.gpu.and_then(|gpu| gpu.model.get()).map(|model| number(model.bytes()));
        let instance =
            || unit.gpu?.instances.iter().find(|instance| instance.uuid.get().is_some_and(|id| **id == *unit.id.0));
        let slices = if unit.mig { instance().and_then(|instance| instance.slices.copied()) } else { Some(0) };
        Self { units: Some(1), product, slices }
    }

    /// Takes in another unit of the same workload; what differs between them cannot be told.
    fn join(&mut self, other: Self) {
        self.units = self.units.zip(other.units).map(|(some, more)| some.saturating_add(more));
        self.product = self.product.filter(|product| Some(*product) == other.product);
        self.slices = self.slices.filter(|slices| Some(*slices) == other.slices);
    }

    fn differs(&self, now: &Self) -> bool {
        differ(self.units, now.units) || differ(self.product, now.product) || differ(self.slices, now.slices)
    }

    fn fill(&mut self, now: &Self) {
        self.units = self.units.or(now.units);
        self.product = self.product.or(now.product);
        self.slices = self.slices.or(now.slices);
    }
}

/// Whether both are known, and not the same.
fn differ<T: PartialEq>(then: Option<T>, now: Option<T>) -> bool {
    then.is_some() && now.is_some() && then != now
}

/// The GPUs of the workload behind each page, by its address.
pub(crate) fn hardware(facts: &[UnitFacts<'_>]) -> Vec<(String, Hardware)> {
    let mut all: Vec<(String, Hardware)> = Vec::new();
    for unit in facts {
        let Some(page) = unit.engine.or(unit.trainer.page) else { continue };
        let own = Hardware::of(unit);
        match all.iter_mut().find(|(url, _)| *url == page.url) {
            Some((_, known)) => known.join(own),
            None => all.push((page.url.clone(), own)),
        }
    }
    // A GPU whose processes nobody lists may be anybody's: a lost one leaves no smaller engine behind.
    if facts.iter().any(|unit| !unit.rest && unit.gpu.is_none_or(|gpu| gpu.processes.get().is_none())) {
        all.iter_mut().for_each(|(_, on)| on.units = None);
    }
    all
}

/// What a workload runs on, beside the hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Software {
    driver: Option<Arc<str>>,
    kind: Option<EngineKind>,
}

impl Software {
    fn fill(&mut self, now: &Self) {
        if self.driver.is_none() {
            self.driver.clone_from(&now.driver);
        }
        if self.kind.is_none() {
            self.kind.clone_from(&now.kind);
        }
    }
}

/// What a tick shows of a page's workload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen<'a> {
    pub(crate) on: Hardware,
    /// The driver's version.
    pub(crate) driver: Option<&'a str>,
}

/// What the normals of one page were learnt on; they are kept together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fingerprint {
    /// The served model.
    model: Option<String>,
    on: Hardware,
    /// The process whose GPUs are known, by its start: it keeps them.
    process: Option<Nanos>,
    /// Since when there may be others.
    since: Option<Nanos>,
    /// The software that the normals are of, and that of the last page.
    learnt: Software,
    now: Software,
    /// Blocks in which the software of the last page proved itself.
    proved: u16,
    /// Unix time at which a block was last judged by the normals, and well.
    confirmed: Nanos,
    /// How often the normals were learnt anew.
    rounds: u32,
}

impl Fingerprint {
    /// Takes in a page. Whether it is another workload's, so that its normals begin anew.
    pub(crate) fn see(&mut self, page: &Engine, seen: Seen<'_>) -> bool {
        if seen.driver.is_some() && self.now.driver.as_deref() != seen.driver {
            (self.now.driver, self.proved) = (seen.driver.map(Arc::from), 0);
        }
        if page.kind.get().is_some() && self.now.kind.as_ref() != page.kind.get() {
            (self.now.kind, self.proved) = (page.kind.get().cloned(), 0);
        }
        self.learnt.fill(&self.now);
        let model = page.model.get();
        let other = differ(self.model.as_ref(), model);
        if model.is_some() && self.model.as_ref() != model {
            self.model = model.cloned();
        }
        if other {
            // Its GPUs are not known yet.
            (self.on, self.process, self.since) = (Hardware::default(), None, None);
        }
        let anew = self.moves(page, seen.on) || other;
        if anew {
            self.renew();
        }
        anew
    }

    /// Whether its process has other GPUs than the one before.
    fn moves(&mut self, page: &Engine, on: Hardware) -> bool {
        let process = page.started.copied();
        if self.process.is_some() && process.is_none_or(|process| Some(process) == self.process) {
            self.since = None;
            return false;
        }
        let differs = self.on.differs(&on);
        // Of an engine that does not tell its process only a difference that stays counts.
        if process.is_none() && !differs {
            self.since = None;
            self.on.fill(&on);
            return false;
        }
        let since = *self.since.get_or_insert(page.at);
        if on.units.is_none() || page.at.saturating_sub(since) < SETTLES {
            return false;
        }
        (self.since, self.process) = (None, process);
        if differs {
            self.on = on;
        } else {
            self.on.fill(&on);
        }
        differs
    }

    /// Its normals begin anew.
    fn renew(&mut self) {
        self.learnt = self.now.clone();
        (self.proved, self.confirmed, self.rounds) = (0, Nanos(0), self.rounds.wrapping_add(1));
    }

    /// Ends a block at a Unix time. `judged`: whether it was well by its own normals; nothing where those said nothing.
    /// Whether they are too old, so that they begin anew.
    pub(crate) fn close(&mut self, now: Nanos, judged: Option<bool>) -> bool {
        let well = judged == Some(true);
        if well || self.confirmed == Nanos(0) {
            self.confirmed = now;
        }
        self.proved = if judged == Some(false) { 0 } else { self.proved.saturating_add(u16::from(well)) };
        if self.proved >= CONFIRMS && self.learnt != self.now {
            self.learnt = self.now.clone();
        }
        let old = now.saturating_sub(self.confirmed) > KEPT;
        if old {
            self.renew();
        }
        old
    }

    /// Another agent goes on: perhaps in another boot.
    pub(crate) fn rest(&mut self) {
        self.since = None;
    }

    /// What is not as it was when the normals were learnt, in words.
    pub(crate) fn changed(&self) -> Option<String> {
        let driver = self.learnt.driver.as_deref().zip(self.now.driver.as_deref());
        let driver =
            driver.filter(|(then, now)| then != now).map(|(then, now)| format!("driver {then} before, {now} now"));
        let kind = self.learnt.kind.as_ref().zip(self.now.kind.as_ref()).filter(|(then, now)| then != now);
        let kind = kind.map(|(then, now)| format!("{then} before, {now} now"));
        match (driver, kind) {
            (Some(driver), Some(kind)) => Some(format!("{driver}; {kind}")),
            (driver, kind) => driver.or(kind),
        }
    }
}

impl Unit {
    /// The number of its workload. It is another one, too, when its page's normals began anew; a page that does not answer
    /// changes nothing.
    pub(crate) fn workload(
        &mut self,
        number: Option<u64>,
        engine: Option<&EngineSignals>,
        trainer: &Trainer<'_>,
    ) -> Option<u64> {
        let print = engine.map(|engine| &engine.print).or(trainer.signals.map(|steps| &steps.print));
        self.rounds = print.map_or(self.rounds, |print| print.rounds);
        // Odd and large, so that no two processes meet.
        number.map(|number| number ^ u64::from(self.rounds).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
