//! From NVML's raw answers to the vocabulary: pure, no library needed.

use gpuprod_snapshot::gpu::{ContextKind, Gpm, GpuHealth, GpuProcess};
use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::{Bytes, Celsius, MegaHertz, Millijoules, Milliwatts, Permille, Ppb};
use nvml_wrapper_sys::bindings::{
    nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
};

use super::calls::{Code, GPU_IS_LOST, RESET_REQUIRED, Raw, string};
use crate::{Missing, Reading};

/// NVML's return codes (nvml.h) as reasons. What stands here neither is a fault of the device or of ours:
/// malformed.
const REASONS: &[(Code, Missing)] = &[
    (1, Missing::Gone),         // UNINITIALIZED: the driver was taken away
    (3, Missing::Unsupported),  // NOT_SUPPORTED
    (4, Missing::Denied),       // NO_PERMISSION
    (6, Missing::Gone),         // NOT_FOUND
    (9, Missing::Unsupported),  // DRIVER_NOT_LOADED
    (10, Missing::TimedOut),    // TIMEOUT
    (12, Missing::Unsupported), // LIBRARY_NOT_FOUND
    (13, Missing::Unsupported), // FUNCTION_NOT_FOUND: an older library
    (15, Missing::Gone),        // GPU_IS_LOST
    (16, Missing::Gone),        // RESET_REQUIRED
    (17, Missing::Denied),      // OPERATING_SYSTEM: a cgroup forbids it
    (18, Missing::Unsupported), // LIB_RM_VERSION_MISMATCH
    (21, Missing::NotYet),      // NO_DATA
    (25, Missing::Unsupported), // ARGUMENT_VERSION_MISMATCH: an older library
    (26, Missing::Unsupported), // DEPRECATED: a newer library
    (27, Missing::NotYet),      // NOT_READY
    (28, Missing::Gone),        // GPU_NOT_FOUND
];

/// Why a value is missing, from a return code.
pub(super) fn missing(code: Code) -> Missing {
    let reason = REASONS.iter().find(|(known, _)| *known == code);
    reason.map_or(Missing::Malformed, |(_, missing)| *missing)
}

/// Whether the device or library lacks it, so that there is no use in asking again soon.
pub(super) fn lacks(code: Code) -> bool {
    matches!(code, 3 | 13 | 25 | 26)
}

/// What a return code says of the device as a whole.
pub(super) fn health(code: Code) -> Option<GpuHealth> {
    match code {
        GPU_IS_LOST => Some(GpuHealth::Lost),
        RESET_REQUIRED => Some(GpuHealth::ResetRequired),
        _ => None,
    }
}

/// The words of a return code.
pub(super) fn words(code: Code) -> String {
    let words = nvml_wrapper::error::nvml_try(code).err().map(|error| error.to_string());
    format!("{} (NVML code {code})", words.unwrap_or_default())
}

/// A plain value.
pub(super) fn plain<T, U>(raw: Raw<T>, make: impl FnOnce(T) -> U) -> Reading<U> {
    match raw {
        Ok(value) => Reading::Value(make(value)),
        Err(code) => Reading::Missing(missing(code)),
    }
}

/// A value of which some make no sense.
fn checked<T, U>(raw: Raw<T>, make: impl FnOnce(T) -> Option<U>) -> Reading<U> {
    match raw {
        Ok(value) => Reading::from_option(make(value), Missing::Malformed),
        Err(code) => Reading::Missing(missing(code)),
    }
}

/// A percentage. Drivers were seen to answer up to 4294967295; more than 100 is no share.
pub(super) fn percent(raw: Raw<u32>) -> Reading<Permille> {
    checked(raw, |value| (value <= 100).then(|| Permille(value * 10)))
}

/// Bytes, of which all bits one mean "not available".
pub(super) fn bytes(raw: Raw<u64>) -> Reading<Bytes> {
    match raw {
        Ok(u64::MAX) => Reading::Missing(Missing::Unsupported),
        raw => plain(raw, Bytes),
    }
}

/// A performance state, 0 to 15; NVML says 32 for "unknown".
pub(super) fn pstate(raw: Raw<u32>) -> Reading<u32> {
    match raw {
        Ok(32) => Reading::Missing(Missing::Unsupported),
        raw => checked(raw, |state| (state <= 15).then_some(state)),
    }
}

/// A small number out of a wide field.
pub(super) fn number(raw: Raw<u64>) -> Reading<u32> {
    checked(raw, |value| u32::try_from(value).ok())
}

/// KiB as bytes.
pub(super) fn kibibytes(raw: Raw<u64>) -> Reading<Bytes> {
    checked(raw, |value| value.checked_mul(1024).map(Bytes))
}

/// Degrees; no board is hotter than 200 or colder than -100.
pub(super) fn temperature(raw: Raw<i64>) -> Reading<Celsius> {
    checked(raw, |value| {
        let sane = (-100..=200).contains(&value).then_some(value)?;
        i32::try_from(sane).ok().map(Celsius)
    })
}

/// No board draws 100 kW: more is a blank of the driver's, all bits one among them.
const MOST_MILLIWATTS: u32 = 100_000_000;
/// And none ticks at 100 GHz.
const MOST_MEGAHERTZ: u32 = 100_000;

/// A power or its limit.
pub(super) fn power(raw: Raw<u32>) -> Reading<Milliwatts> {
    checked(raw, |value| (value <= MOST_MILLIWATTS).then(|| Milliwatts(value.into())))
}

/// A clock.
pub(super) fn clock(raw: Raw<u32>) -> Reading<MegaHertz> {
    checked(raw, |value| (value <= MOST_MEGAHERTZ).then_some(MegaHertz(value)))
}

/// The energy since the driver was loaded; all bits one are no sum.
pub(super) fn energy(raw: Raw<u64>) -> Reading<Millijoules> {
    checked(raw, |value| (value != u64::MAX).then_some(Millijoules(value)))
}

/// Total, used, reserved.
pub(super) type Memory = (Reading<Bytes>, Reading<Bytes>, Reading<Bytes>);

/// The newer call counts the reserve apart.
pub(super) fn memory(raw: Raw<nvmlMemory_v2_t>) -> Memory {
    (bytes(raw.map(|m| m.total)), bytes(raw.map(|m| m.used)), bytes(raw.map(|m| m.reserved)))
}

/// The older call (drivers before 510) counts the reserve as used; that it is unknown shows in the third.
pub(super) fn memory_v1(raw: Raw<nvmlMemory_t>) -> Memory {
    (bytes(raw.map(|m| m.total)), bytes(raw.map(|m| m.used)), Reading::Missing(Missing::Unsupported))
}

/// The PCI address, from the text (its numbers lack the function).
pub(super) fn pci(raw: Raw<nvmlPciInfo_t>) -> Reading<PciAddress> {
    checked(raw, |info| PciAddress::parse(&string(&info.busId)))
}

/// A text; an empty one is no identity.
pub(super) fn text(raw: Raw<String>) -> Reading<String> {
    checked(raw, |text| (!text.is_empty()).then_some(text))
}

/// GPM's percentages in the order of [`GPM_METRICS`]. NaN means that the two samples were too close or the unit
/// was off.
pub(super) fn gpm(raw: Raw<[Raw<f64>; 4]>) -> Reading<Gpm> {
    plain(raw, |[sm, occupancy, tensor, dram]| Gpm {
        sm: ratio(sm),
        occupancy: ratio(occupancy),
        tensor: ratio(tensor),
        dram: ratio(dram),
    })
}

/// SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL.
pub(super) const GPM_METRICS: [u32; 4] = [2, 3, 5, 10];

fn ratio(raw: Raw<f64>) -> Reading<Ppb> {
    checked(raw, |percent| {
        // A hundred and a little is rounding of the driver's.
        let sane = (0.0..=101.0).contains(&percent).then_some(percent)?;
        Ppb::from_fraction((sane / 100.0).min(1.0))
    })
}

/// Processes of the three lists with their activity. A list that the driver lacks is empty; none at all, or
/// the compute list failing, is a missing value.
pub(super) fn processes(
    compute: Raw<Vec<nvmlProcessInfo_t>>,
    graphics: Raw<Vec<nvmlProcessInfo_t>>,
    mps: Raw<Vec<nvmlProcessInfo_t>>,
    activity: &Raw<Vec<nvmlProcessUtilizationSample_t>>,
) -> Reading<Vec<GpuProcess>> {
    let compute = match compute {
        Ok(compute) => compute,
        Err(code) => return Reading::Missing(missing(code)),
    };
    let lists = [
        (ContextKind::Mps, mps.unwrap_or_default()),
        (ContextKind::Compute, compute),
        (ContextKind::Graphics, graphics.unwrap_or_default()),
    ];
    let mut all: Vec<GpuProcess> = Vec::new();
    for (kind, list) in lists {
        for info in list {
            let gi = (info.gpuInstanceId != u32::MAX).then_some(info.gpuInstanceId);
            // MPS clients stand in two lists, and so do processes that compute and draw.
            if all.iter().any(|known| known.pid == info.pid && known.gi == gi) {
                continue;
            }
            all.push(GpuProcess {
                pid: info.pid,
                kind: kind.clone(),
                mem_used: bytes(Ok(info.usedGpuMemory)),
                sm: share(info.pid, activity),
                gi,
            });
        }
    }
    all.sort_by_key(|process| (process.pid, process.gi));
    Reading::Value(all)
}

/// The newest sample of a process. None is not zero: the driver drops what is older than its window.
fn share(pid: u32, activity: &Raw<Vec<nvmlProcessUtilizationSample_t>>) -> Reading<Permille> {
    match activity {
        Ok(samples) => {
            let own = samples.iter().filter(|sample| sample.pid == pid);
            match own.max_by_key(|sample| sample.timeStamp) {
                Some(sample) => percent(Ok(sample.smUtil)),
                None => Reading::Missing(Missing::NotYet),
            }
        }
        // "Not found" is NVML's word for "no samples".
        Err(super::calls::NOT_FOUND) => Reading::Missing(Missing::NotYet),
        Err(code) => Reading::Missing(missing(*code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_above_a_hundred_is_malformed() {
        // NVIDIA/DCGM issue 199: utilization of 4294967295.
        assert_eq!(percent(Ok(100)), Reading::Value(Permille(1000)));
        assert_eq!(percent(Ok(101)), Reading::Missing(Missing::Malformed));
        assert_eq!(percent(Ok(u32::MAX)), Reading::Missing(Missing::Malformed));
        assert_eq!(percent(Err(3)), Reading::Missing(Missing::Unsupported));
    }

    #[test]
    fn gpm_percent_becomes_a_fraction_and_nan_nothing() {
        let got = gpm(Ok([Ok(93.25), Ok(f64::NAN), Err(3), Ok(-1.0)]));
        let want = Gpm {
            sm: Reading::Value(Ppb(932_500_000)),
            occupancy: Reading::Missing(Missing::Malformed),
            tensor: Reading::Missing(Missing::Unsupported),
            dram: Reading::Missing(Missing::Malformed),
        };
        assert_eq!(got, Reading::Value(want));
    }

    #[test]
    fn return_codes_have_reasons() {
        assert_eq!(missing(15), Missing::Gone);
        assert_eq!(missing(17), Missing::Denied);
        assert_eq!(missing(999), Missing::Malformed);
        assert_eq!(health(15), Some(GpuHealth::Lost));
        assert_eq!(health(16), Some(GpuHealth::ResetRequired));
        assert_eq!(health(3), None);
    }

    fn info(pid: u32, used: u64, gi: u32) -> nvmlProcessInfo_t {
        nvmlProcessInfo_t { pid, usedGpuMemory: used, gpuInstanceId: gi, computeInstanceId: u32::MAX }
    }

    #[test]
    fn processes_are_merged_and_all_ones_is_no_size() {
        let sample = |pid, time, sm| nvmlProcessUtilizationSample_t {
            pid,
            timeStamp: time,
            smUtil: sm,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        let activity = Ok(vec![sample(7, 2, 60), sample(7, 1, 10)]);
        let compute = Ok(vec![info(9, u64::MAX, 3), info(7, 4096, u32::MAX)]);
        let graphics = Ok(vec![info(7, 4096, u32::MAX)]);
        let got = processes(compute, graphics, Err(3), &activity);
        let got = got.get().unwrap();
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].pid, got[0].kind.clone(), got[0].gi), (7, ContextKind::Compute, None));
        assert_eq!(got[0].sm, Reading::Value(Permille(600)));
        assert_eq!(got[1].mem_used, Reading::Missing(Missing::Unsupported));
        assert_eq!(got[1].gi, Some(3));
        assert_eq!(got[1].sm, Reading::Missing(Missing::NotYet));
    }

    #[test]
    fn all_ones_are_no_power_clock_or_energy() {
        let malformed = Missing::Malformed;
        assert_eq!(power(Ok(700_000)), Reading::Value(Milliwatts(700_000)));
        assert_eq!(power(Ok(100_000_001)), Reading::Missing(malformed));
        assert_eq!(power(Ok(u32::MAX)), Reading::Missing(malformed));
        assert_eq!(clock(Ok(2619)), Reading::Value(MegaHertz(2619)));
        assert_eq!(clock(Ok(u32::MAX)), Reading::Missing(malformed));
        assert_eq!(energy(Ok(u64::MAX - 1)), Reading::Value(Millijoules(u64::MAX - 1)));
        assert_eq!(energy(Ok(u64::MAX)), Reading::Missing(malformed));
        assert_eq!(energy(Err(3)), Reading::Missing(Missing::Unsupported));
    }

    #[test]
    fn temperatures_beyond_reason_are_malformed() {
        // 0x7ffffff0 is DCGM's blank; a driver's 255 is no temperature either.
        assert_eq!(temperature(Ok(255)), Reading::Missing(Missing::Malformed));
        assert_eq!(temperature(Ok(-5)), Reading::Value(Celsius(-5)));
    }
}
