//! The calls by name, and the names that the child's thread bears during them.

/// Every call that is made, by its full name: a thread's name has room for 15 bytes only.
pub const CALLS: &[&str] = &[
    "dlopen",
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
];

/// The thread's name between calls.
pub(super) const IDLE: &str = "nvml-idle";

/// The thread's name during a call: what tells the calls apart, in 15 bytes.
#[must_use]
pub fn thread_name(call: &str) -> &str {
    let prefixes = ["nvmlDeviceGet", "nvmlDevice", "nvml"];
    let short = prefixes.iter().find_map(|prefix| call.strip_prefix(prefix));
    let short = short.unwrap_or(call);
    short.get(..15).unwrap_or(short)
}

/// The full name of the call from the name of a thread; nothing for a thread that is in no call.
#[must_use]
pub(super) fn call_of(thread: &str) -> Option<&'static str> {
    CALLS.iter().find(|call| thread_name(call) == thread).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_known_from_its_thread() {
        for call in CALLS {
            let name = thread_name(call);
            assert!(name.len() <= 15, "{name}");
            assert_eq!(call_of(name), Some(*call));
        }
        assert_eq!(thread_name("nvmlDeviceGetPowerUsage"), "PowerUsage");
        assert_eq!(call_of(IDLE), None);
    }
}
