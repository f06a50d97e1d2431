//! Everything of gpuprod that touches the host: `/proc`, `/sys`, NVML, the kernel log, engine pages.
//!
//! A source file here is a thin reader and a pure parser that is tested on text. A collector that hangs, is
//! denied or finds nothing costs the tick nothing: the [`runner`] gives it a thread, a deadline and a mailbox
//! of one slot, and its error says what was tried, on what, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

pub use gpuprod_snapshot::{Focus, Missing, Part, Reading, Sample, Source, Tick};

pub mod block;
pub mod cgroup;
pub mod cpu;
mod decimal;
pub mod engine;
pub mod fs;
#[cfg(test)]
mod live;
pub mod md;
pub mod mountinfo;
pub mod net;
pub mod now;
pub mod numa;
pub mod nvml;
pub mod pci;
pub mod proc;
pub mod psi;
pub mod runner;
#[cfg(test)]
mod scratch;
pub mod tree;

/// One source of the node's state.
pub trait Collector: Send {
    /// Which source it reads.
    fn source(&self) -> Source;

    /// Reads it once. May take long or hang: it runs on a thread of its own.
    ///
    /// # Errors
    /// When the source as a whole gave nothing; a field or a device that is missing is said inside the part.
    fn collect(&mut self, host: &Host, focus: &Focus) -> Result<Part, CollectError>;

    /// The call that is in progress, for a collector that can tell from outside (a supervised child).
    fn watch(&self) -> Option<Watch> {
        None
    }
}

/// Asks, from another thread, which call a collector is stuck in.
pub type Watch = std::sync::Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Where the host's files are. One flag, `--host-root`, moves all of them: `/`, a container's `/host`, or a
/// tree of test data.
#[derive(Clone, Debug)]
pub struct Host {
    /// procfs.
    pub proc: PathBuf,
    /// sysfs.
    pub sys: PathBuf,
    /// Device nodes.
    pub dev: PathBuf,
    /// The NVML library; by default the loader's search for `libnvidia-ml.so.1`.
    pub nvml: Option<PathBuf>,
    /// Whether this is the running kernel's own tree (and not a copy of another host's).
    pub live: bool,
}

impl Host {
    /// All roots below one directory.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            dev: root.join("dev"),
            nvml: None,
            live: root == Path::new("/"),
        }
    }

    /// The same with another NVML library.
    #[must_use]
    pub fn with_nvml(mut self, library: Option<PathBuf>) -> Self {
        self.nvml = library;
        self
    }
}

/// What all collectors need to know beside the host.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Metrics pages of engines.
    pub engines: Vec<String>,
    /// Program and first arguments of the NVML child; by default this executable with `nvml-worker`.
    pub nvml_worker: Option<Vec<String>>,
    /// Set to let go of the driver's handles (GPU reset, driver upgrade), cleared to take them back.
    pub nvml_released: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Where the child's lock file lies, so that a restarted agent knows of a stuck child. None: no lock.
    pub state_dir: Option<PathBuf>,
    /// Where the site's scheduler leaves its notes about jobs; none: the host's `run/gpuprod/jobs`.
    pub job_notes: Option<PathBuf>,
}

/// Every collector there is, in the order of [`Source::ALL`]. This is the one list.
#[must_use]
pub fn all(options: &Options) -> Vec<Box<dyn Collector>> {
    vec![
        Box::new(nvml::Nvml::new(options)),
        Box::new(nvml::xid::KernelLog::new()),
        Box::new(engine::Scraper::new(&options.engines)),
        Box::new(md::Arrays),
        Box::new(block::Devices::default()),
        Box::new(fs::NetworkMounts),
        Box::new(psi::PressureFiles),
        Box::new(cpu::Times),
        Box::new(pci::Tree),
        Box::new(numa::Nodes),
        Box::new(net::Ports),
        Box::new(proc::GpuProcesses::default()),
        Box::new(cgroup::GpuCgroups::new(options.job_notes.clone())),
    ]
}

/// Why a source gave nothing: what was tried, on what, the cause, and what would mend it.
#[derive(Debug, thiserror::Error)]
pub struct CollectError {
    /// The reason in one word, as recordings keep it.
    pub missing: Missing,
    /// What was tried, and on what (`read /proc/mdstat`).
    pub tried: String,
    /// What to do about it, when there is something to do.
    pub hint: Option<String>,
    /// The cause below.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tried, self.missing)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl CollectError {
    /// Without a cause below.
    pub fn new(missing: Missing, tried: impl Into<String>) -> Self {
        Self { missing, tried: tried.into(), hint: None, source: None }
    }
    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
