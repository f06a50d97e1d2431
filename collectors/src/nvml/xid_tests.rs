use std::io::Write as _;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn parse(line: &str) -> Option<Xid> {
    parse_record(line).or_else(|| parse_message(line, 0, Nanos(0)))
}

/// Rows of `{id, line}` against `{rows: {id: {…}}}`; keys that are not there are not asked for.
fn check(rows: &str, expected: &Value) -> usize {
    let mut checked = 0;
    for row in rows.lines().filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_str(row).unwrap();
        let (id, line) = (row["id"].as_str().unwrap(), row["line"].as_str().unwrap());
        let want = &expected["rows"][id];
        let found = parse(line);
        let code = want["xid"].as_u64().or(want["implied_xid"].as_u64());
        assert_eq!(found.as_ref().map(|x| u64::from(x.code)), code, "{id}: {line}");
        checked += 1;
        let Some(found) = found else { continue };
        let pci = PciAddress::parse(want["pci"].as_str().unwrap()).unwrap();
        assert_eq!(found.pci.copied().map(|at| at.same_slot(pci)), Some(true), "{id}: {line}");
        let number = |value: Option<u32>| value.map(u64::from);
        assert_eq!(number(found.pid), want["pid"].as_u64(), "{id} pid");
        assert_eq!(found.name.as_deref(), want["name"].as_str(), "{id} name");
        assert_eq!(number(found.gi), want["gi"].as_u64(), "{id} gi");
        assert_eq!(number(found.ci), want["ci"].as_u64(), "{id} ci");
        assert_eq!(number(found.caused_by), want["caused_by"].as_u64(), "{id} caused_by");
        assert_eq!(number(found.recovery_action), want["recovery"]["to"].as_u64(), "{id} recovery");
        if let Some(word) = want["class"].as_str() {
            assert_eq!(class(found.code).as_str(), word, "{id} class");
        }
        if let Some(kmsg) = want.get("kmsg") {
            assert_eq!(found.seq, kmsg["seq"], "{id}");
            assert_eq!(found.at.0 / 1000, kmsg["usec"], "{id}");
        }
    }
    checked
}

fn file(path: &Path) -> Option<String> {
    io::read_to_string(File::open(path).ok()?).ok()
}

#[test]
fn lines_of_our_own() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/xid");
    let expected = serde_json::from_str(&file(&dir.join("expected.json")).unwrap()).unwrap();
    assert_eq!(check(&file(&dir.join("xid.jsonl")).unwrap(), &expected), 12);
}

#[test]
fn the_collected_lines_give_what_is_expected_of_them() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/xid");
    let Some(rows) = file(&dir.join("xid.jsonl")) else {
        return eprintln!("skipped: {} is not there", dir.display());
    };
    let expected = serde_json::from_str(&file(&dir.join("expected.json")).unwrap()).unwrap();
    assert_eq!(check(&rows, &expected), 36);
}

#[test]
fn what_a_kernel_line_merely_contains_is_no_event() {
    for line in [
        "4,1,2,-;usb 1-1: Product: NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.",
        "4,1,2,-;NVRM: Xid (PCI:0000:9b:00): 79x",
        "4,1,2,-;NVRM: Xid (PCI:0000:9b:00)",
        "4,1,2,-;NVRM: Xid (PCI:0000:9b:00): ",
        "4,1,2,-;NVRM: Xid (PCI:0000:9b:00): 99999999999",
        "4,1;NVRM: Xid (PCI:0000:9b:00): 79",
        "4,1,x,-;NVRM: Xid (PCI:0000:9b:00): 79",
    ] {
        assert_eq!(parse_record(line), None, "{line}");
    }
}

/// Answers reads as the kernel's log does.
struct Kernel(Vec<Result<&'static str, i32>>);

impl Read for Kernel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let text = self.0.remove(0).map_err(io::Error::from_raw_os_error)?;
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }
}

#[test]
fn overwritten_records_are_counted_and_reading_goes_on() {
    let mut kernel = Kernel(vec![
        Ok("6,7,100,-;something else\n SUBSYSTEM=pci\n"),
        Err(libc::EPIPE),
        Ok(
            "4,90,200,-;NVRM: Xid (PCI:0000:9b:00): 48, pid=1, name=x, DBE\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n",
        ),
        Err(libc::EAGAIN),
        Ok("4,91,300,-;NVRM: Xid (PCI:0000:9b:00): 79, not before the next round\n"),
    ]);
    let mut xids = Xids::default();
    let mut last = None;
    drain(&mut kernel, &mut last, &mut xids).unwrap();
    assert_eq!(xids.overwritten, 90 - 7 - 1);
    assert_eq!(last, Some(90));
    let found: Vec<_> = xids.events.iter().map(|x| (x.seq, x.at, x.code)).collect();
    assert_eq!(found, [(90, Nanos(200_000), 48)]);
    assert!(drain(&mut Kernel(vec![Err(libc::ENODEV)]), &mut last, &mut xids).is_err());
}

#[test]
fn a_file_in_its_place_is_read_once_from_the_start_and_then_followed() {
    let root = std::env::temp_dir().join(format!("gpuprod-kmsg-{}", std::process::id()));
    std::fs::create_dir_all(root.join("dev")).unwrap();
    let host = Host::at(&root);
    let mut log = KernelLog::new();
    let absent = log.collect(&host, &Focus::default()).unwrap_err();
    assert_eq!(absent.missing, Missing::Unsupported);
    assert!(absent.tried.contains("dev/kmsg"), "{absent}");

    let write = |text: &str| {
        let mut file = OpenOptions::new().create(true).append(true).open(root.join("dev/kmsg")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let mut codes = || match log.collect(&host, &Focus::default()) {
        Ok(Part::Xid(xids)) => xids.events.iter().map(|x| x.code).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    write("4,1,100,-;NVRM: Xid (PCI:0000:9b:00): 48, DBE\n6,2,200,-;noise\n4,3,300,-;NVRM: Xid (PCI:0000:9b");
    assert_eq!(codes(), [48]);
    assert_eq!(codes(), [0_u32; 0]);
    write(":00): 63, remapped\n");
    assert_eq!(codes(), [63]);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_denied_log_says_what_would_help() {
    let error = failed("open", Path::new("/dev/kmsg"), io::Error::from_raw_os_error(libc::EPERM));
    assert_eq!(error.missing, Missing::Denied);
    assert!(error.hint.is_some_and(|hint| hint.contains("CAP_SYSLOG")));
}

#[test]
fn the_table_of_classes_is_in_order() {
    // One code of each class, from NVIDIA's catalogue.
    for (code, word) in [
        (31, "app"),
        (45, "consequence"),
        (48, "hardware"),
        (63, "memory_info"),
        (94, "memory_app"),
        (74, "link"),
        (119, "firmware"),
        (154, "recovery_action"),
        (14, "unknown"),
        (0, "unknown"),
    ] {
        assert_eq!(class(code).as_str(), word, "{code}");
    }
}

proptest! {
    #[test]
    fn hostile_lines(line in "\\PC*", tail in "([0-9]{1,12}|[,;:=() '<>-]|pid|name|PCI|GPU-C?I|0x|é){0,40}") {
        let _ = parse(&line);
        for head in ["4,1,2,-;NVRM: Xid (", "NVRM: Xid (PCI:0000:9b:00", "NVRM: Xid (PCI:0000:9b:00): ", "NVRM: fallen off the bus "] {
            if let Some(xid) = parse(&format!("{head}{tail}")) {
                prop_assert!(xid.name.is_none_or(|name| name.chars().count() <= NAME));
            }
        }
    }
}
