//! The tick thread's side: charges the accounts that are kept, and hands them over every 5 s.
//!
//! The kept ledger goes on where an earlier process ended. Until the files have been opened (a disk may hang for
//! minutes) judgements wait, bounded, and are charged in order then: a late disk costs no second of the accounts.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprod_rules::{Judge, Judgement, Ledger};
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;

use super::changes::Booked;
use super::rows::Gains;
use super::{Committed, Limits, Place, Store};
use crate::history::Budget;
use crate::pipeline::{Frame, Pipeline};
use crate::run::Settings;
use crate::text;

/// Between two commits.
const EVERY: Nanos = Nanos::from_secs(5);
/// Between two times that what was learnt is saved.
const LEARN: Nanos = Nanos::from_secs(300);
/// What an earlier process learnt is taken over so early, or this process knows better by now.
const ADOPT: Nanos = Nanos::from_secs(60);
/// Judgements that wait for the files. Later ones are not charged, and their time is booked as missed.
const WAITING: usize = 900;
/// Longest that a clean end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Keeps the accounts of this process and of those before it.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    enabled: bool,
    books: Option<Books>,
    waiting: VecDeque<Judgement>,
    handed: Option<Nanos>,
    begun: Option<Nanos>,
    learnt: Option<Nanos>,
    /// Held while a frame borrows it.
    shown: Option<Arc<Committed>>,
}

/// The kept accounts, and what they gained since they were handed over last.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    /// The accounts.
    pub(super) ledger: Ledger,
    /// Unix time at which they began at zero.
    pub(super) start: Option<Nanos>,
    /// What was gained, by hour.
    pub(super) gains: Gains,
}

impl Books {
    /// Goes on from what an earlier process left; fresh when there is nothing.
    #[must_use]
    pub(super) fn resume(left: Option<&Committed>) -> Self {
        let Some(left) = left else {
            return Self::default();
        };
        let mut ledger = left.ledger.as_ref().clone();
        ledger.resume();
        Self { ledger, start: Some(left.start), gains: Gains::default() }
    }

    /// Charges the time since the judgement before.
    pub(super) fn charge(&mut self, judgement: &Judgement) {
        self.start.get_or_insert(judgement.stamp.realtime);
        let before = self.ledger.clone();
        self.ledger.charge(judgement);
        self.gains.note(&before, &self.ledger, judgement);
    }
}

impl Keeper {
    /// Starts the store. Without one (`store.enabled: false`) the accounts of the process are shown as they are.
    ///
    /// # Errors
    /// When no directory is named, or the thread cannot be started. What is wrong with the files shows while the
    /// ticks go on: [`Store::fatal`].
    pub fn start(settings: &Settings) -> Result<Self> {
        let config = &settings.config;
        let place = if config.store.enabled {
            let dir = config.store_dir();
            Place::Dir(dir.context("no directory for the store: there is no home directory; set store.dir")?)
        } else {
            Place::Memory
        };
        let history = Budget { bytes: config.store.history_bytes, host: settings.host_name() };
        let limits = Limits { outbox_bytes: config.otlp.queue_bytes, history };
        // A closed stderr is no reason to end.
        let say = |line: &str| drop(writeln!(std::io::stderr(), "{}", text::printable(line)));
        let store = Store::start(place, limits, say).context("start the store thread")?;
        Ok(Self::new(store, config.store.enabled))
    }

    /// Keeps the accounts in this store, or in none.
    #[must_use]
    pub fn new(store: Store, enabled: bool) -> Self {
        Self {
            store,
            enabled,
            books: None,
            waiting: VecDeque::new(),
            handed: None,
            begun: None,
            learnt: None,
            shown: None,
        }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Charges a frame's judgement, and gives the frame as it may leave the process.
    pub fn step<'a>(&'a mut self, frame: Frame<'a>) -> Frame<'a> {
        if !self.enabled {
            return frame;
        }
        self.accept(&frame);
        self.shown = self.store.committed();
        let status = self.store.status(frame.known.stamp.boottime);
        frame.committed(self.shown.as_deref(), status)
    }

    /// After the frame was handed out: its tick goes into the history; what an earlier process learnt is taken over,
    /// and what this one learnt is saved if it is time.
    pub fn keep(&mut self, pipeline: &mut Pipeline, tick: Tick) {
        if !self.enabled {
            return;
        }
        let now = tick.stamp.boottime;
        self.store.keep(tick);
        let begun = *self.begun.get_or_insert(now);
        if let Some(learnt) = self.store.take_learnt()
            && now.saturating_sub(begun) <= ADOPT
        {
            pipeline.resume(*learnt);
        }
        if now.saturating_sub(*self.learnt.get_or_insert(now)) >= LEARN {
            self.learnt = Some(now);
            self.save(pipeline.judge());
        }
    }

    fn accept(&mut self, frame: &Frame<'_>) {
        let now = frame.known.stamp.boottime;
        if self.books.is_none() {
            let opened = {
                let shown = self.store.0.shown();
                shown.opened.then(|| shown.committed.clone())
            };
            let Some(left) = opened else {
                if self.waiting.len() < WAITING {
                    self.waiting.push_back(accounts_only(&frame.judgement));
                }
                return;
            };
            let mut books = Books::resume(left.as_deref());
            for judgement in self.waiting.drain(..) {
                books.charge(&judgement);
            }
            self.books = Some(books);
        }
        if let Some(books) = &mut self.books {
            books.charge(&frame.judgement);
        }
        if self.handed.is_none_or(|at| now.0.abs_diff(at.0) >= EVERY.0) {
            self.hand_over();
            self.handed = Some(now);
        }
    }

    fn save(&self, judge: &Judge) {
        let judge = Box::new(judge.clone());
        self.store.0.change(|changes| changes.learnt = Some(judge));
    }

    fn hand_over(&mut self) {
        let Some(books) = &mut self.books else { return };
        let Some(start) = books.start else { return };
        let booked = Booked { ledger: Arc::new(books.ledger.clone()), start };
        let gained = std::mem::take(&mut books.gains);
        self.store.0.change(|changes| {
            changes.booked = Some(booked);
            changes.gains.merge(gained);
        });
    }

    /// A clean end: everything is committed, unless the disk does not answer in time.
    pub fn stop(mut self, judge: &Judge) {
        if self.enabled {
            self.hand_over();
            self.save(judge);
        }
        self.store.stop(PATIENCE);
    }
}

/// Without what the ledger does not read.
fn accounts_only(judgement: &Judgement) -> Judgement {
    Judgement {
        stamp: judgement.stamp.clone(),
        period: judgement.period,
        units: judgement.units.clone(),
        ..Judgement::default()
    }
}
