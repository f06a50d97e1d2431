//! Between the `store` thread and everybody else: what is to be kept goes in, what may be shown comes out. Locks are
//! held for the exchange of pointers and small maps only, never across a call that can wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuprod_rules::Judge;
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;
use tokio::sync::{Notify, oneshot};

use super::changes::Changes;
use super::failure::{Fatal, Reason};
use super::{Body, Committed, Limits, Status};
use crate::clock;

/// Ticks that wait for the history at most.
const TICKS: usize = 120;
/// Questions that wait at most; one more ends the oldest.
const ASKS: usize = 64;

/// A question that the thread answers.
#[derive(Debug)]
pub(super) enum Ask {
    Oldest(usize, oneshot::Sender<Vec<Body>>),
    Alerts(oneshot::Sender<BTreeMap<String, String>>),
}

/// What the thread finds when it looks.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) changes: Changes,
    pub(super) ticks: VecDeque<Tick>,
    pub(super) asks: VecDeque<Ask>,
    pub(super) stop: bool,
}

/// What may be shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The files were opened, and this is what they held.
    pub(super) opened: bool,
    pub(super) committed: Option<Arc<Committed>>,
    pub(super) learnt: Option<Box<Judge>>,
    pub(super) fatal: Option<Fatal>,
    pub(super) commits: u64,
    pub(super) errors: BTreeMap<&'static str, u64>,
    pub(super) outbox_bytes: u64,
    pub(super) outbox_dropped: u64,
    pub(super) history_bytes: u64,
    pub(super) history_dropped: u64,
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) limits: Limits,
    inbox: Mutex<Inbox>,
    woken: Condvar,
    shown: Mutex<Shown>,
    ended: Condvar,
    pub(super) grew: Notify,
    next_id: AtomicI64,
    /// When this process began, CLOCK_BOOTTIME.
    began: Nanos,
}

impl Inner {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            inbox: Mutex::default(),
            woken: Condvar::new(),
            shown: Mutex::default(),
            ended: Condvar::new(),
            grew: Notify::new(),
            // Above every id of an earlier process, unless the wall clock stepped back: see `above`.
            next_id: AtomicI64::new(i64::try_from(clock::realtime().0).unwrap_or(1)),
            began: clock::boottime(),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// New ids are above this one.
    pub(super) fn above(&self, id: i64) {
        self.next_id.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Changes)) {
        change(&mut self.inbox().changes);
        self.woken.notify_one();
    }

    pub(super) fn enqueue(&self, body: Arc<[u8]>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let dropped = self.inbox().changes.push(Body { id, created: clock::realtime(), body });
        self.shown().outbox_dropped += dropped;
        self.woken.notify_one();
    }

    pub(super) fn ask(&self, ask: Ask) {
        let mut inbox = self.inbox();
        if inbox.asks.len() >= ASKS {
            inbox.asks.pop_front();
        }
        if !self.shown().ended {
            inbox.asks.push_back(ask);
        }
        drop(inbox);
        self.woken.notify_one();
    }

    pub(super) fn keep(&self, tick: Tick) {
        if self.limits.history.bytes == 0 {
            return;
        }
        let mut inbox = self.inbox();
        let full = inbox.ticks.len() >= TICKS;
        if full {
            inbox.ticks.pop_front();
        }
        inbox.ticks.push_back(tick);
        drop(inbox);
        if full {
            self.shown().history_dropped += 1;
        }
    }

    /// For the thread: what has come, after waiting for it no longer than `patience`.
    pub(super) fn wait(&self, patience: Duration) -> Inbox {
        let quiet = |inbox: &mut Inbox| inbox.changes.is_empty() && inbox.asks.is_empty() && !inbox.stop;
        let inbox = self.inbox();
        let (mut inbox, _) =
            self.woken.wait_timeout_while(inbox, patience, quiet).unwrap_or_else(PoisonError::into_inner);
        let stop = inbox.stop;
        Inbox { stop, ..std::mem::replace(&mut *inbox, Inbox { stop, ..Inbox::default() }) }
    }

    pub(super) fn count(&self, reason: Reason) {
        *self.shown().errors.entry(reason.as_str()).or_default() += 1;
    }

    /// For the thread: nothing is written or answered any more.
    pub(super) fn end(&self) {
        self.inbox().asks.clear();
        self.shown().ended = true;
        self.ended.notify_all();
        self.grew.notify_waiters();
    }

    pub(super) fn stop(&self, patience: Duration) {
        self.inbox().stop = true;
        self.woken.notify_one();
        let waiting = |shown: &mut Shown| !shown.ended;
        drop(self.ended.wait_timeout_while(self.shown(), patience, waiting));
    }

    pub(super) fn status(&self, now: Nanos) -> Status {
        let shown = self.shown();
        let at = shown.committed.as_ref().map_or(self.began, |committed| committed.at);
        Status {
            start: shown.committed.as_ref().map(|committed| committed.start),
            lag: now.saturating_sub(at),
            commits: shown.commits,
            errors: shown.errors.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            outbox_bytes: shown.outbox_bytes,
            outbox_dropped: shown.outbox_dropped,
            history_bytes: shown.history_bytes,
            history_dropped: shown.history_dropped,
        }
    }
}
