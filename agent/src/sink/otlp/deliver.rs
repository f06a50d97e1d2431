//! The sender on the `net` thread: oldest first, one at a time, until the peer takes it.
//!
//! A peer that fails is asked again after a back-off with jitter, so that a fleet does not come back all at once. A
//! batch that the peer refuses is given up at once: it never blocks those behind it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuprod_collectors::Host;
use hyper::body::Bytes;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::encode::{Encoder, Starts};
use super::peer::{Outcome, Peer};
use crate::clock::{Clock, boottime};
use crate::own::{self, Drop, Failure};
use crate::store::{Status, Store};

/// First wait after a failure; each further one doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest wait that a peer may ask for.
const ASKED: Duration = Duration::from_secs(300);
/// Between two batches of a backlog: twenty a second from one node.
const PACE: Duration = Duration::from_millis(50);
/// Longest wait for an answer of the store.
const STORE: Duration = Duration::from_secs(5);
/// Bodies that are asked for at a time.
const AT_ONCE: usize = 16;
/// A peer that says yes and breaks off has taken the batch by then, whatever it wanted to add.
const BROKEN: u32 = 5;

/// What outlives a change of the configuration: the figures since the process began, and which series were sent.
#[derive(Clone, Debug)]
pub struct Tally {
    stats: Arc<Mutex<own::Otlp>>,
    encoder: Arc<Mutex<Encoder>>,
}

impl Tally {
    /// The process begins now.
    #[must_use]
    pub fn new(host: &Host) -> Self {
        let stamp = Clock::new(host).stamp();
        let boot = stamp.realtime.saturating_sub(stamp.boottime);
        let starts = Starts { process: stamp.realtime, boot };
        Self { stats: Arc::default(), encoder: Arc::new(Mutex::new(Encoder::new(Resource::default(), starts))) }
    }

    /// As of now; the queue is the store's.
    #[must_use]
    pub fn report(&self, store: &Status) -> own::Otlp {
        let mut stats = self.stats().clone();
        stats.queue_bytes = store.outbox_bytes;
        if store.outbox_dropped > 0 {
            stats.dropped.insert(Drop::Full, store.outbox_dropped);
        }
        stats
    }

    /// Used by the tick thread alone.
    pub(super) fn encoder(&self) -> MutexGuard<'_, Encoder> {
        self.encoder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> MutexGuard<'_, own::Otlp> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the tick thread and the sender share.
#[derive(Debug)]
pub(super) struct Shared {
    store: Store,
    /// Not tried yet; for the time in which the store's disk does not answer.
    newest: Mutex<Option<Arc<[u8]>>>,
    tally: Tally,
}

impl Shared {
    pub(super) fn new(store: Store, tally: Tally) -> Self {
        Self { store, newest: Mutex::default(), tally }
    }

    fn stats(&self) -> MutexGuard<'_, own::Otlp> {
        self.tally.stats()
    }

    fn newest(&self) -> MutexGuard<'_, Option<Arc<[u8]>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues; the store wakes the sender.
    pub(super) fn put(&self, body: Vec<u8>) {
        let body: Arc<[u8]> = body.into();
        *self.newest() = Some(Arc::clone(&body));
        self.store.enqueue(body);
    }

    /// The oldest bodies with their numbers. While the store's disk hangs, the newest body alone and without one: the
    /// reader must not go blind with the disk. It is sent once more with the rest of the queue, which harms nothing:
    /// the same points with the same values.
    async fn next(&self) -> Vec<(Option<i64>, Arc<[u8]>)> {
        match tokio::time::timeout(STORE, self.store.oldest(AT_ONCE)).await {
            Ok(bodies) => bodies.into_iter().map(|body| (Some(body.id), body.body)).collect(),
            Err(_) => self.newest().take().map(|body| (None, body)).into_iter().collect(),
        }
    }
}

/// Sends until the task is ended.
pub(super) async fn deliver(shared: Arc<Shared>, peer: Peer, mut say: impl FnMut(String)) {
    let mut run = Run { peer: peer.shown(), ..Run::default() };
    loop {
        let bodies = shared.next().await;
        if bodies.is_empty() {
            let _ = tokio::time::timeout(STORE, shared.store.outbox_grew()).await;
            continue;
        }
        // Told to the store together: it commits once for all of them.
        let mut done = Vec::new();
        let mut pause = PACE;
        for (id, body) in bodies {
            let outcome = peer.post(Bytes::from_owner(body)).await;
            let kept =
                matches!(&outcome, Outcome::Failed { failure, .. } if *failure != Failure::Broken || !run.broken(id));
            pause = run.count(&shared, outcome, &mut say);
            if kept {
                break;
            }
            done.extend(id);
            tokio::time::sleep(PACE).await;
        }
        for id in done {
            shared.store.done(id);
        }
        tokio::time::sleep(pause).await;
    }
}

/// How the sending goes.
#[derive(Debug, Default)]
struct Run {
    /// For messages.
    peer: String,
    /// Failures since the last batch that was taken.
    failures: u32,
    /// What was said last: each kind of failure is said once, until the peer takes a batch.
    said: Option<Failure>,
    /// A batch at which the peer breaks off, and how often.
    broken: (Option<i64>, u32),
}

impl Run {
    /// Counts and says what became of an attempt; how long to wait after it.
    fn count(&mut self, shared: &Shared, outcome: Outcome, say: &mut impl FnMut(String)) -> Duration {
        match outcome {
            Outcome::Taken { rejected, words } => self.taken(shared, rejected, &words, say),
            Outcome::Failed { failure, after, words } => self.failed(shared, failure, after, &words, say),
            Outcome::Refused { words } => self.refused(shared, &words, say),
        }
    }

    fn taken(&mut self, shared: &Shared, rejected: u64, words: &str, say: &mut impl FnMut(String)) -> Duration {
        let mut stats = shared.stats();
        stats.sent += 1;
        stats.success = Some(boottime());
        let first = stats.rejected == 0 && rejected > 0;
        stats.rejected = stats.rejected.saturating_add(rejected);
        drop(stats);
        if first {
            say(format!("OTLP: {} left {rejected} points out of a batch: {words}", self.peer));
        }
        // After a refusal nothing is said: other batches were taken in between, it would be said again and again.
        if self.failures > 0 {
            say(format!("OTLP: {} takes batches again (failed attempts: {})", self.peer, self.failures));
        }
        self.failures = 0;
        if self.said != Some(Failure::Refused) {
            self.said = None;
        }
        PACE
    }

    fn failed(
        &mut self,
        shared: &Shared,
        failure: Failure,
        after: Option<Duration>,
        words: &str,
        say: &mut impl FnMut(String),
    ) -> Duration {
        Self::failure(shared, failure);
        if self.said != Some(failure) {
            self.said = Some(failure);
            let (peer, kind) = (&self.peer, failure.as_str());
            say(format!("OTLP: post to {peer} failed ({kind}): {words}; batches wait, it is tried again"));
        }
        let pause = back_off(self.failures, random());
        self.failures = self.failures.saturating_add(1);
        after.map_or(pause, |after| pause.max(after.min(ASKED)))
    }

    fn refused(&mut self, shared: &Shared, words: &str, say: &mut impl FnMut(String)) -> Duration {
        Self::failure(shared, Failure::Refused);
        *shared.stats().dropped.entry(Drop::Refused).or_default() += 1;
        if self.said != Some(Failure::Refused) {
            self.said = Some(Failure::Refused);
            say(format!("OTLP: {} refuses a batch, which is given up: {words}", self.peer));
        }
        PACE
    }

    fn failure(shared: &Shared, failure: Failure) {
        *shared.stats().failed.entry(failure).or_default() += 1;
    }

    /// Whether the peer broke off at this batch too often.
    fn broken(&mut self, id: Option<i64>) -> bool {
        let times = if self.broken.0 == id { self.broken.1.saturating_add(1) } else { 1 };
        self.broken = (id, times);
        times >= BROKEN
    }
}

/// Between half and all of 1, 2, 4 ... 30 seconds.
fn back_off(failures: u32, random: u64) -> Duration {
    let whole = FIRST.saturating_mul(1 << failures.min(5)).min(LONGEST);
    let half = whole / 2;
    let thousandths = u32::try_from(random % 1_000).unwrap_or(0);
    half + half / 1_000 * thousandths
}

/// Of the standard library's own seed: good enough to spread a fleet.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;

    use super::*;
    use crate::history::Budget;
    use crate::store::{Limits, Place};

    #[test]
    fn while_the_stores_disk_hangs_the_newest_goes_out() {
        // The store's thread hangs in what it wants to say about a directory that is none.
        let (hang, hung) = mpsc::channel::<()>();
        let hung = Mutex::new(hung);
        let say = move |_: &str| drop(hung.lock().map(|hung| hung.recv()));
        let history = Budget { bytes: 0, host: String::new() };
        let limits = Limits { outbox_bytes: 1 << 20, history };
        let store = Store::start(Place::Dir(PathBuf::from("/dev/null/none")), limits, say).unwrap();
        let shared = Shared::new(store, Tally::new(&Host::at(Path::new("/"))));
        shared.put(vec![1]);
        shared.put(vec![2]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let next = || runtime.block_on(shared.next());
        assert_eq!(next(), [(None, Arc::from([2_u8]))]);
        assert_eq!(next(), [], "once");
        drop(hang);
        // Then the whole queue, oldest first.
        let bodies: Vec<_> = next().into_iter().map(|(id, body)| (id.is_some(), body[0])).collect();
        assert_eq!(bodies, [(true, 1), (true, 2)]);
    }

    #[test]
    fn waits_grow_and_are_bounded() {
        assert_eq!(back_off(0, 0), Duration::from_millis(500));
        assert_eq!(back_off(2, 500), Duration::from_secs(3));
        assert_eq!(back_off(60, 0), Duration::from_secs(15));
        assert!(back_off(u32::MAX, 999) <= LONGEST);
    }
}
