//! Ground truth: what a perfect observer would have said.

use gpuprod_snapshot::units::Nanos;

use crate::scenario::{Scenario, What};

/// A stretch of time in which the right answer for a GPU is known. What no truth covers is not scored.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// GPU number.
    pub unit: usize,
    /// From, since the start.
    pub from: Nanos,
    /// To, exclusive.
    pub to: Nanos,
    /// State, as a label (`starved`).
    pub state: String,
    /// Cause or reason (`storage`, `lost`, `agent_down`), where there is one.
    pub cause: Option<String>,
    /// Productive share, where the author knows it.
    pub w: Option<f64>,
}

/// Somebody must be blamed: in this stretch at least one finding of warn or worse names the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// Cause or rule (`storage`, `raid_rebuild_impact`).
    pub cause: String,
    /// Cause object (`md0`), where there is one.
    pub object: Option<String>,
    /// From, since the start.
    pub from: Nanos,
    /// To, exclusive.
    pub to: Nanos,
}

/// What an engine that requests drive has done since its process started. Work is in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Computed {
    /// Prompts that no cache had, and answers: everything.
    pub all: f64,
    /// Of that, what it had computed before and lost by a preemption.
    pub again: f64,
    /// Of that, answers to second tries of the same request.
    pub duplicate: f64,
    /// Requests that got their first token.
    pub first: f64,
    /// Of those, the ones that got it later than was promised (nothing is late where nothing is).
    pub late: f64,
}

impl Scenario {
    /// The author's expectations, cut where the agent or the host did not run: those stretches are `unknown`,
    /// exactly. In order of unit and time.
    #[must_use]
    pub fn truth(&self) -> Vec<Truth> {
        let mut dark: Vec<(u64, u64, &str)> = self
            .events
            .iter()
            .filter_map(|event| {
                let reason = match event.what {
                    What::Gap => "agent_down",
                    What::Suspend => "suspended",
                    What::Reboot => "host_down",
                    _ => return None,
                };
                Some((event.at, event.until, reason))
            })
            .collect();
        dark.sort_unstable();
        let mut truths = Vec::new();
        for truth in &self.expects {
            let mut from = truth.from;
            for (at, until, _) in &dark {
                let (at, until) = (Nanos::from_secs(*at), Nanos::from_secs(*until));
                if at < truth.to && until > from {
                    if at > from {
                        truths.push(Truth { from, to: at, ..truth.clone() });
                    }
                    from = until;
                }
            }
            if from < truth.to {
                truths.push(Truth { from, ..truth.clone() });
            }
        }
        for unit in 0..self.gpus.count {
            truths.extend(dark.iter().map(|(at, until, reason)| Truth {
                unit,
                from: Nanos::from_secs(*at),
                to: Nanos::from_secs(*until),
                state: "unknown".into(),
                cause: Some((*reason).into()),
                w: None,
            }));
        }
        truths.sort_by_key(|truth| (truth.unit, truth.from));
        truths
    }
}
