//! Processes: three versions of each list, one utilization list.

use core::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationSample_t};

use crate::abi::{NOT_FOUND, nvmlDevice_t, nvmlReturn_t, put_list};
use crate::live::{View, on};
use crate::state::{Kind, Process};

/// The processes of a kind; of an instance, if one is asked.
fn of(view: &View, kind: Kind) -> impl Iterator<Item = &Process> {
    let gi = view.instance().map(|mig| mig.gi);
    let all = view.gpu().processes.iter();
    all.filter(move |process| process.kind == kind && (gi.is_none() || process.gi == gi))
}

fn new(process: &Process) -> nvmlProcessInfo_t {
    nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.mem_used.unwrap_or(c_ulonglong::MAX),
        gpuInstanceId: process.gi.unwrap_or(c_uint::MAX),
        computeInstanceId: process.gi.map_or(c_uint::MAX, |_| 0),
    }
}

fn old(process: &Process) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t { pid: process.pid, usedGpuMemory: process.mem_used.unwrap_or(c_ulonglong::MAX) }
}

macro_rules! lists {
    ($($name:ident: $item:ty = $kind:ident, $make:ident;)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvmlDevice_t, count: *mut c_uint, out: *mut $item) -> nvmlReturn_t {
            on(stringify!($name), device, |view| {
                let list = of(view, Kind::$kind).map($make).collect();
                // SAFETY: the pointers come from the caller of NVML's interface.
                unsafe { put_list(count, out, list) }
            })
        }
    )+};
}

// Version 2 of the structure serves the second and the third version of the calls.
lists! {
    nvmlDeviceGetComputeRunningProcesses: nvmlProcessInfo_v1_t = Compute, old;
    nvmlDeviceGetComputeRunningProcesses_v2: nvmlProcessInfo_t = Compute, new;
    nvmlDeviceGetComputeRunningProcesses_v3: nvmlProcessInfo_t = Compute, new;
    nvmlDeviceGetGraphicsRunningProcesses: nvmlProcessInfo_v1_t = Graphics, old;
    nvmlDeviceGetGraphicsRunningProcesses_v2: nvmlProcessInfo_t = Graphics, new;
    nvmlDeviceGetGraphicsRunningProcesses_v3: nvmlProcessInfo_t = Graphics, new;
    nvmlDeviceGetMPSComputeRunningProcesses: nvmlProcessInfo_v1_t = Mps, old;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: nvmlProcessInfo_t = Mps, new;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: nvmlProcessInfo_t = Mps, new;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    out: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    last_seen: c_ulonglong,
) -> nvmlReturn_t {
    on("nvmlDeviceGetProcessUtilization", device, |view| {
        if view.mig_on() {
            return crate::abi::NOT_SUPPORTED;
        }
        let sample = |process: &Process| {
            Some(nvmlProcessUtilizationSample_t {
                pid: process.pid,
                timeStamp: last_seen + 1,
                smUtil: process.sm?,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            })
        };
        let list: Vec<_> = view.gpu().processes.iter().filter_map(sample).collect();
        if list.is_empty() {
            return NOT_FOUND;
        }
        // SAFETY: the pointers come from the caller of NVML's interface.
        unsafe { put_list(count, out, list) }
    })
}
