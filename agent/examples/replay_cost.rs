//! What judging costs beside decoding: `cargo run --release --example replay_cost -- FILE.ticks`.
//! Prints the seconds of both, the better of three runs each, and their ratio.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement for people, never shipped")]

use std::path::PathBuf;
use std::time::Instant;

use gpuprod::recording::{Error, Recording};
use gpuprod::replay::replay;
use gpuprod_rules::Policy;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("name a recording")?);
    let decode = best(|| Recording::open(&path)?.try_fold(0, |ticks, tick| tick.map(|_| ticks + 1)))?;
    let judge = best(|| replay(Recording::open(&path)?, Policy::default()).map(|(report, _)| report.ticks))?;
    println!("decode {decode:.3} s, replay {judge:.3} s, ratio {:.2}", judge / decode);
    Ok(())
}

fn best(work: impl Fn() -> Result<u64, Error>) -> Result<f64, Error> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        let ticks = work()?;
        best = best.min(begin.elapsed().as_secs_f64());
        println!("{ticks} ticks");
    }
    Ok(best)
}
