//! `nvmlDeviceGetFieldValues`: each value has its own return code.

use core::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{field_id, nvmlFieldValue_t, nvmlValue_t};

use crate::abi::{INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, nvmlDevice_t, nvmlReturn_t};
use crate::live::{View, on};

/// `valueType` of an unsigned int and of an unsigned long long.
const UINT: c_uint = 1;
const ULONGLONG: c_uint = 3;

fn value(view: &View, field: c_uint, scope: c_uint) -> Option<(c_uint, u64)> {
    if view.mig.is_some() {
        return None;
    }
    let gpu = view.gpu();
    let ecc = gpu.ecc.as_ref();
    let all_links = scope == c_uint::MAX;
    Some(match field {
        field_id::NVML_FI_DEV_MEMORY_TEMP => (UINT, gpu.temp_mem?.into()),
        field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION => (ULONGLONG, crate::live::energy(view)?),
        field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX if all_links => (ULONGLONG, gpu.nvlink_tx_kib?),
        field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX if all_links => (ULONGLONG, gpu.nvlink_rx_kib?),
        field_id::NVML_FI_DEV_REMAPPED_PENDING => (UINT, ecc?.remap_pending.into()),
        field_id::NVML_FI_DEV_REMAPPED_FAILURE => (UINT, ecc?.remap_failed.into()),
        field_id::NVML_FI_DEV_POWER_AVERAGE | field_id::NVML_FI_DEV_POWER_INSTANT => (UINT, gpu.power_mw?.into()),
        field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES => (ULONGLONG, gpu.pcie.tx?),
        field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES => (ULONGLONG, gpu.pcie.rx?),
        field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION => (UINT, ecc?.recovery_action.into()),
        _ => return None,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    on("nvmlDeviceGetFieldValues", device, |view| {
        let Some(count) = usize::try_from(count).ok().filter(|_| !values.is_null()) else {
            return INVALID_ARGUMENT;
        };
        for at in 0..count {
            // SAFETY: the caller vouches for `count` values, as NVML's interface asks.
            let field = unsafe { &mut *values.add(at) };
            field.timestamp = 0;
            field.latencyUsec = 1;
            match value(view, field.fieldId, field.scopeId) {
                Some((kind, value)) => {
                    field.valueType = kind;
                    // The low half of the union is the smaller integer: little-endian machines only.
                    field.value = nvmlValue_t { ullVal: value };
                    field.nvmlReturn = SUCCESS;
                }
                None => field.nvmlReturn = NOT_SUPPORTED,
            }
        }
        SUCCESS
    })
}
