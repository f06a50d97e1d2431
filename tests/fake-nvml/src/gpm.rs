//! GPM: samples are taken, and metrics come from two of them.

use core::ffi::c_uint;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t};

use crate::abi::{INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, nvmlDevice_t, nvmlReturn_t, put};
use crate::live::{View, call, on};
use crate::state::Gpm;

/// Samples by handle.
static SAMPLES: Mutex<BTreeMap<usize, Option<Gpm>>> = Mutex::new(BTreeMap::new());

fn samples<T>(body: impl FnOnce(&mut BTreeMap<usize, Option<Gpm>>) -> T) -> T {
    body(&mut SAMPLES.lock().unwrap_or_else(PoisonError::into_inner))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, out: *mut nvmlGpmSupport_t) -> nvmlReturn_t {
    on("nvmlGpmQueryDeviceSupport", device, |view| {
        // SAFETY: the pointer comes from the caller of NVML's interface.
        let Some(out) = (unsafe { out.as_mut() }) else {
            return INVALID_ARGUMENT;
        };
        out.isSupportedDevice = c_uint::from(view.gpu().gpm.is_some());
        SUCCESS
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    call("nvmlGpmSampleAlloc", |_| {
        let number = samples(|samples| {
            let number = samples.last_key_value().map_or(1, |(last, _)| last + 1);
            samples.insert(number, None);
            number
        });
        // SAFETY: the pointer comes from the caller of NVML's interface; the handle is never dereferenced.
        unsafe { put(out, Some(std::ptr::without_provenance_mut(number))) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    call("nvmlGpmSampleFree", |_| match samples(|samples| samples.remove(&sample.addr())) {
        Some(_) => SUCCESS,
        None => INVALID_ARGUMENT,
    })
}

fn take(sample: nvmlGpmSample_t, gpm: Option<Gpm>) -> nvmlReturn_t {
    let Some(gpm) = gpm else { return NOT_SUPPORTED };
    samples(|samples| match samples.get_mut(&sample.addr()) {
        Some(slot) => {
            *slot = Some(gpm);
            SUCCESS
        }
        None => INVALID_ARGUMENT,
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    on("nvmlGpmSampleGet", device, |view| take(sample, view.gpu().gpm.clone()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: nvmlDevice_t, instance: c_uint, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    on("nvmlGpmMigSampleGet", device, |view: &View| {
        let found = view.gpu().instances.iter().find(|mig| mig.gi == instance);
        take(sample, found.and_then(|mig| mig.gpm.clone()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    call("nvmlGpmMetricsGet", |_| {
        // SAFETY: the pointer comes from the caller of NVML's interface.
        let Some(request) = (unsafe { request.as_mut() }) else {
            return INVALID_ARGUMENT;
        };
        let (first, second) = (request.sample1.addr(), request.sample2.addr());
        let newest = samples(|samples| {
            samples.get(&first)?.as_ref()?;
            samples.get(&second)?.clone()
        });
        let Some(gpm) = newest else {
            return INVALID_ARGUMENT;
        };
        let count = usize::try_from(request.numMetrics).unwrap_or_default();
        for metric in request.metrics.iter_mut().take(count) {
            let value = match metric.metricId {
                1 | 2 => Some(gpm.sm),
                3 => Some(gpm.occupancy),
                5 => Some(gpm.tensor),
                10 => Some(gpm.dram),
                _ => None,
            };
            metric.nvmlReturn = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
            metric.value = if gpm.nan { f64::NAN } else { value.unwrap_or_default() };
        }
        SUCCESS
    })
}
