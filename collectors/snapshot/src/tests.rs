//! The file format: what is written is read back, and what is missing says why.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::gpu::Gpm;
use crate::host::{NodeTime, Process, Stall};
use crate::storage::{MdAction, MdMember};
use crate::topology::{NumaNode, PciAddress};
use crate::units::{Nanos, Ppb, from_f64};
use crate::{CpuList, Missing, Part, Reading, Sample, Source, Tick};

fn round<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> (String, T) {
    let text = serde_json::to_string(value).unwrap();
    let back = serde_json::from_str(&text).unwrap();
    (text, back)
}

#[test]
fn a_value_stands_as_itself_and_a_missing_one_says_why() {
    assert_eq!(round(&Reading::Value(Nanos(5))).0, "5");
    for missing in Missing::ALL {
        let reading: Reading<Nanos> = Reading::Missing(missing);
        let (text, back) = round(&reading);
        assert_eq!(text, alloc::format!("{{\"missing\":\"{missing}\"}}"));
        assert_eq!(back, reading);
    }
    // Objects, lists, text, words, optional members: all through the same door.
    let gpm = Reading::Value(Gpm { sm: Ppb(7).into(), ..Gpm::default() });
    assert_eq!(round(&gpm).1, gpm);
    let list: Reading<Vec<String>> = Reading::Value(alloc::vec!["missing".into()]);
    assert_eq!(round(&list).1, list);
    let text = Reading::Value("missing".to_string());
    assert_eq!(round(&text).1, text);
    let word = Reading::Value(MdAction::Other("scrub".into()));
    assert_eq!(round(&word), ("\"scrub\"".into(), word));
}

#[test]
fn what_makes_no_sense_is_refused_and_what_is_absent_was_not_read() {
    for text in
        ["-1", "\"5\"", "{\"missing\":\"because\"}", "{\"missing\":\"denied\",\"value\":5}", "{}", "1e30", "null"]
    {
        assert!(serde_json::from_str::<Reading<Nanos>>(text).is_err(), "{text}");
    }
    let member: MdMember =
        serde_json::from_str(r#"{"name":"sda","flags":["spare"],"colour":"of a later version"}"#).unwrap();
    assert_eq!(member.slot, Reading::Missing(Missing::NotYet));
    assert!(!member.is_rebuilding(), "a spare without a slot waits");
    assert!(MdMember { slot: Reading::Value(3), ..member }.is_rebuilding());
}

/// A line of a recording that was made before these fields were there, and one of a later version.
#[test]
fn a_process_of_an_older_recording_still_reads_and_newer_fields_are_passed_over() {
    let old = r#"{"pid":7,"start_ns":5,"ppid":1,"uid":0,"comm":"a","state":"S","threads":2,"threads_blocked":0,"cpu_ns":9,"rss":4096}"#;
    let process: Process = serde_json::from_str(old).unwrap();
    assert_eq!((process.pid, process.cpu.copied()), (7, Some(Nanos(9))));
    assert!(process.cpus_allowed.is_not_yet() && process.mems_allowed.is_not_yet());
    assert!(process.processor.is_not_yet() && process.cpu_by_node.is_not_yet());
    // What was not read is not written either: an older reader meets nothing new.
    assert!(!round(&process).0.contains("allowed") && !round(&process).0.contains("by_node"));
    let node = NodeTime { node: 1, cpu: Nanos(3) };
    let now = Process {
        cpus_allowed: String::from("0-3,8").into(),
        mems_allowed: Reading::Missing(Missing::Denied),
        processor: 8.into(),
        cpu_by_node: alloc::vec![node].into(),
        ..process
    };
    let (text, back) = round(&now);
    assert_eq!(back, now);
    assert!(text.contains(r#""cpu_by_node":[{"node":1,"cpu_ns":3}]"#), "{text}");
    let later = text.replace(r#""processor":8"#, r#""processor":8,"of_a_later_version":{"a":[1]}"#);
    assert_eq!(serde_json::from_str::<Process>(&later).unwrap(), now);
    let numa: NumaNode = serde_json::from_str(r#"{"id":0,"cpulist":"0-3"}"#).unwrap();
    assert!(numa.package.is_not_yet());
}

#[test]
fn lists_of_cpus_are_ranges() {
    let list = |text| CpuList::parse(text).unwrap();
    let some = list("0-3,8,10-11");
    assert!([0, 3, 8, 11].into_iter().all(|cpu| some.contains(cpu)));
    assert!(![4, 7, 9, 12].into_iter().any(|cpu| some.contains(cpu)));
    assert!(some.meets(&list("3-5")) && !some.meets(&list("4-7,9")) && !some.meets(&list("")));
    assert_eq!((some.first(), list("\n").first()), (Some(0), None));
    for bad in ["a", "1-", "-1", "3-2", "1,,2", "+1", "4294967296"] {
        assert_eq!(CpuList::parse(bad), None, "{bad}");
    }
}

#[test]
fn addresses_of_nvml_sysfs_and_the_kernel_log_are_the_same() {
    let expected = PciAddress { domain: 0, bus: 0x9b, device: 0, function: 0 };
    for text in ["00000000:9B:00.0", "0000:9b:00.0", "0000:9b:00"] {
        assert_eq!(PciAddress::parse(text), Some(expected), "{text}");
    }
    assert_eq!(expected.to_string(), "0000:9b:00.0");
    assert_eq!(PciAddress::parse("10000:01:1f.7").unwrap().to_string(), "10000:01:1f.7", "VMD's wide domains");
    for text in [
        "",
        "9b:00.0",
        "0000:9b:20.0",
        "0000:9b:00.8",
        "0000:1ff:00.0",
        "0000:9b:00.0:1",
        "0000:+1:00.0",
        "123456789:00:00.0",
    ] {
        assert_eq!(PciAddress::parse(text), None, "{text}");
    }
}

#[test]
fn the_newest_sample_of_a_source_stands_whatever_came_first() {
    let sample = |at: u64, total: u64| Sample {
        at: Nanos(at),
        took: Nanos(0),
        value: Reading::Value(Part::Psi(crate::host::Psi {
            system: crate::host::Pressures {
                io: Reading::Value(crate::host::Pressure {
                    some: Stall { total: Nanos(total), ..Stall::default() },
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..Default::default()
        })),
        why: String::new(),
        hung: None,
    };
    let (mut one, mut other) = (Tick::default(), Tick::default());
    for at in [1, 2] {
        one.put(sample(at, at));
        other.put(sample(3 - at, 3 - at));
    }
    assert_eq!(one, other);
    assert_eq!(one.status(Source::Psi).unwrap().at, Nanos(2));
    // The displaced sample becomes the older one, and a source that was not read keeps its last.
    let (mut known, mut older) = (Tick::default(), Tick::default());
    let mut first = Tick::default();
    first.put(sample(1, 1));
    known.advance(&mut older, &first);
    known.advance(&mut older, &Tick::default());
    known.advance(&mut older, &one);
    assert_eq!((older.psi.unwrap().at, known.psi.unwrap().at), (Nanos(1), Nanos(2)));
}

proptest! {
    #[test]
    fn floats_become_integers_only_where_they_fit(value in proptest::num::f64::ANY) {
        match from_f64(value) {
            Some(whole) => prop_assert!((crate::units::to_f64(whole) - value).abs() <= 0.5 + value * 1e-15),
            None => prop_assert!(!(0.0..1.8e19).contains(&value)),
        }
    }

    #[test]
    fn any_text_is_an_address_or_none(text in "\\PC{0,24}") {
        if let Some(address) = PciAddress::parse(&text) {
            prop_assert_eq!(PciAddress::parse(&address.to_string()), Some(address));
        }
    }
}
