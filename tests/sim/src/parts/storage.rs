//! md arrays and block devices.

use gpuprod_snapshot::storage::{
    Block, BlockDevice, Fs, FsMount, IoCounters, Md, MdAction, MdArray, MdMember, MdState, MemberFlag, Mount, SyncState,
};
use gpuprod_snapshot::units::{Bytes, BytesPerSecond, Nanos, Ppb, to_f64};
use gpuprod_snapshot::{Missing, Reading};

use super::topology::disk_address;
use crate::effects::Members;
use crate::parse::is_nvme;
use crate::scenario::{Array, Scenario, SyncVerb};
use crate::words::{float, whole};
use crate::world::{Device, World};

const GONE: Missing = Missing::Gone;
const UNSUPPORTED: Missing = Missing::Unsupported;

/// The arrays.
pub(crate) fn md(scenario: &Scenario, second: u64) -> Md {
    let mut arrays: Vec<MdArray> = scenario.arrays.iter().map(|one| array(scenario, one, second)).collect();
    arrays.sort_by(|a, b| a.name.cmp(&b.name));
    Md { arrays }
}

/// Bytes that an array of the level gives.
pub(crate) fn capacity(array: &Array) -> u64 {
    let disks = float(array.members.len());
    let data = match array.level.as_str() {
        "raid1" => 1.0,
        "raid10" => (disks / 2.0).floor(),
        "raid5" => disks - 1.0,
        "raid6" => disks - 2.0,
        _ => disks,
    };
    whole(data.max(1.0) * array.size)
}

fn array(scenario: &Scenario, array: &Array, second: u64) -> MdArray {
    let members = scenario.members(array, second);
    let redundant = array.level != "raid0";
    let missing = u32::from(members.rebuilding.is_some());
    let disks = u32::try_from(array.members.len()).unwrap_or(0);
    let last = scenario.last_sync(&array.name, second).map_or("none", word);
    let number: u32 = array.name.strip_prefix("md").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut shown = MdArray {
        name: array.name.clone(),
        level: array.level.clone().into(),
        state: MdState::Clean.into(),
        is_container: false,
        container: None,
        metadata: "1.2".to_owned().into(),
        uuid: format!("51b00000-0000-4000-8000-{number:012x}").into(),
        size: Bytes(capacity(array)).into(),
        chunk: Bytes(if array.level == "raid1" { 0 } else { 524_288 }).into(),
        layout: Reading::from_option(layout(&array.level).map(ToOwned::to_owned), UNSUPPORTED),
        raid_disks: disks.into(),
        raid_disks_old: None,
        members: shown_members(array, &members),
        ..MdArray::default()
    };
    if !redundant {
        without_redundancy(&mut shown);
        return shown;
    }
    let slots = members.slots.iter().map(|name| if members.rebuilding == Some(*name) { '_' } else { 'U' });
    shown.active_disks = (disks - missing).into();
    shown.missing = missing.into();
    shown.degraded = missing.into();
    shown.slots = slots.collect::<String>().into();
    shown.action = MdAction::Idle.into();
    shown.last_action = MdAction::from(last).into();
    shown.sync = SyncState::None.into();
    shown.sync_speed_min = BytesPerSecond(1000 << 10).into();
    shown.sync_speed_max = BytesPerSecond(200_000 << 10).into();
    shown.mismatch_sectors = 0.into();
    shown.bitmap = true.into();
    progress(scenario, array, second, &mut shown);
    shown
}

fn layout(level: &str) -> Option<&'static str> {
    match level {
        "raid5" | "raid6" => Some("algorithm-2"),
        "raid10" => Some("2 near-copies"),
        _ => None,
    }
}

fn word(verb: SyncVerb) -> &'static str {
    match verb {
        SyncVerb::Rebuild => "recover",
        SyncVerb::Check => "check",
        SyncVerb::Resync => "resync",
        SyncVerb::Repair => "repair",
    }
}

fn without_redundancy(shown: &mut MdArray) {
    macro_rules! lacks { ($($field:ident)+) => { $(shown.$field = Reading::Missing(UNSUPPORTED);)+ } }
    lacks!(active_disks missing degraded slots action last_action sync sync_done sync_total sync_speed
        sync_speed_min sync_speed_max mismatch_sectors);
    macro_rules! over { ($($field:ident)+) => { $(shown.$field = Reading::Missing(GONE);)+ } }
    over!(sync_done_fine sync_total_fine sync_percent sync_finish);
    shown.bitmap = false.into();
}

/// The kernel counts per member, in sectors; the confirmed point moves in sixteenths. mdstat has KiB.
fn progress(scenario: &Scenario, array: &Array, second: u64, shown: &mut MdArray) {
    macro_rules! over { ($($field:ident)+) => { $(shown.$field = Reading::Missing(GONE);)+ } }
    let Some(sync) = scenario.sync(&array.name, second) else {
        over!(sync_done sync_total sync_done_fine sync_total_fine sync_percent sync_finish sync_speed);
        return;
    };
    let total = whole(if array.level == "raid10" { to_f64(capacity(array)) } else { array.size });
    let moved = whole(to_f64(total) * sync.done + sync.speed * (to_f64(sync.age) + 1.0)).min(total);
    let fine = moved / 1024 * 1024;
    let sixteenth = total / 16 / 512 * 512;
    let speed = whole(sync.speed / 1024.0) * 1024;
    let tenths = (u128::from(fine) * 1000).checked_div(u128::from(total)).unwrap_or(0);
    let left = to_f64(total - fine) / sync.speed.max(1.0);
    shown.action = MdAction::from(word(sync.action)).into();
    shown.sync = SyncState::Running.into();
    shown.sync_total = Bytes(total).into();
    shown.sync_done = Bytes(moved.checked_div(sixteenth).unwrap_or(0) * sixteenth).into();
    shown.sync_total_fine = Bytes(total).into();
    shown.sync_done_fine = Bytes(fine).into();
    shown.sync_percent = Ppb(u64::try_from(tenths).unwrap_or(1000) * 1_000_000).into();
    // Tenths of a minute.
    shown.sync_finish = Nanos::from_secs(whole((left / 6.0).floor()) * 6).into();
    shown.sync_speed = BytesPerSecond(speed).into();
}

fn shown_members(array: &Array, members: &Members<'_>) -> Vec<MdMember> {
    let all = array.members.iter().chain(&array.spares).map(String::as_str);
    let mut shown: Vec<MdMember> = (0..)
        .zip(all)
        .map(|(nr, name)| {
            let slot = members.slots.iter().position(|member| *member == name);
            let slot = slot.and_then(|slot| u32::try_from(slot).ok());
            let flag = if members.faulty == Some(name) {
                MemberFlag::Faulty
            } else if members.rebuilding == Some(name) || members.spares.contains(&name) {
                MemberFlag::Spare
            } else {
                MemberFlag::InSync
            };
            MdMember {
                name: name.to_owned(),
                nr: Some(nr),
                slot: Reading::from_option(slot, GONE),
                flags: vec![flag],
                errors: 0.into(),
            }
        })
        .collect();
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    shown
}

/// Device number of a disk or array.
pub(crate) fn number(name: &str) -> (u32, u32) {
    let digits = |text: Option<&str>| text.and_then(|n| n.parse().ok()).unwrap_or(0);
    if let Some(md) = name.strip_prefix("md") {
        (9, digits(Some(md)))
    } else if is_nvme(name) {
        (259, digits(name.strip_prefix("nvme").and_then(|rest| rest.strip_suffix("n1"))))
    } else {
        let letter = name.bytes().last().unwrap_or(b'a').saturating_sub(b'a');
        (8, u32::from(letter) * 16)
    }
}

/// The shares as the NFS client counts them.
pub(crate) fn fs(world: &World<'_>) -> Fs {
    let shares = world.scenario.shares.iter().filter(|share| share.fs.starts_with("nfs"));
    let mounts = shares.filter_map(|share| {
        let counters = world.devices.get(&share.name)?;
        let ops = whole(counters.reads.floor());
        Some(FsMount {
            point: share.mount.clone(),
            fs: share.fs.clone(),
            ops: ops.into(),
            rtt: Nanos(whole((counters.read_seconds * 1e3).floor()) * 1_000_000).into(),
            queue: Nanos(0).into(),
            read: Bytes(whole(counters.read_bytes.floor())).into(),
            written: Bytes(0).into(),
            unanswered: whole(counters.in_flight).into(),
        })
    });
    Fs { mounts: mounts.collect() }
}

/// Devices and mounts.
pub(crate) fn block(world: &World<'_>) -> Block {
    let scenario = world.scenario;
    let local = world.devices.iter().filter(|(name, _)| scenario.share(name).is_none());
    let devices = local.map(|(name, counters)| {
        let array = scenario.arrays.iter().find(|array| array.name == *name);
        let mut slaves: Vec<String> =
            array.map_or_else(Vec::new, |array| array.members.iter().chain(&array.spares).cloned().collect());
        slaves.sort_unstable();
        BlockDevice {
            name: name.clone(),
            dev: number(name),
            partition_of: None,
            slaves,
            pci: Reading::from_option(array.is_none().then(|| disk_address(name)), UNSUPPORTED),
            rotational: name.starts_with("sd").into(),
            nr_requests: Reading::from_option(array.is_none().then_some(1023), UNSUPPORTED),
            io: io(counters).into(),
        }
    });
    let of_arrays = scenario.arrays.iter().map(|array| (&array.name, &array.mount));
    let of_disks = scenario.disks.iter().map(|disk| (&disk.name, &disk.mount));
    let mounts = of_arrays.chain(of_disks).filter_map(|(name, mount)| {
        Some(Mount {
            point: mount.clone()?,
            fs: "xfs".into(),
            source: format!("/dev/{name}"),
            dev: number(name),
            read_only: false,
        })
    });
    Block { devices: devices.collect(), mounts: mounts.collect() }
}

fn io(device: &Device) -> IoCounters {
    let sectors = |bytes: f64| whole(bytes.floor()) / 512;
    // The kernel's millisecond counters are 32 bits wide.
    let millis = |seconds: f64| u32::try_from(whole((seconds * 1e3).floor()) & 0xffff_ffff).unwrap_or(0);
    let (reads, writes) = (whole(device.reads.floor()), whole(device.writes.floor()));
    let (read_ms, write_ms) = (millis(device.read_seconds), millis(device.write_seconds));
    IoCounters {
        fields: 17,
        reads,
        reads_merged: 0,
        sectors_read: sectors(device.read_bytes),
        read_ms,
        writes,
        writes_merged: 0,
        sectors_written: sectors(device.written_bytes),
        write_ms,
        in_flight: whole(device.in_flight),
        io_ticks_ms: millis(device.busy_seconds),
        weighted_ms: millis(device.read_seconds + device.write_seconds),
        discards: 0.into(),
        flushes: 0.into(),
        flush_ms: 0.into(),
    }
}
