//! The NVML child alone, for tests: `nvml_worker [--hostile | --die] [--library FILE] [--lock FILE]`, or
//! `nvml_worker --latency [--library FILE]`.

use std::io::Write as _;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (mut library, mut lock, mut latency) = (None, None, false);
    while let Some(flag) = arguments.next() {
        match flag.to_str() {
            Some("--library") => library = arguments.next().map(PathBuf::from),
            Some("--lock") => lock = arguments.next().map(PathBuf::from),
            Some("--latency") => latency = true,
            // A child that writes nonsense, and one that ends at its first request.
            Some("--hostile") => {
                std::io::stdout().write_all(&[0xff; 64])?;
                std::io::stdout().flush()?;
            }
            Some("--die") => std::process::exit(7),
            _ => return Err(std::io::Error::other(format!("unknown argument {}", flag.display()))),
        }
    }
    if latency {
        let table = gpuprod_collectors::nvml::latency(library).map_err(std::io::Error::other)?;
        return std::io::stdout().write_all(table.as_bytes());
    }
    gpuprod_collectors::nvml::worker_main(library, lock)
}
