//! Recordings in the agent's format: a header line, one tick per line as JSON, one zstd stream.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use gpuprod_snapshot::SCHEMA;

use crate::scenario::Scenario;

/// Writes a scenario's ticks to a file.
///
/// # Errors
/// When it cannot be written.
pub fn write(scenario: &Scenario, path: &Path) -> io::Result<()> {
    let mut zstd = zstd::Encoder::new(BufWriter::new(File::create(path)?), 1)?;
    // As the agent writes it: a byte that turns is found out, and not judged.
    zstd.include_checksum(true)?;
    write_to(scenario, &mut zstd)?;
    zstd.finish()?.flush()
}

/// Writes a scenario's ticks as plain lines.
///
/// # Errors
/// When they cannot be written.
pub fn write_to(scenario: &Scenario, out: &mut impl Write) -> io::Result<()> {
    let header = serde_json::json!({
        "format": "gpuprod-ticks",
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "period_ns": 1_000_000_000_u64,
        "host": scenario.name,
    });
    writeln!(out, "{header}")?;
    for tick in scenario.ticks() {
        serde_json::to_writer(&mut *out, &tick)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
