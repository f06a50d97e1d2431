//! What judge and ledger cost per GPU and tick: `cargo run --release --example judge_cost -- FILE.ticks`.
//! The recording is decoded beforehand; of each tick the fastest of nine runs counts, so that a busy machine adds little.
//! Says whether the bar of 10 us is met; the bar is of a machine, so that nothing fails by it.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement for people, never shipped")]

use std::path::PathBuf;
use std::time::Instant;

use gpuprod::pipeline::Pipeline;
use gpuprod::recording::{Error, Recording};
use gpuprod_rules::Policy;
use gpuprod_snapshot::Tick;

/// Microseconds per GPU and tick.
const BAR: f64 = 10.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("name a recording")?);
    let ticks = Recording::open(&path)?.collect::<Result<Vec<Tick>, Error>>()?;
    let mut best = vec![f64::MAX; ticks.len()];
    let mut units = 0_u32;
    for _ in 0..9 {
        let mut pipeline = Pipeline::new(Policy::default());
        units = 0;
        for (tick, best) in ticks.iter().zip(&mut best) {
            let begin = Instant::now();
            let judged = pipeline.feed(tick).judgement.units.len();
            *best = best.min(begin.elapsed().as_secs_f64());
            units += u32::try_from(judged)?;
        }
    }
    let each = best.iter().sum::<f64>() * 1e6 / f64::from(units);
    let word = if each <= BAR { "met" } else { "MISSED" };
    println!("{} ticks, {units} units judged: {each:.1} us per unit and tick (bar {BAR:.0}: {word})", ticks.len());
    Ok(())
}
