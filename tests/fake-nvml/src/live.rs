//! What the library remembers: the last good state, handles, counts, and the faults as they happen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::abi::{
    DRIVER_NOT_LOADED, GPU_IS_LOST, INVALID_ARGUMENT, SUCCESS, UNINITIALIZED, nvmlDevice_t, nvmlReturn_t,
};
use crate::state::{Fault, Gpu, Mig, State};

/// Process-wide, as in the real library.
static LIVE: Mutex<Option<Live>> = Mutex::new(None);

#[derive(Default)]
struct Live {
    initialised: u32,
    state: Arc<State>,
    /// mtime and its nanoseconds, inode and size of the file that `state` came from.
    seen: Option<(i64, i64, u64, u64)>,
    /// Uuids in the order in which handles were given out: a handle is a board's identity, not its place.
    handles: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    /// Energy by uuid: CLOCK_BOOTTIME of the last look, and milliwatt-nanoseconds until then.
    energy: BTreeMap<String, (u64, u128)>,
}

/// One board (or an instance of it) at the moment of a call.
pub(crate) struct View {
    pub(crate) state: Arc<State>,
    pub(crate) index: usize,
    pub(crate) mig: Option<usize>,
}

impl View {
    pub(crate) fn gpu(&self) -> &Gpu {
        // `on` looked the index up in this very state.
        &self.state.gpus[self.index]
    }
    pub(crate) fn instance(&self) -> Option<&Mig> {
        self.gpu().instances.get(self.mig?)
    }
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.index).unwrap_or_default()
    }
    pub(crate) fn mig_on(&self) -> bool {
        self.gpu().mig == Some(true)
    }
}

struct Guard(MutexGuard<'static, Option<Live>>);

impl Guard {
    fn take() -> Self {
        Self(LIVE.lock().unwrap_or_else(PoisonError::into_inner))
    }
    fn live(&mut self) -> &mut Live {
        self.0.get_or_insert_default()
    }
}

/// A call that belongs to no board.
pub(crate) fn call(name: &'static str, body: impl FnOnce(&Arc<State>) -> nvmlReturn_t) -> nvmlReturn_t {
    let (state, count) = {
        let mut guard = Guard::take();
        let live = guard.live();
        let count = live.count(name);
        live.refresh();
        if live.initialised == 0 {
            return UNINITIALIZED;
        }
        (Arc::clone(&live.state), count)
    };
    match enact(&state, name, count, None) {
        SUCCESS => body(&state),
        code => code,
    }
}

/// A call on a board.
pub(crate) fn on(name: &'static str, device: nvmlDevice_t, body: impl FnOnce(&View) -> nvmlReturn_t) -> nvmlReturn_t {
    let (view, count) = {
        let mut guard = Guard::take();
        let live = guard.live();
        let count = live.count(name);
        live.refresh();
        if live.initialised == 0 {
            return UNINITIALIZED;
        }
        match live.resolve(device) {
            Ok((index, mig)) => (View { state: Arc::clone(&live.state), index, mig }, count),
            Err(code) => return code,
        }
    };
    match enact(&view.state, name, count, Some(view.index)) {
        SUCCESS => body(&view),
        code => code,
    }
}

/// Like [`on`], for a board that is asked for by its place. Its handle, or why there is none.
pub(crate) fn handle(
    name: &'static str,
    find: impl FnOnce(&State) -> Option<usize>,
    absent: nvmlReturn_t,
    out: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let mut found = None;
    let code = call(name, |state| match find(state) {
        Some(index) if index < state.gpus.len() => {
            found = Some((Arc::clone(state), index));
            SUCCESS
        }
        _ => absent,
    });
    let Some((state, index)) = found else {
        return code;
    };
    // The fault was looked at without a board above; now with it.
    let count = Guard::take().live().counts.get(name).copied().unwrap_or_default();
    match enact(&state, name, count, Some(index)) {
        SUCCESS => {
            let device = handle_of(&state.uuid(index), 0);
            // SAFETY: `out` comes from the caller of NVML's interface.
            unsafe { crate::abi::put(out, Some(device)) }
        }
        code => code,
    }
}

/// The handle of a board (`mig` 0) or of its instance number `mig - 1`.
pub(crate) fn handle_of(uuid: &str, mig: usize) -> nvmlDevice_t {
    let mut guard = Guard::take();
    let handles = &mut guard.live().handles;
    let place = handles.iter().position(|known| known == uuid).unwrap_or_else(|| {
        handles.push(uuid.to_owned());
        handles.len() - 1
    });
    // Never dereferenced by anybody: an odd number that only we take apart.
    std::ptr::without_provenance_mut(((place + 1) << 8) | mig)
}

pub(crate) fn init(name: &'static str) -> nvmlReturn_t {
    let mut guard = Guard::take();
    let live = guard.live();
    let count = live.count(name);
    live.refresh();
    if live.seen.is_none() {
        return DRIVER_NOT_LOADED;
    }
    let state = Arc::clone(&live.state);
    drop(guard);
    let code = enact(&state, name, count, None);
    if code == SUCCESS {
        Guard::take().live().initialised += 1;
    }
    code
}

pub(crate) fn shutdown(name: &'static str) -> nvmlReturn_t {
    let code = call(name, |_| SUCCESS);
    if code == SUCCESS {
        let mut guard = Guard::take();
        let live = guard.live();
        live.initialised -= 1;
        live.save_counts();
    }
    code
}

/// Energy of a board in millijoules: what the state says, or power over time.
pub(crate) fn energy(view: &View) -> Option<u64> {
    let power = view.gpu().power_mw?;
    if let Some(given) = view.gpu().energy_mj {
        return Some(given);
    }
    let mut guard = Guard::take();
    let live = guard.live();
    let total = live.charge(&view.state.uuid(view.index), power);
    u64::try_from(total / 1_000_000_000).ok()
}

impl Live {
    fn count(&mut self, name: &'static str) -> u64 {
        let count = self.counts.entry(name).or_default();
        *count += 1;
        let count = *count;
        if self.counts.values().sum::<u64>() % 1000 == 0 {
            self.save_counts();
        }
        count
    }

    fn save_counts(&self) {
        let Ok(path) = std::env::var(crate::COUNT) else {
            return;
        };
        let mut text = String::new();
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{count} {name}");
        }
        let _ = std::fs::write(path, text);
    }

    /// Adds what was used since the last look; the first look assumes the same power since boot, so that two
    /// clients agree and a restarted one does not see the counter step back.
    fn charge(&mut self, uuid: &str, milliwatts: u32) -> u128 {
        let now = boottime();
        let (last, total) = self.energy.entry(uuid.to_owned()).or_insert((0, 0));
        *total += u128::from(now.saturating_sub(*last)) * u128::from(milliwatts);
        *last = now;
        *total
    }

    /// Reads the state file again if it is another one; a torn file keeps the last good state.
    fn refresh(&mut self) {
        let Ok(path) = std::env::var(crate::STATE) else {
            return;
        };
        let Ok(meta) = std::fs::metadata(&path) else {
            return;
        };
        let seen = (meta.mtime(), meta.mtime_nsec(), meta.ino(), meta.size());
        if self.seen == Some(seen) {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "a test's own file")]
        let state = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let Some(state) = state else { return };
        for (index, gpu) in Arc::clone(&self.state).gpus.iter().enumerate() {
            if let (None, Some(power)) = (gpu.energy_mj, gpu.power_mw) {
                let uuid = self.state.uuid(index);
                self.charge(&uuid, power);
            }
        }
        self.state = Arc::new(state);
        self.seen = Some(seen);
    }

    fn resolve(&self, device: nvmlDevice_t) -> Result<(usize, Option<usize>), nvmlReturn_t> {
        let number = device.addr();
        let place = (number >> 8).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let uuid = self.handles.get(place).ok_or(INVALID_ARGUMENT)?;
        let mut places = 0..self.state.gpus.len();
        let index = places.find(|index| self.state.uuid(*index) == *uuid).ok_or(GPU_IS_LOST)?;
        match number & 0xff {
            0 => Ok((index, None)),
            mig if mig <= self.state.gpus[index].instances.len() => Ok((index, Some(mig - 1))),
            _ => Err(INVALID_ARGUMENT),
        }
    }
}

/// Lets the faults of a call happen. `SUCCESS` when there is none.
fn enact(state: &State, name: &str, count: u64, gpu: Option<usize>) -> nvmlReturn_t {
    for fault in &state.faults {
        match fault {
            Fault::Hang { call, via } if call == name => match via {
                Some(path) => block_on(path),
                None => {
                    while hangs(name) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            },
            Fault::Error { call, code, after, gpu: only }
                if call == name && count > *after && (only.is_none() || *only == gpu) =>
            {
                return *code;
            }
            Fault::Lost(lost) if gpu.is_some_and(|gpu| lost.contains(&gpu)) => return GPU_IS_LOST,
            _ => {}
        }
    }
    SUCCESS
}

/// A hang ends when its fault is taken out, and when whoever drove it has gone with its folder: a process that hangs
/// like a driver would else stay for ever.
fn hangs(name: &str) -> bool {
    let state = std::env::var(crate::STATE).unwrap_or_default();
    if Path::new(&state).parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        return false;
    }
    let mut guard = Guard::take();
    let live = guard.live();
    live.refresh();
    live.state.faults.iter().any(|fault| matches!(fault, Fault::Hang { call, via: None } if call == name))
}

/// Reads from a file, past the page cache if it is a block device: a direct read that waits for a suspended
/// device cannot be killed, while a wait for a page of the cache can.
fn block_on(path: &Path) {
    let direct = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
        return;
    };
    let mut room = vec![0_u8; 8192];
    let start = room.as_ptr().align_offset(4096);
    let _ = file.read(&mut room[start..start + 4096]);
}

fn boottime() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
