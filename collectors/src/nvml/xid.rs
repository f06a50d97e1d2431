//! The driver's error lines in the kernel log: the one source that speaks while NVML hangs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use gpuprod_snapshot::gpu::{Xid, Xids};
use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::Nanos;
pub use gpuprod_snapshot::xid::{XidClass, class};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// Records read per round; the rest waits for the next. A storm must not hold the thread.
const RECORDS: usize = 10_000;
/// Larger than any record of the kernel: a smaller buffer would get EINVAL and lose it.
const RECORD: usize = 16 << 10;
/// Of a log that is a plain file, this much per round.
const CHUNK: u64 = 1 << 20;
/// A process name is cut here: the kernel's own are at most 15 characters long.
const NAME: usize = 64;
/// What a lost device is called when the line has no code.
const FALLEN_OFF: u32 = 79;

/// Follows `dev/kmsg`.
#[derive(Default)]
pub struct KernelLog {
    open: Option<Log>,
}

enum Log {
    /// The kernel's own: a read gives one record.
    Device { file: File, last: Option<u64> },
    /// A file of records in its place, in a copy of a host; read from the start.
    Copy { offset: u64 },
}

impl KernelLog {
    /// Nothing is opened before the first round.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Collector for KernelLog {
    fn source(&self) -> Source {
        Source::Xid
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let path = host.dev.join("kmsg");
        if self.open.is_none() {
            self.open = Some(open(&path)?);
        }
        let mut xids = Xids::default();
        let read = match &mut self.open {
            Some(Log::Device { file, last }) => drain(file, last, &mut xids),
            Some(Log::Copy { offset }) => follow(&path, offset, &mut xids),
            None => Ok(()),
        };
        match read {
            Ok(()) => Ok(Part::Xid(xids)),
            // What was found before the error counts, the next round opens again and says what is wrong.
            Err(_) if !xids.events.is_empty() => {
                self.open = None;
                Ok(Part::Xid(xids))
            }
            Err(error) => {
                self.open = None;
                Err(failed("read", &path, error))
            }
        }
    }
}

fn open(path: &Path) -> Result<Log, CollectError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| failed("open", path, error))?;
    let kind = file.metadata().map_err(|error| failed("look at", path, error))?.file_type();
    if kind.is_file() {
        return Ok(Log::Copy { offset: 0 });
    }
    if !kind.is_char_device() {
        let why = format!("open {}: neither a device nor a file", path.display());
        return Err(CollectError::new(Missing::Malformed, why));
    }
    let mut file = file;
    // A new reader is given the whole buffer again. What happened before we looked is not new: a code of last
    // week would be charged to this second, and once more after each restart.
    file.seek(SeekFrom::End(0)).map_err(|error| failed("seek to the end of", path, error))?;
    Ok(Log::Device { file, last: None })
}

fn failed(verb: &str, path: &Path, error: io::Error) -> CollectError {
    let missing = tree::missing(&error);
    let failed = CollectError {
        missing,
        tried: format!("{verb} {}", path.display()),
        hint: None,
        source: Some(Box::new(error)),
    };
    match missing {
        Missing::Denied => failed.hint("the kernel log needs root or CAP_SYSLOG"),
        _ => failed,
    }
}

/// Reads what is there. `last` is the number of the last record that was read.
fn drain(log: &mut impl Read, last: &mut Option<u64>, xids: &mut Xids) -> io::Result<()> {
    let mut record = vec![0_u8; RECORD];
    let mut overrun = false;
    for _ in 0..RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(len) => {
                let text = String::from_utf8_lossy(&record[..len]);
                let seq = header(&text).map(|(seq, _, _)| seq);
                if std::mem::take(&mut overrun) {
                    // Records are numbered without a gap. At least one was lost, or the kernel would not say so.
                    let lost = seq.zip(*last).map_or(1, |(seq, last)| seq.saturating_sub(last.saturating_add(1)));
                    xids.overwritten = xids.overwritten.saturating_add(lost.max(1));
                }
                *last = seq.or(*last);
                xids.events.extend(parse_record(&text));
            }
            Err(error) => match error.raw_os_error() {
                // The ring buffer went round before we read; the next read gives the oldest that is left.
                Some(libc::EPIPE) => overrun = true,
                Some(libc::EAGAIN) => break,
                Some(libc::EINTR) => {}
                _ => return Err(error),
            },
        }
    }
    if overrun {
        xids.overwritten = xids.overwritten.saturating_add(1);
    }
    Ok(())
}

/// The new whole lines of a plain file.
fn follow(path: &Path, offset: &mut u64, xids: &mut Xids) -> io::Result<()> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() < *offset {
        *offset = 0;
    }
    file.seek(SeekFrom::Start(*offset))?;
    let mut bytes = Vec::new();
    let len = file.take(CHUNK).read_to_end(&mut bytes)?;
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        // A line longer than a round can read is none of ours.
        None if u64::try_from(len).is_ok_and(|len| len == CHUNK) => len,
        None => 0,
    };
    *offset = offset.saturating_add(u64::try_from(whole).unwrap_or(0));
    let text = String::from_utf8_lossy(&bytes[..whole]);
    xids.events.extend(text.lines().filter_map(parse_record));
    Ok(())
}

/// Reads a record of `/dev/kmsg`: `priority,sequence,microseconds,flags[,…];message`, and lines of properties
/// after it. Format: `Documentation/ABI/testing/dev-kmsg`.
#[must_use]
pub fn parse_record(record: &str) -> Option<Xid> {
    let (seq, at, message) = header(record)?;
    parse_message(message.lines().next()?, seq, at)
}

/// Number, time and the rest of a record.
fn header(record: &str) -> Option<(u64, Nanos, &str)> {
    let (prefix, message) = record.split_once(';')?;
    let mut fields = prefix.split(',');
    let _priority: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    let usec: u64 = fields.next()?.parse().ok()?;
    Some((seq, Nanos(usec.checked_mul(1000)?), message))
}

/// Reads a line of the driver, with or without the prefixes that `dmesg` and `syslog` write before it; number
/// and time are the caller's. The line must begin with the driver's name: a device or a program can put any
/// text *into* a kernel line.
#[must_use]
pub fn parse_message(line: &str, seq: u64, at: Nanos) -> Option<Xid> {
    let line = line.trim_start();
    let line = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.1.trim_start(),
        None => line,
    };
    let line = line.strip_prefix("kernel: ").unwrap_or(line);
    let text = line.strip_prefix("NVRM: ")?;
    let empty = Xid {
        seq,
        at,
        code: FALLEN_OFF,
        pci: Reading::Missing(Missing::Malformed),
        pid: None,
        name: None,
        gi: None,
        ci: None,
        caused_by: None,
        recovery_action: None,
    };
    if let Some(rest) = text.strip_prefix("Xid (") {
        return coded(rest, empty);
    }
    text.contains("fallen off the bus").then(|| Xid {
        pci: Reading::from_option(
            text.split_ascii_whitespace().find_map(|word| slot(word.trim_matches(|c: char| !c.is_ascii_hexdigit()))),
            Missing::Malformed,
        ),
        ..empty
    })
}

/// What follows `Xid (`: `PCI:0000:9b:00 GPU-I:05 GPU-CI:01): 119, pid=1, name=x, text`.
fn coded(rest: &str, empty: Xid) -> Option<Xid> {
    let (place, rest) = rest.split_once("): ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (code, rest) = rest.split_at(digits);
    let mut xid = Xid { code: code.parse().ok()?, ..empty };
    if !(rest.is_empty() || rest.starts_with(',')) {
        return None;
    }
    for word in place.split_ascii_whitespace() {
        if let Some(gi) = word.strip_prefix("GPU-I:") {
            xid.gi = gi.parse().ok();
        } else if let Some(ci) = word.strip_prefix("GPU-CI:") {
            xid.ci = ci.parse().ok();
        } else if let Some(pci) = slot(word.strip_prefix("PCI:").unwrap_or(word)) {
            xid.pci = Reading::Value(pci);
        }
    }
    let mut text = rest.trim_start_matches([',', ' ']);
    if let Some(pid) = text.strip_prefix("pid=") {
        let (pid, after) = pid.split_once(',').unwrap_or((pid, ""));
        xid.pid = pid.trim_matches('\'').parse().ok();
        text = after.trim_start();
    }
    if let Some(name) = text.strip_prefix("name=") {
        let (name, after) = name.split_once(", ").unwrap_or((name, ""));
        let known = !name.is_empty() && !name.starts_with('<');
        xid.name = known.then(|| name.chars().take(NAME).collect());
        text = after;
    }
    xid.caused_by = number_after(text, "caused by previous Xid ", 10);
    if xid.code == 154 {
        xid.recovery_action = number_after(text, " to 0x", 16);
    }
    Some(xid)
}

fn slot(word: &str) -> Option<PciAddress> {
    PciAddress::parse(word)
}

fn number_after(text: &str, marker: &str, radix: u32) -> Option<u32> {
    let (_, rest) = text.split_once(marker)?;
    let end = rest.find(|c: char| !c.is_digit(radix)).unwrap_or(rest.len());
    u32::from_str_radix(&rest[..end], radix).ok()
}

#[cfg(test)]
#[path = "xid_tests.rs"]
mod tests;
