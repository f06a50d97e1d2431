//! How productive a unit was, and on whose word: tokens, then GPM, then power, then utilization.

use gpuprod_snapshot::gpu::{Gpm, Gpu};
use gpuprod_snapshot::units::{Nanos, to_f64};

use crate::signals::EngineSignals;
use crate::signals::busy::References;
use crate::{Part, Weight, WeightSource};

/// Tensor activity of a busy GPU (prior: the upper quartile of a large training cluster).
const TENSOR_BUSY: f64 = 0.20;
/// DRAM activity of a busy GPU (prior).
const DRAM_BUSY: f64 = 0.35;
/// Power of a busy GPU as a part of its limit (prior).
const POWER_BUSY: f64 = 0.6;
/// Power with a context and nothing to do, as a part of the limit (measured in public: .14 to .37).
const POWER_CONTEXT: f64 = 0.2;

/// From this proxy on the GPU works, whatever the token counters say.
const PREFILL_PROXY: f64 = 0.5;

/// The best weight that there is.
pub(crate) fn of(
    (silicon, gpu): (Option<&Gpm>, Option<&Gpu>),
    engine: Option<&EngineSignals>,
    own: References,
    now: Nanos,
) -> Option<Weight> {
    let gpu_gpm = silicon.and_then(|silicon| gpm(silicon, own));
    let gpu = |read: fn(&Gpu) -> Option<f64>| gpu.and_then(read);
    let watts = (gpu(|gpu| milliwatts(&gpu.power)), gpu(|gpu| milliwatts(&gpu.power_limit)));
    let proxy = proxy(gpu(utilization), watts.0, watts.1, own);
    // A long prefill moves no counter until it is complete: flat counters on a GPU that burns power are no proof.
    let flat = |tokens: f64| tokens <= 0.0 && proxy.is_some_and(|proxy| proxy >= PREFILL_PROXY);
    let sources = [
        (WeightSource::Tokens, engine.and_then(|engine| tokens(engine, now)).filter(|tokens| !flat(*tokens))),
        (WeightSource::Gpm, gpu_gpm),
        (WeightSource::Proxy, proxy),
        (WeightSource::Util, gpu(utilization)),
    ];
    sources.into_iter().find_map(|(source, w)| Some(Weight { w: Part::from_fraction(w?), source }))
}

/// Progress against the own normal. Within twice the ordinary scatter it *is* the normal: a clamp at one alone
/// would book the noise of every healthy engine as a loss.
fn tokens(engine: &EngineSignals, now: Nanos) -> Option<f64> {
    let progress = engine.progress(now)?;
    Some(if progress >= 1.0 - 2.0 * engine.scatter() { 1.0 } else { progress })
}

/// Activity against the own busy level, once that is known. It is never taken to be less than a quarter of the prior: a
/// GPU that was starved from its first hour on must not learn that as its full work.
pub(crate) fn gpm(gpm: &Gpm, own: References) -> Option<f64> {
    let level = |own: Option<f64>, prior: f64| own.map_or(prior, |own| own.max(prior / 4.0));
    let part = |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Ppb>, busy: f64| {
        reading.copied().map(|value| value.as_fraction() / busy)
    };
    let (tensor, dram) =
        (part(&gpm.tensor, level(own.tensor, TENSOR_BUSY)), part(&gpm.dram, level(own.dram, DRAM_BUSY)));
    match (tensor, dram) {
        (None, None) => None,
        (tensor, dram) => Some(tensor.unwrap_or(0.0).max(dram.unwrap_or(0.0))),
    }
}

/// How hard a unit works, on no scale but its own: activity against the priors, or utilization times power. It may be
/// more than one.
pub(crate) fn pace(silicon: Option<&Gpm>, gpu: Option<&Gpu>) -> Option<(WeightSource, f64)> {
    let activity = silicon.and_then(|silicon| gpm(silicon, References::default()));
    activity.map(|pace| (WeightSource::Gpm, pace)).or_else(|| watts(gpu?).map(|pace| (WeightSource::Proxy, pace)))
}

/// The same of tensor cores and of DRAM apart; utilization times power in the place of both.
pub(crate) fn intensities(silicon: Option<&Gpm>, gpu: Option<&Gpu>) -> [Option<(WeightSource, f64)>; 2] {
    let read = |reading: fn(&Gpm) -> Option<f64>, busy: f64| silicon.and_then(reading).map(|part| part / busy);
    let tensor = read(|gpm| gpm.tensor.copied().map(|part| part.as_fraction()), TENSOR_BUSY);
    let dram = read(|gpm| gpm.dram.copied().map(|part| part.as_fraction()), DRAM_BUSY);
    if tensor.is_none() && dram.is_none() {
        return [gpu.and_then(watts).map(|pace| (WeightSource::Proxy, pace)), None];
    }
    [tensor, dram].map(|part| part.map(|part| (WeightSource::Gpm, part)))
}

/// Utilization times power above context, as a part of its prior.
fn watts(gpu: &Gpu) -> Option<f64> {
    let (util, power) = (utilization(gpu)?, milliwatts(&gpu.power)?);
    let limit = milliwatts(&gpu.power_limit).filter(|limit| *limit > 0.0)?;
    Some(util * (power / limit - POWER_CONTEXT).max(0.0) / (POWER_BUSY - POWER_CONTEXT))
}

fn utilization(gpu: &Gpu) -> Option<f64> {
    gpu.util.copied().map(|util| util.as_fraction())
}

fn milliwatts(reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Milliwatts>) -> Option<f64> {
    reading.copied().map(|power| to_f64(power.0))
}

/// Utilization times power above context-idle: a GPU that reads 100 % at 70 W does nothing.
fn proxy(util: Option<f64>, power: Option<f64>, limit: Option<f64>, own: References) -> Option<f64> {
    let (util, power, limit) = (util?, power?, limit.filter(|limit| *limit > 0.0)?);
    let busy = own.power.unwrap_or(POWER_BUSY).max(POWER_BUSY / 2.0) * limit;
    let context = own.context.unwrap_or(POWER_CONTEXT * limit).min(busy * 0.9);
    Some(util * ((power - context) / (busy - context)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_at(util: f64, watts: f64) -> f64 {
        proxy(Some(util), Some(watts), Some(700.0), References::default()).unwrap()
    }

    #[test]
    fn full_utilization_at_idle_power_is_no_work() {
        // H100, NCCL hang: 100 % at about 100 W of 700 W (public report).
        assert!(proxy_at(1.0, 100.0) < 0.01);
    }

    #[test]
    fn full_utilization_at_full_power_is_work() {
        assert!((proxy_at(1.0, 632.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_power_no_proxy() {
        assert_eq!(proxy(Some(1.0), None, Some(700.0), References::default()), None);
    }
}
