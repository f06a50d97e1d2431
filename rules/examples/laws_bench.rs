//! The laws of accounting over many schedules, on all cores: `laws_bench [SCHEDULES] [FIRST SEED]`, a million from
//! seed 0 unless told. Ends with 1 and the seed of the first schedule that breaks a law.

#[path = "../../tests/pure/laws/check.rs"]
mod check;
#[path = "../../tests/pure/laws/oracle.rs"]
mod oracle;
#[path = "../../tests/pure/laws/schedule.rs"]
mod schedule;

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use gpuprod_rules::Ledger;
use schedule::Schedule;

#[expect(clippy::disallowed_methods, reason = "a bench measures the time it takes")]
fn main() -> io::Result<ExitCode> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().ok());
    let count = args.next().flatten().unwrap_or(1_000_000);
    let first = args.next().flatten().unwrap_or(0);
    let threads = thread::available_parallelism()?.get() as u64;
    let start = std::time::Instant::now();
    let (bad, ticks) = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|worker| scope.spawn(move || run(first + worker, first + count, threads))).collect();
        let mut all = (None, 0);
        for worker in workers {
            let (bad, ticks) = worker.join().unwrap_or((Some("a worker died".to_owned()), 0));
            all = (all.0.or(bad), all.1 + ticks);
        }
        all
    });
    let secs = start.elapsed().as_secs_f64();
    let mut out = io::stdout().lock();
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / secs;
    writeln!(out, "{count} schedules, {ticks} ticks in {secs:.1} s: {per_second:.0} schedules/s")?;
    if let Some(bad) = bad {
        writeln!(out, "{bad}")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "no law was broken")?;
    Ok(ExitCode::SUCCESS)
}

fn run(from: u64, to: u64, step: u64) -> (Option<String>, u64) {
    let mut ticks = 0;
    let step = usize::try_from(step).unwrap_or(1);
    for seed in (from..to).step_by(step) {
        let schedule = Schedule::new(seed);
        ticks += schedule.beats.len() as u64;
        let found = check::broken(&Ledger::default(), &schedule);
        if let Some(first) = found.first() {
            let (law, what, troubles) = (first.law, &first.what, schedule.troubles);
            return (Some(format!("schedule {seed} {troubles:?}: {law:?}: {what}")), ticks);
        }
    }
    (None, ticks)
}
