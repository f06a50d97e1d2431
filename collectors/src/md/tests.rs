use gpuprod_snapshot::storage::{MdMember, MdState, MemberFlag};
use gpuprod_snapshot::units::{Bytes, BytesPerSecond, Nanos, Ppb};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::Reading;
use crate::scratch::{Scratch, fixture, shared};

fn arrays(scratch: &Scratch) -> Vec<MdArray> {
    read(&scratch.host())
}

fn read(host: &Host) -> Vec<MdArray> {
    match Arrays.collect(host, &Focus::default()).unwrap() {
        Part::Md(md) => md.arrays,
        other => panic!("{other:?}"),
    }
}

/// The only array of a text.
fn one(text: &str) -> MdArray {
    let mut arrays = mdstat::parse(text);
    assert_eq!(arrays.len(), 1, "{text}");
    arrays.remove(0)
}

fn flagged(array: &MdArray, flag: &MemberFlag) -> Vec<String> {
    let with = array.members.iter().filter(|member| member.has(flag));
    with.map(|member| member.name.clone()).collect()
}

fn json(path: &std::path::Path) -> Value {
    serde_json::from_str(&tree::text(path).unwrap()).unwrap()
}

fn text<T>(reading: &Reading<T>, show: impl Fn(&T) -> &str) -> Value {
    reading.get().map_or(Value::Null, |value| show(value).into())
}

fn number<T>(reading: &Reading<T>, show: impl Fn(&T) -> u64) -> Value {
    reading.get().map_or(Value::Null, |value| show(value).into())
}

/// Every fact of the shared samples that has a place in the vocabulary; null means missing.
fn compare(name: &str, array: &MdArray, facts: &Value) {
    let kib = |bytes: &Bytes| bytes.0 / 1024;
    let same = |key: &str, got: Value| assert_eq!(got, facts[key], "{name} {}: {key}", array.name);
    let state = match (facts["activity"].as_str(), facts["read_only"].as_str()) {
        (_, Some("read-only")) => "readonly",
        (_, Some("auto-read-only")) => "read-auto",
        (activity, _) => activity.unwrap(),
    };
    assert_eq!(array.state.get().map(MdState::as_str), Some(state), "{name} {}", array.name);
    same("level", text(&array.level, |level| level));
    same("metadata", text(&array.metadata, |metadata| metadata));
    same("volume_of", array.container.clone().map_or(Value::Null, Value::from));
    same("blocks_kib", number(&array.size, kib));
    same("chunk_kib", number(&array.chunk, kib));
    // The samples write near-2 where the kernel and the vocabulary have `2 near-copies`.
    let layout = array.layout.get().map(|layout| match layout.split_once(" near-") {
        Some((copies, _)) => format!("near-{copies}"),
        None => layout.clone(),
    });
    same("layout", layout.map_or(Value::Null, Value::from));
    same("raid_disks", number(&array.raid_disks, |disks| u64::from(*disks)));
    same("active_disks", number(&array.active_disks, |disks| u64::from(*disks)));
    same("missing", number(&array.missing, |missing| u64::from(*missing)));
    same("slots", text(&array.slots, |slots| slots));
    let degraded = array.degraded.copied().map(|slots| slots > 0);
    same("degraded", degraded.map_or(Value::Null, Value::from));
    same("faulty", flagged(array, &MemberFlag::Faulty).len().into());
    same("spare", flagged(array, &MemberFlag::Spare).len().into());
    let word = match array.action.get() {
        Some(MdAction::Recover) => "recovery", // the samples keep mdstat's word
        Some(action) => action.as_str(),
        None => "",
    };
    same("action", word.into());
    same("action_state", text(&array.sync, SyncState::as_str));
    let running = array.sync.get() == Some(&SyncState::Running);
    same("sync_running", running.into());
    let percent = facts["percent"].as_f64().and_then(|percent| Ppb::from_fraction(percent / 100.0));
    assert_eq!(array.sync_percent.copied(), percent, "{name} {}: as printed", array.name);
    same("done_kib", number(&array.sync_done_fine, kib));
    same("total_kib", number(&array.sync_total_fine, kib));
    let finish = facts["finish_min"].as_f64().and_then(|min| gpuprod_snapshot::units::from_f64(min * 60e9));
    assert_eq!(array.sync_finish.copied().map(|finish| finish.0), finish, "{name} {}", array.name);
    same("speed_kib_s", number(&array.sync_speed, |speed| speed.0 / 1024));
    same("bitmap", array.bitmap.copied().into());
    same("is_container", array.is_container.into());
    members(name, array, &facts["members"]);
}

fn members(name: &str, array: &MdArray, facts: &Value) {
    let facts = facts.as_array().unwrap();
    assert_eq!(array.members.len(), facts.len(), "{name} {}", array.name);
    for (member, facts) in array.members.iter().zip(facts) {
        assert_eq!(member.name, facts["dev"].as_str().unwrap());
        assert_eq!(member.nr.map(u64::from), facts["nr"].as_u64());
        let letters: Vec<&str> = member
            .flags
            .iter()
            .map(|flag| match flag {
                MemberFlag::WriteMostly => "W",
                MemberFlag::Journal => "J",
                MemberFlag::Faulty => "F",
                MemberFlag::Spare => "S",
                MemberFlag::Replacement => "R",
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(Value::from(letters), facts["flags"], "{name} {}", member.name);
    }
}

#[test]
fn the_shared_mdstat_samples_read_as_expected() {
    let Some(dir) = shared("mdstat") else { return };
    let mut seen = 0;
    for (name, facts) in json(&dir.join("expected.json"))["files"].as_object().unwrap() {
        let scratch = Scratch::with(&[("proc/mdstat", &tree::text(&dir.join(name)).unwrap())]);
        let arrays = arrays(&scratch);
        let empty = serde_json::Map::new();
        let facts = facts["arrays"].as_object().unwrap_or(&empty);
        assert_eq!(arrays.len(), facts.len(), "{name}");
        for array in &arrays {
            compare(name, array, &facts[&array.name]);
            seen += 1;
        }
    }
    assert_eq!(seen, 49);
}

#[test]
fn the_shared_sysfs_trees_read_as_expected() {
    let Some(dir) = shared("md-sysfs") else {
        return;
    };
    let arrays = read(&Host::at(&dir));
    let facts = json(&dir.join("expected.json"));
    let facts = facts["arrays"].as_object().unwrap();
    assert_eq!(arrays.len(), facts.len());
    for array in &arrays {
        let facts = &facts[&array.name];
        let same = |key: &str, got: Value| assert_eq!(got, facts[key], "{}: {key}", array.name);
        same("level", text(&array.level, |level| level));
        same("array_state", text(&array.state, MdState::as_str));
        same("is_container", array.is_container.into());
        same("raid_disks", number(&array.raid_disks, |disks| u64::from(*disks)));
        same("raid_disks_old", array.raid_disks_old.map_or(Value::Null, Value::from));
        same("degraded", number(&array.degraded, |degraded| u64::from(*degraded)));
        same("sync_action", text(&array.action, MdAction::as_str));
        same("sync_done_sectors", number(&array.sync_done, |done| done.0 / 512));
        same("sync_total_sectors", number(&array.sync_total, |total| total.0 / 512));
        same("metadata_version", text(&array.metadata, |metadata| metadata));
        same("chunk_bytes", number(&array.chunk, |chunk| chunk.0));
        same("uuid", text(&array.uuid, |uuid| uuid));
        same("faulty", flagged(array, &MemberFlag::Faulty).len().into());
        let names = |pick: &dyn Fn(&&MdMember) -> bool| -> Value {
            let members = array.members.iter().filter(pick);
            members.map(|member| member.name.as_str()).collect::<Vec<_>>().into()
        };
        same("rebuilding", names(&|member| member.is_rebuilding()));
        same("spares", names(&|member| member.has(&MemberFlag::Spare) && !member.is_rebuilding()));
        let members = facts["members"].as_object().unwrap();
        assert_eq!(array.members.len(), members.len());
        for member in &array.members {
            let facts = &members[&member.name];
            let flags: Vec<&str> = member.flags.iter().map(MemberFlag::as_str).collect();
            assert_eq!(flags.join(","), facts["state"].as_str().unwrap());
            assert_eq!(number(&member.slot, |slot| u64::from(*slot)), facts["slot"], "{}", member.name);
        }
    }
}

#[test]
fn no_md_at_all_is_no_error() {
    assert_eq!(arrays(&Scratch::new()), []);
    assert_eq!(arrays(&Scratch::with(&[("proc/mdstat", "Personalities : \nunused devices: <none>\n")])), []);
    let unraid = "sbName=/boot/config/super.dat\nmdState=STARTED\nmdResyncAction=check P\ndiskName.1=md1\n";
    assert_eq!(arrays(&Scratch::with(&[("proc/mdstat", unraid)])), []);
}

#[test]
fn own_text_with_every_form_that_the_kernel_prints() {
    let all = mdstat::parse(&tree::text(&fixture("mdstat/forms")).unwrap());
    let array = |name: &str| all.iter().find(|array| array.name == name).unwrap();
    assert_eq!(all.len(), 15);

    let no_members = array("md126");
    assert!(no_members.members.is_empty());
    assert_eq!(no_members.level.get().unwrap(), "raid5");
    assert_eq!((no_members.raid_disks.copied(), no_members.missing.copied()), (Some(4), Some(4)));
    assert_eq!(no_members.metadata.get().unwrap(), "1.2");

    let inactive = array("md125");
    assert_eq!(inactive.state.get(), Some(&MdState::Inactive));
    assert!(inactive.level.get().is_none() && inactive.degraded.get().is_none());
    assert_eq!(inactive.members.first().unwrap().nr, Some(26), "the first member is not lost");
    assert_eq!(inactive.members.len(), 2);

    let replacing = array("md20");
    assert_eq!((replacing.raid_disks.copied(), replacing.active_disks.copied()), (Some(2), Some(3)));
    let member = replacing.members.last().unwrap();
    assert_eq!(member.flags, [MemberFlag::WriteMostly, MemberFlag::Replacement]);
    assert_eq!(replacing.degraded.copied(), Some(0), "replacing is not degraded");

    let container = array("md127");
    assert!(container.is_container && container.container.is_none());
    let volume = array("md124");
    assert!(!volume.is_container);
    assert_eq!(volume.container.as_deref(), Some("md127"));

    let raid10 = array("md_scratch");
    assert_eq!(raid10.layout.get().unwrap(), "2 far-copies");
    assert_eq!(raid10.chunk.copied(), Some(Bytes(512 << 10)));
    assert_eq!(raid10.sync_percent.copied(), Some(Ppb::ONE), "=100.0% has no blank");

    let remote = array("md30");
    assert_eq!((remote.action.get(), remote.sync.get()), (Some(&MdAction::Recover), Some(&SyncState::Remote)));
    let broken = array("md31");
    assert_eq!(broken.state.get(), Some(&MdState::Broken));
    assert_eq!(broken.raid_disks.missing(), Some(Missing::Unsupported), "raid0 has no [n/m]");
    assert_eq!(broken.degraded.missing(), Some(Missing::Unsupported));
    assert_eq!(array("md32").members.first().unwrap().name, "md0", "raid0 of arrays");
    assert_eq!(array("md33").missing.copied(), Some(1), "E is not in sync");
    assert_eq!(array("md33").level.get().unwrap(), "raid1", "not the member's name");
    assert_eq!(flagged(array("md34"), &MemberFlag::Journal), ["nvme0n1p3"]);

    let bitmap = array("md35");
    assert_eq!(bitmap.bitmap.copied(), Some(true));
    assert_eq!(bitmap.action.get(), Some(&MdAction::Idle), "a bitmap file named like a sync is none");
    let old = array("md36");
    assert_eq!(old.sync_percent.copied(), Some(Ppb(4_000_000)), "=  0.4% with two blanks");
    assert_eq!(old.sync_finish.copied(), Some(Nanos(73_500_000_000 * 2)));

    let delayed = array("md37");
    assert_eq!(delayed.sync.get(), Some(&SyncState::Delayed));
    assert_eq!(delayed.sync_percent.missing(), Some(Missing::Gone), "delayed is not 0 %");

    let garbage = array("md38");
    assert_eq!(garbage.sync_done_fine.copied(), Some(Bytes(1024)));
    assert_eq!(garbage.sync_speed.missing(), Some(Missing::Malformed), "faster than a terabyte per second");
    assert_eq!(garbage.sync_finish.missing(), Some(Missing::Malformed));
}

#[test]
fn more_than_all_is_no_progress() {
    let read = |progress: &str| {
        let text =
            format!("md0 : active raid1 sdb[1] sda[0]\n      64 blocks [2/1] [U_]\n      recovery = {progress}\n");
        let array = mdstat::parse(&text).remove(0);
        (array.sync_percent, array.sync_done_fine)
    };
    let malformed = Missing::Malformed;
    assert_eq!(read("100.0% (64/64) finish=0.0min"), (Ppb::ONE.into(), Bytes(65536).into()));
    assert_eq!(read("100.1% (65/64)"), (Reading::Missing(malformed), Reading::Missing(malformed)));
    assert_eq!(read("4294967295.0% (1/64)"), (Reading::Missing(malformed), Bytes(1024).into()));
}

/// A raid6 that rebuilds a slot: what sysfs says, what only mdstat says, in one array.
fn rebuilding() -> Scratch {
    Scratch::with(&[
        ("sys/block/md6/size", "2093056\n"),
        ("sys/block/md6/md/level", "raid6\n"),
        ("sys/block/md6/md/array_state", "active\n"),
        ("sys/block/md6/md/raid_disks", "4\n"),
        ("sys/block/md6/md/degraded", "1\n"),
        ("sys/block/md6/md/sync_action", "recover\n"),
        ("sys/block/md6/md/last_sync_action", "check\n"),
        ("sys/block/md6/md/sync_completed", "1569888 / 2093056\n"),
        ("sys/block/md6/md/sync_speed", "33440\n"),
        ("sys/block/md6/md/sync_speed_min", "1000 (system)\n"),
        ("sys/block/md6/md/sync_speed_max", "200000 (local)\n"),
        ("sys/block/md6/md/mismatch_cnt", "128\n"),
        ("sys/block/md6/md/consistency_policy", "bitmap\n"),
        ("sys/block/md6/md/resync_start", "none\n"),
        ("sys/block/md6/md/dev-sdq/state", "in_sync,write_mostly\n"),
        ("sys/block/md6/md/dev-sdq/slot", "0\n"),
        ("sys/block/md6/md/dev-sdq/errors", "3\n"),
        ("sys/block/md6/md/dev-cciss!c0d1p2/state", "spare\n"),
        ("sys/block/md6/md/dev-cciss!c0d1p2/slot", "3\n"),
        ("sys/block/md6/md/dev-sdz/state", "spare\n"),
        ("sys/block/md6/md/dev-sdz/slot", "none\n"),
        ("sys/block/sda/size", "1\n"),
        (
            "proc/mdstat",
            "Personalities : [raid6]\nmd6 : active raid6 cciss/c0d1p2[7] sdz[9](S) sdq[0](W)\n      \
             1046528 blocks super 1.2 level 6, 512k chunk, algorithm 2 [4/3] [UUU_]\n      \
             [===>.....]  recovery = 75.2% (787200/1046528) finish=0.1min speed=40000K/sec\n\nunused devices: <none>\n",
        ),
    ])
}

#[test]
fn sysfs_comes_first_and_mdstat_adds_what_it_alone_knows() {
    let all = arrays(&rebuilding());
    assert_eq!(all.len(), 1, "sda has no md folder");
    let array = &all[0];
    assert_eq!(array.action.get(), Some(&MdAction::Recover));
    assert_eq!(array.last_action.get(), Some(&MdAction::Check));
    assert_eq!(array.sync.get(), Some(&SyncState::Running));
    assert_eq!(array.sync_done.copied(), Some(Bytes(1_569_888 * 512)));
    assert_eq!(array.sync_done_fine.copied(), Some(Bytes(787_200 * 1024)));
    assert_eq!(array.sync_total_fine.copied(), array.sync_total.copied(), "per member, both");
    assert_eq!(array.sync_percent.copied(), Some(Ppb(752_000_000)));
    assert_eq!(array.sync_speed.copied(), Some(BytesPerSecond(33_440 * 1024)), "sysfs's");
    assert_eq!(array.sync_speed_min.copied(), Some(BytesPerSecond(1_024_000)));
    assert_eq!(array.sync_speed_max.copied(), Some(BytesPerSecond(204_800_000)));
    assert_eq!((array.slots.get().unwrap().as_str(), array.missing.copied()), ("UUU_", Some(1)));
    assert_eq!((array.degraded.copied(), array.active_disks.copied()), (Some(1), Some(3)));
    assert_eq!(array.mismatch_sectors.copied(), Some(128));
    assert_eq!(array.layout.get().unwrap(), "algorithm-2");
    assert_eq!(array.size.copied(), Some(Bytes(2_093_056 * 512)));
    assert_eq!((array.bitmap.copied(), array.metadata.get().unwrap().as_str()), (Some(true), "1.2"));
    let member = |name: &str| array.members.iter().find(|member| member.name == name).unwrap();
    assert_eq!(member("sdq").flags, [MemberFlag::InSync, MemberFlag::WriteMostly]);
    assert_eq!((member("sdq").errors.copied(), member("sdq").nr), (Some(3), Some(0)));
    assert!(member("cciss/c0d1p2").is_rebuilding() && !member("sdz").is_rebuilding());
    assert_eq!(member("sdz").slot.missing(), Some(Missing::Gone));
}

#[test]
fn a_bad_attribute_spoils_only_itself_and_a_bad_array_no_other() {
    let scratch = rebuilding();
    scratch.file("sys/block/md6/md/sync_speed", "18446744073709551\n");
    scratch.file("sys/block/md6/md/raid_disks", "11 (10)\n");
    scratch.file("sys/block/md6/md/mismatch_cnt", "-7\n");
    scratch.file("sys/block/md7/md/level", "\n");
    scratch.file("sys/block/md7/md/raid_disks", "\n");
    scratch.file("sys/block/md7/md/array_state", "clear\n");
    scratch.file("proc/mdstat", "md6 : active raid6\n");
    let all = arrays(&scratch);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].sync_speed.missing(), Some(Missing::Malformed), "underflown in the kernel");
    assert_eq!((all[0].raid_disks.copied(), all[0].raid_disks_old), (Some(11), Some(10)));
    assert_eq!(all[0].active_disks.copied(), Some(10));
    assert_eq!(all[0].mismatch_sectors.missing(), Some(Missing::Malformed));
    assert_eq!(all[0].degraded.copied(), Some(1));
    assert_eq!(all[1].level.missing(), Some(Missing::Gone), "empty is unknown, not a word");
    assert_eq!(all[1].raid_disks.missing(), Some(Missing::Gone));
    assert_eq!(all[1].action.missing(), Some(Missing::Unsupported));
}

#[test]
fn an_underflown_speed_is_replaced_by_the_guarded_one_of_mdstat() {
    let scratch = rebuilding();
    scratch.file("sys/block/md6/md/sync_speed", "18014398509481000\n");
    assert_eq!(arrays(&scratch)[0].sync_speed.copied(), Some(BytesPerSecond(40_000 * 1024)));
}

#[test]
fn waiting_syncs_are_told_from_running_ones() {
    let scratch = rebuilding();
    scratch.remove("proc");
    scratch.file("sys/block/md6/md/sync_completed", "delayed\n");
    let array = arrays(&scratch).remove(0);
    assert_eq!(array.sync.get(), Some(&SyncState::Delayed));
    assert_eq!(array.action.get(), Some(&MdAction::Recover), "already says so");
    assert_eq!(array.sync_done.missing(), Some(Missing::Gone));

    scratch.file("sys/block/md6/md/sync_completed", "none\n");
    scratch.file("sys/block/md6/md/sync_action", "idle\n");
    scratch.file("sys/block/md6/md/sync_speed", "none\n");
    let array = arrays(&scratch).remove(0);
    assert_eq!((array.action.get(), array.sync.get()), (Some(&MdAction::Idle), Some(&SyncState::None)));
    assert_eq!(array.sync_speed.missing(), Some(Missing::Gone));

    scratch.file("sys/block/md6/md/resync_start", "0\n");
    let array = arrays(&scratch).remove(0);
    assert_eq!((array.action.get(), array.sync.get()), (Some(&MdAction::Resync), Some(&SyncState::Pending)));

    scratch.file("sys/block/md6/md/resync_start", "none\n");
    scratch
        .file("proc/mdstat", "md6 : active raid6 sdq[0]\n      1046528 blocks [4/3] [UUU_]\n      \trecover=REMOTE\n");
    let array = arrays(&scratch).remove(0);
    assert_eq!((array.action.get(), array.sync.get()), (Some(&MdAction::Recover), Some(&SyncState::Remote)));
}

#[test]
fn an_array_that_only_mdstat_shows_is_kept() {
    let scratch = rebuilding();
    scratch.file("proc/mdstat", "md2 : active raid0 sda1[0]\n      8 blocks 64k chunks\n");
    let names: Vec<String> = arrays(&scratch).into_iter().map(|array| array.name).collect();
    assert_eq!(names, ["md2", "md6"]);
}

#[test]
fn percent_is_never_done_over_array_size() {
    // raid5 of 8: the bar counts per member; against the array's size it would read 3.7 %.
    let array = one(
        "md0 : active raid5 sda[0]\n      3281959800 blocks level 5, 64k chunk, algorithm 2 [8/8] [UUUUUUUU]\n      \
         [=====>......]  check = 26.4% (124074752/468851400) finish=1.0min speed=1K/sec\n",
    );
    assert_eq!(array.sync_percent.copied(), Some(Ppb(264_000_000)));
    assert_eq!(array.sync_total_fine.copied(), Some(Bytes(468_851_400 * 1024)));
}

proptest! {
    #[test]
    fn hostile_mdstat_costs_only_itself(lines in proptest::collection::vec("(md[0-9]? : (active|inactive) |      |\t|\\[)?[ -~]{0,60}|\\PC{0,30}", 0..30)) {
        let text = format!("{}\nmdx : active raid1 sda[0]\n      8 blocks [2/1] [U_]\n", lines.join("\n"));
        let arrays = mdstat::parse(&text);
        let last = arrays.last().unwrap();
        prop_assert_eq!((last.name.as_str(), last.missing.copied()), ("mdx", Some(1)));
    }

    #[test]
    fn hostile_numbers_are_never_wrapped(word in "[0-9]{1,24}", done in "[0-9]{1,24}", percent in "[0-9.]{1,24}") {
        let array = one(&format!("md0 : active raid1 sda[{word}]\n      {word} blocks {word}k chunk [{word}/{word}] [U_]\n      \
            [=>]  resync = {percent}% ({done}/{word}) finish={percent}min speed={word}K/sec\n"));
        let plain: Option<u64> = word.parse().ok();
        let kib = plain.and_then(|value| value.checked_mul(1024)).map(Bytes);
        prop_assert_eq!(array.size.copied(), kib);
        prop_assert!(array.sync_speed.copied().is_none_or(|speed| speed.0 <= 1_000_000_000_000));
    }
}

#[test]
fn memory_is_bounded() {
    let many: String = (0..5000).map(|n| format!("md{n} : active raid1 sda[0]\n")).collect();
    assert_eq!(mdstat::parse(&many).len(), mdstat::MAX_ARRAYS);
    let wide = format!("md0 : active raid1 {}\n", "sda[0] ".repeat(100_000));
    assert!(one(&wide).members.len() <= 1024);
}
