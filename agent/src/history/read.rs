//! Reads the history: the ticks between two instants of the wall clock, across segments.

use std::path::Path;
use std::vec::IntoIter;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;

use super::{Segment, segments};
use crate::recording::{Error, Recording};

/// Ticks in the order in which they were taken. A segment that is damaged gives one error, and the next goes on.
pub struct Between {
    from: Nanos,
    to: Nanos,
    ahead: IntoIter<Segment>,
    open: Option<Recording>,
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
    /// The next segment that can be read; none when there is no more.
    fn turn(&mut self) -> Option<Result<Recording, Error>> {
        loop {
            let segment = self.ahead.next()?;
            match Recording::open(&segment.path) {
                // Torn before its first line was written; or gone for want of room since it was listed.
                Err(Error::NotARecording | Error::Open { .. }) => {}
                opened => return Some(opened),
            }
        }
    }
}

impl Iterator for Between {
    type Item = Result<Tick, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(recording) = &mut self.open else {
                match self.turn()? {
                    Ok(recording) => self.open = Some(recording),
                    Err(error) => return Some(Err(error)),
                }
                continue;
            };
            let mut tick = match recording.next() {
                None => {
                    self.open = None;
                    continue;
                }
                Some(Err(error)) => {
                    self.open = None;
                    return Some(Err(error));
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
