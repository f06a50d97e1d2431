//! The library itself: start, end, versions, and finding boards.

use core::ffi::{CStr, c_char, c_int, c_uint};

use crate::abi::{INVALID_ARGUMENT, NOT_FOUND, nvmlDevice_t, nvmlReturn_t, put, put_text};
use crate::live::{call, handle, init, shutdown};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init("nvmlInit_v2")
}
#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> nvmlReturn_t {
    init("nvmlInit")
}
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    init("nvmlInitWithFlags")
}
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    shutdown("nvmlShutdown")
}

/// The words of `nvmlErrorString` for each code, as nvml.h names them.
const ERRORS: &[(nvmlReturn_t, &CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (12, c"NVML Shared Library Not Found"),
    (13, c"Function Not Found"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"The operating system has blocked the request"),
    (18, c"Driver/library version mismatch"),
    (25, c"The provided version is invalid/unsupported"),
    (26, c"The requested functionality has been deprecated"),
    (999, c"Unknown Error"),
];

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let known = ERRORS.iter().find(|(known, _)| *known == code);
    known.map_or(c"Unknown Error", |(_, text)| text).as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> nvmlReturn_t {
    call("nvmlSystemGetDriverVersion", |state| {
        // SAFETY: pointer and length come from the caller of NVML's interface.
        unsafe { put_text(out, length, &state.driver) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) -> nvmlReturn_t {
    call("nvmlSystemGetNVMLVersion", |state| {
        let major = state.driver.split('.').next().unwrap_or("570");
        // SAFETY: pointer and length come from the caller of NVML's interface.
        unsafe { put_text(out, length, &format!("12.{}.fake", major)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    call("nvmlSystemGetCudaDriverVersion", |_| unsafe { put(out, Some(12_080)) })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    call("nvmlSystemGetCudaDriverVersion_v2", |_| unsafe { put(out, Some(12_080)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, out: *mut c_char, length: c_uint) -> nvmlReturn_t {
    call("nvmlSystemGetProcessName", |_| {
        let Ok(exe) = std::fs::canonicalize(format!("/proc/{pid}/exe")) else {
            return NOT_FOUND;
        };
        // SAFETY: pointer and length come from the caller of NVML's interface.
        unsafe { put_text(out, length, &exe.to_string_lossy()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    call("nvmlDeviceGetCount_v2", |state| unsafe { put(out, u32::try_from(state.gpus.len()).ok()) })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount(out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the pointer comes from the caller of NVML's interface.
    call("nvmlDeviceGetCount", |state| unsafe { put(out, u32::try_from(state.gpus.len()).ok()) })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    let find = |_: &crate::State| usize::try_from(index).ok();
    handle("nvmlDeviceGetHandleByIndex_v2", find, INVALID_ARGUMENT, out)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    let find = |_: &crate::State| usize::try_from(index).ok();
    handle("nvmlDeviceGetHandleByIndex", find, INVALID_ARGUMENT, out)
}

/// A text of the caller; nothing for null.
fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and NVML's interface asks for a text that ends in zero.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    let wanted = text(uuid);
    let find = |state: &crate::State| (0..state.gpus.len()).find(|index| Some(state.uuid(*index)) == wanted);
    handle("nvmlDeviceGetHandleByUUID", find, NOT_FOUND, out)
}

fn by_pci(name: &'static str, bus_id: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    let wanted = text(bus_id).and_then(|text| crate::state::parse_pci(&text));
    let find = |state: &crate::State| (0..state.gpus.len()).find(|index| Some(state.pci(*index)) == wanted);
    handle(name, find, NOT_FOUND, out)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    by_pci("nvmlDeviceGetHandleByPciBusId_v2", bus_id, out)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(bus_id: *const c_char, out: *mut nvmlDevice_t) -> nvmlReturn_t {
    by_pci("nvmlDeviceGetHandleByPciBusId", bus_id, out)
}
