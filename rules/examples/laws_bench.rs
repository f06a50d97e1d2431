//! The laws of accounting over many schedules, on all cores: `laws_bench [SCHEDULES] [FIRST SEED]`, a million from
//! seed 0 unless told. Ends with 1 and the seed of the first schedule that breaks a law.

#[path = "../../tests/pure/laws/check.rs"]
mod check;
#[path = "../../tests/pure/laws/oracle.rs"]
mod oracle;
#[path = "../../tests/pure/laws/owners.rs"]
mod owners;
#[path = "../../tests/pure/laws/schedule.rs"]
mod schedule;
#[path = "../../tests/pure/laws/whose.rs"]
mod whose;

use std::io::{self, Write};
use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "a bench measures the time it takes")]
fn main() -> io::Result<ExitCode> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>().ok());
    let count = args.next().flatten().unwrap_or(1_000_000);
    let first = u64::from(args.next().flatten().unwrap_or(0));
    let start = std::time::Instant::now();
    let (bad, ticks) = check::sweep(&(first..first + u64::from(count)));
    let secs = start.elapsed().as_secs_f64();
    let mut out = io::stdout().lock();
    let rate = f64::from(count) / secs;
    writeln!(out, "{count} schedules, {ticks} ticks in {secs:.1} s: {rate:.0} schedules/s")?;
    if let Some(bad) = bad {
        writeln!(out, "{bad}")?;
        return Ok(ExitCode::FAILURE);
    }
    writeln!(out, "no law was broken")?;
    Ok(ExitCode::SUCCESS)
}
