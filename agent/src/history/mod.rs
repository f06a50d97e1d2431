//! The history: every tick of the last days, in rolling segments of the recording format (`.ticks`) within a budget
//! of bytes. There is no second format and no index: a segment's name says its number and when it begins.
//!
//! A segment begins with everything that is known at that moment, so that each can be read alone; a reader of
//! several leaves out what it has seen. The last segment may be torn (kill -9): what was flushed can be read.

mod read;
mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuprod_snapshot::units::Nanos;

pub use read::{Between, Damaged, between};
pub use write::{Budget, Writer};

/// The directory's name in the store's directory.
pub const DIR: &str = "history";

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Grows by one per segment, whatever the wall clock does.
    pub number: u64,
    /// Wall-clock time of its first tick, in whole seconds.
    pub from: Nanos,
    /// Where it is.
    pub path: PathBuf,
}

/// `0000000042-1795837575.ticks`.
fn name(number: u64, from: Nanos) -> String {
    format!("{number:010}-{}.ticks", from.0 / 1_000_000_000)
}

fn parse(path: &Path) -> Option<Segment> {
    let name = path.file_name()?.to_str()?.strip_suffix(".ticks")?;
    let (number, from) = name.split_once('-')?;
    let from = Nanos(from.parse::<u64>().ok()?.checked_mul(1_000_000_000)?);
    Some(Segment { number: number.parse().ok()?, from, path: path.to_owned() })
}

/// The segments in a directory, oldest first; none when there is no such directory.
///
/// # Errors
/// When the directory cannot be read.
#[expect(clippy::disallowed_methods, reason = "the store's own directory, not the host's")]
pub fn segments(dir: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments: Vec<Segment> = entries.flatten().filter_map(|entry| parse(&entry.path())).collect();
    segments.sort();
    Ok(segments)
}
