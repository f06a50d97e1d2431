//! The NVML child: a process that makes the calls, so that the agent never waits in the driver.
//!
//! It answers requests from its standard input on its standard output (see [`super::wire`]) and ends at the
//! end of its input. A call that hangs takes only this process with it.
#![expect(unsafe_code, reason = "close_range has no safe form")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::board::Cadence;
use super::calls::name_thread;
use super::names::IDLE;
use super::sweep::Sweep;
use super::wire::{RELEASE, Reply, SAMPLE, frame};
use crate::{Missing, Reading};

/// The main function of the child. `library` is the driver's library where the loader would not find it; `lock`
/// is the file that says that a child lives (and in which process).
///
/// # Errors
/// When a pipe broke, that is, when the agent is gone.
pub fn worker_main(library: Option<PathBuf>, lock: Option<PathBuf>) -> io::Result<()> {
    // Files of the agent that were inherited by accident would stay open for as long as a call hangs.
    // SAFETY: nothing in this process holds a file yet beside its three standard ones.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    // By its thread's name a later agent knows the holder of the lock for a child of ours.
    name_thread(IDLE);
    let mut output = io::stdout().lock();
    let (_held, mut note) = match lock.as_deref().map(hold) {
        None => (None, String::new()),
        Some(Hold::Ours(file, note)) => (Some(file), note),
        Some(Hold::Without(note)) => (None, note),
        Some(Hold::Others(words)) => {
            let reply = Reply::failed(Missing::TimedOut, words, "");
            return output.write_all(&frame(&reply)?);
        }
    };
    let mut sweep = Sweep::new(library.map(OsString::from), Cadence::default(), false);
    for request in io::stdin().lock().bytes() {
        let mut reply = match request? {
            SAMPLE => sweep.sample(),
            RELEASE => sweep.release(),
            other => Reply::failed(Missing::Malformed, format!("request {other:#04x}"), ""),
        };
        reply.note = std::mem::take(&mut note);
        output.write_all(&frame(&reply)?)?;
        output.flush()?;
    }
    sweep.release();
    Ok(())
}

/// What came of taking the lock.
enum Hold {
    /// Held; in words if the process could not be written down.
    Ours(File, String),
    /// There can be none, and why. GPUs are read all the same: a lock is a help for the next agent, no more.
    Without(String),
    /// Another process holds it.
    Others(String),
}

/// Takes the lock for the life of this process, and writes down whose it is.
fn hold(path: &Path) -> Hold {
    let failed = |error: io::Error| format!("no lock {}: {error}", path.display());
    // A link or a pipe in the file's place is neither followed nor waited for.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let mut options = File::options();
    let open = options.create(true).truncate(false).write(true).read(true).mode(0o600).custom_flags(flags).open(path);
    let mut file = match open {
        Ok(file) => file,
        Err(error) => return Hold::Without(failed(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Hold::Others(format!("{} is held by an earlier child", path.display()));
        }
        Err(TryLockError::Error(error)) => return Hold::Without(failed(error)),
    }
    // Over the old number and cut afterwards: that needs no new room on a full disk.
    let line = format!("{:>10}\n", std::process::id());
    let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
    let written = file.rewind().and_then(|()| file.write_all(line.as_bytes())).and_then(|()| file.set_len(length));
    Hold::Ours(file, written.err().map(failed).unwrap_or_default())
}

/// How long each call takes on this host, as a table: smallest, median and largest of 200 samples of every GPU.
///
/// # Errors
/// When there is no library or no GPU, in words.
pub fn latency(library: Option<PathBuf>) -> Result<String, String> {
    const SAMPLES: u32 = 200;
    // Everything in each sample.
    let cadence = Cadence { processes: 1, errors: 1, inventory: 1, probe: u64::MAX };
    let mut sweep = Sweep::new(library.map(OsString::from), cadence, true);
    let mut gpus = 0;
    for _ in 0..SAMPLES {
        let reply = sweep.sample();
        match reply.gpus {
            Reading::Value(value) => gpus = value.devices.len(),
            Reading::Missing(missing) => return Err(format!("{}: {missing}; {}", reply.tried, reply.hint)),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut table = format!(
        "{:<44} {:>7} {:>9} {:>9} {:>9}\n",
        format!("call ({gpus} GPUs; microseconds)"),
        "calls",
        "min",
        "median",
        "max"
    );
    let mut sweep_of_medians = Duration::ZERO;
    for (call, mut took) in sweep.timings() {
        took.sort_unstable();
        let (Some(least), Some(most), Some(median)) = (took.first(), took.last(), took.get(took.len() / 2)) else {
            continue;
        };
        let per_sample = u32::try_from(took.len()).unwrap_or(u32::MAX) / SAMPLES;
        sweep_of_medians += median.saturating_mul(per_sample);
        let _ = writeln!(
            table,
            "{call:<44} {:>7} {:>9.1} {:>9.1} {:>9.1}",
            took.len(),
            micros(least),
            micros(median),
            micros(most)
        );
    }
    let _ = writeln!(
        table,
        "{:<44} {:>7} {:>9} {:>9.1}",
        "all calls of a sample, sum of medians",
        SAMPLES,
        "",
        micros(&sweep_of_medians)
    );
    Ok(table)
}

fn micros(duration: &Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
