//! The one room that reads clocks. Everything else receives stamps: time is data.

use std::path::Path;

use gpuprod_collectors::{Host, now, tree};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{BootId, Stamp};

/// CLOCK_BOOTTIME now: the clock of every sample and of the tick's schedule.
#[must_use]
pub fn boottime() -> Nanos {
    now::boottime()
}

/// The wall clock now, Unix time.
#[must_use]
pub fn realtime() -> Nanos {
    now::realtime()
}

/// All clocks of this boot.
#[derive(Clone, Debug)]
pub struct Clock {
    boot_id: BootId,
}

impl Clock {
    /// Learns the boot's id, which holds for as long as this process lives. A tree of test data may lack it; the
    /// clocks are this kernel's in any case, so its own id stands in.
    #[must_use]
    pub fn new(host: &Host) -> Self {
        let id = |proc: &Path| tree::word(&proc.join("sys/kernel/random/boot_id")).get().cloned();
        let boot_id = id(&host.proc).or_else(|| id(Path::new("/proc")));
        Self { boot_id: BootId(boot_id.unwrap_or_default()) }
    }

    /// This instant on all clocks.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            boot_id: self.boot_id.clone(),
            boottime: now::boottime(),
            monotonic: now::monotonic(),
            realtime: now::realtime(),
        }
    }
}
