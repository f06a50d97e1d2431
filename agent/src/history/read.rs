//! Reads the history: the ticks between two instants of the wall clock, across segments.

use std::fs;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;

use super::{Segment, segments};
use crate::recording::{Error, Recording};

/// A segment, or the rest of one, that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} is damaged", path.display())]
pub struct Damaged {
    /// Which.
    pub path: PathBuf,
    /// What is wrong, and after which line.
    pub source: Error,
}

/// Ticks in the order in which they were taken. A segment that is damaged gives one error, and the next goes on.
pub struct Between {
    from: Nanos,
    to: Nanos,
    ahead: IntoIter<Segment>,
    open: Option<(Recording, PathBuf)>,
    /// The last sample of every source so far: the first tick carries those from before.
    known: Tick,
    displaced: Tick,
    begun: bool,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Between").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}

/// The ticks of `from..=to` (Unix time) in a history directory. The first one carries the last sample of every source
/// from before it, so that a judge or a screen knows at once what was known then.
///
/// # Errors
/// When the directory cannot be read. One that does not exist is an empty history.
pub fn between(dir: &Path, from: Nanos, to: Nanos) -> Result<Between, Error> {
    let all = segments(dir).map_err(|source| Error::Open { path: dir.to_owned(), source })?;
    // A segment ends where the next begins. Names are in whole seconds.
    let ends = all.iter().skip(1).map(|next| next.from.saturating_add(Nanos::from_secs(1)));
    let ends: Vec<Nanos> = ends.chain([Nanos(u64::MAX)]).collect();
    let wanted = |(segment, end): (Segment, Nanos)| (segment.from <= to && end >= from).then_some(segment);
    let ahead: Vec<Segment> = all.into_iter().zip(ends).filter_map(wanted).collect();
    let (known, displaced) = (Tick::default(), Tick::default());
    Ok(Between { from, to, ahead: ahead.into_iter(), open: None, known, displaced, begun: false })
}

impl Between {
    /// The next segment that is there; none when there is no more.
    fn turn(&mut self) -> Option<Result<(Recording, PathBuf), Damaged>> {
        loop {
            let path = self.ahead.next()?.path;
            match Recording::open(&path) {
                // Gone for want of room since it was listed, or killed before its first line was written.
                Err(_) if fs::metadata(&path).map_or(true, |meta| meta.len() == 0) => {}
                Ok(recording) => return Some(Ok((recording, path))),
                Err(error) => return Some(Err(Damaged { path, source: error.bare() })),
            }
        }
    }
}

impl Iterator for Between {
    type Item = Result<Tick, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((recording, path)) = &mut self.open else {
                match self.turn()? {
                    Ok(open) => self.open = Some(open),
                    Err(damaged) => return Some(Err(damaged)),
                }
                continue;
            };
            let mut tick = match recording.next() {
                None => {
                    self.open = None;
                    continue;
                }
                Some(Err(source)) => {
                    let path = std::mem::take(path);
                    self.open = None;
                    return Some(Err(Damaged { path, source }));
                }
                Some(Ok(tick)) => tick,
            };
            tick.forget(&self.known);
            self.known.advance(&mut self.displaced, &tick);
            if tick.stamp.realtime < self.from || tick.stamp.realtime > self.to {
                continue;
            }
            if !std::mem::replace(&mut self.begun, true) {
                return Some(Ok(self.known.clone()));
            }
            return Some(Ok(tick));
        }
    }
}
