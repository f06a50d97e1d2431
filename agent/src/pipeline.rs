//! The only path from a tick to what is shown: live, replay, check and tests all go through [`Pipeline::feed`].

use std::borrow::Cow;
use std::sync::Arc;

use gpuprod_rules::{Judge, Judgement, Ledger, Policy, Tenancy};
use gpuprod_snapshot::{Missing, Reading, Tick};
use serde::{Deserialize, Serialize};

use crate::alerts::Alerts;
use crate::own::Own;
use crate::store::{Committed, Status};

/// Everything that was learnt, and the accounts.
#[derive(Debug, Default)]
pub struct Pipeline {
    judge: Judge,
    ledger: Ledger,
}

/// What is known, judged and booked after one tick. Its JSON form is what the agent serves and `check` reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Frame<'a> {
    /// The last sample of every source; its stamp is the frame's time.
    pub known: Cow<'a, Tick>,
    /// What the judge says.
    pub judgement: Cow<'a, Judgement>,
    /// The accounts: those that are durable, in a frame that leaves the process ([`Frame::committed`]).
    pub ledger: Cow<'a, Ledger>,
    /// Who is told; the agent fills it in, a replay tells nobody.
    #[serde(default)]
    pub alerts: Cow<'a, Alerts>,
    /// What the agent says of itself; it fills this in after the feed.
    #[serde(default)]
    pub own: Own,
}

impl Pipeline {
    /// Has learnt nothing, has booked nothing.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { judge: Judge::new(policy), ledger: Ledger::default() }
    }

    /// Judges a tick and books the time since the one before. The frame borrows; nothing is copied for a replay.
    pub fn feed(&mut self, tick: &Tick) -> Frame<'_> {
        let judgement = self.judge.step(tick);
        self.ledger.charge(&judgement);
        Frame {
            known: Cow::Borrowed(self.judge.known()),
            judgement: Cow::Owned(judgement),
            ledger: Cow::Borrowed(&self.ledger),
            alerts: Cow::default(),
            own: Own::default(),
        }
    }

    /// Other thresholds from the next tick on; what was learnt stays.
    pub fn set_policy(&mut self, policy: Policy) {
        self.judge.set_policy(policy);
    }

    /// Names tenants and classes from the next tick on as the site does.
    #[must_use]
    pub fn with_tenancy(mut self, tenancy: Tenancy) -> Self {
        self.set_tenancy(tenancy);
        self
    }

    /// The same for a pipeline that is at work.
    pub fn set_tenancy(&mut self, tenancy: Tenancy) {
        self.judge.set_tenancy(tenancy);
    }

    /// Goes on with what an earlier process learnt, if it still holds ([`Judge::resume`]).
    pub fn resume(&mut self, learnt: Judge) {
        if let Some(mut judge) = learnt.resume(self.judge.policy(), self.judge.known()) {
            judge.set_tenancy(self.judge.tenancy().clone());
            self.judge = judge;
        }
    }

    /// Everything that was learnt.
    #[must_use]
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// The accounts so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl<'a> Frame<'a> {
    /// The frame as it may leave the process: with the accounts as they lie on the disk, which an end without warning
    /// cannot take back. Before the first commit there are none.
    #[must_use]
    pub fn committed(mut self, committed: Option<&'a Committed>, store: Status) -> Self {
        self.ledger = committed.map_or_else(Cow::default, |committed| Cow::Borrowed(committed.ledger.as_ref()));
        self.own.store = Some(store);
        self
    }
}

impl Frame<'_> {
    /// A copy that outlives the pipeline's next step.
    #[must_use]
    pub fn to_owned(&self) -> Frame<'static> {
        Frame {
            known: Cow::Owned(self.known.as_ref().clone()),
            judgement: Cow::Owned(self.judgement.as_ref().clone()),
            ledger: Cow::Owned(self.ledger.as_ref().clone()),
            alerts: Cow::Owned(self.alerts.as_ref().clone()),
            own: self.own.clone(),
        }
    }

    /// What any user of the node may see on the loopback port: without pids, commands, users and cgroup paths.
    #[must_use]
    pub fn public(&self) -> Frame<'static> {
        let mut frame = self.to_owned();
        for finding in &mut frame.judgement.to_mut().findings {
            finding.holders.clear();
        }
        if frame.own.tenants_hidden {
            hide_tenants(&mut frame);
        }
        let known = frame.known.to_mut();
        known.proc = None;
        known.cgroup = None;
        if let Some(Reading::Value(gpus)) = known.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            for gpu in &mut gpus.devices {
                gpu.processes = Reading::Missing(Missing::Denied);
            }
        }
        if let Some(Reading::Value(xids)) = known.xid.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            for event in &mut xids.events {
                event.pid = None;
                event.name = None;
            }
        }
        if let Some(Reading::Value(psi)) = known.psi.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
            psi.cgroups.clear();
        }
        frame
    }
}

/// Takes the names of tenants off everything.
fn hide_tenants(frame: &mut Frame<'static>) {
    for unit in &mut frame.judgement.to_mut().units {
        unit.tenant = None;
        unit.tenants.clear();
    }
    let ledger = frame.ledger.to_mut();
    ledger.tenants = gpuprod_rules::ledger::tenants::Roll::default();
    for share in ledger.accounts.values_mut().flat_map(|account| &mut account.shares) {
        share.tenants.clear();
    }
}
