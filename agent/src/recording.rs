//! Recordings (`.ticks`): a header line, then one tick per line as JSON, as one zstd stream.
//!
//! The same vocabulary as everywhere; there is no second format. A reader takes plain JSON lines as well, bounds
//! every line (and with it what a crafted file can make it allocate), tolerates a torn end (the writer was
//! killed) with a note, and refuses a newer schema.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{SCHEMA, Tick};
use serde::{Deserialize, Serialize};

/// Word in the header by which a recording is known.
pub const FORMAT: &str = "gpuprod-ticks";
/// Longest line, in bytes: hundreds of GPUs, disks and processes fit many times over.
pub const LINE_CAP: u64 = 16 << 20;
/// Largest zstd window that is accepted (log2): 32 MiB; the writer's own is 512 KiB.
const WINDOW_LOG: u32 = 25;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Version of the writer.
    pub version: String,
    /// Nominal length of a tick.
    pub period_ns: Nanos,
    /// The host's name, for people.
    pub host: String,
}

impl Header {
    /// For a recording made now by this version.
    #[must_use]
    pub fn new(period: Nanos, host: impl Into<String>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            period_ns: period,
            host: host.into(),
        }
    }
}

/// What can be wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be opened.
    #[error("open the recording {}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is wrong with a file.
    #[error("read {}", path.display())]
    Of {
        /// Which file.
        path: PathBuf,
        /// What.
        source: Box<Error>,
    },
    /// Nothing stands in it.
    #[error("it is empty: its writer was killed before the first line, or nothing was copied")]
    Empty,
    /// It is cut off in its first line.
    #[error("it is torn within the first line: nothing of it can be read")]
    NoHeader,
    /// Its first line is no header.
    #[error("not a gpuprod recording: the first line is no header with \"format\":\"{FORMAT}\"")]
    NotARecording,
    /// A later version wrote it.
    #[error(
        "the recording has schema {found} (written by gpuprod {version}), and this version reads up to {SCHEMA}: use a newer gpuprod"
    )]
    Newer {
        /// Its schema.
        found: u32,
        /// Its writer.
        version: String,
    },
    /// A line is too long.
    #[error("line {line} of the recording is longer than {LINE_CAP} bytes")]
    TooLong {
        /// Which line, the header being 1.
        line: u64,
    },
    /// A line is no tick.
    #[error("line {line} of the recording is not a tick")]
    Line {
        /// Which line, the header being 1.
        line: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// The file cannot be read or is damaged.
    #[error("read the recording after line {line}")]
    Read {
        /// The last line that was read.
        line: u64,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// Without the file's name, for who says it already.
    #[must_use]
    pub fn bare(self) -> Self {
        match self {
            Self::Of { source, .. } => *source,
            other => other,
        }
    }
}

/// Writes a recording.
pub struct Writer<W: Write> {
    stream: zstd::stream::write::Encoder<'static, W>,
    /// Ticks between two flushes: a crash loses at most so many.
    flush_every: u32,
    unflushed: u32,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(output: W, header: &Header, flush_every: u32) -> io::Result<Self> {
        let mut stream = zstd::stream::write::Encoder::new(output, 1)?;
        stream.include_checksum(true)?;
        let mut writer = Self { stream, flush_every, unflushed: 0 };
        writer.line(header)?;
        writer.stream.flush()?;
        Ok(writer)
    }

    /// Appends a tick.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn write(&mut self, tick: &Tick) -> io::Result<()> {
        self.line(tick)?;
        self.unflushed += 1;
        if self.unflushed >= self.flush_every {
            self.stream.flush()?;
            self.unflushed = 0;
        }
        Ok(())
    }

    /// Ends the stream and gives the output back.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(self) -> io::Result<W> {
        let mut output = self.stream.finish()?;
        output.flush()?;
        Ok(output)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        // What the reader would refuse must not be written: it would cost everything after it.
        if u64::try_from(line.len()).is_ok_and(|length| length > LINE_CAP) {
            let what = format!("a tick of {} bytes could not be read back (at most {LINE_CAP})", line.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.stream.write_all(&line)
    }
}

/// Reads a recording: an iterator of ticks.
pub struct Recording {
    input: Box<dyn BufRead + Send>,
    header: Header,
    lines: u64,
    buffer: Vec<u8>,
    torn: Option<String>,
    ended: bool,
}

enum Line {
    Whole,
    Torn(String),
    End,
}

impl Recording {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened, is no recording or a newer one; with its name.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Self::read(file).map_err(|source| Error::Of { path: path.to_owned(), source: Box::new(source) })
    }

    /// Reads from anything, compressed or not.
    ///
    /// # Errors
    /// When it is no recording or a newer one.
    pub fn read(input: impl Read + Send + 'static) -> Result<Self, Error> {
        let unreadable = |source| Error::Read { line: 0, source };
        let mut input = BufReader::with_capacity(1 << 16, input);
        let magic = input.fill_buf().map_err(unreadable)?;
        let (empty, packed) = (magic.is_empty(), magic.starts_with(&ZSTD_MAGIC));
        let input: Box<dyn BufRead + Send> = if packed {
            let mut stream = zstd::stream::read::Decoder::with_buffer(input).map_err(unreadable)?;
            stream.window_log_max(WINDOW_LOG).map_err(unreadable)?;
            Box::new(BufReader::with_capacity(1 << 16, stream))
        } else {
            Box::new(input)
        };
        let mut recording =
            Self { input, header: Header::new(Nanos(0), ""), lines: 0, buffer: Vec::new(), torn: None, ended: false };
        match recording.line()? {
            Line::Whole => {}
            Line::End if empty => return Err(Error::Empty),
            Line::Torn(_) | Line::End if packed => return Err(Error::NoHeader),
            Line::Torn(_) | Line::End => return Err(Error::NotARecording),
        }
        recording.header = header(&recording.buffer)?;
        Ok(recording)
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// After the last tick: what was cut off at the end, in words.
    #[must_use]
    pub fn torn(&self) -> Option<&str> {
        self.torn.as_deref()
    }

    /// Fetches the next line into the buffer.
    fn line(&mut self) -> Result<Line, Error> {
        self.buffer.clear();
        let read = self.input.by_ref().take(LINE_CAP + 1).read_until(b'\n', &mut self.buffer);
        let torn = |what: &str, lines: u64| {
            Ok(Line::Torn(format!("the recording is torn after line {lines}: {what}; everything before was read")))
        };
        match read {
            Ok(0) => Ok(Line::End),
            Ok(_) if self.buffer.ends_with(b"\n") => {
                self.lines += 1;
                Ok(Line::Whole)
            }
            Ok(length) if u64::try_from(length).is_ok_and(|length| length > LINE_CAP) => {
                Err(Error::TooLong { line: self.lines + 1 })
            }
            Ok(_) => torn("its last line has no end", self.lines),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                torn("the compressed stream has no end", self.lines)
            }
            Err(source) => Err(Error::Read { line: self.lines, source }),
        }
    }
}

fn header(line: &[u8]) -> Result<Header, Error> {
    /// What every version's header has, so that a newer one is recognised before it is understood.
    #[derive(Deserialize)]
    struct Known {
        format: String,
        schema: u32,
        #[serde(default)]
        version: String,
    }
    let known: Known = serde_json::from_slice(line).map_err(|_| Error::NotARecording)?;
    if known.format != FORMAT {
        return Err(Error::NotARecording);
    }
    if known.schema > SCHEMA {
        return Err(Error::Newer { found: known.schema, version: known.version.escape_debug().take(64).collect() });
    }
    serde_json::from_slice(line).map_err(|_| Error::NotARecording)
}

impl Iterator for Recording {
    type Item = Result<Tick, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = match self.line() {
            Ok(Line::Whole) => {
                Some(serde_json::from_slice(&self.buffer).map_err(|source| Error::Line { line: self.lines, source }))
            }
            Ok(Line::Torn(note)) => {
                self.torn = Some(note);
                None
            }
            Ok(Line::End) => None,
            Err(error) => Some(Err(error)),
        };
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}
