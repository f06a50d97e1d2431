//! Symbols that clients look for and that no state models: they are there, and answer "not supported".

use crate::abi::{NOT_SUPPORTED, nvmlReturn_t};
use crate::live::call;

// Arguments are left out: in the C calling convention the caller clears them away, and nobody here reads them.
macro_rules! unsupported {
    ($($name:ident)+) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> nvmlReturn_t {
            call(stringify!($name), |_| NOT_SUPPORTED)
        }
    )+};
}

unsupported! {
    nvmlDeviceGetSerial nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber nvmlDeviceGetVbiosVersion
    nvmlDeviceGetInforomVersion nvmlDeviceGetInforomImageVersion nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetNumFans
    nvmlDeviceGetTemperatureThreshold nvmlDeviceGetThermalSettings nvmlDeviceGetMarginTemperature
    nvmlDeviceGetPcieThroughput nvmlDeviceGetPcieSpeed nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetGpuMaxPcieLinkGeneration
    nvmlDeviceGetViolationStatus nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetDetailedEccErrors
    nvmlDeviceGetDefaultEccMode nvmlDeviceGetRetiredPages nvmlDeviceGetRetiredPages_v2
    nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetRowRemapperHistogram nvmlDeviceGetSramEccErrorStatus
    nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetJpgUtilization nvmlDeviceGetOfaUtilization nvmlDeviceGetSamples
    nvmlDeviceGetEncoderStats nvmlDeviceGetEncoderSessions nvmlDeviceGetEncoderCapacity nvmlDeviceGetFBCStats
    nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetPowerSource nvmlDeviceGetApplicationsClock
    nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetClock nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetSupportedMemoryClocks nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetDynamicPstatesInfo
    nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetAccountingMode nvmlDeviceGetAccountingStats
    nvmlDeviceGetAccountingPids nvmlDeviceGetAccountingBufferSize nvmlDeviceGetCpuAffinity
    nvmlDeviceGetMemoryAffinity nvmlDeviceGetNumaNodeId nvmlDeviceGetNumGpuCores nvmlDeviceGetMemoryBusWidth
    nvmlDeviceGetNvLinkState nvmlDeviceGetNvLinkVersion nvmlDeviceGetNvLinkCapability nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetNvLinkErrorCounter nvmlDeviceGetNvLinkUtilizationCounter nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetGpuFabricInfo nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetPlatformInfo nvmlDeviceGetModuleId
    nvmlDeviceGetRunningProcessDetailList nvmlDeviceGetProcessesUtilizationInfo nvmlDeviceGetVirtualizationMode
    nvmlDeviceGetGpuOperationMode nvmlDeviceGetDriverModel nvmlDeviceGetBridgeChipInfo nvmlDeviceGetMultiGpuBoard
    nvmlDeviceGetIrqNum nvmlDeviceGetGspFirmwareMode nvmlDeviceGetGspFirmwareVersion nvmlDeviceGetConfComputeGpuCertificate
    nvmlDeviceGetGpuInstances nvmlDeviceGetGpuInstanceById nvmlDeviceGetGpuInstanceRemainingCapacity
    nvmlDeviceGetTopologyNearestGpus nvmlDeviceGetP2PStatus nvmlDeviceOnSameBoard nvmlDeviceGetPciInfoExt
    nvmlDeviceRegisterEvents nvmlDeviceGetSupportedEventTypes nvmlEventSetCreate nvmlEventSetWait nvmlEventSetWait_v2
    nvmlEventSetFree nvmlUnitGetCount nvmlSystemGetHicVersion nvmlSystemGetTopologyGpuSet nvmlGpmQueryIfStreamingEnabled
}
