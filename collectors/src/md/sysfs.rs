//! `/sys/block/*/md`: one file per fact, in the kernel's own words. An attribute that cannot be read or makes no
//! sense is missing alone; an empty one is `Gone`, since that is what the kernel prints while it takes an array
//! apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use gpuprod_snapshot::storage::{MdAction, MdArray, MdMember, MdState, MemberFlag, SyncState};
use gpuprod_snapshot::units::{Bytes, BytesPerSecond};

use super::mdstat::speed_kib;
use crate::{CollectError, Missing, Reading, tree};

/// All arrays below `sys`, by name. Named arrays (`md_home`) have no digits, so the `md` folder decides and not
/// the name.
///
/// # Errors
/// When the list of block devices cannot be read.
pub fn read(sys: &Path) -> Result<Vec<MdArray>, CollectError> {
    let block = sys.join("block");
    let names = tree::names(&block)?;
    let arrays = names.iter().filter(|name| tree::exists(&block.join(name).join("md")));
    Ok(arrays.take(super::mdstat::MAX_ARRAYS).map(|name| array(name, &block.join(name))).collect())
}

fn array(name: &str, dir: &Path) -> MdArray {
    let md = dir.join("md");
    let level = tree::word(&md.join("level"));
    let metadata = tree::word(&md.join("metadata_version"));
    let volume = metadata.get().and_then(|text| text.strip_prefix("external:")).and_then(super::volume_of);
    let (raid_disks, raid_disks_old) = disks(tree::word(&md.join("raid_disks")));
    let degraded: Reading<u32> = tree::value(&md.join("degraded"));
    let (sync, sync_done, sync_total) = completed(&tree::word(&md.join("sync_completed")));
    let mut array = MdArray {
        name: name.replace('!', "/"),
        is_container: level.get().is_some_and(|level| level == "container"),
        container: volume,
        state: tree::word(&md.join("array_state")).map(|word| MdState::from(word.as_str())),
        uuid: tree::word(&md.join("uuid")),
        size: sectors(tree::value(&dir.join("size"))),
        chunk: tree::value(&md.join("chunk_size")).map(Bytes),
        layout: Reading::Missing(Missing::Unsupported), // a bare number here; mdstat has the words
        active_disks: active(&raid_disks, &degraded),
        missing: degraded,
        slots: Reading::Missing(Missing::Unsupported),
        members: members(&md),
        action: action(&md.join("sync_action")),
        last_action: action(&md.join("last_sync_action")),
        sync_done_fine: Reading::Missing(Missing::Unsupported),
        sync_total_fine: Reading::Missing(Missing::Unsupported),
        sync_percent: Reading::Missing(Missing::Unsupported),
        sync_finish: Reading::Missing(Missing::Unsupported),
        sync_speed: speed(tree::word(&md.join("sync_speed"))),
        sync_speed_min: speed(tree::word(&md.join("sync_speed_min"))),
        sync_speed_max: speed(tree::word(&md.join("sync_speed_max"))),
        mismatch_sectors: tree::value(&md.join("mismatch_cnt")),
        bitmap: bitmap(tree::word(&md.join("consistency_policy"))),
        level,
        metadata,
        raid_disks,
        raid_disks_old,
        degraded,
        sync,
        sync_done,
        sync_total,
    };
    pending(&mut array, &tree::value(&md.join("resync_start")));
    array
}

/// `4`, or `6 (4)` while a reshape goes from 4 to 6.
fn disks(word: Reading<String>) -> (Reading<u32>, Option<u32>) {
    let text = match word {
        Reading::Value(text) => text,
        Reading::Missing(missing) => return (Reading::Missing(missing), None),
    };
    let mut words = text.split_whitespace();
    let now = parsed(words.next());
    let old = words.next().and_then(|word| word.strip_prefix('(')?.strip_suffix(')'));
    (now, old.and_then(|word| word.parse().ok()))
}

fn active(raid_disks: &Reading<u32>, degraded: &Reading<u32>) -> Reading<u32> {
    match (raid_disks, degraded) {
        (Reading::Value(disks), Reading::Value(degraded)) => {
            Reading::from_option(disks.checked_sub(*degraded), Missing::Malformed)
        }
        (Reading::Missing(missing), _) | (_, Reading::Missing(missing)) => Reading::Missing(*missing),
    }
}

/// `1569888 / 2093056` sectors, `none`, `delayed`.
fn completed(word: &Reading<String>) -> (Reading<SyncState>, Reading<Bytes>, Reading<Bytes>) {
    let nothing = |state: Reading<SyncState>, why| (state, Reading::Missing(why), Reading::Missing(why));
    let text = match word {
        Reading::Value(text) => text.as_str(),
        Reading::Missing(missing) => return nothing(Reading::Missing(*missing), *missing),
    };
    match (text, text.split_once('/')) {
        ("none", _) => nothing(SyncState::None.into(), Missing::Gone),
        ("delayed", _) => nothing(SyncState::Delayed.into(), Missing::Gone),
        (_, Some((done, total))) => {
            let done: Reading<u64> = parsed(Some(done.trim()));
            let total: Reading<u64> = parsed(Some(total.trim()));
            let done = match (&done, &total) {
                (Reading::Value(done), Reading::Value(total)) if done > total => Reading::Missing(Missing::Malformed),
                _ => done,
            };
            (SyncState::Running.into(), sectors(done), sectors(total))
        }
        _ => nothing(Reading::Missing(Missing::Malformed), Missing::Malformed),
    }
}

/// A sector in `resync_start` while nothing runs: the resync waits for the first write (`resync=PENDING`).
fn pending(array: &mut MdArray, resync_start: &Reading<u64>) {
    let idle = array.action.get() == Some(&MdAction::Idle)
        && array.sync.get() == Some(&SyncState::None)
        && array.state.get() != Some(&MdState::Inactive);
    if idle && resync_start.get().is_some() {
        array.action = MdAction::Resync.into();
        array.sync = SyncState::Pending.into();
    }
}

fn action(path: &Path) -> Reading<MdAction> {
    tree::word(path).map(|word| MdAction::from(word.as_str()))
}

/// `none`, KiB/s, or `1000 (system)`.
fn speed(word: Reading<String>) -> Reading<BytesPerSecond> {
    match word {
        Reading::Value(text) if text == "none" => Reading::Missing(Missing::Gone),
        Reading::Value(text) => {
            let number = text.split_whitespace().next();
            Reading::from_option(number.and_then(speed_kib), Missing::Malformed)
        }
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

fn bitmap(policy: Reading<String>) -> Reading<bool> {
    match policy {
        Reading::Value(text) if text == "unknown" => Reading::Missing(Missing::Gone),
        other => other.map(|text| text == "bitmap"),
    }
}

fn members(md: &Path) -> Vec<MdMember> {
    let names = tree::names(md).unwrap_or_default();
    // rdN links exist for members with a slot; a copied tree may hold them alone.
    let linked: BTreeMap<String, u32> = names
        .iter()
        .filter_map(|name| {
            let slot = name.strip_prefix("rd")?.parse().ok()?;
            Some((target(&md.join(name))?, slot))
        })
        .collect();
    names
        .iter()
        .filter(|name| name.starts_with("dev-"))
        .map(|name| member(&md.join(name), name, linked.get(name)))
        .collect()
}

/// The member that an rdN link names; in a copied tree the link can have become a file with that text.
fn target(path: &Path) -> Option<String> {
    match tree::link(path) {
        Ok(target) => Some(target.file_name()?.to_str()?.to_owned()),
        Err(_) => tree::word(path).get().cloned(),
    }
}

fn member(dir: &Path, name: &str, linked: Option<&u32>) -> MdMember {
    let slot = match tree::word(&dir.join("slot")) {
        Reading::Value(word) if word == "none" || word == "journal" => Reading::Missing(Missing::Gone),
        Reading::Value(word) => parsed(Some(&word)),
        Reading::Missing(_) => Reading::from_option(linked.copied(), Missing::Gone),
    };
    let state = tree::word(&dir.join("state"));
    let flags = state.get().into_iter().flat_map(|text| text.split(','));
    MdMember {
        name: name.strip_prefix("dev-").unwrap_or(name).replace('!', "/"),
        nr: None,
        slot,
        flags: flags.map(str::trim).filter(|flag| !flag.is_empty()).take(32).map(MemberFlag::from).collect(),
        errors: tree::value(&dir.join("errors")),
    }
}

fn sectors(count: Reading<u64>) -> Reading<Bytes> {
    match count {
        Reading::Value(count) => Reading::from_option(count.checked_mul(512).map(Bytes), Missing::Malformed),
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

fn parsed<T: FromStr>(word: Option<&str>) -> Reading<T> {
    Reading::from_option(word.and_then(|word| word.parse().ok()), Missing::Malformed)
}
