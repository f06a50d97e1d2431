//! `/proc/mdstat`, as `md_seq_show` and the personalities' `status` functions of the kernel print it.
//!
//! The parser never fails: a line that it does not know costs only itself. Text that is not Linux md's at all
//! (Unraid prints `key=value` lines under this name) holds no array header and so gives no array.

use gpuprod_snapshot::storage::{MdAction, MdArray, MdMember, MdState, MemberFlag, SyncState};
use gpuprod_snapshot::units::{Bytes, BytesPerSecond, Nanos, Ppb};

use crate::{Missing, Reading, decimal};

/// More arrays, or members of one array, are on no sane host.
pub const MAX_ARRAYS: usize = 1024;
const MAX_MEMBERS: usize = 1024;

/// All arrays of the text, in its order. What the text does not say is `Unsupported`; what belongs to a sync
/// that is not running is `Gone`.
#[must_use]
pub fn parse(text: &str) -> Vec<MdArray> {
    let mut arrays: Vec<MdArray> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(array) = header(line) {
            if arrays.len() == MAX_ARRAYS {
                break;
            }
            arrays.push(array);
            inside = true;
        } else if !line.trim().is_empty() && !line.starts_with([' ', '\t']) {
            inside = false;
        } else if inside && let Some(array) = arrays.last_mut() {
            detail(array, line.trim());
        }
    }
    arrays.iter_mut().for_each(conclude);
    arrays
}

/// `md0 : active raid1 sdb1[1] sda1[0](F)`; with no member the status stands on the same line.
fn header(line: &str) -> Option<MdArray> {
    let (name, rest) = line.split_once(" : ")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let mut words = rest.split_whitespace();
    let state = match words.next()? {
        "active" => MdState::Active,
        "inactive" => MdState::Inactive,
        "broken" => MdState::Broken,
        _ => return None,
    };
    let mut array = blank(name, state);
    let mut status: Vec<&str> = Vec::new();
    for word in words {
        if !status.is_empty() {
            status.push(word);
        } else if word == "(read-only)" {
            array.state = MdState::ReadOnly.into();
        } else if word == "(auto-read-only)" {
            array.state = MdState::ReadAuto.into();
        } else if let Some(member) = member(word) {
            if array.members.len() < MAX_MEMBERS {
                array.members.push(member);
            }
        } else if array.level.get().is_none() && array.members.is_empty() && word != "super" {
            array.level = word.to_owned().into();
        } else {
            status.push(word);
        }
    }
    if !status.is_empty() {
        self::status(&mut array, &status);
    }
    Some(array)
}

fn blank(name: &str, state: MdState) -> MdArray {
    const UNSAID: Missing = Missing::Unsupported;
    MdArray {
        name: name.to_owned(),
        state: state.into(),
        level: Reading::Missing(UNSAID),
        metadata: Reading::Missing(UNSAID),
        uuid: Reading::Missing(UNSAID),
        size: Reading::Missing(UNSAID),
        chunk: Reading::Missing(UNSAID),
        layout: Reading::Missing(UNSAID),
        raid_disks: Reading::Missing(UNSAID),
        active_disks: Reading::Missing(UNSAID),
        missing: Reading::Missing(UNSAID),
        degraded: Reading::Missing(UNSAID),
        slots: Reading::Missing(UNSAID),
        action: MdAction::Idle.into(),
        last_action: Reading::Missing(UNSAID),
        sync: SyncState::None.into(),
        sync_done: Reading::Missing(UNSAID),
        sync_total: Reading::Missing(UNSAID),
        sync_done_fine: Reading::Missing(Missing::Gone),
        sync_total_fine: Reading::Missing(Missing::Gone),
        sync_percent: Reading::Missing(Missing::Gone),
        sync_finish: Reading::Missing(Missing::Gone),
        sync_speed: Reading::Missing(Missing::Gone),
        sync_speed_min: Reading::Missing(UNSAID),
        sync_speed_max: Reading::Missing(UNSAID),
        mismatch_sectors: Reading::Missing(UNSAID),
        bitmap: false.into(),
        ..MdArray::default()
    }
}

/// `sdc3[3](W)(R)`: name, descriptor number (not the slot), flags.
fn member(word: &str) -> Option<MdMember> {
    let (name, rest) = word.split_once('[')?;
    let (nr, flags) = rest.split_once(']')?;
    let nr = nr.parse().ok()?;
    if name.is_empty() {
        return None;
    }
    let flags = flags
        .split(['(', ')'])
        .filter(|flag| !flag.is_empty())
        .map(|flag| match flag {
            "W" => MemberFlag::WriteMostly,
            "J" => MemberFlag::Journal,
            "F" => MemberFlag::Faulty,
            "S" => MemberFlag::Spare,
            "R" => MemberFlag::Replacement,
            other => MemberFlag::Other(other.to_owned()),
        })
        .take(8)
        .collect();
    Some(MdMember {
        name: name.to_owned(),
        nr: Some(nr),
        slot: Reading::Missing(Missing::Unsupported),
        flags,
        errors: Reading::Missing(Missing::Unsupported),
    })
}

fn detail(array: &mut MdArray, line: &str) {
    if line.starts_with("bitmap:") {
        array.bitmap = true.into();
    } else if !sync(array, line) {
        status(array, &line.split_whitespace().collect::<Vec<_>>());
    }
}

/// `5853468288 blocks super 1.2 level 6, 64k chunk, algorithm 2 [8/7] [UUUUUUU_]`.
fn status(array: &mut MdArray, words: &[&str]) {
    let mut before = "";
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_end_matches(',');
        let next = words.get(at + 1).map(|word| word.trim_end_matches(','));
        match word {
            "blocks" => array.size = Reading::from_option(kib(before), Missing::Malformed),
            "super" => {
                let metadata = next.map(ToOwned::to_owned);
                array.metadata = Reading::from_option(metadata, Missing::Malformed);
            }
            "chunk" | "chunks" | "rounding" => {
                let size = kib(before.trim_end_matches(['k', 'K']));
                array.chunk = Reading::from_option(size, Missing::Malformed);
            }
            "algorithm" => {
                if let Some(number) = next {
                    array.layout = format!("algorithm-{number}").into();
                }
            }
            "near-copies" | "far-copies" | "offset-copies" => {
                array.layout = format!("{before} {word}").into();
            }
            _ => brackets(array, word),
        }
        before = word;
    }
}

/// `[8/7]` and `[UUUUUUU_]`.
fn brackets(array: &mut MdArray, word: &str) {
    let inner = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let Some(inner) = inner else { return };
    if let Some((slots, active)) = inner.split_once('/') {
        array.raid_disks = Reading::from_option(slots.parse().ok(), Missing::Malformed);
        array.active_disks = Reading::from_option(active.parse().ok(), Missing::Malformed);
    } else if !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') {
        // Synology prints E for a member with errors: any letter but U is not in sync.
        let missing = inner.bytes().filter(|b| *b != b'U').count();
        array.missing = Reading::from_option(u32::try_from(missing).ok(), Missing::Malformed);
        array.slots = inner.to_owned().into();
    }
}

/// The bar, or `resync=DELAYED`. Says whether the line was one.
fn sync(array: &mut MdArray, line: &str) -> bool {
    let line = match (line.starts_with('['), line.split_once(']')) {
        (true, Some((_, rest))) => rest.trim_start(),
        _ => line,
    };
    let Some((action, rest)) = line.split_once('=') else {
        return false;
    };
    let action = match action.trim() {
        "recovery" | "recover" => MdAction::Recover,
        "resync" => MdAction::Resync,
        "check" => MdAction::Check,
        "repair" => MdAction::Repair,
        "reshape" => MdAction::Reshape,
        _ => return false,
    };
    let rest = rest.trim_start();
    let state = match rest.split_whitespace().next() {
        Some("DELAYED") => SyncState::Delayed,
        Some("PENDING") => SyncState::Pending,
        Some("REMOTE") => SyncState::Remote,
        Some(word) if word.ends_with('%') => SyncState::Running,
        Some(word) => SyncState::Other(word.chars().take(32).collect()),
        None => return false,
    };
    if state == SyncState::Running {
        progress(array, rest);
    }
    array.action = action.into();
    array.sync = state.into();
    true
}

/// `8.5% (16775552/195310144) finish=17.0min speed=259783K/sec`.
fn progress(array: &mut MdArray, text: &str) {
    array.sync_percent = Reading::Missing(Missing::Malformed);
    array.sync_done_fine = Reading::Missing(Missing::Malformed);
    array.sync_total_fine = Reading::Missing(Missing::Malformed);
    for word in text.split_whitespace() {
        if let Some(percent) = word.strip_suffix('%') {
            array.sync_percent =
                Reading::from_option(decimal::percent(percent).filter(|share| *share <= Ppb::ONE), Missing::Malformed);
        } else if let Some((done, total)) =
            word.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')?.split_once('/'))
        {
            let (done, total) = (kib(done), kib(total));
            // More than all is no progress, as in sysfs.
            let sane = done.filter(|done| total.is_none_or(|total| *done <= total));
            array.sync_done_fine = Reading::from_option(sane, Missing::Malformed);
            array.sync_total_fine = Reading::from_option(total, Missing::Malformed);
        } else if let Some(finish) = word.strip_prefix("finish=") {
            let minutes = finish.strip_suffix("min").and_then(|text| decimal::scaled(text, 3));
            let nanos = minutes.and_then(|thousandths| thousandths.checked_mul(60_000_000));
            array.sync_finish = Reading::from_option(nanos.map(Nanos), Missing::Malformed);
        } else if let Some(speed) = word.strip_prefix("speed=") {
            let speed = speed.strip_suffix("K/sec").and_then(speed_kib);
            array.sync_speed = Reading::from_option(speed, Missing::Malformed);
        }
    }
}

/// What follows from all lines of an array together.
fn conclude(array: &mut MdArray) {
    let inactive = array.state.get() == Some(&MdState::Inactive);
    if array.metadata.get().is_none() && array.size.get().is_some() {
        array.metadata = "0.90".to_owned().into(); // the kernel prints nothing for it
    }
    if let Some(external) = array.metadata.get().and_then(|text| text.strip_prefix("external:")) {
        array.container = super::volume_of(external);
        array.is_container = inactive && array.container.is_none();
    }
    if !inactive {
        array.degraded = array.missing;
    }
}

fn kib(text: &str) -> Option<Bytes> {
    text.parse::<u64>().ok()?.checked_mul(1024).map(Bytes)
}

/// The kernel computes the speed unsigned and without a guard: it can come out as a huge number. Nothing above
/// a terabyte per second is believed.
pub(super) fn speed_kib(text: &str) -> Option<BytesPerSecond> {
    let speed = text.parse::<u64>().ok()?.checked_mul(1024)?;
    (speed <= 1_000_000_000_000).then_some(BytesPerSecond(speed))
}
