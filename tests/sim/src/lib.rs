//! Scenarios: a small text file says what a node looks like, what happens to it, and what a perfect observer
//! would say (`docs/scenarios.md`). From it come recordings ([`Scenario::ticks`]), ground truth
//! ([`Scenario::truth`]), and a fake host that real collectors can read ([`materialise`], [`nvml_state`],
//! [`respond`]).
//!
//! Nothing here knows the rules or the collectors: what is meant and what is found must not share code.

mod device;
mod effects;
mod engine_sim;
mod events;
mod hist;
mod knobs;
mod node;
mod page;
mod parse;
mod parts;
mod pcie;
mod recording;
mod rng;
mod scenario;
mod series;
mod serve;
mod template;
#[cfg(test)]
mod tests;
mod ticks;
mod traffic;
mod tree;
mod truth;
mod turns;
mod twin;
pub mod vocabulary;
mod words;
mod world;

use std::io;
use std::path::{Path, PathBuf};

pub use device::Ail;
pub use engine_sim::{Trace, Traffic, Wedge};
pub use node::{CpuShort, NodeEvent, Port};
pub use page::respond;
pub use pcie::{PcieEvent, Wiring};
pub use recording::{write as write_recording, write_to as write_recording_to};
pub use scenario::{Array, Disk, Event, Fate, Gpus, Harm, Knobs, Reads, Scenario, Share, SyncVerb, What, Work};
pub use series::{Pool, Recorded};
pub use serve::Responder;
pub use ticks::Ticks;
pub use tree::{materialise, nvml_state};
pub use truth::{Blame, Computed, Truth};
pub use twin::{Done, Running, Twin};
pub use words::ParseError;

/// All `*.scn` files of a directory, by name.
///
/// # Errors
/// When the directory cannot be read, or a file is not understood (the error names it and its line).
#[expect(clippy::disallowed_methods, reason = "a test's own files")]
pub fn load_all(dir: &Path) -> io::Result<Vec<(PathBuf, Scenario)>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "scn"));
    paths.sort_unstable();
    paths.into_iter().map(|path| load(&path).map(|scenario| (path, scenario))).collect()
}

/// One scenario file.
///
/// # Errors
/// As for [`load_all`].
#[expect(clippy::disallowed_methods, reason = "a test's own files")]
pub fn load(path: &Path) -> io::Result<Scenario> {
    Scenario::parse(&std::fs::read_to_string(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display())))
}
