//! GPUs by NVML, in a supervised child.
//!
//! NVML's calls can block for ever in the kernel, and a process in such a call cannot be killed. So the calls
//! are made by a child ([`worker_main`]), and this side only waits for so long. It never kills the child inside
//! a call and never starts a second one while the first is stuck; a lock file tells a restarted agent of a child
//! that its predecessor left behind.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::{CollectError, Collector, Focus, Host, Missing, Options, Part, Reading, Source, Watch, tree};

mod board;
mod calls;
mod child;
mod gpm;
mod map;
mod names;
mod sweep;
mod wire;
mod worker;
pub mod xid;

pub use names::{CALLS, thread_name};
pub use worker::{latency, worker_main};

use child::{Outcome, Worker};

/// The lock file's name in the state directory.
pub const LOCK: &str = "nvml.lock";
/// How long one look waits for the child: a little less than two ticks, so that the second tick after the look
/// finds the answer and not the third.
const PATIENCE: Duration = Duration::from_millis(1_900);
/// Most looks that are skipped after a child has ended unasked.
const LONGEST_PAUSE: u32 = 60;

/// The collector of GPUs.
pub struct Nvml {
    program: Vec<String>,
    lock: Option<PathBuf>,
    patience: Duration,
    released: Arc<AtomicBool>,
    worker: Option<Worker>,
    /// A child whose pipes are closed and that has not ended yet.
    retired: Option<Child>,
    /// The process whose threads tell the call in progress; 0 for none.
    watched: Arc<AtomicU32>,
    /// Children that ended in a row, and looks to skip before the next is started.
    deaths: u32,
    pause: u32,
    /// How the last one ended.
    epitaph: String,
    /// Why the running child has no lock; empty when it has one.
    unlocked: String,
}

impl Nvml {
    /// Nothing is started before the first look.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let own = || vec!["/proc/self/exe".to_owned(), "nvml-worker".to_owned()];
        Self {
            program: options.nvml_worker.clone().unwrap_or_else(own),
            lock: options.state_dir.as_ref().map(|dir| dir.join(LOCK)),
            patience: PATIENCE,
            released: Arc::clone(&options.nvml_released),
            worker: None,
            retired: None,
            watched: Arc::default(),
            deaths: 0,
            pause: 0,
            epitaph: String::new(),
            unlocked: String::new(),
        }
    }

    /// Lets go of the driver's handles with the next look (`true`), or takes them back.
    pub fn set_released(&self, released: bool) {
        self.released.store(released, Ordering::Relaxed);
    }

    fn start(&mut self, library: Option<&Path>) -> Result<Worker, CollectError> {
        if let Some(old) = &mut self.retired {
            match child::ended(old) {
                Some(how) => self.epitaph = how,
                None => return Err(stuck(&self.watched, old.id())),
            }
            self.retired = None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            let tried =
                format!("the NVML child ended ({}); the next is started in {} looks", self.epitaph, self.pause + 1);
            return Err(CollectError::new(Missing::Gone, tried));
        }
        let mut lock = self.lock.clone();
        self.unlocked.clear();
        if let Some(path) = &lock
            && !self.free(path)?
        {
            self.unlocked = format!("another process holds the lock file {}", path.display());
            lock = None;
        }
        let (program, first) = match self.program.split_first() {
            Some((program, first)) => (program, first),
            None => return Err(CollectError::new(Missing::Unsupported, "no program for the NVML child")),
        };
        let mut arguments = first.to_vec();
        for (flag, path) in [("--library", library), ("--lock", lock.as_deref())] {
            if let Some(path) = path {
                arguments.extend([flag.to_owned(), path.display().to_string()]);
            }
        }
        let worker = Worker::spawn(program, &arguments).map_err(|error| CollectError {
            missing: tree::missing(&error),
            tried: format!("start {program}"),
            hint: None,
            source: Some(Box::new(error)),
        })?;
        self.watched.store(worker.pid(), Ordering::Relaxed);
        Ok(worker)
    }

    /// Whether the lock is to be had; an error when a child lives that holds it. One that is just ending gets a
    /// moment. A lock that cannot be asked for is the new child's to report, and one that a stranger holds says
    /// nothing of any child: neither may cost the sight of the GPUs.
    fn free(&self, lock: &Path) -> Result<bool, CollectError> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
        for _ in 0..10 {
            let Ok(file) = File::options().read(true).custom_flags(flags).open(lock) else { return Ok(true) };
            match file.try_lock() {
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(true),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        match tree::value::<u32>(lock).copied() {
            Some(pid) if child::is_ours(pid) => Err(stuck(&self.watched, pid)),
            _ => Ok(false),
        }
    }

    /// The child is of no more use. It is not waited for.
    fn bury(&mut self, worker: Worker) {
        let mut child = worker.retire();
        self.deaths = self.deaths.saturating_add(1);
        let doubled = 1_u32.checked_shl(self.deaths - 1).unwrap_or(LONGEST_PAUSE);
        self.pause = doubled.min(LONGEST_PAUSE);
        match child::ended(&mut child) {
            Some(how) => {
                self.epitaph = how;
                self.watched.store(0, Ordering::Relaxed);
            }
            None => self.retired = Some(child),
        }
    }

    /// The child closes the library and ends. `Released` is said only when no child is left, ours or a predecessor's:
    /// whoever resets the GPU relies on it.
    fn let_go(&mut self) -> CollectError {
        // Twice: the first answer may be that to a sample that was asked for before.
        for _ in 0..2 {
            let Some(worker) = self.worker.take() else { break };
            match self.answer(worker, wire::RELEASE) {
                Err(error) if error.missing == Missing::Released => {
                    self.retired = self.worker.take().map(Worker::retire);
                }
                Err(error) if error.missing == Missing::TimedOut => return error,
                _ => {}
            }
        }
        if let Some(worker) = &self.worker {
            return CollectError::new(
                Missing::TimedOut,
                format!("the NVML child (pid {}) has not let go", worker.pid()),
            );
        }
        if let Some(old) = &mut self.retired {
            if child::ended(old).is_none() {
                return stuck(&self.watched, old.id());
            }
            self.retired = None;
        }
        self.watched.store(0, Ordering::Relaxed);
        if let Some(lock) = self.lock.clone()
            && let Err(error) = self.free(&lock)
        {
            return error;
        }
        CollectError::new(Missing::Released, "the driver's handles are closed")
            .hint("gpuprod resume-gpu takes them back")
    }

    fn answer(&mut self, worker: Worker, request: u8) -> Result<Part, CollectError> {
        let mut worker = worker;
        let outcome = match worker.ask(request) {
            Ok(()) => worker.wait(self.patience),
            Err(_) => worker.last_words(),
        };
        match outcome {
            Outcome::Reply(reply) => {
                if !reply.note.is_empty() {
                    self.unlocked.clone_from(&reply.note);
                }
                self.worker = Some(worker);
                self.deaths = 0;
                match reply.gpus {
                    Reading::Value(gpus) => Ok(Part::Gpu(gpus)),
                    Reading::Missing(missing) => {
                        let error = CollectError::new(missing, reply.tried);
                        Err(if reply.hint.is_empty() { error } else { error.hint(reply.hint) })
                    }
                }
            }
            Outcome::Late => {
                let pid = worker.pid();
                self.worker = Some(worker);
                let call = child::call_in(pid).unwrap_or("no call of NVML");
                let error = CollectError::new(Missing::TimedOut, format!("the NVML child (pid {pid}) is in {call}"));
                let unlocked = &self.unlocked;
                Err(if unlocked.is_empty() {
                    error
                } else {
                    error.hint(format!("{unlocked}: a restarted agent would not know of this child"))
                })
            }
            Outcome::Ended => {
                self.bury(worker);
                Err(CollectError::new(Missing::Gone, format!("the NVML child ended ({})", self.epitaph)))
            }
            Outcome::Malformed(words) => {
                self.bury(worker);
                Err(CollectError::new(Missing::Malformed, format!("the NVML child answered {words}")))
            }
        }
    }
}

impl Collector for Nvml {
    fn source(&self) -> Source {
        Source::Gpu
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        if self.released.load(Ordering::Relaxed) {
            return Err(self.let_go());
        }
        if !host.live && host.nvml.is_none() {
            let error =
                CollectError::new(Missing::Unsupported, "NVML speaks of the running host, and the root is another's");
            return Err(error.hint("--nvml-library names a library that speaks of that root"));
        }
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.start(host.nvml.as_deref())?,
        };
        self.answer(worker, wire::SAMPLE)
    }

    fn watch(&self) -> Option<Watch> {
        let watched = Arc::clone(&self.watched);
        Some(Arc::new(move || {
            let pid = watched.load(Ordering::Relaxed);
            (pid != 0).then(|| child::call_in(pid)).flatten().map(str::to_owned)
        }))
    }
}

impl Drop for Nvml {
    /// The end of its input ends the child, which closes the library; a moment for that, and none for a child in a call.
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            let _ = child::ended(&mut worker.retire());
        }
    }
}

/// A child from before that has not come out of its call.
fn stuck(watched: &AtomicU32, pid: u32) -> CollectError {
    watched.store(pid, Ordering::Relaxed);
    let call = child::call_in(pid).unwrap_or("its end");
    let error = CollectError::new(Missing::TimedOut, format!("an earlier child (pid {pid}) is still stuck in {call}"));
    error.hint(
        "no second one is started beside it; a process stuck in the driver ends with the driver's call or a reboot",
    )
}

#[cfg(test)]
mod tests;
