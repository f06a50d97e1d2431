//! Lists of CPUs or nodes as the kernel prints them: `0-55,112-167`.

use alloc::vec::Vec;

/// Ranges of one list; no machine needs more.
const MOST: usize = 8192;

/// Numbers of a list, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// Reads a list. Empty text is an empty list: a node without CPUs has one. What makes no sense gives nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::default());
        }
        let range = |part: &str| -> Option<(u32, u32)> {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then_some((from, to))
        };
        let ranges: Option<Vec<(u32, u32)>> = text.split(',').take(MOST).map(range).collect();
        ranges.map(Self)
    }

    /// Whether there is none in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is in it.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&number))
    }

    /// Whether the two have a number in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|(from, to)| other.0.iter().any(|(first, last)| from <= last && first <= to))
    }

    /// The first of them, as printed.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|(from, _)| *from)
    }
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
