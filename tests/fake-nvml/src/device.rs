//! What a board says of itself, one value per call.

use core::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlTemperature_t, nvmlUtilization_t};

use crate::abi::{
    ARGUMENT_VERSION_MISMATCH, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, chars, nvmlDevice_t, nvmlReturn_t, put, texts,
    values, version_of,
};
use crate::live::{View, on};

texts! {
    nvmlDeviceGetUUID = |view| view.mig.map_or_else(|| view.state.uuid(view.index), |mig| view.state.mig_uuid(view.index, mig));
    nvmlDeviceGetName = |view| view.gpu().name.clone();
}

values! {
    nvmlDeviceGetIndex: c_uint = |view| Some(view.mig.map_or(view.number(), |mig| u32::try_from(mig).unwrap_or_default()));
    nvmlDeviceGetMinorNumber: c_uint = |view| Some(view.number());
    nvmlDeviceGetBrand: c_uint = |view| view.mig.is_none().then_some(14);
    nvmlDeviceGetArchitecture: c_uint = |view| Some(view.gpu().architecture);
    nvmlDeviceGetPersistenceMode: c_uint = |view| view.mig.is_none().then_some(1);
    nvmlDeviceGetComputeMode: c_uint = |view| view.mig.is_none().then_some(0);
    nvmlDeviceGetDisplayActive: c_uint = |view| view.mig.is_none().then_some(0);
    nvmlDeviceGetDisplayMode: c_uint = |view| view.mig.is_none().then_some(0);
    nvmlDeviceGetUtilizationRates: nvmlUtilization_t = |view| rates(view);
    nvmlDeviceGetPowerUsage: c_uint = |view| whole(view)?.power_mw;
    nvmlDeviceGetEnforcedPowerLimit: c_uint = |view| whole(view)?.power_limit_mw;
    nvmlDeviceGetPowerManagementLimit: c_uint = |view| whole(view)?.power_limit_mw;
    nvmlDeviceGetPowerManagementMode: c_uint = |view| whole(view)?.power_limit_mw.map(|_| 1);
    nvmlDeviceGetPowerManagementDefaultLimit: c_uint = |view| whole(view)?.power_limit_default_mw;
    nvmlDeviceGetTotalEnergyConsumption: c_ulonglong = |view| crate::live::energy(view);
    nvmlDeviceGetFanSpeed: c_uint = |view| whole(view)?.fan;
    nvmlDeviceGetPerformanceState: c_uint = |view| view.gpu().pstate;
    nvmlDeviceGetPowerState: c_uint = |view| view.gpu().pstate;
    nvmlDeviceGetCurrentClocksEventReasons: c_ulonglong = |view| whole(view)?.clock_reasons;
    nvmlDeviceGetCurrentClocksThrottleReasons: c_ulonglong = |view| whole(view)?.clock_reasons;
    nvmlDeviceGetSupportedClocksEventReasons: c_ulonglong = |view| whole(view)?.clock_reasons.map(|_| 0x1ff);
    nvmlDeviceGetSupportedClocksThrottleReasons: c_ulonglong = |view| whole(view)?.clock_reasons.map(|_| 0x1ff);
    nvmlDeviceGetCurrPcieLinkGeneration: c_uint = |view| whole(view)?.pcie.generation;
    nvmlDeviceGetCurrPcieLinkWidth: c_uint = |view| whole(view)?.pcie.width;
    nvmlDeviceGetMaxPcieLinkGeneration: c_uint = |view| whole(view)?.pcie.generation_max;
    nvmlDeviceGetMaxPcieLinkWidth: c_uint = |view| whole(view)?.pcie.width_max;
    nvmlDeviceGetPcieReplayCounter: c_uint = |view| whole(view)?.pcie.replay;
    nvmlDeviceGetMemoryInfo: nvmlMemory_t = |view| memory(view).map(|(total, used, reserved)| nvmlMemory_t {
        // The first version counts the reserve as used.
        total, free: total.saturating_sub(used.saturating_add(reserved)), used: used.saturating_add(reserved),
    });
}

/// The board, unless an instance is asked: instances have no sensors of their own.
fn whole(view: &View) -> Option<&crate::Gpu> {
    view.mig.is_none().then(|| view.gpu())
}

/// With MIG on, the driver has no utilization, neither of the board nor of an instance.
fn rates(view: &View) -> Option<nvmlUtilization_t> {
    let gpu = whole(view)?;
    let rates = nvmlUtilization_t { gpu: gpu.util?, memory: gpu.util_mem? };
    (!view.mig_on()).then_some(rates)
}

/// Total, used without the reserve, and the reserve.
fn memory(view: &View) -> Option<(u64, u64, u64)> {
    if let Some(instance) = view.instance() {
        return Some((instance.mem_total, instance.mem_used, 0));
    }
    let gpu = whole(view)?;
    Some((gpu.mem_total?, gpu.mem_used?, gpu.mem_reserved))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, out: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    on("nvmlDeviceGetMemoryInfo_v2", device, |view| {
        let version = version_of::<nvmlMemory_v2_t>(2);
        // SAFETY: the caller filled in the version, as NVML's interface asks.
        if out.is_null() || unsafe { (*out).version } != version {
            return ARGUMENT_VERSION_MISMATCH;
        }
        let value = memory(view).map(|(total, used, reserved)| nvmlMemory_v2_t {
            version,
            total,
            reserved,
            free: total.saturating_sub(used.saturating_add(reserved)),
            used,
        });
        // SAFETY: as above.
        unsafe { put(out, value) }
    })
}

fn pci(view: &View) -> nvmlPciInfo_t {
    let (domain, bus, device) = view.state.pci(view.index);
    nvmlPciInfo_t {
        busIdLegacy: chars(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus,
        device,
        pciDeviceId: 0x2330_10de,
        pciSubSystemId: 0x16c1_10de,
        busId: chars(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    }
}
values! {
    nvmlDeviceGetPciInfo_v3: nvmlPciInfo_t = |view| Some(pci(view));
    nvmlDeviceGetPciInfo_v2: nvmlPciInfo_t = |view| Some(pci(view));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: c_uint, out: *mut c_uint) -> nvmlReturn_t {
    on("nvmlDeviceGetTemperature", device, |view| {
        let value = whole(view).filter(|_| sensor == 0).and_then(|gpu| u32::try_from(gpu.temp?).ok());
        // SAFETY: the pointer comes from the caller of NVML's interface.
        unsafe { put(out, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, out: *mut nvmlTemperature_t) -> nvmlReturn_t {
    on("nvmlDeviceGetTemperatureV", device, |view| {
        // SAFETY: the caller filled in version and sensor, as NVML's interface asks.
        let Some(asked) = (unsafe { out.as_mut() }) else {
            return INVALID_ARGUMENT;
        };
        if asked.version != version_of::<nvmlTemperature_t>(1) {
            return ARGUMENT_VERSION_MISMATCH;
        }
        let value = whole(view).filter(|_| asked.sensorType == 0).and_then(|gpu| gpu.temp);
        // SAFETY: a reference that was checked above.
        unsafe { put(&raw mut asked.temperature, value) }
    })
}

/// Clock domains: 0 graphics, 1 SM, 2 memory, 3 video.
fn clock(view: &View, kind: c_uint, largest: bool) -> Option<u32> {
    let gpu = view.gpu();
    match (kind, largest) {
        (0 | 1 | 3, false) => gpu.clock_sm,
        (0 | 1 | 3, true) => gpu.clock_sm_max,
        (2, _) => gpu.clock_mem,
        _ => None,
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: c_uint, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    on("nvmlDeviceGetClockInfo", device, |view| unsafe { put(out, clock(view, kind, false)) })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, kind: c_uint, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    on("nvmlDeviceGetMaxClockInfo", device, |view| unsafe { put(out, clock(view, kind, true)) })
}

/// Percent and the length of the window in microseconds: the video engines rest.
unsafe fn engine(name: &'static str, device: nvmlDevice_t, percent: *mut c_uint, window: *mut c_uint) -> nvmlReturn_t {
    on(name, device, |view| {
        if whole(view).is_none() {
            return NOT_SUPPORTED;
        }
        // SAFETY: the pointers come from the caller of NVML's interface.
        match unsafe { put(window, Some(167_000)) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(percent, Some(0)) },
            code => code,
        }
    })
}
macro_rules! engines {
    ($($name:ident)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, percent: *mut c_uint, window: *mut c_uint) -> nvmlReturn_t {
            // SAFETY: handed on from the caller of NVML's interface.
            unsafe { engine(stringify!($name), device, percent, window) }
        }
    )+};
}
engines! { nvmlDeviceGetEncoderUtilization nvmlDeviceGetDecoderUtilization }

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> nvmlReturn_t {
    on("nvmlDeviceGetCudaComputeCapability", device, |view| {
        let number = i32::try_from(view.gpu().architecture).ok();
        // SAFETY: the pointers come from the caller of NVML's interface.
        match unsafe { put(major, number) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(minor, Some(0)) },
            code => code,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    kind: c_uint,
    counter: c_uint,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    on("nvmlDeviceGetTotalEccErrors", device, |view| {
        let ecc = whole(view).and_then(|gpu| gpu.ecc.as_ref());
        let value = ecc.and_then(|ecc| match (kind, counter) {
            (0, 0 | 1) => Some(ecc.corrected),
            (1, 0 | 1) => Some(ecc.uncorrected),
            _ => None,
        });
        // SAFETY: the pointer comes from the caller of NVML's interface.
        unsafe { put(out, value) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEccMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    on("nvmlDeviceGetEccMode", device, |view| {
        let mode = whole(view).and_then(|gpu| gpu.ecc.as_ref()).map(|_| 1);
        // SAFETY: the pointers come from the caller of NVML's interface.
        match unsafe { put(current, mode) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(pending, mode) },
            code => code,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: nvmlDevice_t,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> nvmlReturn_t {
    on("nvmlDeviceGetRemappedRows", device, |view| {
        let Some(ecc) = whole(view).and_then(|gpu| gpu.ecc.as_ref()) else {
            return NOT_SUPPORTED;
        };
        let rows = u32::from(ecc.remap_pending || ecc.remap_failed);
        let answers = [
            (corrected, 0),
            (uncorrected, rows),
            (pending, u32::from(ecc.remap_pending)),
            (failed, u32::from(ecc.remap_failed)),
        ];
        for (out, value) in answers {
            // SAFETY: the pointers come from the caller of NVML's interface.
            if unsafe { put(out, Some(value)) } != SUCCESS {
                return INVALID_ARGUMENT;
            }
        }
        SUCCESS
    })
}
