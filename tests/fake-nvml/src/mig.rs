//! MIG: instances as devices of their own.

use core::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDeviceAttributes_t, nvmlGpuInstanceProfileInfo_t};

use crate::abi::{INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, nvmlDevice_t, nvmlReturn_t, put, values};
use crate::live::{View, handle_of, on};

/// Compute slices of the largest profile.
const SLICES: u32 = 7;

values! {
    nvmlDeviceGetMaxMigDeviceCount: c_uint = |view| view.gpu().mig.map(|_| SLICES);
    nvmlDeviceIsMigDeviceHandle: c_uint = |view| Some(c_uint::from(view.mig.is_some()));
    nvmlDeviceGetGpuInstanceId: c_uint = |view| view.instance().map(|mig| mig.gi);
    nvmlDeviceGetComputeInstanceId: c_uint = |view| view.instance().map(|_| 0);
    nvmlDeviceGetAttributes_v2: nvmlDeviceAttributes_t = |view| attributes(view);
    nvmlDeviceGetAttributes: nvmlDeviceAttributes_t = |view| attributes(view);
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle: nvmlDevice_t = |view| {
        view.mig.map(|_| handle_of(&view.state.uuid(view.index), 0))
    };
}

fn attributes(view: &View) -> Option<nvmlDeviceAttributes_t> {
    let mig = view.instance()?;
    Some(nvmlDeviceAttributes_t {
        multiprocessorCount: mig.slices * 16,
        sharedCopyEngineCount: 1,
        sharedDecoderCount: 1,
        sharedEncoderCount: 0,
        sharedJpegCount: 1,
        sharedOfaCount: 0,
        gpuInstanceSliceCount: mig.slices,
        computeInstanceSliceCount: mig.slices,
        memorySizeMB: mig.mem_total >> 20,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    on("nvmlDeviceGetMigMode", device, |view| {
        let mode = view.gpu().mig.map(c_uint::from);
        // SAFETY: the pointers come from the caller of NVML's interface.
        match unsafe { put(current, mode) } {
            // SAFETY: as above.
            SUCCESS => unsafe { put(pending, mode) },
            code => code,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    on("nvmlDeviceGetMigDeviceHandleByIndex", device, |view| {
        if !view.mig_on() {
            return NOT_SUPPORTED;
        }
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index >= view.gpu().instances.len() {
            return NOT_FOUND;
        }
        let handle = handle_of(&view.state.uuid(view.index), index + 1);
        // SAFETY: the pointer comes from the caller of NVML's interface.
        unsafe { put(out, Some(handle)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: nvmlDevice_t,
    profile: c_uint,
    out: *mut nvmlGpuInstanceProfileInfo_t,
) -> nvmlReturn_t {
    on("nvmlDeviceGetGpuInstanceProfileInfo", device, |view| {
        if view.gpu().mig.is_none() {
            return NOT_SUPPORTED;
        }
        // Profile numbers of nvml.h: 1, 2, 3, 4 and 7 slices.
        let slices = match profile {
            0..=3 => profile + 1,
            4 => SLICES,
            _ => return INVALID_ARGUMENT,
        };
        let info = nvmlGpuInstanceProfileInfo_t {
            id: profile,
            isP2pSupported: 0,
            sliceCount: slices,
            instanceCount: SLICES / slices,
            multiprocessorCount: slices * 16,
            copyEngineCount: 1,
            decoderCount: 1,
            encoderCount: 0,
            jpegCount: 1,
            ofaCount: 0,
            memorySizeMB: 10_240 * u64::from(slices),
        };
        // SAFETY: the pointer comes from the caller of NVML's interface.
        unsafe { put(out, Some(info)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    first: nvmlDevice_t,
    second: nvmlDevice_t,
    out: *mut c_int,
) -> nvmlReturn_t {
    on("nvmlDeviceGetTopologyCommonAncestor", first, |_| {
        let level = if first == second { 0 } else { 50 };
        // SAFETY: the pointer comes from the caller of NVML's interface.
        unsafe { put(out, Some(level)) }
    })
}
