//! A GPU's own link: its width at any time, its speed while something moves or works, and its replays.

use alloc::collections::VecDeque;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::topology::{Link, Pci, PciDevice};
use gpuprod_snapshot::units::{Nanos, to_f64};
use serde::{Deserialize, Serialize};

use super::find;

/// QEMU's ports: their links are made up.
const VIRTUAL: u32 = 0x1b36;
/// A GPU with this utilization, or this traffic, keeps its link awake.
const WORKS: f64 = 0.1;
const MOVES: f64 = 100e6;
/// Power, as a part of the limit, that no resting GPU draws (with a context: .14 to .37 measured in public).
const DRAWS: f64 = 0.4;
/// After so long without work the link may have gone to sleep: what was seen under load before is no proof any more.
const SLEEPS: Nanos = Nanos::from_secs(10);
/// Replays are counted over so long.
const REPLAYS: Nanos = Nanos::from_secs(600);
const MINUTE: Nanos = Nanos::from_secs(60);

/// Speed of a link in generations: bytes per second of one lane, as they travel (8b/10b up to the second, 128b/130b
/// then; `PCI Express Base Specification`).
const LANES: &[(u32, f64)] =
    &[(2_500, 250e6), (5_000, 500e6), (8_000, 984.6e6), (16_000, 1_969.2e6), (32_000, 3_938.5e6), (64_000, 7_563.0e6)];

/// Lanes and generation, now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lanes {
    pub(crate) width: Option<(u32, u32)>,
    pub(crate) generation: Option<(u32, u32)>,
}

/// What is known of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LinkSignals {
    pub(crate) lanes: Lanes,
    /// It has fewer lanes than it could, since; and whether it was seen to have all.
    pub(crate) narrow_since: Option<Nanos>,
    /// It is slower than it could be under load, since.
    pub(crate) slow_since: Option<Nanos>,
    /// It was seen at its full width and, under load, at its full speed.
    pub(crate) was_full: bool,
    busy_at: Nanos,
    /// The counter once a minute.
    replays: VecDeque<(Nanos, u64)>,
}

/// Bytes per second and direction of so many lanes of a generation.
pub(crate) fn bytes_per_second(width: u32, generation: u32) -> Option<f64> {
    let place = usize::try_from(generation.checked_sub(1)?).ok()?;
    LANES.get(place).map(|(_, lane)| lane * f64::from(width))
}

/// The generation of a speed per lane.
pub(super) fn generation(speed: u32) -> Option<u32> {
    let place = LANES.iter().position(|(known, _)| *known == speed)?;
    u32::try_from(place + 1).ok()
}

/// Whether something keeps the link awake: bytes that move, or utilization that somebody makes. A utilization counter that
/// reads full of a free GPU is a known lie, and a sleeping link runs at generation 1: a process is on it, or, where those
/// of other namespaces cannot be listed, it draws power.
pub(super) fn awake(gpu: &Gpu, rate: Option<f64>) -> bool {
    let busy = gpu.util.copied().is_some_and(|util| util.as_fraction() > WORKS);
    let held = gpu.processes.get().is_some_and(|processes| !processes.is_empty());
    let power = gpu.power.copied().zip(gpu.power_limit.copied());
    let draws = power.is_some_and(|(power, limit)| to_f64(power.0) > DRAWS * to_f64(limit.0));
    rate.is_some_and(|rate| rate > MOVES) || (busy && (held || draws))
}

/// Zero lanes are no link, 63 is a register that reads as all ones, 255 a capability that cannot be read.
fn sane(width: u32) -> bool {
    (1..=32).contains(&width)
}

impl Lanes {
    /// The driver's word: its largest values are those of card and slot together.
    fn of(gpu: &Gpu) -> Self {
        let pcie = &gpu.pcie;
        Self {
            width: pcie.width.copied().zip(pcie.width_max.copied()).filter(|(now, most)| sane(*now) && sane(*most)),
            generation: pcie.generation.copied().zip(pcie.generation_max.copied()).filter(|(now, _)| *now > 0),
        }
    }

    /// sysfs tells what the card can do: the port above it is asked for the slot.
    fn from_sysfs(own: &PciDevice, pci: &Pci) -> Self {
        let port = own.bridges.last().and_then(|at| find(pci, *at));
        let port = port.filter(|port| port.vendor.copied() != Some(VIRTUAL)).map(|port| &port.link);
        let least = |pick: fn(&Link) -> Option<u32>| {
            Some(port.and_then(pick).map_or(pick(&own.link)?, |slot| slot.min(pick(&own.link).unwrap_or(slot))))
        };
        let width = own.link.width.copied().zip(least(|link| link.width_max.copied().filter(|width| sane(*width))));
        let speed = own.link.speed.copied().zip(least(|link| link.speed_max.copied().map(|speed| speed.0)));
        Self {
            width: width.filter(|(now, most)| sane(*now) && sane(*most)),
            generation: speed.and_then(|(now, most)| generation(now.0).zip(generation(most))),
        }
    }

    /// Whether anything is known.
    pub(crate) const fn known(self) -> bool {
        self.width.is_some() || self.generation.is_some()
    }

    /// Bytes per second and direction now, and at most.
    pub(crate) fn rates(self) -> Option<(f64, f64)> {
        let ((width, width_max), (generation, generation_max)) = self.width.zip(self.generation)?;
        bytes_per_second(width, generation).zip(bytes_per_second(width_max, generation_max))
    }
}

impl LinkSignals {
    /// Takes in a reading. sysfs speaks where the driver does not, as often as it is read. `awake`: something moves or works.
    pub(super) fn read(&mut self, gpu: &Gpu, device: Option<(&Pci, &PciDevice)>, awake: bool, now: Nanos) {
        let told = Lanes::of(gpu);
        let lanes = if told.known() {
            told
        } else if let Some((pci, own)) = device {
            Lanes::from_sysfs(own, pci)
        } else {
            return;
        };
        self.lanes = lanes;
        let narrow = lanes.width.is_some_and(|(now, most)| now < most);
        self.narrow_since = narrow.then(|| self.narrow_since.unwrap_or(now));
        if awake {
            let slow = lanes.generation.is_some_and(|(now, most)| now < most);
            self.slow_since = slow.then(|| self.slow_since.unwrap_or(now));
            self.busy_at = now;
            self.was_full |= !slow && !narrow && lanes.width.is_some();
        } else if now.saturating_sub(self.busy_at) >= SLEEPS {
            self.slow_since = None;
        }
        self.count(gpu.pcie.replay.copied(), now);
    }

    fn count(&mut self, replays: Option<u64>, now: Nanos) {
        let Some(replays) = replays else { return };
        if self.replays.back().is_some_and(|(_, last)| *last > replays) {
            // The driver was loaded anew.
            self.replays.clear();
        }
        while self.replays.front().is_some_and(|(at, _)| now.saturating_sub(*at) > REPLAYS) {
            self.replays.pop_front();
        }
        match self.replays.back() {
            Some((at, _)) if now.saturating_sub(*at) < MINUTE => {}
            _ => self.replays.push_back((now, replays)),
        }
    }

    /// Replays per minute over the last ten, once that long was seen.
    pub(crate) fn replays_per_minute(&self) -> Option<f64> {
        let ((first, before), (last, after)) = self.replays.front().zip(self.replays.back())?;
        let span = last.saturating_sub(*first);
        let whole = span.saturating_add(MINUTE) >= REPLAYS;
        whole.then(|| to_f64(after.saturating_sub(*before)) / (span.as_secs_f64() / 60.0))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use gpuprod_snapshot::Reading;
    use gpuprod_snapshot::gpu::{ContextKind, GpuProcess};
    use gpuprod_snapshot::topology::PciAddress;
    use gpuprod_snapshot::units::{MegaTransfers, Milliwatts, Permille};

    use super::*;

    fn at(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0, function: 0 }
    }

    fn device(
        bus: u8,
        bridges: Vec<PciAddress>,
        (width, width_max): (u32, u32),
        (speed, most): (u32, u32),
    ) -> PciDevice {
        let link = Link {
            width: width.into(),
            width_max: width_max.into(),
            speed: MegaTransfers(speed).into(),
            speed_max: MegaTransfers(most).into(),
        };
        PciDevice { address: at(bus), bridges, link, vendor: 0x8086.into(), ..PciDevice::default() }
    }

    fn seen(own: &PciDevice, port: PciDevice) -> Lanes {
        Lanes::from_sysfs(own, &Pci { devices: [port, own.clone()].into() })
    }

    #[test]
    fn where_the_driver_is_silent_the_port_above_says_what_the_slot_has() {
        let own = device(2, [at(1)].into(), (8, 16), (16_000, 32_000));
        // A card of 16 lanes at generation 5 in a slot of 8 lanes at generation 4 is whole.
        let slot = device(1, Vec::new(), (8, 8), (16_000, 16_000));
        let lanes = seen(&own, slot);
        assert_eq!((lanes.width, lanes.generation), (Some((8, 8)), Some((4, 4))));
        let whole = device(1, Vec::new(), (8, 16), (16_000, 32_000));
        let lanes = seen(&own, whole.clone());
        assert_eq!((lanes.width, lanes.generation), (Some((8, 16)), Some((4, 5))));
        // A port that a hypervisor made up says nothing: old QEMU has 2.5 GT/s x1.
        let made_up = PciDevice { vendor: VIRTUAL.into(), ..device(1, Vec::new(), (1, 1), (2_500, 2_500)) };
        assert_eq!(seen(&own, made_up).width, Some((8, 16)));
        // A register of all ones, a capability that cannot be read, and no link at all are no widths.
        for (width, most) in [(63, 16), (8, 255), (0, 16)] {
            let odd = device(2, [at(1)].into(), (width, most), (16_000, 32_000));
            let lanes = seen(&odd, device(1, Vec::new(), (width, most), (16_000, 32_000)));
            assert_eq!(lanes.width, None, "{width} of {most}");
        }
    }

    fn gpu(util: u32, generation: u32, width: u32, replays: u64) -> Gpu {
        let holder = GpuProcess {
            pid: 1,
            kind: ContextKind::Compute,
            mem_used: Reading::default(),
            sm: Reading::default(),
            gi: None,
        };
        let mut gpu = Gpu { util: Permille(util).into(), processes: alloc::vec![holder].into(), ..Gpu::default() };
        (gpu.pcie.generation, gpu.pcie.generation_max) = (generation.into(), 5.into());
        (gpu.pcie.width, gpu.pcie.width_max) = (width.into(), 16.into());
        gpu.pcie.replay = replays.into();
        gpu
    }

    #[test]
    fn speed_counts_under_load_and_width_at_any_time() {
        let mut link = LinkSignals::default();
        let mut read = |gpu: Gpu, rate: Option<f64>, second: u64| {
            link.read(&gpu, None, awake(&gpu, rate), Nanos::from_secs(second));
            (link.slow_since.map(Nanos::as_secs_f64), link.narrow_since.map(Nanos::as_secs_f64), link.was_full)
        };
        assert_eq!(read(gpu(0, 1, 16, 0), None, 1), (None, None, false), "it rests");
        assert_eq!(read(gpu(0, 1, 16, 0), Some(5e8), 2), (Some(2.0), None, false), "it moves half a gigabyte a second");
        assert_eq!(read(gpu(900, 2, 16, 0), None, 5), (Some(2.0), None, false));
        assert_eq!(read(gpu(900, 5, 16, 0), None, 6), (None, None, true), "one full reading under load clears it");
        assert_eq!(read(gpu(900, 2, 16, 0), None, 7), (Some(7.0), None, true));
        assert_eq!(read(gpu(0, 1, 16, 0), None, 16), (Some(7.0), None, true), "a pause between two steps");
        assert_eq!(read(gpu(0, 1, 16, 0), None, 17), (None, None, true), "asleep");
        assert_eq!(read(gpu(0, 1, 4, 0), None, 18), (None, Some(18.0), true), "narrow while it rests");
        // Without a word about its largest values nothing is said, and what was known stays.
        let mut silent = gpu(900, 1, 1, 0);
        (silent.pcie.generation_max, silent.pcie.width_max) = (Reading::default(), Reading::default());
        assert_eq!(read(silent, None, 19), (None, Some(18.0), true));
        // Full utilization on a GPU that nobody is on, at idle power, is a lie; where nobody can be listed, power tells.
        let free = Gpu { processes: Vec::new().into(), ..gpu(1000, 1, 16, 0) };
        assert_eq!(read(free.clone(), None, 30), (None, None, true));
        let draws = Gpu { power: Milliwatts(300_000).into(), power_limit: Milliwatts(400_000).into(), ..free };
        assert_eq!(read(draws, None, 31), (Some(31.0), None, true));
    }

    #[test]
    fn replays_are_counted_over_ten_minutes_and_a_new_driver_begins_anew() {
        let mut link = LinkSignals::default();
        let mut read = |replays, minute: u64| {
            link.read(&gpu(900, 5, 16, replays), None, true, Nanos::from_secs(minute * 60));
            link.replays_per_minute()
        };
        assert!((0..9).all(|minute| read(minute * 30, minute).is_none()));
        assert_eq!(read(270, 9), Some(30.0));
        assert_eq!(read(300, 10), Some(30.0));
        assert_eq!(read(0, 11), None);
        assert_eq!((bytes_per_second(16, 5).map(|rate| rate > 62e9), bytes_per_second(16, 0)), (Some(true), None));
    }
}
