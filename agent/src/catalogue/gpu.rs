//! GPUs as NVML shows them, and the state that the judge gives them.

use gpuprod_rules::{Cause, Fault, Loading, Progress, State, Unknown};
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::MegaHertz;

use super::{Exact, Kind, Metric, Points, Value, value};
use crate::pipeline::Frame;

/// NVML's clock-event bits (`nvmlClocksEventReasons`) that hold clocks down, and 0x1, which does not.
const CLOCK_REASONS: &[(u64, &str)] = &[
    (0x1, "idle"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
];

/// One state of each word, in the order of precedence.
const STATES: &[State] = &[
    State::Faulted(Fault::Xid),
    State::Unknown(Unknown::Hung),
    State::Unallocated,
    State::Loading(Loading::Weights),
    State::Stalled,
    State::Squatted,
    State::Throttled,
    State::Starved(Cause::Storage),
    State::Productive(Progress::Decode),
    State::Headroom,
    State::Idle,
];

macro_rules! gauge {
    ($name:literal, $unit:literal, $help:literal, $($field:ident).+) => {
        Metric {
            name: $name, kind: Kind::Gauge, unit: $unit, labels: &["uuid"], help: $help,
            read: |frame, out| each(frame, |uuid, gpu| out.read(&[uuid], &gpu.$($field).+)),
        }
    };
}
macro_rules! counter {
    ($name:literal, $unit:literal, $help:literal, $($field:ident).+) => {
        Metric {
            name: $name, kind: Kind::Counter, unit: $unit, labels: &["uuid"], help: $help,
            read: |frame, out| each(frame, |uuid, gpu| out.read(&[uuid], &gpu.$($field).+)),
        }
    };
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "gpuprod.gpu.info",
        kind: Kind::Gauge,
        unit: "",
        labels: &["uuid", "gpu", "pci_address", "model", "driver_version"],
        help: "Names of the GPU; join the other series to it by uuid.",
        read: info,
    },
    Metric {
        name: "gpuprod.gpu.state",
        kind: Kind::Gauge,
        unit: "",
        labels: &["uuid", "state"],
        help: "1 for the state that the unit is in, 0 for the others.",
        read: state,
    },
    Metric {
        name: "gpuprod.gpu.weight",
        kind: Kind::Gauge,
        unit: "1",
        labels: &["uuid", "weight_source"],
        help: "Productive part of the last tick, and on whose word.",
        read: |frame, out| {
            for unit in &frame.judgement.units {
                let labels = [&*unit.unit.0, unit.weight.source.as_str()];
                out.put(&labels, unit.weight.w.exact());
            }
        },
    },
    gauge!("gpuprod.gpu.utilization", "1", "Share of the last window with a kernel resident: time, not work.", util),
    gauge!(
        "gpuprod.gpu.memory.utilization",
        "1",
        "Share of the last window in which memory was read or written: time, not capacity.",
        util_mem
    ),
    gauge!("gpuprod.gpu.memory.used", "By", "Framebuffer in use, without the driver's reserve.", mem_used),
    gauge!("gpuprod.gpu.memory.size", "By", "Framebuffer size.", mem_total),
    gauge!("gpuprod.gpu.power", "W", "Board power.", power),
    gauge!("gpuprod.gpu.power.limit", "W", "Power limit in force.", power_limit),
    counter!("gpuprod.gpu.energy", "J", "Energy since the driver was loaded.", energy),
    gauge!("gpuprod.gpu.temperature", "Cel", "Core temperature.", temp),
    gauge!("gpuprod.gpu.memory.temperature", "Cel", "Memory temperature.", temp_mem),
    Metric {
        name: "gpuprod.gpu.clock",
        kind: Kind::Gauge,
        unit: "Hz",
        labels: &["uuid", "clock"],
        help: "Clock of the SMs and of the memory.",
        read: |frame, out| {
            each(frame, |uuid, gpu| {
                for (clock, reading) in [("sm", &gpu.clock_sm), ("memory", &gpu.clock_mem)] {
                    if let Some(MegaHertz(mhz)) = reading.copied() {
                        out.put(&[uuid, clock], Value::Decimal(i128::from(mhz) * 1_000_000, 0));
                    }
                }
            });
        },
    },
    Metric {
        name: "gpuprod.gpu.clock.reason",
        kind: Kind::Gauge,
        unit: "",
        labels: &["uuid", "reason"],
        help: "1 while the driver gives this reason for the clocks not being higher.",
        read: |frame, out| {
            each(frame, |uuid, gpu| {
                if let Some(mask) = gpu.clock_reasons.copied() {
                    for (bit, reason) in CLOCK_REASONS {
                        out.put(&[uuid, reason], (mask & bit != 0).exact());
                    }
                }
            });
        },
    },
    Metric {
        name: "gpuprod.gpu.pcie.io",
        kind: Kind::Counter,
        unit: "By",
        labels: &["uuid", "direction"],
        help: "Bytes over the GPU's PCIe link, as the GPU sees it.",
        read: |frame, out| {
            each(frame, |uuid, gpu| {
                out.read(&[uuid, "transmit"], &gpu.pcie.tx);
                out.read(&[uuid, "receive"], &gpu.pcie.rx);
            });
        },
    },
    counter!("gpuprod.gpu.pcie.replays", "{replay}", "PCIe packets that were sent again.", pcie.replay),
    Metric {
        name: "gpuprod.gpu.ecc.errors",
        kind: Kind::Counter,
        unit: "{error}",
        labels: &["uuid", "type"],
        help: "Memory errors since the driver was loaded.",
        read: |frame, out| {
            each(frame, |uuid, gpu| {
                out.read(&[uuid, "corrected"], &gpu.ecc.corrected);
                out.read(&[uuid, "uncorrected"], &gpu.ecc.uncorrected);
            });
        },
    },
    Metric {
        name: "gpuprod.gpu.processes",
        kind: Kind::Gauge,
        unit: "{process}",
        labels: &["uuid"],
        help: "Processes with a context on the GPU.",
        read: |frame, out| {
            each(frame, |uuid, gpu| {
                if let Some(count) = gpu.processes.get().and_then(|p| u64::try_from(p.len()).ok()) {
                    out.put(&[uuid], count.exact());
                }
            });
        },
    },
];

/// Every GPU with a known identity.
fn each(frame: &Frame<'_>, mut read: impl FnMut(&str, &Gpu)) {
    for gpu in value(frame.known.gpu.as_deref()).map_or(&[][..], |gpus| &gpus.devices) {
        if let Some(uuid) = gpu.uuid.get() {
            read(uuid, gpu);
        }
    }
}

fn info(frame: &Frame<'_>, out: &mut Points) {
    let driver = value(frame.known.gpu.as_deref()).and_then(|gpus| gpus.driver.get());
    each(frame, |uuid, gpu| {
        let pci = gpu.pci.get().map(ToString::to_string).unwrap_or_default();
        let labels = [
            uuid,
            &gpu.index.to_string(),
            &pci,
            gpu.model.get().map_or("", String::as_str),
            driver.map_or("", String::as_str),
        ];
        out.put(&labels, 1_u32.exact());
    });
}

fn state(frame: &Frame<'_>, out: &mut Points) {
    for unit in &frame.judgement.units {
        for state in STATES {
            let now = state.as_str() == unit.state.as_str();
            out.put(&[&unit.unit.0, state.as_str()], now.exact());
        }
    }
}
