//! `/proc/diskstats`, and the same counters in `/sys/class/block/*/stat`.

use gpuprod_snapshot::storage::IoCounters;

use crate::{Missing, Reading};

/// Lines beyond this are not looked at.
const MAX_LINES: usize = 4096;

/// One line: device number, name, counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Major and minor number.
    pub dev: (u32, u32),
    /// Kernel name.
    pub name: String,
    /// The counters; a bad one spoils this line's and no other's.
    pub io: Reading<IoCounters>,
}

/// All lines that name a device.
#[must_use]
pub fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(line).take(MAX_LINES).collect()
}

fn line(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let dev = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let name = words.next()?.to_owned();
    Some(Line { dev, name, io: Reading::from_option(counters(words), Missing::Malformed) })
}

/// The counters alone, as `/sys/class/block/*/stat` has them: 11, since kernel 4.18 15, since 5.5 17.
pub fn counters<'a>(words: impl Iterator<Item = &'a str>) -> Option<IoCounters> {
    let numbers: Vec<u64> = words.take(64).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let number = |at: usize| numbers.get(at).copied();
    let newer = |at: usize| Reading::from_option(number(at), Missing::Unsupported);
    Some(IoCounters {
        fields: u32::try_from(numbers.len()).ok()?,
        reads: number(0)?,
        reads_merged: number(1)?,
        sectors_read: number(2)?,
        read_ms: millis(number(3)?),
        writes: number(4)?,
        writes_merged: number(5)?,
        sectors_written: number(6)?,
        write_ms: millis(number(7)?),
        in_flight: number(8)?,
        io_ticks_ms: millis(number(9)?),
        weighted_ms: millis(number(10)?),
        discards: newer(11),
        flushes: newer(15),
        flush_ms: newer(16).map(millis),
    })
}

/// The kernel prints the low 32 bits. Should a kernel print more, the difference of two reads stays right.
fn millis(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
