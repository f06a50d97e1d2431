//! All GPUs, sample after sample. A GPU that cannot be had stays in the list: it is lost, not forgotten.

use std::ffi::{OsStr, OsString};

use gpuprod_snapshot::gpu::{GpuHealth, Gpus};

use super::board::{Board, Cadence};
use super::calls::{Code, GPU_IS_LOST, Library, Timings};
use super::map;
use super::wire::Reply;
use crate::{Missing, Reading};

/// Where the loader finds the driver's library.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Samples between two attempts to start a library that is not there, or to find a lost board again: each
/// attempt may make the driver load itself, or wait for seconds.
const RETRY: u64 = 30;

/// The library, its boards, and how often each was asked.
pub(super) struct Sweep {
    path: OsString,
    cadence: Cadence,
    timed: bool,
    library: Option<Library>,
    driver: Reading<String>,
    boards: Vec<Board>,
    count: u32,
    sample: u64,
    /// The sample at which boards are looked for again.
    inventory: u64,
    /// Why there is no library, and until which sample that stands.
    refusal: Option<(Refusal, u64)>,
}

/// Why a library did not start.
#[derive(Clone, Debug)]
struct Refusal {
    missing: Missing,
    tried: String,
    hint: &'static str,
}

impl Sweep {
    pub(super) fn new(path: Option<OsString>, cadence: Cadence, timed: bool) -> Self {
        Self {
            path: path.unwrap_or_else(|| LIBRARY.into()),
            cadence,
            timed,
            library: None,
            driver: Reading::default(),
            boards: Vec::new(),
            count: 0,
            sample: 0,
            inventory: 0,
            refusal: None,
        }
    }

    /// One sample of all boards.
    pub(super) fn sample(&mut self) -> Reply {
        let now = self.sample;
        self.sample = now.saturating_add(1);
        let library = match self.start(now) {
            Ok(library) => library,
            Err(refusal) => return Reply::failed(refusal.missing, refusal.tried, refusal.hint),
        };
        let count = match library.count() {
            Ok(count) => count,
            Err(code) => {
                self.close(Some(library));
                return Reply::failed(map::missing(code), said("nvmlDeviceGetCount_v2", code), hint(code));
            }
        };
        let inventory = now >= self.inventory || count != self.count;
        if inventory {
            self.count = count;
            find(&library, count, &mut self.boards);
        }
        for board in &mut self.boards {
            board.read(&library, now, &self.cadence, inventory);
        }
        let sound = self.boards.iter().all(Board::sound);
        let (base, next) = if inventory { (u64::MAX, self.cadence.inventory) } else { (self.inventory, u64::MAX) };
        let next = if sound { next } else { next.min(RETRY) };
        self.inventory = base.min(now.saturating_add(next));
        let devices = self.boards.iter().map(|board| board.gpu.clone()).collect();
        self.library = Some(library);
        Reply {
            gpus: Reading::Value(Gpus { driver: self.driver.clone(), devices }),
            tried: String::new(),
            hint: String::new(),
            note: String::new(),
        }
    }

    /// Lets go of the driver. The boards stay known.
    pub(super) fn release(&mut self) -> Reply {
        let library = self.library.take();
        self.close(library);
        Reply::failed(Missing::Released, "the driver's handles are closed", "gpuprod resume-gpu takes them back")
    }

    /// What was measured, with [`Sweep::new`] told to measure.
    pub(super) fn timings(&self) -> Timings {
        self.library.as_ref().map(Library::timings).unwrap_or_default()
    }

    /// The running library, out of its place.
    fn start(&mut self, now: u64) -> Result<Library, Refusal> {
        if let Some(library) = self.library.take() {
            return Ok(library);
        }
        if let Some((refusal, until)) = &self.refusal
            && now < *until
        {
            return Err(refusal.clone());
        }
        let started = load(&self.path, self.timed);
        match &started {
            Ok(library) => {
                self.refusal = None;
                self.inventory = now;
                self.driver = map::text(library.driver_version());
            }
            Err(refusal) => self.refusal = Some((refusal.clone(), now.saturating_add(RETRY))),
        }
        started
    }

    fn close(&mut self, library: Option<Library>) {
        let Some(library) = library else { return };
        for board in &mut self.boards {
            board.close(&library);
            board.lose(GpuHealth::Lost);
        }
        // What it answers changes nothing: it is dropped, and with it unloaded, in any case.
        let _ = library.shutdown();
    }
}

fn load(path: &OsStr, timed: bool) -> Result<Library, Refusal> {
    let name = path.to_string_lossy();
    let library = Library::open(path, timed).map_err(|words| Refusal {
        missing: Missing::Unsupported,
        tried: format!("load {name} ({words})"),
        hint: "no NVIDIA driver library (libnvidia-ml.so.1) here: normal on a node without NVIDIA GPUs; on one with \
               GPUs install the driver, or name its library: --nvml-library FILE",
    })?;
    match library.init() {
        Ok(()) => Ok(library),
        Err(code) => Err(Refusal { missing: map::missing(code), tried: said("nvmlInit_v2", code), hint: hint(code) }),
    }
}

fn said(call: &str, code: Code) -> String {
    format!("{call}: {}", map::words(code))
}

fn hint(code: Code) -> &'static str {
    match code {
        9 => "the library is there, the kernel module is not loaded: nvidia-smi says more",
        17 | 4 => "/dev/nvidia* may not be opened: check the unit's DeviceAllow= or the container's devices",
        18 => "library and kernel module are of different driver versions: reload the module or reboot",
        _ => "",
    }
}

/// Looks for all boards again. A known one is recognised by its uuid, wherever it stands now; one that is not
/// found any more is lost.
fn find(library: &Library, count: u32, boards: &mut Vec<Board>) {
    let mut old = std::mem::take(boards);
    let mut nameless: Vec<(u32, Code)> = Vec::new();
    for index in 0..count {
        let found = library.handle(index).and_then(|device| Ok((device, library.uuid(device)?)));
        match found {
            Ok((device, uuid)) => {
                let uuid = Reading::Value(uuid);
                let known = old.iter().position(|board| board.gpu.uuid == uuid);
                let mut board = known.map_or_else(|| Board::unknown(index), |place| old.swap_remove(place));
                board.gpu.index = index;
                board.gpu.uuid = uuid;
                board.device = Some(device);
                boards.push(board);
            }
            Err(code) => nameless.push((index, code)),
        }
    }
    for (index, code) in nameless {
        // What stood here before, if it was not found elsewhere, is what stands here now.
        let known = old.iter().position(|board| board.gpu.index == index);
        let mut board = known.map_or_else(|| Board::unknown(index), |place| old.swap_remove(place));
        board.lose(map::health(code).unwrap_or(GpuHealth::Lost));
        boards.push(board);
    }
    for mut board in old {
        // Without a name it was only ever a place, and that place is gone.
        if board.gpu.uuid.get().is_some() {
            board.lose(map::health(GPU_IS_LOST).unwrap_or(GpuHealth::Lost));
            boards.push(board);
        }
    }
    boards.sort_by_key(|board| board.gpu.index);
}
