//! What judging costs beside decoding: `cargo run --release --example replay_cost -- FILE.ticks`.
//! Prints the seconds of both, the best of nine runs each, taken in turn so that
//! a noisy moment meets both, and their ratio; says whether the bar of 3 is met,
//! and fails when it is above 6.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement for people, never shipped")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use gpuprod::recording::{Error, Recording};
use gpuprod::replay::replay;
use gpuprod_rules::Policy;

/// Judging and decoding together should cost at most so many times decoding.
const BAR: f64 = 3.0;
/// It is 2.4 to 2.8 on a busy machine. Above this somebody made it worse.
const LIMIT: f64 = 6.0;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("name a recording")?);
    let (mut ticks, mut judged, mut decode, mut judge) = (0, 0, f64::MAX, f64::MAX);
    for _ in 0..9 {
        ticks = timed(&mut decode, || Recording::open(&path)?.try_fold(0, |ticks, tick| tick.map(|_| ticks + 1)))?;
        judged =
            timed(&mut judge, || replay(Recording::open(&path)?, Policy::default()).map(|(report, _)| report.ticks))?;
    }
    let ratio = judge / decode;
    let word = if ratio <= BAR { "met" } else { "MISSED" };
    println!(
        "{ticks} ticks: decode {decode:.3} s, replay {judge:.3} s, ratio {ratio:.2} (bar {BAR:.1}: {word}; at most {LIMIT:.1})"
    );
    // A ratio that is no number (nothing was decoded) is no success either.
    let fine = ticks > 0 && judged == ticks && ratio <= LIMIT;
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ticks; the seconds are kept if this run is the fastest.
fn timed(best: &mut f64, work: impl Fn() -> Result<u64, Error>) -> Result<u64, Error> {
    let begin = Instant::now();
    let ticks = work()?;
    *best = best.min(begin.elapsed().as_secs_f64());
    Ok(ticks)
}
