//! The small texts below `/proc/PID`: `stat`, `status`, `io`, `net/tcp`.

use std::collections::BTreeSet;

use gpuprod_snapshot::CpuList;
use gpuprod_snapshot::units::{Bytes, Nanos};

use crate::{Missing, Reading};

/// What `/proc/PID/stat` (and `task/TID/stat`) says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name, at most 15 bytes.
    pub comm: String,
    /// State letter.
    pub state: char,
    /// Parent.
    pub ppid: u32,
    /// User and system time of all threads, ended ones included.
    pub cpu: Nanos,
    /// Threads.
    pub threads: u32,
    /// Start after boot.
    pub start: Nanos,
    /// CPU on which it ran last.
    pub processor: Option<u32>,
}

/// A list of CPUs is kept up to this length: every second one of two thousand.
const LIST_CAP: usize = 8192;

/// The kernel counts these fields in hundredths of a second on every architecture that we run on (USER_HZ).
const TICK_NANOS: u64 = 10_000_000;

/// The name stands in parentheses and may itself hold blanks and parentheses, so the last one ends it.
#[must_use]
pub fn stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, comm) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_whitespace().take(64).collect();
    // Fields are numbered as in proc(5); the first one after the name is number 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks = |number: usize| -> Option<u64> { field(number)?.parse().ok() };
    let nanos = |ticks: u64| ticks.checked_mul(TICK_NANOS).map(Nanos);
    let mut state = field(3)?.chars();
    let letter = state.next().filter(char::is_ascii_alphabetic)?;
    if state.next().is_some() {
        return None;
    }
    Some(Stat {
        comm: comm.chars().take(64).collect(),
        state: letter,
        ppid: field(4)?.parse().ok()?,
        cpu: nanos(ticks(14)?.checked_add(ticks(15)?)?)?,
        threads: field(20)?.parse().ok()?,
        start: nanos(ticks(22)?)?,
        processor: field(39).and_then(|word| word.parse().ok()),
    })
}

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Real user id.
    pub uid: Reading<u32>,
    /// Resident memory. A process without memory (a zombie, a kernel thread) has no such line: `Gone`.
    pub rss: Reading<Bytes>,
    /// What of it no file backs.
    pub anonymous: Reading<Bytes>,
    /// CPUs on which it may run.
    pub cpus: Reading<String>,
    /// Nodes from which it may take memory.
    pub mems: Reading<String>,
}

impl Status {
    /// Nothing of it could be read.
    #[must_use]
    pub const fn missing(why: Missing) -> Self {
        Self {
            uid: Reading::Missing(why),
            rss: Reading::Missing(why),
            anonymous: Reading::Missing(why),
            cpus: Reading::Missing(why),
            mems: Reading::Missing(why),
        }
    }
}

/// Reads `status`.
#[must_use]
pub fn status(text: &str) -> Status {
    let line = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|rest| rest.split_whitespace().next().unwrap_or_default())
    };
    let uid = line("Uid").and_then(|word| word.parse().ok());
    let memory = |name| match line(name) {
        Some(word) => {
            let kib: Option<u64> = word.parse().ok();
            let bytes = kib.and_then(|kib| kib.checked_mul(1024));
            Reading::from_option(bytes.map(Bytes), Missing::Malformed)
        }
        None => Reading::Missing(Missing::Gone),
    };
    let list = |name| match line(name) {
        Some(word) if word.len() <= LIST_CAP && CpuList::parse(word).is_some_and(|list| !list.is_empty()) => {
            Reading::Value(word.to_owned())
        }
        Some(_) => Reading::Missing(Missing::Malformed),
        None => Reading::Missing(Missing::Unsupported),
    };
    Status {
        uid: Reading::from_option(uid, Missing::Malformed),
        rss: memory("VmRSS"),
        anonymous: memory("RssAnon"),
        cpus: list("Cpus_allowed_list"),
        mems: list("Mems_allowed_list"),
    }
}

/// One counter of `/proc/PID/io`.
#[must_use]
pub fn io(text: &str, name: &str) -> Reading<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.and_then(|value| value.trim().parse().ok());
    Reading::from_option(value.map(Bytes), Missing::Malformed)
}

/// Rows of a `net/tcp` table that are looked at; the kernel prints the listening ones first.
const MAX_ROWS: usize = 65_536;

/// Socket inode and port of each listening row of `net/tcp` or `net/tcp6`.
#[must_use]
pub fn listening(text: &str) -> Vec<(u64, u16)> {
    text.lines().skip(1).take(MAX_ROWS).filter_map(row).collect()
}

/// `0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 31337 …`.
fn row(line: &str) -> Option<(u64, u16)> {
    const LISTEN: &str = "0A";
    let mut words = line.split_whitespace();
    let local = words.nth(1)?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?;
    if state != LISTEN {
        return None;
    }
    let (_, port) = local.rsplit_once(':')?;
    Some((inode.parse().ok()?, u16::from_str_radix(port, 16).ok()?))
}

/// Ports below are services (HTTPS, NFS, SSH): no rank of a job listens there.
const FIRST_PEER_PORT: u16 = 1024;

/// Inodes of established connections that lead to another host, over all tables of a namespace. An address that
/// stands as the local one of any row is our own: two processes may talk over the host's outer address.
#[must_use]
pub fn remote<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> BTreeSet<u64> {
    const ESTABLISHED: &str = "01";
    let rows = texts.flat_map(|text| text.lines().skip(1).take(MAX_ROWS)).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().take(10).collect();
        let (local, _) = words.get(1)?.rsplit_once(':')?;
        let (remote, port) = words.get(2)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some((address(local), address(remote), port, *words.get(3)?, words.get(9)?.parse::<u64>().ok()?))
    });
    let own: BTreeSet<&str> = rows.clone().map(|(local, ..)| local).collect();
    let leads_out = |remote: &str| !loopback(remote) && !own.contains(remote);
    rows.filter(|(_, remote, port, state, _)| *state == ESTABLISHED && *port >= FIRST_PEER_PORT && leads_out(remote))
        .map(|(.., inode)| inode)
        .collect()
}

/// An IPv4 address that is written as an IPv6 one counts as what it is.
fn address(text: &str) -> &str {
    text.strip_prefix("0000000000000000FFFF0000").unwrap_or(text)
}

/// 127.0.0.0/8 and ::1, as the kernel prints them on machines with the low byte first.
fn loopback(address: &str) -> bool {
    (address.len() == 8 && address.ends_with("7F")) || address == "00000000000000000000000001000000"
}
