//! Writes the history. Only the `store` thread does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;

use super::{Segment, name, segments};
use crate::recording::{self, Header};
use crate::state_dir;

/// Ticks between two flushes: what kill -9 costs at most.
const FLUSH: u32 = 5;
/// A segment is closed after so long,
const LONGEST: Nanos = Nanos::from_secs(3_600);
/// or when it takes this part of the budget: so much goes at once when room is needed.
const PART: u64 = 16;

/// What may be kept, and in whose name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of all segments.
    pub bytes: u64,
    /// The host's name, for people.
    pub host: String,
}

/// The open end of the history.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    budget: Budget,
    open: Option<Open>,
    /// Closed segments and their bytes, oldest first.
    closed: Vec<(Segment, u64)>,
    next: u64,
    /// The last sample of every source, with which a segment begins.
    known: Tick,
    displaced: Tick,
}

struct Open {
    segment: Segment,
    writer: recording::Writer<Counted>,
    bytes: Arc<AtomicU64>,
    begun: Nanos,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.segment.fmt(f)
    }
}

struct Counted(File, Arc<AtomicU64>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.fetch_add(u64::try_from(written).unwrap_or(0), Ordering::Relaxed);
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Writer {
    /// Goes on after the segments that are there; a torn one stays as it is.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(dir: &Path, budget: Budget) -> io::Result<Self> {
        state_dir::make(dir)?;
        let size = |segment: &Segment| fs::metadata(&segment.path).map_or(0, |meta| meta.len());
        let closed: Vec<_> = segments(dir)?.into_iter().map(|segment| (segment.clone(), size(&segment))).collect();
        let next = closed.last().map_or(1, |(segment, _)| segment.number.saturating_add(1));
        let (known, displaced) = (Tick::default(), Tick::default());
        let mut writer = Self { dir: dir.to_owned(), budget, open: None, closed, next, known, displaced };
        writer.make_room();
        Ok(writer)
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.bytes.load(Ordering::Relaxed));
        self.closed.iter().map(|(_, bytes)| *bytes).fold(open, u64::saturating_add)
    }

    /// Appends a tick.
    ///
    /// # Errors
    /// When it cannot be written: the segment ends there, and the next tick begins another.
    pub fn write(&mut self, tick: &Tick) -> io::Result<()> {
        self.known.advance(&mut self.displaced, tick);
        let written = self.append(tick);
        if written.is_err() {
            self.give_up();
        }
        self.make_room();
        written
    }

    fn append(&mut self, tick: &Tick) -> io::Result<()> {
        let full = |open: &Open| {
            let part = self.budget.bytes / PART;
            open.bytes.load(Ordering::Relaxed) >= part || tick.stamp.boottime.saturating_sub(open.begun) >= LONGEST
        };
        if self.open.as_ref().is_some_and(full) {
            self.close()?;
        }
        match &mut self.open {
            Some(open) => open.writer.write(tick),
            None => {
                let whole = self.known.clone();
                self.begin(&whole)?.writer.write(&whole)
            }
        }
    }

    fn begin(&mut self, first: &Tick) -> io::Result<&mut Open> {
        let from = Nanos(first.stamp.realtime.0 / 1_000_000_000 * 1_000_000_000);
        let path = self.dir.join(name(self.next, from));
        let file = OpenOptions::new().create_new(true).write(true).mode(0o640).open(&path)?;
        let segment = Segment { number: self.next, from, path };
        self.next = self.next.saturating_add(1);
        let bytes = Arc::new(AtomicU64::new(0));
        let header = Header::new(first.period, self.budget.host.clone());
        let writer = recording::Writer::new(Counted(file, Arc::clone(&bytes)), &header, FLUSH);
        let writer = writer.inspect_err(|_| drop(fs::remove_file(&segment.path)))?;
        Ok(self.open.insert(Open { segment, writer, bytes, begun: first.stamp.boottime }))
    }

    /// Ends the open segment.
    ///
    /// # Errors
    /// When its end cannot be written.
    pub fn close(&mut self) -> io::Result<()> {
        let Some(Open { segment, writer, bytes, .. }) = self.open.take() else {
            return Ok(());
        };
        let finished = writer.finish().map(drop);
        self.closed.push((segment, bytes.load(Ordering::Relaxed)));
        finished
    }

    /// The segment cannot be written on: what it has stays, without its end.
    fn give_up(&mut self) {
        if let Some(Open { segment, bytes, .. }) = self.open.take() {
            self.closed.push((segment, bytes.load(Ordering::Relaxed)));
        }
    }

    /// The oldest go until the rest keeps the budget; the open one stays.
    fn make_room(&mut self) {
        while self.bytes() > self.budget.bytes && !self.closed.is_empty() {
            let (oldest, _) = self.closed.remove(0);
            // What somebody else took away is gone as well.
            let _ = fs::remove_file(&oldest.path);
        }
    }
}
