//! The built-in recordings: what they show, and how they are played.

use std::fmt::Write as _;
use std::io::{Cursor, Write};

use anyhow::{Context, Result, anyhow};
use gpuprod_rules::Policy;
use gpuprod_snapshot::units::Nanos;

use crate::clock::Clock;
use crate::pipeline::Pipeline;
use crate::recording::Recording;
use crate::source::Stop;
use crate::top::{Origin, Player, Ticks, no_screen, play, view};
use crate::{replay, top};

/// A recording that is part of this file.
#[derive(Debug)]
pub struct Demo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    bytes: &'static [u8],
    /// What comes before is played fast: the workload's own normal is learnt there.
    fast_until: Nanos,
}

/// All of them; the first is played when none is named.
pub const DEMOS: &[Demo] = &[Demo {
    name: "raid_rebuild",
    about: "2 AM: a drive of the array fails, the rebuild starves eight GPUs, and they read 84 % throughout",
    bytes: include_bytes!("../../tests/recordings/lab/raid_rebuild.ticks"),
    fast_until: Nanos::from_secs(415),
}];

/// After the confirmation the picture is complete within so long: the moment that a page shows.
const DECISIVE: Nanos = Nanos::from_secs(20);
/// Recorded seconds per second once it becomes interesting.
const SPEED: u32 = 4;

/// Finds a demo by name.
///
/// # Errors
/// When there is none of that name.
pub fn find(name: Option<&str>) -> Result<&'static Demo> {
    let Some(name) = name else {
        return DEMOS.first().context("no recording is built in");
    };
    let found = DEMOS.iter().find(|demo| demo.name == name);
    found.ok_or_else(|| anyhow!("there is no demo {name:?}; there are: {}", names().join(", ")))
}

fn names() -> Vec<&'static str> {
    DEMOS.iter().map(|demo| demo.name).collect()
}

/// The list, one line each.
#[must_use]
pub fn list() -> String {
    let mut out = String::new();
    for demo in DEMOS {
        let _ = writeln!(out, "{:<16} {}", demo.name, demo.about);
    }
    out
}

impl Demo {
    fn open(&self) -> Result<Recording> {
        Ok(Recording::read(Cursor::new(self.bytes))?)
    }

    /// On the screen, or as text where there is none.
    ///
    /// # Errors
    /// When the terminal goes away.
    pub fn run(&'static self, once: bool, stop: &Stop, out: &mut dyn Write) -> Result<()> {
        if once || no_screen().is_some() {
            out.write_all(self.page()?.as_bytes())?;
            return Ok(());
        }
        let open = move || -> Result<Ticks> { Ok(Box::new(self.open()?.map(|tick| Ok(tick?)))) };
        let player = Player::new(open, Policy::default(), SPEED, self.fast_until)?;
        let clock = Clock::new(&gpuprod_collectors::Host::at(std::path::Path::new("/")));
        play(player, view("lab".to_owned(), Origin::Recording(self.name.to_owned())), &clock, stop, out)
    }

    /// The page of the decisive moment, every finding, and the ledger.
    ///
    /// # Errors
    /// When the recording cannot be read: a fault of the build.
    pub fn page(&self) -> Result<String> {
        let (report, _) = replay::replay(self.open()?, Policy::default())?;
        let worst = report.findings.iter().map(|episode| &episode.finding);
        let worst = worst.max_by_key(|finding| (finding.severity, std::cmp::Reverse(finding.since)));
        let moment = worst.map_or(Nanos(u64::MAX), |finding| finding.since.saturating_add(DECISIVE));
        let mut page = format!("demo {}: {}\n\n", self.name, self.about);
        let mut pipeline = Pipeline::new(Policy::default());
        let mut ticks = self.open()?.peekable();
        while let Some(tick) = ticks.next() {
            let tick = tick?;
            let frame = pipeline.feed(&tick);
            if tick.stamp.boottime >= moment || ticks.peek().is_none() {
                page += &top::page(&frame, "lab");
                break;
            }
        }
        page.push_str("\nthe whole ");
        page += &replay::page(&report);
        Ok(page)
    }
}
