use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::scratch::{Scratch, fixture, shared};

fn collect(devices: &mut Devices, scratch: &Scratch, focus: &[&str]) -> Block {
    let focus = Focus { devices: focus.iter().map(|name| (*name).to_owned()).collect(), ..Focus::default() };
    match devices.collect(&scratch.host(), &focus).unwrap() {
        Part::Block(block) => block,
        other => panic!("{other:?}"),
    }
}

/// Two NVMe disks, a partition on one, a mirror over both, a logical volume on the mirror, idle loops and
/// memory disks, and a multipath namespace with one hidden path.
fn node() -> Scratch {
    let text = tree::text(&fixture("diskstats/md-on-nvme")).unwrap();
    let scratch = Scratch::with(&[("proc/diskstats", &text)]);
    let pci = "sys/devices/pci0000:00/0000:00:01.0";
    for (name, dir) in [
        ("nvme0n1", format!("{pci}/0000:01:00.0/nvme/nvme0/nvme0n1")),
        ("nvme0n1p1", format!("{pci}/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1")),
        ("nvme1n1", "sys/devices/pci10000:00/10000:02:00.0/nvme/nvme1/nvme1n1".to_owned()),
        ("md0", "sys/devices/virtual/block/md0".to_owned()),
        ("dm-0", "sys/devices/virtual/block/dm-0".to_owned()),
        ("loop0", "sys/devices/virtual/block/loop0".to_owned()),
        ("nvme2n1", "sys/devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1".to_owned()),
        ("nvme2c3n1", format!("{pci}/0000:03:00.0/nvme/nvme3/nvme2c3n1")),
        ("cciss!c0d0", format!("{pci}/0000:04:00.0/cciss0/c0d0/block/cciss!c0d0")),
    ] {
        scratch.dir(&dir);
        scratch.link(&format!("sys/class/block/{name}"), &format!("../../../{dir}"));
    }
    let class = |name: &str| format!("sys/class/block/{name}");
    scratch.file(&class("nvme0n1p1/partition"), "1\n");
    scratch.file(&class("nvme0n1/queue/rotational"), "0\n");
    scratch.file(&class("nvme0n1/queue/nr_requests"), "1023\n");
    scratch.file(&class("cciss!c0d0/queue/rotational"), "1\n");
    scratch.file(&class("md0/slaves/nvme0n1p1"), "");
    scratch.file(&class("md0/slaves/nvme1n1"), "");
    scratch.file(&class("nvme0n1p1/holders/md0"), "");
    scratch.file(&class("nvme1n1/holders/md0"), "");
    scratch.file(&class("dm-0/slaves/md0"), "");
    scratch.file(&class("nvme2c3n1/stat"), "7 0 56 3 0 0 0 0 0 3 3\n");
    scratch.file(&class("nvme2c3n1/dev"), "259:9\n");
    scratch.file(
        "proc/self/mountinfo",
        "27 1 9:0 / /data rw - xfs /dev/md0 rw\n28 1 0:5 / /proc rw - proc proc rw\n\
         29 1 0:40 / /scratch ro - btrfs /dev/nvme1n1 rw\n",
    );
    scratch
}

#[test]
fn the_chain_from_mount_to_pci_is_there() {
    let scratch = node();
    let block = collect(&mut Devices::default(), &scratch, &[]);
    let names: Vec<_> = block.devices.iter().map(|device| device.name.as_str()).collect();
    let all = ["cciss/c0d0", "dm-0", "md0", "nvme0n1", "nvme0n1p1", "nvme1n1", "nvme2c3n1", "nvme2n1"];
    assert_eq!(names, all, "idle loop and ram devices are left out");
    let device = |name: &str| block.devices.iter().find(|device| device.name == name).unwrap();
    assert_eq!(device("dm-0").slaves, ["md0"]);
    assert_eq!(device("md0").slaves, ["nvme0n1p1", "nvme1n1"]);
    assert_eq!(device("md0").pci.missing(), Some(Missing::Unsupported));
    let partition = device("nvme0n1p1");
    assert_eq!(partition.partition_of.as_deref(), Some("nvme0n1"));
    assert_eq!(partition.pci.copied(), PciAddress::parse("0000:01:00.0"));
    assert_eq!(partition.rotational.copied(), Some(false), "the disk's");
    assert_eq!(device("nvme0n1").nr_requests.copied(), Some(1023));
    assert_eq!(device("nvme1n1").pci.copied(), PciAddress::parse("10000:02:00.0"), "VMD");
    assert_eq!(device("cciss/c0d0").rotational.copied(), Some(true));
    // The head of a multipath namespace is virtual; its path knows the way and has the counters.
    assert_eq!(device("nvme2n1").slaves, ["nvme2c3n1"]);
    assert_eq!(device("nvme2c3n1").pci.copied(), PciAddress::parse("0000:03:00.0"));
    assert_eq!(device("nvme2c3n1").dev, (259, 9));
    assert_eq!(device("nvme2c3n1").io.get().unwrap().reads, 7);
    let points: Vec<_> = block.mounts.iter().map(|mount| (mount.point.as_str(), mount.dev, mount.read_only)).collect();
    assert_eq!(points, [("/data", (9, 0), false), ("/scratch", (0, 40), true)]);
}

#[test]
fn an_idle_device_in_focus_is_reported() {
    let block = collect(&mut Devices::default(), &node(), &["loop0"]);
    assert!(block.devices.iter().any(|device| device.name == "loop0"));
}

#[test]
fn a_member_added_to_an_array_is_seen_although_the_devices_stay_the_same() {
    let scratch = node();
    let mut devices = Devices::default();
    collect(&mut devices, &scratch, &[]);
    scratch.file("sys/class/block/md0/slaves/dm-9", "");
    let block = collect(&mut devices, &scratch, &[]);
    let md0 = block.devices.iter().find(|device| device.name == "md0").unwrap();
    assert_eq!(md0.slaves, ["dm-9", "nvme0n1p1", "nvme1n1"]);
}

#[test]
fn no_diskstats_is_an_error_with_the_path() {
    let scratch = Scratch::new();
    let error = Devices::default().collect(&scratch.host(), &Focus::default()).unwrap_err();
    assert_eq!(error.missing, Missing::Unsupported);
    assert!(error.to_string().contains("proc/diskstats"), "{error}");
}

#[test]
fn own_lines_with_11_15_and_17_counters() {
    let text = tree::text(&fixture("diskstats/widths")).unwrap();
    let lines = diskstats::parse(&text);
    let io = |at: usize| lines[at].io.get().unwrap();
    assert_eq!(lines.len(), 4, "the torn line has no name and is gone");
    assert_eq!((io(0).fields, io(0).discards.missing()), (11, Some(Missing::Unsupported)));
    assert_eq!((io(1).fields, io(1).discards.copied()), (15, Some(6)));
    assert_eq!(io(1).flushes.missing(), Some(Missing::Unsupported));
    assert_eq!((io(2).fields, io(2).flushes.copied()), (17, Some(9)));
    assert_eq!(io(2).flush_ms.copied(), Some(10));
    assert_eq!(io(2).weighted_ms, 4_294_967_295, "32 bits, all of them");
    assert_eq!(lines[3].io.missing(), Some(Missing::Malformed), "its counters only");
}

#[test]
fn the_shared_diskstats_read_as_expected() {
    let Some(dir) = shared("kernel") else { return };
    let read = |name: &str| tree::text(&dir.join(name)).unwrap();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let scratch = Scratch::with(&[("proc/diskstats", &read("diskstats"))]);
    let block = collect(&mut Devices::default(), &scratch, &[]);
    let facts = expected["files"]["diskstats"].as_object().unwrap();
    assert_eq!(block.devices.len(), facts.len(), "those with I/O and no other");
    for (name, facts) in facts {
        let device = block.devices.iter().find(|device| device.name == *name).unwrap();
        let io = device.io.get().unwrap();
        let number = |key: &str| facts[key].as_u64();
        assert_eq!(Some(u64::from(io.fields)), number("fields"), "{name}");
        assert_eq!(Some(io.reads), number("reads"), "{name}");
        assert_eq!(Some(io.sectors_read), number("sectors_read"), "{name}");
        assert_eq!(Some(u64::from(io.read_ms)), number("read_ms"), "{name}");
        assert_eq!(Some(io.writes), number("writes"), "{name}");
        assert_eq!(Some(io.sectors_written), number("sectors_written"), "{name}");
        assert_eq!(Some(u64::from(io.write_ms)), number("write_ms"), "{name}");
        assert_eq!(Some(io.in_flight), number("in_flight"), "{name}");
        assert_eq!(Some(u64::from(io.io_ticks_ms)), number("io_ticks_ms"), "{name}");
        assert_eq!(Some(u64::from(io.weighted_ms)), number("weighted_ms"), "{name}");
        assert_eq!(io.discards.copied(), number("discards"), "{name}");
        assert_eq!(io.flushes.copied(), number("flushes"), "{name}");
        assert_eq!(io.flush_ms.copied().map(u64::from), number("flush_ms"), "{name}");
        assert_eq!(device.pci.missing(), Some(Missing::Unsupported), "no sysfs here");
    }
}

proptest! {
    #[test]
    fn hostile_diskstats_cost_only_themselves(noise in "[0-9a-z! \\-]{0,120}", numbers in proptest::collection::vec(any::<u64>(), 0..20)) {
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let text = format!("{noise}\n 8 0 sda {}\n 8 16 sdb 1 2 3 4 5 6 7 8 9 10 11\n", words.join(" "));
        let lines = diskstats::parse(&text);
        let sdb = lines.last().unwrap();
        prop_assert_eq!(sdb.io.get().unwrap().weighted_ms, 11);
        let sda = lines.iter().rev().nth(1).unwrap();
        prop_assert_eq!(sda.io.get().is_some(), numbers.len() >= 11);
    }
}
