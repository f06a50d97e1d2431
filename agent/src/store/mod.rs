//! The store room: the ledger's accounts and rows, alert state, the queue of bodies to send, what was learnt, and
//! the history of ticks. One thread, named `store`, is the only one in the agent that waits for a disk.
//!
//! - **Committed before shown**: counters leave the process only after the commit that holds them is durable.
//!   Otherwise a crash makes a counter step back, and every reader adds the whole total again as a reset. A
//!   commit is due every 5 s; between two, and while the disk does not answer, shown counters hold still.
//! - Nobody else waits: what is to be kept is put into an inbox that never blocks; questions are answered through
//!   futures. A disk that hangs holds up the `store` thread and nothing else.
//! - What could not be written stays in memory, merged and bounded, and is written when the disk is back.

mod changes;
mod db;
mod failure;
mod inbox;
mod keeper;
pub mod reader;
pub mod rows;
mod schema;
mod tables;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test's own directory")]
mod tests;
mod thread;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpuprod_rules::{Judge, Ledger};
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::history::Budget;
use crate::text;

pub use failure::Fatal;
use inbox::{Ask, Inner};
pub use keeper::Keeper;

/// Where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this directory.
    Dir(PathBuf),
    /// Nowhere: the queue and the alert state live as long as the process (`store.enabled: false`).
    Memory,
}

/// How much may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of bodies that wait to be sent.
    pub outbox_bytes: u64,
    /// Of the history; none is kept when its bytes are 0.
    pub history: Budget,
}

/// The accounts as they lie on the disk: what may be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// The accounts.
    pub ledger: Arc<Ledger>,
    /// Unix time at which the counters of this sequence began at zero: OTLP's start time. It survives restarts.
    pub start: Nanos,
    /// CLOCK_BOOTTIME of the commit (of the load, for what an earlier process left).
    pub at: Nanos,
}

/// One body of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// For [`Store::done`]; grows with time.
    pub id: i64,
    /// Unix time at which it was queued.
    pub created: Nanos,
    /// What is to be sent.
    pub body: Arc<[u8]>,
}

/// How the store does: part of the frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Unix time at which the counters began; none before the first commit.
    #[serde(rename = "start_ns")]
    pub start: Option<Nanos>,
    /// How far the shown counters are behind the last tick.
    #[serde(rename = "lag_ns")]
    pub lag: Nanos,
    /// Commits of this process.
    pub commits: u64,
    /// What failed, by reason.
    pub errors: BTreeMap<String, u64>,
    /// Bytes that wait to be sent.
    pub outbox_bytes: u64,
    /// Bodies that had to go before they were sent.
    pub outbox_dropped: u64,
    /// Bytes of the history.
    pub history_bytes: u64,
    /// Ticks that the history lacks because the disk could not take them.
    pub history_dropped: u64,
}

/// Three commits are late: people are told.
const LATE: Nanos = Nanos::from_secs(15);

impl Status {
    /// What people have to know of it; none as long as commits come.
    #[must_use]
    pub fn late(&self) -> Option<String> {
        let late = format!("the store has not committed for {}: shown counters hold still", text::duration(self.lag));
        (self.lag > LATE).then_some(late)
    }
}

/// A handle; clones are handles of the same store. No call waits for the disk.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Starts the thread, which opens the files. `say` gets what the operator should read (on stderr).
    ///
    /// # Errors
    /// When the thread cannot be started. What is wrong with the files is known later: [`Store::fatal`].
    pub fn start(place: Place, limits: Limits, say: impl Fn(&str) + Send + 'static) -> std::io::Result<Self> {
        let inner = Arc::new(Inner::new(limits));
        let ours = Arc::clone(&inner);
        std::thread::Builder::new().name("store".to_owned()).spawn(move || thread::run(&ours, &place, &say))?;
        Ok(Self(inner))
    }

    /// The last durable accounts; none before the files were opened and, for a fresh store, the first commit.
    #[must_use]
    pub fn committed(&self) -> Option<Arc<Committed>> {
        self.0.shown().committed.clone()
    }

    /// Whether the files were opened.
    #[must_use]
    pub fn opened(&self) -> bool {
        self.0.shown().opened
    }

    /// Why this agent must not go on: another agent's store, or a newer version's.
    #[must_use]
    pub fn fatal(&self) -> Option<Fatal> {
        self.0.shown().fatal.clone()
    }

    /// How it does at an instant of CLOCK_BOOTTIME.
    #[must_use]
    pub fn status(&self, now: Nanos) -> Status {
        self.0.status(now)
    }

    /// Queues a body to be sent. The oldest go when the queue is full, and are counted.
    pub fn enqueue(&self, body: impl Into<Arc<[u8]>>) {
        self.0.enqueue(body.into());
    }

    /// The oldest bodies of the queue, those of earlier processes included, without those that are done. Empty when
    /// there are none and when the store ends.
    pub async fn oldest(&self, most: usize) -> Vec<Body> {
        let (reply, answer) = oneshot::channel();
        self.0.ask(Ask::Oldest(most, reply));
        answer.await.unwrap_or_default()
    }

    /// Returns when a body was queued since the last call.
    pub async fn outbox_grew(&self) {
        self.0.grew.notified().await;
    }

    /// The body was delivered, or given up: it leaves the queue.
    pub fn done(&self, id: i64) {
        self.0.change(|changes| {
            changes.gone.insert(id);
        });
    }

    /// Keeps a text under a key; none removes it. Durable soon after (see [`Status::errors`]).
    pub fn put_alert_state(&self, key: &str, state: Option<String>) {
        self.0.change(|changes| {
            changes.alerts.insert(key.to_owned(), state);
        });
    }

    /// Every text that was kept, by key: the answer comes when the files have been opened.
    pub async fn load_alert_state(&self) -> BTreeMap<String, String> {
        let (reply, answer) = oneshot::channel();
        self.0.ask(Ask::Alerts(reply));
        answer.await.unwrap_or_default()
    }

    /// Keeps a tick in the history.
    pub fn keep(&self, tick: Tick) {
        self.0.keep(tick);
    }

    /// What an earlier process learnt, once: the first call after the files were opened takes it.
    #[must_use]
    pub fn take_learnt(&self) -> Option<Box<Judge>> {
        self.0.shown().learnt.take()
    }

    /// Writes what there is and ends the thread; waits no longer than `patience` for it.
    pub fn stop(&self, patience: Duration) {
        self.0.stop(patience);
    }
}
