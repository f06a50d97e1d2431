//! What judging costs beside decoding: `cargo run --release --example replay_cost -- FILE.ticks`.
//! Prints the seconds of both, the best of three runs each, and their ratio; fails when that is above 3.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement for people, never shipped")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use gpuprod::recording::{Error, Recording};
use gpuprod::replay::replay;
use gpuprod_rules::Policy;

/// Judging and decoding together may cost so many times decoding.
const LIMIT: f64 = 3.0;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("name a recording")?);
    let (ticks, decode) = best(|| Recording::open(&path)?.try_fold(0, |ticks, tick| tick.map(|_| ticks + 1)))?;
    let (judged, judge) = best(|| replay(Recording::open(&path)?, Policy::default()).map(|(report, _)| report.ticks))?;
    let ratio = judge / decode;
    println!("{ticks} ticks: decode {decode:.3} s, replay {judge:.3} s, ratio {ratio:.2} of at most {LIMIT:.1}");
    // A ratio that is no number (nothing was decoded) is no success either.
    let fine = ticks > 0 && judged == ticks && ratio <= LIMIT;
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ticks, and seconds of the fastest run.
fn best(work: impl Fn() -> Result<u64, Error>) -> Result<(u64, f64), Error> {
    let (mut ticks, mut best) = (0, f64::MAX);
    for _ in 0..3 {
        let begin = Instant::now();
        ticks = work()?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok((ticks, best))
}
