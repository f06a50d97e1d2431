//! The raw calls. Each one names its thread first, so that a call that never comes back is known from outside;
//! each one gives the value or NVML's own return code.
//!
//! Why the bindings and not the wrapper's methods: about half of what is read here is not wrapped (clock-event
//! reasons, `TemperatureV`, row remapping, field values with a scope), and a wrapped method makes several calls
//! under one name. The wrapper still gives the words for return codes.
#![expect(unsafe_code, reason = "NVML is a C library, loaded at run time")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, c_char, c_int, c_uint, c_ulonglong};
use std::mem::zeroed;
use std::time::Duration;

use super::names::{IDLE, thread_name};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlDeviceAttributes_t, nvmlFieldValue_t, nvmlGpmMetricsGet_t, nvmlGpmSample_t,
    nvmlGpmSupport_t, nvmlGpuInstanceProfileInfo_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlProcessUtilizationSample_t, nvmlReturn_t, nvmlTemperature_t, nvmlUtilization_t,
};

/// NVML's return code.
pub(super) type Code = nvmlReturn_t;
/// The value of a call, or its return code.
pub(super) type Raw<T> = Result<T, Code>;

pub(super) const NOT_SUPPORTED: Code = 3;
pub(super) const NOT_FOUND: Code = 6;
pub(super) const INSUFFICIENT_SIZE: Code = 7;
pub(super) const FUNCTION_NOT_FOUND: Code = 13;
pub(super) const GPU_IS_LOST: Code = 15;
pub(super) const RESET_REQUIRED: Code = 16;

pub(super) fn name_thread(name: &str) {
    let mut text = [0_u8; 16];
    for (slot, byte) in text.iter_mut().take(15).zip(name.bytes()) {
        *slot = byte;
    }
    // SAFETY: the kernel reads at most 16 bytes, which end in zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, text.as_ptr()) };
}

/// A device's handle. It means nothing without the [`Library`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device(nvmlDevice_t);

/// A GPM sample's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpmSample(nvmlGpmSample_t);

/// How long each call took.
pub(super) type Timings = BTreeMap<&'static str, Vec<Duration>>;

/// The loaded library. Dropping it unloads it.
pub(super) struct Library {
    lib: NvmlLib,
    timings: Option<RefCell<Timings>>,
}

macro_rules! call {
    ($self:ident, $symbol:ident($($argument:expr),*)) => {
        match $self.lib.$symbol.as_ref() {
            // SAFETY: the symbol has the type of nvml.h, and every pointer is to a live local of the caller.
            Ok(function) => $self.named(stringify!($symbol), || unsafe { function($($argument),*) }),
            Err(_) => Err(FUNCTION_NOT_FOUND),
        }
    };
}

/// Methods for calls that answer one plain value.
macro_rules! getters {
    ($($method:ident = $symbol:ident($($argument:ident: $ty:ty),*) -> $out:ty;)+) => {
        $(
            pub(super) fn $method(&self, device: Device $(, $argument: $ty)*) -> Raw<$out> {
                // SAFETY: a plain structure of C integers, for which all bits zero is a value.
                let mut out: $out = unsafe { zeroed() };
                call!(self, $symbol(device.0, $($argument,)* &raw mut out))?;
                Ok(out)
            }
        )+
    };
}

impl Library {
    /// Loads it (without starting it).
    pub(super) fn open(path: &OsStr, timed: bool) -> Result<Self, String> {
        name_thread("dlopen");
        // SAFETY: loading runs the library's initialisers; it is the driver's own, or one that the user named.
        let lib = unsafe { NvmlLib::new(path) }.map_err(|error| error.to_string());
        name_thread(IDLE);
        let timings = timed.then(RefCell::default);
        Ok(Self { lib: lib?, timings })
    }

    fn named(&self, name: &'static str, body: impl FnOnce() -> Code) -> Raw<()> {
        name_thread(thread_name(name));
        let code = match &self.timings {
            None => body(),
            Some(timings) => {
                #[expect(clippy::disallowed_methods, reason = "measures calls, outside any tick")]
                let start = std::time::Instant::now();
                let code = body();
                timings.borrow_mut().entry(name).or_default().push(start.elapsed());
                code
            }
        };
        name_thread(IDLE);
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// What was measured, when it was opened to measure.
    pub(super) fn timings(&self) -> Timings {
        self.timings.as_ref().map(|timings| timings.borrow().clone()).unwrap_or_default()
    }

    pub(super) fn init(&self) -> Raw<()> {
        call!(self, nvmlInit_v2())
    }
    pub(super) fn shutdown(&self) -> Raw<()> {
        call!(self, nvmlShutdown())
    }
    pub(super) fn driver_version(&self) -> Raw<String> {
        let mut text = [0; 80];
        call!(self, nvmlSystemGetDriverVersion(text.as_mut_ptr(), 80))?;
        Ok(string(&text))
    }
    pub(super) fn count(&self) -> Raw<u32> {
        let mut count = 0;
        call!(self, nvmlDeviceGetCount_v2(&raw mut count))?;
        Ok(count)
    }
    pub(super) fn handle(&self, index: u32) -> Raw<Device> {
        let mut device = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device))?;
        Ok(Device(device))
    }
    pub(super) fn uuid(&self, device: Device) -> Raw<String> {
        let mut text = [0; 96];
        call!(self, nvmlDeviceGetUUID(device.0, text.as_mut_ptr(), 96))?;
        Ok(string(&text))
    }
    pub(super) fn name(&self, device: Device) -> Raw<String> {
        let mut text = [0; 96];
        call!(self, nvmlDeviceGetName(device.0, text.as_mut_ptr(), 96))?;
        Ok(string(&text))
    }

    getters! {
        pci = nvmlDeviceGetPciInfo_v3() -> nvmlPciInfo_t;
        utilization = nvmlDeviceGetUtilizationRates() -> nvmlUtilization_t;
        memory_v1 = nvmlDeviceGetMemoryInfo() -> nvmlMemory_t;
        power = nvmlDeviceGetPowerUsage() -> c_uint;
        power_limit = nvmlDeviceGetEnforcedPowerLimit() -> c_uint;
        power_limit_default = nvmlDeviceGetPowerManagementDefaultLimit() -> c_uint;
        energy = nvmlDeviceGetTotalEnergyConsumption() -> c_ulonglong;
        temperature_v1 = nvmlDeviceGetTemperature(sensor: c_uint) -> c_uint;
        clock = nvmlDeviceGetClockInfo(domain: c_uint) -> c_uint;
        clock_max = nvmlDeviceGetMaxClockInfo(domain: c_uint) -> c_uint;
        clock_reasons = nvmlDeviceGetCurrentClocksEventReasons() -> c_ulonglong;
        clock_reasons_old = nvmlDeviceGetCurrentClocksThrottleReasons() -> c_ulonglong;
        pstate = nvmlDeviceGetPerformanceState() -> c_uint;
        link_generation = nvmlDeviceGetCurrPcieLinkGeneration() -> c_uint;
        link_width = nvmlDeviceGetCurrPcieLinkWidth() -> c_uint;
        link_generation_max = nvmlDeviceGetMaxPcieLinkGeneration() -> c_uint;
        link_width_max = nvmlDeviceGetMaxPcieLinkWidth() -> c_uint;
        replays = nvmlDeviceGetPcieReplayCounter() -> c_uint;
        ecc_errors = nvmlDeviceGetTotalEccErrors(kind: c_uint, counter: c_uint) -> c_ulonglong;
        mig_count_max = nvmlDeviceGetMaxMigDeviceCount() -> c_uint;
        gpu_instance_id = nvmlDeviceGetGpuInstanceId() -> c_uint;
        attributes = nvmlDeviceGetAttributes_v2() -> nvmlDeviceAttributes_t;
        profile = nvmlDeviceGetGpuInstanceProfileInfo(profile: c_uint) -> nvmlGpuInstanceProfileInfo_t;
    }

    pub(super) fn memory(&self, device: Device) -> Raw<nvmlMemory_v2_t> {
        let mut out =
            nvmlMemory_v2_t { version: versioned::<nvmlMemory_v2_t>(2), total: 0, reserved: 0, free: 0, used: 0 };
        call!(self, nvmlDeviceGetMemoryInfo_v2(device.0, &raw mut out))?;
        Ok(out)
    }
    pub(super) fn temperature(&self, device: Device) -> Raw<c_int> {
        let mut out = nvmlTemperature_t { version: versioned::<nvmlTemperature_t>(1), sensorType: 0, temperature: 0 };
        call!(self, nvmlDeviceGetTemperatureV(device.0, &raw mut out))?;
        Ok(out.temperature)
    }
    /// Whether a remap waits for a reset, and whether one failed.
    pub(super) fn remapped(&self, device: Device) -> Raw<(bool, bool)> {
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        call!(
            self,
            nvmlDeviceGetRemappedRows(
                device.0,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed
            )
        )?;
        Ok((pending != 0, failed != 0))
    }
    /// MIG on or off now.
    pub(super) fn mig(&self, device: Device) -> Raw<bool> {
        let (mut current, mut pending) = (0, 0);
        call!(self, nvmlDeviceGetMigMode(device.0, &raw mut current, &raw mut pending))?;
        Ok(current != 0)
    }
    pub(super) fn mig_device(&self, device: Device, index: u32) -> Raw<Device> {
        let mut out = std::ptr::null_mut();
        call!(self, nvmlDeviceGetMigDeviceHandleByIndex(device.0, index, &raw mut out))?;
        Ok(Device(out))
    }

    /// Field values by id and scope: per field its type and bits, or its own return code.
    pub(super) fn fields(&self, device: Device, asked: &[(u32, u32)]) -> Raw<Vec<Raw<u64>>> {
        let blank = |&(field, scope): &(u32, u32)| {
            // SAFETY: a plain structure of C integers and a union of them.
            let mut value: nvmlFieldValue_t = unsafe { zeroed() };
            value.fieldId = field;
            value.scopeId = scope;
            value
        };
        let mut values: Vec<_> = asked.iter().map(blank).collect();
        let count = c_int::try_from(values.len()).unwrap_or_default();
        call!(self, nvmlDeviceGetFieldValues(device.0, count, values.as_mut_ptr()))?;
        Ok(values.iter().map(field_value).collect())
    }

    pub(super) fn compute_processes(&self, device: Device) -> Raw<Vec<nvmlProcessInfo_t>> {
        list(|count, room| call!(self, nvmlDeviceGetComputeRunningProcesses_v3(device.0, count, room)))
    }
    pub(super) fn graphics_processes(&self, device: Device) -> Raw<Vec<nvmlProcessInfo_t>> {
        list(|count, room| call!(self, nvmlDeviceGetGraphicsRunningProcesses_v3(device.0, count, room)))
    }
    pub(super) fn mps_processes(&self, device: Device) -> Raw<Vec<nvmlProcessInfo_t>> {
        list(|count, room| call!(self, nvmlDeviceGetMPSComputeRunningProcesses_v3(device.0, count, room)))
    }
    /// Samples of the processes' activity since a time stamp that an earlier call gave.
    pub(super) fn process_utilization(&self, device: Device, since: u64) -> Raw<Vec<nvmlProcessUtilizationSample_t>> {
        list(|count, room| call!(self, nvmlDeviceGetProcessUtilization(device.0, room, count, since)))
    }

    pub(super) fn gpm_supported(&self, device: Device) -> Raw<bool> {
        let mut out = nvmlGpmSupport_t { version: 1, isSupportedDevice: 0 };
        call!(self, nvmlGpmQueryDeviceSupport(device.0, &raw mut out))?;
        Ok(out.isSupportedDevice != 0)
    }
    pub(super) fn gpm_alloc(&self) -> Raw<GpmSample> {
        let mut out = std::ptr::null_mut();
        call!(self, nvmlGpmSampleAlloc(&raw mut out))?;
        Ok(GpmSample(out))
    }
    pub(super) fn gpm_free(&self, sample: GpmSample) -> Raw<()> {
        call!(self, nvmlGpmSampleFree(sample.0))
    }
    /// Takes a sample of a device, or of a GPU instance of it.
    pub(super) fn gpm_take(&self, device: Device, instance: Option<u32>, sample: GpmSample) -> Raw<()> {
        match instance {
            None => call!(self, nvmlGpmSampleGet(device.0, sample.0)),
            Some(instance) => call!(self, nvmlGpmMigSampleGet(device.0, instance, sample.0)),
        }
    }
    /// Metrics between two samples, in percent, each with its own return code.
    pub(super) fn gpm_metrics<const N: usize>(
        &self,
        older: GpmSample,
        newer: GpmSample,
        metrics: [u32; N],
    ) -> Raw<[Raw<f64>; N]> {
        // SAFETY: a plain structure of C numbers and pointers, for which all bits zero is a value. On the heap:
        // it is 8 KiB.
        let mut request: Box<nvmlGpmMetricsGet_t> = Box::new(unsafe { zeroed() });
        request.version = 1;
        request.numMetrics = c_uint::try_from(N).unwrap_or_default();
        (request.sample1, request.sample2) = (older.0, newer.0);
        for (slot, metric) in request.metrics.iter_mut().zip(metrics) {
            slot.metricId = metric;
        }
        call!(self, nvmlGpmMetricsGet(&raw mut *request))?;
        let mut out = [Err(NOT_SUPPORTED); N];
        for (out, metric) in out.iter_mut().zip(&request.metrics) {
            *out = if metric.nvmlReturn == 0 { Ok(metric.value) } else { Err(metric.nvmlReturn) };
        }
        Ok(out)
    }
}

/// What NVML's macro `NVML_STRUCT_VERSION` gives.
fn versioned<T>(number: u32) -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or_default() | (number << 24)
}

/// The bits of a field as an unsigned integer. The type that the driver names is only trusted for its width:
/// some drivers call the memory temperature a double and fill in an integer.
fn field_value(value: &nvmlFieldValue_t) -> Raw<u64> {
    match (value.nvmlReturn, value.valueType) {
        // SAFETY: any bits are an integer.
        (0, 2..=4) => Ok(unsafe { value.value.ullVal }),
        // SAFETY: any bits are an integer.
        (0, _) => Ok(u64::from(unsafe { value.value.uiVal })),
        (code, _) => Err(code),
    }
}

/// Asks for a list with room to spare, and again with more if it grew.
fn list<T>(mut ask: impl FnMut(*mut c_uint, *mut T) -> Raw<()>) -> Raw<Vec<T>> {
    const LARGEST: usize = 8192;
    let mut room = 128;
    loop {
        let mut list: Vec<T> = Vec::with_capacity(room);
        let mut count = c_uint::try_from(room).unwrap_or_default();
        match ask(&raw mut count, list.as_mut_ptr()) {
            Ok(()) => {
                let count = usize::try_from(count).unwrap_or_default().min(room);
                // SAFETY: the driver filled in `count` items, and there is room for them.
                unsafe { list.set_len(count) };
                return Ok(list);
            }
            Err(INSUFFICIENT_SIZE) if room < LARGEST => {
                room = usize::try_from(count).unwrap_or_default().max(room * 2).min(LARGEST);
            }
            Err(code) => return Err(code),
        }
    }
}

/// A C text out of an array; one without an end is taken whole.
pub(super) fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
