use gpuprod_snapshot::topology::{LinkState, Numa, PathClass};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn address(text: &str) -> PciAddress {
    PciAddress::parse(text).unwrap()
}

fn tree_at(root: &Path) -> (Pci, Numa) {
    let host = Host::at(root);
    let pci = match Tree.collect(&host, &Focus::default()) {
        Ok(Part::Pci(pci)) => pci,
        Ok(_) => unreachable!(),
        // A tree without a single PCI device has no listing either.
        Err(error) => {
            assert_eq!(error.missing, Missing::Unsupported);
            Pci::default()
        }
    };
    let numa = match crate::numa::Nodes.collect(&host, &Focus::default()) {
        Ok(Part::Numa(numa)) => numa,
        _ => Numa::default(),
    };
    (pci, numa)
}

/// Every value of an expected.json for one tree; `null` means that the collector must not know it.
fn check(name: &str, pci: &Pci, numa: &Numa, expected: &Value) {
    assert_eq!(pci.devices.len() as u64, expected["devices_total"], "{name}");
    let endpoints: Vec<&PciDevice> =
        pci.devices.iter().filter(|d| !matches!(d.kind.get(), None | Some(PciKind::Bridge))).collect();
    let wanted = expected["endpoints"].as_object().unwrap();
    let found: Vec<String> = endpoints.iter().map(|d| d.address.to_string()).collect();
    assert_eq!(found, wanted.keys().cloned().collect::<Vec<_>>(), "{name}: endpoints");
    for (device, (at, want)) in endpoints.iter().zip(wanted) {
        let what = format!("{name} {at}");
        let kind = match want["kind"].as_str().unwrap() {
            "bridge-other" => "nvswitch",
            kind => kind,
        };
        assert_eq!(device.kind.get().map(PciKind::as_str), Some(kind), "{what}");
        let hex = |value: &Value| value.as_str().map(|t| u32::from_str_radix(&t[2..], 16).unwrap());
        assert_eq!(device.class.copied(), hex(&want["cls"]), "{what} class");
        assert_eq!(device.vendor.copied(), hex(&want["vendor"]), "{what} vendor");
        assert_eq!(device.device.copied(), hex(&want["device"]), "{what} device");
        assert_eq!(device.root_bus.get().map(String::as_str), want["root_bus"].as_str(), "{what}");
        let bridges: Vec<PciAddress> =
            want["bridges"].as_array().unwrap().iter().map(|b| address(b.as_str().unwrap())).collect();
        assert_eq!(device.bridges, bridges, "{what}");
        assert_eq!(device.numa_node.copied().map(u64::from), want["numa_node"].as_u64(), "{what}");
        assert_eq!(device.local_cpulist.get().map(String::as_str), want["local_cpulist"].as_str(), "{what}");
        let link = &want["link"];
        let speed = |read: &Reading<MegaTransfers>| read.copied().map(|speed| f64::from(speed.0) / 1000.0);
        assert_eq!(speed(&device.link.speed), link["speed_gts"].as_f64(), "{what} speed");
        assert_eq!(speed(&device.link.speed_max), link["max_speed_gts"].as_f64(), "{what} speed");
        assert_eq!(device.link.width.copied().map(u64::from), link["width"].as_u64(), "{what} width");
        assert_eq!(device.link.width_max.copied().map(u64::from), link["max_width"].as_u64(), "{what} width");
        assert_eq!(device.link.state().as_str(), link["state"], "{what}");
    }
    let pairs = expected["path_class"].as_object().unwrap();
    assert_eq!(pairs.len(), endpoints.len() * endpoints.len().saturating_sub(1) / 2, "{name}: pairs");
    for (pair, class) in pairs {
        let (a, b) = pair.split_once('|').unwrap();
        let of = |at| endpoints.iter().find(|d| d.address == address(at)).unwrap();
        assert_eq!(of(a).path_class(of(b)).as_str(), class, "{name} {pair}");
        assert_eq!(of(b).path_class(of(a)).as_str(), class, "{name} {pair} the other way round");
    }
    let Some(nodes) = expected["numa_nodes"].as_object() else {
        return assert!(numa.nodes.is_empty(), "{name}: nodes");
    };
    assert_eq!(numa.nodes.len(), nodes.len(), "{name}: nodes");
    for node in &numa.nodes {
        let want = &nodes[&node.id.to_string()];
        assert_eq!(node.cpulist.get().map(String::as_str), want["cpulist"].as_str(), "{name} node {}", node.id);
        let distances: Vec<u64> = node.distances.get().unwrap().iter().copied().map(u64::from).collect();
        assert_eq!(serde_json::json!(distances), want["distance"], "{name} node {}", node.id);
        assert_eq!(node.mem_total.copied().map(|m| m.0 / 1024), want["mem_kib"].as_u64(), "{name} node {}", node.id);
    }
}

#[test]
fn a_small_tree_of_our_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pci/two_sockets");
    let expected = std::fs::File::open(root.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_reader(expected).unwrap();
    let (pci, numa) = tree_at(&root);
    check("two_sockets", &pci, &numa, &expected);
    let device = |at| pci.devices.iter().find(|d| d.address == address(at)).unwrap();
    // AER totals, and their absence.
    assert_eq!(device("0000:17:00.0").aer_correctable, Reading::Value(42));
    assert_eq!(device("0000:17:00.0").aer_fatal, Reading::Value(1));
    assert_eq!(device("0000:18:00.0").aer_fatal, Reading::Missing(Missing::Unsupported));
    // Asleep: its link files are there and must not be read.
    assert_eq!(device("0000:b1:00.0").link, Link::default());
    // -1, and the bridge above knows.
    let nic = device("0000:18:00.0");
    assert_eq!((nic.numa_node.copied(), nic.numa_node_inherited.copied()), (None, Some(0)));
}

#[test]
fn the_collected_trees_give_what_is_expected_of_them() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pci");
    let Ok(expected) = std::fs::File::open(data.join("expected.json")) else {
        return eprintln!("skipped: {} is not there", data.display());
    };
    let expected: Value = serde_json::from_reader(expected).unwrap();
    let mut trees = 0;
    for (name, want) in expected["items"].as_object().unwrap() {
        let root = data.join(name);
        if root.join("sys").is_dir() {
            let (pci, numa) = tree_at(&root);
            check(name, &pci, &numa, want);
            trees += 1;
        }
    }
    assert!(trees >= 7, "only {trees} trees");
}

#[test]
fn speeds_in_all_spellings_of_the_kernel() {
    // drivers/pci/probe.c, pci_speed_string(), old and new.
    for (text, mts) in [
        ("2.5 GT/s", 2500),
        ("2.5 GT/s PCIe", 2500),
        ("5 GT/s", 5000),
        ("5.0 GT/s PCIe", 5000),
        ("16.0 GT/s PCIe", 16_000),
        ("64.0 GT/s PCIe", 64_000),
    ] {
        assert_eq!(speed(text), Reading::Value(MegaTransfers(mts)), "{text}");
    }
    for text in ["Unknown", "Unknown speed"] {
        assert_eq!(speed(text), Reading::Missing(Missing::Unsupported), "{text}");
    }
    for text in ["", "fast", "-5 GT/s", "5.", ".5", "1.2345 GT/s", "99999999999 GT/s"] {
        assert_eq!(speed(text), Reading::Missing(Missing::Malformed), "{text}");
    }
}

#[test]
fn widths_that_are_none() {
    assert_eq!(width("16"), Reading::Value(16));
    assert_eq!(width("0"), Reading::Missing(Missing::Unsupported));
    assert_eq!(width("255"), Reading::Missing(Missing::Unsupported));
    assert_eq!(width("63"), Reading::Missing(Missing::Gone));
    assert_eq!(width("x16"), Reading::Missing(Missing::Malformed));
}

#[test]
fn paths_with_something_before_the_root_bus() {
    let (root, bridges) = path_of(Path::new("../../../devices/platform/a00.pcie/pci0002:00/0002:00:00.0/0002:01:00.0"));
    assert_eq!(root.as_deref(), Some("pci0002:00"));
    assert_eq!(bridges, [address("0002:00:00.0")]);
    // VMD: the root bus of a wide domain hangs below a device of the first.
    let (root, bridges) =
        path_of(Path::new("../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"));
    assert_eq!(root.as_deref(), Some("pci10000:e0"));
    assert_eq!(bridges, [address("10000:e0:06.0")]);
    assert_eq!(path_of(Path::new("../../vmbus/thing")), (None, Vec::new()));
}

#[test]
fn a_crowded_node_keeps_what_matters_and_the_bridges_above() {
    let device = |at: &str, kind: Option<PciKind>, above: &[&str]| PciDevice {
        address: address(at),
        kind: Reading::from_option(kind, Missing::Unsupported),
        bridges: above.iter().map(|at| address(at)).collect(),
        ..PciDevice::default()
    };
    let devices = vec![
        device("0000:00:01.0", Some(PciKind::Bridge), &[]),
        device("0000:00:02.0", Some(PciKind::Bridge), &[]),
        device("0000:00:1f.0", None, &[]),
        device("0000:01:00.0", Some(PciKind::Gpu), &["0000:00:01.0"]),
    ];
    assert_eq!(keep_what_matters(devices.clone(), 4).len(), 4);
    let kept: Vec<String> = keep_what_matters(devices, 3).iter().map(|d| d.address.to_string()).collect();
    assert_eq!(kept, ["0000:00:01.0", "0000:01:00.0"]);
}

#[test]
fn a_device_of_unknown_place_is_at_unknown_distance() {
    let nowhere = PciDevice::default();
    assert_eq!(nowhere.path_class(&nowhere), PathClass::Unknown);
    assert_eq!(nowhere.link.state(), LinkState::Unknown);
}

proptest! {
    /// Hostile text is malformed, not another number.
    #[test]
    fn no_text_of_an_attribute_is_too_strange(text in "\\PC*") {
        // A number at its beginning is what is looked for.
        let text = format!("x{text}");
        prop_assert_eq!(speed(&text), Reading::Missing(Missing::Malformed));
        prop_assert_eq!(width(&text), Reading::Missing(Missing::Malformed));
        prop_assert_eq!(PciAddress::parse(&text), None);
        let (root, bridges) = path_of(Path::new(&text));
        prop_assert!(root.is_none_or(|root| root.starts_with("pci") && text.contains(&root)) && bridges.len() <= text.len());
        prop_assert_eq!(aer_total(&format!("{text}\nTOTAL_ERR_COR 42\n"), "TOTAL_ERR_COR"), Some(42));
    }

    /// What the kernel writes is read exactly, whatever the numbers.
    #[test]
    fn numbers_are_read_as_written(whole in 0_u32..4_000_000, places in "[0-9]{1,3}", lanes in 0_u32..400, total: u64) {
        let thousandths = whole * 1000 + format!("{places:0<3}").parse::<u32>().unwrap();
        prop_assert_eq!(speed(&format!("{whole}.{places} GT/s PCIe")), Reading::Value(MegaTransfers(thousandths)));
        let known = match lanes {
            0 | 255 => Reading::Missing(Missing::Unsupported),
            63 => Reading::Missing(Missing::Gone),
            1..=32 => Reading::Value(lanes),
            _ => Reading::Missing(Missing::Malformed),
        };
        prop_assert_eq!(width(&lanes.to_string()), known);
        let page = format!("RxErr 3\nTOTAL_ERR_COR {total}\n");
        prop_assert_eq!(aer_total(&page, "TOTAL_ERR_COR"), Some(total));
    }
}
