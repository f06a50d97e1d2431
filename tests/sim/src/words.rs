//! One line of a scenario as words, and the quantities that stand in them.

use std::collections::VecDeque;
use std::fmt;

use gpuprod_snapshot::units::{from_f64, to_f64};

/// What is wrong with a scenario, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line number, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// The words of a line that have not been read yet.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) line: usize,
    words: VecDeque<String>,
}

impl Words {
    /// Splits a line; `#` starts a comment, double quotes hold words together.
    pub(crate) fn of(line: usize, text: &str) -> Result<Self, ParseError> {
        let mut words = VecDeque::new();
        let (mut word, mut quoted, mut started) = (String::new(), false, false);
        for c in text.chars() {
            match c {
                '"' => (quoted, started) = (!quoted, true),
                '#' if !quoted => break,
                c if c.is_whitespace() && !quoted => {
                    if started {
                        words.push_back(std::mem::take(&mut word));
                    }
                    started = false;
                }
                c => {
                    word.push(c);
                    started = true;
                }
            }
        }
        if started {
            words.push_back(word);
        }
        let this = Self { line, words };
        if quoted { Err(this.error("a quote is not closed")) } else { Ok(this) }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, message: message.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<&str> {
        self.words.front().map(String::as_str)
    }

    /// The next word, or an error that says what should stand there.
    pub(crate) fn take(&mut self, what: &str) -> Result<String, ParseError> {
        self.words.pop_front().ok_or_else(|| self.error(format!("{what} is missing at the end of the line")))
    }

    /// The next word if it is this one.
    pub(crate) fn skip(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            self.words.pop_front();
        }
        found
    }

    /// The next word must be this one.
    pub(crate) fn need(&mut self, word: &str) -> Result<(), ParseError> {
        let found = self.take(&format!("`{word}`"))?;
        if found == word { Ok(()) } else { Err(self.error(format!("`{word}` expected, not `{found}`"))) }
    }

    /// The next word as a quantity.
    pub(crate) fn number(&mut self, what: &str, unit: Unit) -> Result<f64, ParseError> {
        let word = self.take(what)?;
        unit.read(&word).ok_or_else(|| {
            self.error(format!("{what}: `{word}` is not {} (for instance {})", unit.name(), unit.example()))
        })
    }

    /// The next word as a time or length in whole seconds.
    pub(crate) fn seconds(&mut self, what: &str) -> Result<u64, ParseError> {
        let word = self.take(what)?;
        seconds(&word)
            .ok_or_else(|| self.error(format!("{what}: `{word}` is not a time (for instance 90s, 4m, 1h30m)")))
    }

    /// The next word as a list of GPU numbers (`0-3,6`).
    pub(crate) fn gpus(&mut self, count: usize) -> Result<Vec<usize>, ParseError> {
        let word = self.take("a list of GPUs")?;
        let list = list(&word, count)
            .ok_or_else(|| self.error(format!("`{word}` is not a list of GPUs (for instance 0-3,6)")))?;
        match list.iter().find(|gpu| **gpu >= count) {
            Some(gpu) => Err(self.error(format!("there is no GPU {gpu}: the `gpu` line says {count}"))),
            None => Ok(list),
        }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), ParseError> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(self.error(format!("`{word}` is not understood here"))),
        }
    }
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Fraction,
    Watts,
    Bytes,
    BytesPerSecond,
    TokensPerSecond,
    Count,
    Latency,
    Factor,
}

/// Unit, its name, an example, and the suffixes with their size.
type UnitRow = (Unit, &'static str, &'static str, &'static [(&'static str, f64)]);

const UNITS: &[UnitRow] = &[
    (Unit::Fraction, "a share", "0.5 or 50%", &[("%", 0.01), ("", 1.0)]),
    (Unit::Watts, "a power", "700W", &[("kW", 1e3), ("W", 1.0)]),
    (Unit::Bytes, "a size", "72GB", BYTES),
    (Unit::BytesPerSecond, "a speed", "180MB/s", BYTES_PER_SECOND),
    (Unit::TokensPerSecond, "a rate", "1200tok/s", &[("tok/s", 1.0), ("/s", 1.0)]),
    (Unit::Count, "a number", "16", &[("", 1.0)]),
    (Unit::Latency, "a latency", "0.2ms", &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]),
    (Unit::Factor, "a factor", "x4", &[("x", 1.0), ("", 1.0)]),
];

const BYTES: &[(&str, f64)] = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];

const BYTES_PER_SECOND: &[(&str, f64)] =
    &[("KiB/s", 1024.0), ("MiB/s", 1_048_576.0), ("KB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("B/s", 1.0)];

impl Unit {
    fn row(self) -> UnitRow {
        UNITS.iter().copied().find(|row| row.0 == self).unwrap_or(UNITS[0])
    }
    fn name(self) -> &'static str {
        self.row().1
    }
    fn example(self) -> &'static str {
        self.row().2
    }
    fn read(self, word: &str) -> Option<f64> {
        let word = if self == Self::Factor { word.strip_prefix('x').unwrap_or(word) } else { word };
        self.row().3.iter().find_map(|(suffix, size)| {
            let number: f64 = word.strip_suffix(suffix)?.parse().ok()?;
            (0.0..1e15).contains(&number).then_some(number * size)
        })
    }
}

/// `90s`, `4m`, `1h30m` as seconds, at most a year.
pub(crate) fn seconds(word: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut digits = String::new();
    for c in word.chars() {
        let size = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            // A sum: what was drawn, and a while.
            '+' if digits.is_empty() => continue,
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        let number: u64 = std::mem::take(&mut digits).parse().ok()?;
        total = total.checked_add(number.checked_mul(size)?)?;
    }
    (digits.is_empty() && !word.is_empty() && total <= 31_536_000)
        .then_some(total)
        .or_else(|| (word == "0").then_some(0))
}

fn list(word: &str, count: usize) -> Option<Vec<usize>> {
    if word == "all" {
        return Some((0..count).collect());
    }
    let mut list = Vec::new();
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < 1024).then_some(())?;
        list.extend(first..=last);
    }
    list.sort_unstable();
    list.dedup();
    Some(list)
}

/// The nearest whole number; nothing below zero.
pub(crate) fn whole(value: f64) -> u64 {
    from_f64(value).unwrap_or(0)
}

/// The nearest whole number that fits 32 bits.
pub(crate) fn whole32(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}

/// A count as a float.
pub(crate) fn float(value: usize) -> f64 {
    to_f64(u64::try_from(value).unwrap_or(u64::MAX))
}
