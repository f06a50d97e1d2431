//! The thread that may wait: opens, commits, answers. Whatever fails is counted, said once, and tried again; what was
//! to be written stays in memory until then.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;

use super::changes::{Booked, Changes, MEMORY};
use super::db::{self, Db, Refused};
use super::failure::{Failure, Reason};
use super::inbox::{Ask, Inbox, Inner};
use super::{Body, Committed, Place};
use crate::{clock, history};

/// After a failure nothing is tried for so long.
const PAUSE: Nanos = Nanos::from_secs(5);
/// After a failure the history rests for so long: a full disk gets no torn segment every few seconds.
const HISTORY_PAUSE: Nanos = Nanos::from_secs(60);
/// Longest sleep.
const LOOK: Duration = Duration::from_secs(1);

/// Until the store is asked to end.
pub(super) fn run(inner: &Inner, place: &Place, say: &dyn Fn(&str)) {
    Keeping {
        inner,
        place,
        say,
        lock: None,
        db: None,
        backlog: Changes::default(),
        retry: Nanos(0),
        said: None,
        history: None,
        history_said: None,
        history_retry: Nanos(0),
    }
    .run();
    inner.end();
}

struct Keeping<'a> {
    inner: &'a Inner,
    place: &'a Place,
    say: &'a dyn Fn(&str),
    lock: Option<File>,
    db: Option<Db>,
    /// What is not durable yet.
    backlog: Changes,
    /// Nothing is tried before this instant.
    retry: Nanos,
    /// The last failure that was said.
    said: Option<Reason>,
    history: Option<history::Writer>,
    /// The history's last failure that was said.
    history_said: Option<Reason>,
    /// Nothing is written into the history before this instant.
    history_retry: Nanos,
}

impl Keeping<'_> {
    fn run(&mut self) {
        loop {
            if self.db.is_none() && self.due() && !self.open() {
                return;
            }
            let Inbox { changes, ticks, asks, stop } = self.inner.wait(LOOK);
            let grew = !changes.bodies.is_empty();
            let dropped = self.backlog.merge(changes);
            self.inner.shown().outbox_dropped += dropped;
            if self.db.is_some() && !self.backlog.is_empty() && (stop || self.due()) {
                self.commit();
            }
            self.write(ticks);
            self.show_sizes();
            if grew {
                self.inner.grew.notify_one();
            }
            for ask in asks {
                self.answer(ask);
            }
            if stop {
                return self.close();
            }
        }
    }

    fn due(&self) -> bool {
        clock::boottime() >= self.retry
    }

    /// What is damaged is not tried again, but set aside.
    fn failed(&mut self, failure: &Failure) {
        self.retry = clock::boottime().saturating_add(PAUSE);
        self.inner.count(failure.reason);
        let damaged = failure.reason == Reason::Corrupt;
        if self.said.replace(failure.reason) != Some(failure.reason) {
            let then = if damaged {
                ""
            } else {
                "; nothing is lost: it is tried again every 5 s, and shown counters hold still until then"
            };
            (self.say)(&format!("store: {failure}{then}"));
        }
        if damaged {
            self.set_aside();
        }
    }

    fn went_well(&mut self) {
        if self.said.take().is_some() {
            (self.say)("store: works again");
        }
    }

    /// False when this agent must not go on.
    fn open(&mut self) -> bool {
        match self.opened() {
            Ok(()) => self.went_well(),
            Err(Refused::Fatal(fatal)) => {
                self.inner.shown().fatal = Some(fatal);
                return false;
            }
            Err(Refused::Failure(failure)) => self.failed(&failure),
        }
        true
    }

    fn opened(&mut self) -> Result<(), Refused> {
        if let (Place::Dir(dir), None) = (self.place, &self.lock) {
            self.lock = Some(db::lock(dir)?);
        }
        let db = Db::open(self.place)?;
        let left = db.left()?;
        self.inner.above(left.last_id);
        self.db = Some(db);
        let mut shown = self.inner.shown();
        // A file that was replaced while the agent ran leaves nothing: the accounts in memory go on.
        if !shown.opened {
            if let Some(why) = left.unread {
                (self.say)(&format!("store: what was learnt cannot be taken over and is learnt anew: {why}"));
            }
            shown.committed = left.booked.map(|booked| committed(&booked, clock::boottime()));
            shown.learnt = left.learnt;
            shown.opened = true;
        }
        Ok(())
    }

    fn set_aside(&mut self) {
        self.db = None;
        let Place::Dir(dir) = self.place else { return };
        match db::set_aside(dir, clock::realtime()) {
            Ok(aside) => {
                self.retry = Nanos(0);
                // All of the accounts again: the new file has none.
                let known = self.inner.shown().committed.clone();
                let counters = if known.is_some() { "counters go on" } else { "counters begin anew" };
                (self.say)(&format!(
                    "store: the damaged file is set aside as {}, a new one is begun: {counters}; the hours, the alert state and the unsent bodies of before are in that file alone",
                    aside.display()
                ));
                if let (None, Some(known)) = (&self.backlog.booked, known) {
                    self.backlog.booked = Some(Booked { ledger: Arc::clone(&known.ledger), start: known.start });
                }
            }
            Err(failure) => self.failed(&failure),
        }
    }

    fn commit(&mut self) {
        let Some(db) = &mut self.db else { return };
        let limit = match self.place {
            Place::Dir(_) => self.inner.limits.outbox_bytes,
            Place::Memory => self.inner.limits.outbox_bytes.min(MEMORY),
        };
        match db.commit(&self.backlog, limit, clock::realtime()) {
            Ok(dropped) => {
                let done = std::mem::take(&mut self.backlog);
                let mut shown = self.inner.shown();
                shown.outbox_dropped += dropped;
                shown.commits += 1;
                if let Some(booked) = done.booked {
                    let at = booked.ledger.upto.as_ref().map_or(Nanos(0), |upto| upto.boottime);
                    shown.committed = Some(committed(&booked, at));
                }
                drop(shown);
                self.went_well();
            }
            Err(failure) => self.failed(&failure),
        }
    }

    /// Into the history. A failure pauses it: what comes meanwhile is lost and counted.
    fn write(&mut self, ticks: VecDeque<Tick>) {
        let (Place::Dir(dir), Some(_)) = (self.place, &self.lock) else {
            return;
        };
        for tick in ticks {
            if clock::boottime() < self.history_retry {
                self.inner.shown().history_dropped += 1;
                continue;
            }
            let history = match self.history.take() {
                Some(history) => Ok(history),
                None => history::Writer::open(&dir.join(history::DIR), self.inner.limits.history.clone()),
            };
            let written = history.and_then(|mut history| {
                let written = history.write(&tick);
                self.history = Some(history);
                written
            });
            if let Err(error) = written {
                self.inner.shown().history_dropped += 1;
                self.history_retry = clock::boottime().saturating_add(HISTORY_PAUSE);
                self.history_failed(&dir.join(history::DIR), &error);
            } else if self.history_said.take().is_some() {
                (self.say)("history: works again");
            }
        }
    }

    fn history_failed(&mut self, dir: &Path, error: &io::Error) {
        let failure = Failure::io(&format!("write into {}", dir.display()), error);
        self.inner.count(failure.reason);
        if self.history_said.replace(failure.reason) != Some(failure.reason) {
            (self.say)(&format!("history: {failure}; its ticks are lost and counted; it is tried again every 60 s"));
        }
    }

    fn close(&mut self) {
        if let (Place::Dir(dir), Some(Err(error))) = (self.place, self.history.as_mut().map(history::Writer::close)) {
            self.history_failed(&dir.join(history::DIR), &error);
        }
    }

    fn show_sizes(&self) {
        let on_disk = self.db.as_ref().map_or(0, |db| db.outbox_bytes);
        let mut shown = self.inner.shown();
        shown.outbox_bytes = on_disk.saturating_add(self.backlog.bodies_bytes);
        shown.history_bytes = self.history.as_ref().map_or(0, history::Writer::bytes);
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Oldest(most, reply) => {
                let bodies = self.oldest(most);
                let _ = reply.send(bodies);
            }
            Ask::Alerts(reply) => {
                let read = self.db.as_ref().map(Db::alerts).transpose();
                let mut alerts = read
                    .unwrap_or_else(|failure| {
                        self.failed(&failure);
                        None
                    })
                    .unwrap_or_default();
                for (key, state) in &self.backlog.alerts {
                    match state {
                        Some(body) => alerts.insert(key.clone(), body.clone()),
                        None => alerts.remove(key),
                    };
                }
                let _ = reply.send(alerts);
            }
        }
    }

    fn oldest(&mut self, most: usize) -> Vec<Body> {
        let read = self.db.as_ref().map(|db| db.oldest(most, &self.backlog.gone)).transpose();
        let mut bodies = read
            .unwrap_or_else(|failure| {
                self.failed(&failure);
                None
            })
            .unwrap_or_default();
        let room = most.saturating_sub(bodies.len());
        bodies.extend(self.backlog.bodies.iter().take(room).cloned());
        bodies
    }
}

fn committed(booked: &Booked, at: Nanos) -> Arc<Committed> {
    Arc::new(Committed { ledger: Arc::clone(&booked.ledger), start: booked.start, at })
}
