//! One look at this host: what `snapshot` prints and `doctor` explains.

use std::fmt::Write as _;

use gpuprod_collectors::runner::Runner;
use gpuprod_collectors::{self as collectors, Source, Tick};
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;

use crate::clock::{Clock, boottime};
use crate::derived::Derived;
use crate::run::Settings;
use crate::{seen, text};

/// The GPUs' pids are known after the first round, their cgroups after the second.
const ROUNDS: u32 = 3;
/// Longest wait per round.
const PATIENCE: Nanos = Nanos::from_secs(3);

/// Reads the sources once; all of them when none is named.
#[must_use]
pub fn take(settings: &Settings, only: &[Source]) -> Tick {
    let mut chosen = collectors::all(&settings.options);
    if !only.is_empty() {
        chosen.retain(|collector| only.contains(&collector.source()));
    }
    let host = settings.host.clone();
    let clock = Clock::new(&host);
    let mut tick = Runner::once(host, chosen, boottime, ROUNDS, PATIENCE);
    tick.stamp = clock.stamp();
    tick.period = settings.config.sampling.period;
    tick
}

/// What `snapshot --json` prints: the tick as recordings hold it, and what follows from it.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// The tick; whoever reads ticks passes over what stands beside it.
    #[serde(flatten)]
    pub tick: Tick,
    /// What follows from it.
    pub derived: Derived,
}

impl Shown {
    /// Works out the rest.
    #[must_use]
    pub fn of(tick: Tick) -> Self {
        Self { derived: Derived::of(&tick), tick }
    }
}

/// As a table: source, what it shows, how long it took.
#[must_use]
pub fn table(tick: &Tick) -> String {
    let mut out = format!("{}  boot {}\n", text::utc(tick.stamp.realtime), text::clean(&tick.stamp.boot_id.0));
    for (source, lines) in seen::lines(tick) {
        let took = tick.status(source).map(|sample| text::duration(sample.took));
        for (place, line) in lines.iter().enumerate() {
            let name = if place == 0 { source.as_str() } else { "" };
            let took = took.as_deref().filter(|_| place == 0).unwrap_or("");
            let _ = writeln!(out, "{name:<8}{took:>8}  {line}");
        }
    }
    out
}
