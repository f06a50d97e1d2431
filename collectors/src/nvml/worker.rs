//! The NVML child: a process that makes the calls, so that the agent never waits in the driver.
//!
//! It answers requests from its standard input on its standard output (see [`super::wire`]) and ends at the
//! end of its input. A call that hangs takes only this process with it.
#![expect(unsafe_code, reason = "close_range has no safe form")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::board::Cadence;
use super::sweep::Sweep;
use super::wire::{RELEASE, Reply, SAMPLE, frame};
use crate::{Missing, Reading, tree};

/// The main function of the child. `library` is the driver's library where the loader would not find it; `lock`
/// is the file that says that a child lives (and in which process).
///
/// # Errors
/// When a pipe broke, that is, when the agent is gone.
pub fn worker_main(library: Option<PathBuf>, lock: Option<PathBuf>) -> io::Result<()> {
    // Files of the agent that were inherited by accident would stay open for as long as a call hangs.
    // SAFETY: nothing in this process holds a file yet beside its three standard ones.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    let mut output = io::stdout().lock();
    let _held = match lock.as_deref().map(hold).transpose() {
        Ok(held) => held,
        Err((missing, words)) => {
            let reply = Reply::failed(missing, words, "");
            return output.write_all(&frame(&reply)?);
        }
    };
    let mut sweep = Sweep::new(library.map(OsString::from), Cadence::default(), false);
    for request in io::stdin().lock().bytes() {
        let reply = match request? {
            SAMPLE => sweep.sample(),
            RELEASE => sweep.release(),
            other => Reply::failed(Missing::Malformed, format!("request {other:#04x}"), ""),
        };
        output.write_all(&frame(&reply)?)?;
        output.flush()?;
    }
    sweep.release();
    Ok(())
}

/// Takes the lock for the life of this process, and writes down whose it is.
fn hold(path: &Path) -> Result<File, (Missing, String)> {
    let failed = |error: io::Error| (tree::missing(&error), format!("lock {}: {error}", path.display()));
    let open = File::options().create(true).truncate(false).write(true).read(true).open(path);
    let mut file = open.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err((Missing::TimedOut, format!("{} is held by an earlier child", path.display())));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let cleared = file.set_len(0).and_then(|()| file.rewind());
    cleared.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
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
