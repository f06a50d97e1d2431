//! What is to be made durable: everything that came since the last commit that worked. Two of these merge into one,
//! so that a disk that was away gets what it missed in one commit, and memory stays bounded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gpuprod_rules::{Judge, Ledger};
use gpuprod_snapshot::units::Nanos;

use super::Body;
use super::rows::Gains;

/// Bodies in memory at most: what a disk that is away can cost.
pub(super) const MEMORY: u64 = 4 << 20;
/// Keys of alert state at most.
const KEYS: usize = 10_000;

/// The accounts as they stand in memory.
#[derive(Clone, Debug)]
pub(super) struct Booked {
    pub(super) ledger: Arc<Ledger>,
    pub(super) start: Nanos,
}

/// Everything that came since the last commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) booked: Option<Booked>,
    /// By what the rows of the last commit fall short of `booked`.
    pub(super) gains: Gains,
    pub(super) alerts: BTreeMap<String, Option<String>>,
    pub(super) bodies: VecDeque<Body>,
    pub(super) bodies_bytes: u64,
    /// Bodies that need not be sent any more.
    pub(super) gone: BTreeSet<i64>,
    pub(super) learnt: Option<Box<Judge>>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.booked.is_none()
            && self.alerts.is_empty()
            && self.bodies.is_empty()
            && self.gone.is_empty()
            && self.learnt.is_none()
    }

    /// Queues a body; gives the number of those that had to go for it.
    pub(super) fn push(&mut self, body: Body) -> u64 {
        self.bodies_bytes = self.bodies_bytes.saturating_add(size(&body));
        self.bodies.push_back(body);
        let mut dropped = 0;
        while self.bodies_bytes > MEMORY {
            let Some(oldest) = self.bodies.pop_front() else { break };
            self.bodies_bytes = self.bodies_bytes.saturating_sub(size(&oldest));
            dropped += 1;
        }
        dropped
    }

    /// Takes in what came later; gives the number of bodies that had to go.
    pub(super) fn merge(&mut self, newer: Self) -> u64 {
        if newer.booked.is_some() {
            self.booked = newer.booked;
        }
        self.gains.merge(newer.gains);
        for (key, state) in newer.alerts {
            if self.alerts.len() < KEYS || self.alerts.contains_key(&key) {
                self.alerts.insert(key, state);
            }
        }
        if newer.learnt.is_some() {
            self.learnt = newer.learnt;
        }
        let dropped = newer.bodies.into_iter().map(|body| self.push(body)).sum();
        self.gone.extend(newer.gone);
        self.forget_gone();
        dropped
    }

    /// What is gone and was never written needs no writing.
    fn forget_gone(&mut self) {
        let Self { bodies, gone, bodies_bytes, .. } = self;
        bodies.retain(|body| {
            let stays = !gone.remove(&body.id);
            if !stays {
                *bodies_bytes = bodies_bytes.saturating_sub(size(body));
            }
            stays
        });
    }
}

pub(super) fn size(body: &Body) -> u64 {
    u64::try_from(body.body.len()).unwrap_or(u64::MAX)
}
