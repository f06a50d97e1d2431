//! Letting go of the GPUs for a while: a reset, a driver upgrade or a change of MIG needs every handle closed.
//!
//! The socket takes the order ([`Switch`]), the NVML collector carries it out with its next look, the tick thread ends
//! what has run out. An agent that starts again holds no lease: it reads the GPUs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Source};

use crate::own::Lease;
use crate::pipeline::Frame;
use crate::text;

/// A lease is at least a second,
const SHORTEST: Nanos = Nanos::from_secs(1);
/// and at most a day: one that was forgotten must end.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// Where the `net` thread takes orders and the tick thread looks.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    lease: Arc<Mutex<Option<Lease>>>,
    /// What the NVML collector obeys.
    released: Arc<AtomicBool>,
}

impl Switch {
    /// Over the collector's switch.
    #[must_use]
    pub fn new(released: Arc<AtomicBool>) -> Self {
        Self { lease: Arc::default(), released }
    }

    fn open(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a lease, or gives the running one another end.
    ///
    /// # Errors
    /// In words, when the time makes no sense.
    pub fn release(&self, now: Nanos, time: Nanos) -> Result<Lease, String> {
        if time < SHORTEST || time > LONGEST {
            return Err("the time must lie between 1s and 24h".to_owned());
        }
        let lease = Lease { since: now, until: now.saturating_add(time) };
        let mut held = self.open();
        *held = Some(lease);
        self.released.store(true, Ordering::Relaxed);
        Ok(lease)
    }

    /// Ends it.
    pub fn resume(&self, now: Nanos) -> Lease {
        let mut held = self.open();
        *held = None;
        self.released.store(false, Ordering::Relaxed);
        Lease { since: now, until: now }
    }

    /// The lease at this instant; one that has run out ends here.
    pub fn at(&self, now: Nanos) -> Option<Lease> {
        let mut held = self.open();
        if held.is_some_and(|lease| lease.until <= now) {
            *held = None;
            self.released.store(false, Ordering::Relaxed);
        }
        *held
    }
}

/// Whether an order is carried out, as far as a frame shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The frame is older than the order, or the collector has not looked since.
    NotYet,
    /// Done; in words.
    Done(String),
    /// The child does not come out of the driver; in words.
    Stuck(String),
}

/// What a frame says of an order that was taken at `since`.
#[must_use]
pub fn progress(frame: &Frame<'_>, since: Nanos, release: bool) -> Progress {
    let now = frame.known.stamp.boottime;
    let Some(sample) = frame.known.status(Source::Gpu).filter(|sample| sample.at > since) else {
        return Progress::NotYet;
    };
    match (release, sample.value.missing()) {
        (_, Some(Missing::TimedOut)) => {
            let hung = sample.hung.as_ref();
            let call = hung.map_or_else(|| "a call of NVML".to_owned(), |hung| text::clean(&hung.call));
            let age = hung.map_or(Nanos(0), |hung| now.saturating_sub(hung.since));
            Progress::Stuck(format!("the NVML child is stuck in {call} for {}", text::duration(age)))
        }
        (true, Some(Missing::Released)) => Progress::Done("no driver handle is open".to_owned()),
        (true, _) | (false, Some(Missing::Released)) => Progress::NotYet,
        (false, Some(missing)) => Progress::Done(format!("NVML is asked again, and gives nothing: {missing}")),
        (false, None) => {
            let known = frame.known.gpu.as_ref().and_then(|sample| sample.value.get());
            let count = known.map_or(0, |gpus| gpus.devices.len());
            Progress::Done(format!("{} read again", text::count(count, "GPU is", "GPUs are")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    #[test]
    fn a_lease_ends_by_itself_and_can_be_moved() {
        let released = Arc::new(AtomicBool::new(false));
        let gpus = Switch::new(Arc::clone(&released));
        let is = || released.load(Ordering::Relaxed);
        assert_eq!((gpus.at(s(5)), is()), (None, false));
        gpus.release(s(10), s(60)).unwrap();
        assert_eq!((gpus.at(s(69)).map(|lease| lease.until), is()), (Some(s(70)), true));
        gpus.release(s(69), s(10)).unwrap();
        assert_eq!((gpus.at(s(78)).map(|lease| lease.until), is()), (Some(s(79)), true));
        assert_eq!((gpus.at(s(79)), is()), (None, false));
        gpus.release(s(80), s(60)).unwrap();
        gpus.resume(s(81));
        assert_eq!((gpus.at(s(81)), is()), (None, false));
        for time in [Nanos(0), Nanos::from_millis(999), s(86_401), Nanos(u64::MAX)] {
            assert!(gpus.release(s(90), time).is_err(), "{time:?}");
            assert!(!is());
        }
    }
}
