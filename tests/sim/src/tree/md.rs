//! `/proc/mdstat` and `/sys/block/*/md`, as drivers/md/md.c prints them.

use std::fmt::{Display, Write as _};
use std::io;

use gpuprod_snapshot::storage::{Md, MdAction, MdArray, MdMember, MemberFlag, SyncState};
use gpuprod_snapshot::units::{Bytes, BytesPerSecond};
use gpuprod_snapshot::{Reading, Tick};

use super::{Tree, value};

pub(crate) fn write(tick: &Tick, tree: &Tree) -> io::Result<()> {
    let Some(md) = value!(tick, md) else { return Ok(()) };
    if md.arrays.is_empty() {
        return Ok(()); // No module, no file: the normal state of most nodes.
    }
    tree.put("proc/mdstat", mdstat(md))?;
    md.arrays.iter().try_for_each(|array| sysfs(tree, array))
}

fn sysfs(tree: &Tree, array: &MdArray) -> io::Result<()> {
    let dir = format!("sys/devices/virtual/block/{}/md", array.name);
    let put = |name: &str, text: Option<String>| match text {
        Some(text) => tree.line(&format!("{dir}/{name}"), text),
        None => Ok(()),
    };
    put("level", word(&array.level))?;
    put("array_state", word(&array.state))?;
    put("metadata_version", word(&array.metadata))?;
    put("uuid", word(&array.uuid))?;
    put("chunk_size", array.chunk.get().map(|bytes| bytes.0.to_string()))?;
    put("raid_disks", word(&array.raid_disks))?;
    put("layout", array.layout.get().map(|_| "2".to_owned()))?;
    if array.degraded.get().is_some() {
        put("degraded", word(&array.degraded))?;
        put("sync_action", word(&array.action))?;
        put("last_sync_action", word(&array.last_action))?;
        put("sync_completed", Some(completed(array)))?;
        put("sync_speed", Some(kib(&array.sync_speed).unwrap_or_else(|| "none".into())))?;
        put("sync_speed_min", kib(&array.sync_speed_min).map(|speed| speed + " (system)"))?;
        put("sync_speed_max", kib(&array.sync_speed_max).map(|speed| speed + " (system)"))?;
        put("mismatch_cnt", word(&array.mismatch_sectors))?;
        put("consistency_policy", array.bitmap.get().map(|on| if *on { "bitmap" } else { "resync" }.to_owned()))?;
        put("resync_start", Some("none".into()))?;
    }
    for slot in 0..array.raid_disks.copied().unwrap_or(0) {
        let _ = std::fs::remove_file(tree.path(&format!("{dir}/rd{slot}")));
    }
    for member in &array.members {
        let name = &member.name;
        let slot = member.slot.get();
        let flags: Vec<&str> = member.flags.iter().map(MemberFlag::as_str).collect();
        tree.line(&format!("{dir}/dev-{name}/state"), flags.join(","))?;
        tree.line(&format!("{dir}/dev-{name}/slot"), slot.map_or("none".into(), u32::to_string))?;
        put(&format!("dev-{name}/errors"), word(&member.errors))?;
        if let Some(slot) = slot {
            tree.link(&format!("{dir}/rd{slot}"), format!("dev-{name}"))?;
        }
    }
    Ok(())
}

fn word<T: Display>(reading: &Reading<T>) -> Option<String> {
    reading.get().map(T::to_string)
}

fn kib(speed: &Reading<BytesPerSecond>) -> Option<String> {
    speed.get().map(|speed| (speed.0 / 1024).to_string())
}

fn completed(array: &MdArray) -> String {
    let sectors = |bytes: &Reading<Bytes>| bytes.get().map(|bytes| bytes.0 / 512);
    match (array.sync.get(), sectors(&array.sync_done), sectors(&array.sync_total)) {
        (Some(SyncState::Delayed), _, _) => "delayed".into(),
        (_, Some(done), Some(total)) => format!("{done} / {total}"),
        _ => "none".into(),
    }
}

pub(crate) fn mdstat(md: &Md) -> String {
    let mut text = "Personalities : [raid0] [raid1] [raid6] [raid5] [raid4] [raid10] \n".to_owned();
    // The kernel lists the array that was made last first.
    for array in md.arrays.iter().rev() {
        let level = array.level.get().map_or("", String::as_str);
        let _ = write!(text, "{} : active {level}", array.name);
        let mut members: Vec<&MdMember> = array.members.iter().collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.nr));
        for member in members {
            let _ = write!(text, " {}[{}]", member.name, member.nr.unwrap_or(0));
            if member.has(&MemberFlag::Faulty) {
                text.push_str("(F)");
            } else if member.slot.get().is_none() {
                text.push_str("(S)");
            }
        }
        let blocks = array.size.copied().map_or(0, |bytes| bytes.0 / 1024);
        let _ = write!(text, "\n      {blocks} blocks super {} ", array.metadata.get().map_or("1.2", String::as_str));
        let chunk = array.chunk.copied().map_or(0, |bytes| bytes.0 / 1024);
        match level {
            "raid0" => {
                let _ = writeln!(text, "{chunk}k chunks");
            }
            "raid10" => {
                let _ = write!(text, "{chunk}K chunks 2 near-copies ");
            }
            "raid5" => {
                let _ = write!(text, "level 5, {chunk}k chunk, algorithm 2 ");
            }
            "raid6" => {
                let _ = write!(text, "level 6, {chunk}k chunk, algorithm 2 ");
            }
            _ => {}
        }
        if let (Some(disks), Some(active), Some(slots)) =
            (array.raid_disks.get(), array.active_disks.get(), array.slots.get())
        {
            let _ = writeln!(text, "[{disks}/{active}] [{slots}]");
        }
        progress(&mut text, array);
        if array.bitmap.copied() == Some(true) {
            text.push_str("      bitmap: 0/15 pages [0KB], 65536KB chunk\n");
        }
        text.push('\n');
    }
    text + "unused devices: <none>\n"
}

/// `      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec`.
fn progress(text: &mut String, array: &MdArray) {
    let (Some(done), Some(total), Some(percent), Some(finish)) =
        (array.sync_done_fine.get(), array.sync_total_fine.get(), array.sync_percent.get(), array.sync_finish.get())
    else {
        return;
    };
    let action = match array.action.get() {
        Some(MdAction::Recover) => "recovery",
        Some(MdAction::Check) => "check",
        Some(MdAction::Reshape) => "reshape",
        _ => "resync", // a repair is printed so, too
    };
    let tenths = percent.0 / 1_000_000;
    let filled = usize::try_from(tenths / 50).unwrap_or(0).min(20);
    let bar = format!("{}>{}", "=".repeat(filled), ".".repeat(20 - filled));
    let minutes = finish.0 / 6_000_000_000;
    let _ = writeln!(
        text,
        "      [{bar}]  {action} ={:3}.{}% ({}/{}) finish={}.{}min speed={}K/sec",
        tenths / 10,
        tenths % 10,
        done.0 / 1024,
        total.0 / 1024,
        minutes / 10,
        minutes % 10,
        kib(&array.sync_speed).unwrap_or_else(|| "0".into()),
    );
}
