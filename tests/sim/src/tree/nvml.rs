//! The state file of the fake NVML library (`tests/fake-nvml`), by its documented keys.

use gpuprod_snapshot::gpu::{Gpm, Gpu, GpuHealth, GpuProcess};
use gpuprod_snapshot::units::{Bytes, Ppb};
use gpuprod_snapshot::{Reading, Tick};
use serde_json::{Value, json};

use super::value;

/// Brings a state up to date with a tick. Begin with [`Value::Null`]. A tick without GPUs leaves the boards as
/// they were; one in which NVML hangs adds the hang.
pub fn nvml_state(tick: &Tick, state: &mut Value) {
    if !state.is_object() {
        *state = json!({ "gpus": [] });
    }
    let mut faults = Vec::new();
    if let Some(gpus) = value!(tick, gpu) {
        let boards: Vec<Value> = gpus.devices.iter().map(board).collect();
        let lost: Vec<u32> =
            gpus.devices.iter().filter(|gpu| gpu.health.get() == Some(&GpuHealth::Lost)).map(|gpu| gpu.index).collect();
        if !lost.is_empty() {
            faults.push(json!({ "lost": lost }));
        }
        state["gpus"] = boards.into();
        if let Some(driver) = gpus.driver.get() {
            state["driver"] = driver.clone().into();
        }
    } else if let Some(hung) = tick.gpu.as_ref().and_then(|sample| sample.hung.as_ref()) {
        faults.push(json!({ "hang": { "call": hung.call } }));
    }
    state["faults"] = faults.into();
}

fn number<T: Copy + Into<u64>>(reading: &Reading<T>) -> Value {
    reading.copied().map_or(Value::Null, |value| value.into().into())
}

fn bytes(reading: &Reading<Bytes>) -> Value {
    reading.copied().map_or(Value::Null, |bytes| bytes.0.into())
}

fn kib(reading: &Reading<Bytes>) -> Value {
    reading.copied().map_or(Value::Null, |bytes| (bytes.0 / 1024).into())
}

/// A reading's inner number.
macro_rules! inner {
    ($reading:expr) => {
        $reading.copied().map_or(Value::Null, |unit| unit.0.into())
    };
    ($reading:expr, / $by:literal) => {
        $reading.copied().map_or(Value::Null, |unit| (unit.0 / $by).into())
    };
}

fn board(gpu: &Gpu) -> Value {
    let model = gpu.model.get().map_or("", String::as_str);
    let ecc = gpu.ecc.corrected.get().map(|corrected| {
        json!({
            "corrected": corrected,
            "uncorrected": gpu.ecc.uncorrected.copied().unwrap_or(0),
            "remap_pending": gpu.ecc.remap_pending.copied().unwrap_or(false),
            "remap_failed": gpu.ecc.remap_failed.copied().unwrap_or(false),
            "recovery_action": gpu.ecc.recovery_action.copied().unwrap_or(0),
        })
    });
    json!({
        "uuid": gpu.uuid.get(),
        "pci": gpu.pci.get().map(ToString::to_string),
        "name": model,
        "architecture": if model.contains("A100") { 7 } else { 9 },
        "util": inner!(gpu.util, / 10),
        "util_mem": inner!(gpu.util_mem, / 10),
        "mem_total": bytes(&gpu.mem_total),
        "mem_used": bytes(&gpu.mem_used),
        "mem_reserved": gpu.mem_reserved.copied().map_or(0, |bytes| bytes.0),
        "power_mw": inner!(gpu.power),
        "power_limit_mw": inner!(gpu.power_limit),
        "power_limit_default_mw": inner!(gpu.power_limit_default),
        "energy_mj": inner!(gpu.energy),
        "temp": inner!(gpu.temp),
        "temp_mem": inner!(gpu.temp_mem),
        "clock_sm": inner!(gpu.clock_sm),
        "clock_sm_max": inner!(gpu.clock_sm_max),
        "clock_mem": inner!(gpu.clock_mem),
        "clock_reasons": number(&gpu.clock_reasons),
        "pstate": number(&gpu.pstate),
        "pcie": {
            "tx": bytes(&gpu.pcie.tx),
            "rx": bytes(&gpu.pcie.rx),
            "replay": number(&gpu.pcie.replay),
            "generation": number(&gpu.pcie.generation),
            "width": number(&gpu.pcie.width),
            "generation_max": number(&gpu.pcie.generation_max),
            "width_max": number(&gpu.pcie.width_max),
        },
        "ecc": ecc,
        "nvlink_tx_kib": kib(&gpu.nvlink_tx),
        "nvlink_rx_kib": kib(&gpu.nvlink_rx),
        "gpm": gpu.gpm.get().map(activity),
        "mig": gpu.mig.get(),
        "processes": gpu.processes.get().into_iter().flatten().map(process).collect::<Vec<_>>(),
    })
}

fn activity(gpm: &Gpm) -> Value {
    let percent = |share: &Reading<Ppb>| share.copied().map_or(0.0, |share| share.as_fraction() * 100.0);
    json!({
        "sm": percent(&gpm.sm),
        "occupancy": percent(&gpm.occupancy),
        "tensor": percent(&gpm.tensor),
        "dram": percent(&gpm.dram),
    })
}

fn process(process: &GpuProcess) -> Value {
    json!({
        "pid": process.pid,
        "kind": process.kind.as_str(),
        "mem_used": bytes(&process.mem_used),
        "sm": inner!(process.sm, / 10),
        "gi": process.gi,
    })
}
