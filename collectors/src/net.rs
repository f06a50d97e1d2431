//! Network ports: RDMA ports below `class/infiniband`, and interfaces of real devices below `class/net`.
//!
//! Only counters that tell of waiting, loss and failing links are read: a port has a hundred, and each read may
//! be a question to its firmware.

use std::path::Path;

use gpuprod_snapshot::topology::{Net, NetPort, PortLayer};
use gpuprod_snapshot::units::Bytes;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, tree};

/// No node has more ports.
const MOST_PORTS: usize = 64;

/// Counters that count, of `counters` and `hw_counters` of an RDMA port, sorted. mlx5's names; what another driver
/// does not have is left out.
const RDMA: &[&str] = &[
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_ack_timeout_err",
    "local_link_integrity_errors",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_handled",
    "rx_icrc_encapsulated",
    "symbol_error",
];
/// The same of an interface: its folder, and the names there.
const INTERFACE: &[(&str, &[&str])] = &[
    ("", &["carrier_changes"]),
    ("statistics", &["rx_dropped", "rx_errors", "rx_missed_errors", "tx_dropped", "tx_errors"]),
];

/// The ports.
pub struct Ports;

impl Collector for Ports {
    fn source(&self) -> Source {
        Source::Net
    }

    fn collect(&mut self, host: &Host, _focus: &Focus) -> Result<Part, CollectError> {
        let (rdma, plain) = (host.sys.join("class/infiniband"), host.sys.join("class/net"));
        let interfaces = tree::names(&plain);
        let devices = tree::names(&rdma).unwrap_or_default();
        if let (Err(error), true) = (&interfaces, devices.is_empty()) {
            return Err(CollectError::new(error.missing, format!("list {}", plain.display())));
        }
        let mut ports = Vec::new();
        for device in &devices {
            let dir = rdma.join(device).join("ports");
            let mut numbers: Vec<u32> =
                tree::names(&dir).unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect();
            numbers.sort_unstable();
            ports.extend(numbers.into_iter().map(|port| rdma_port(&dir.join(port.to_string()), device, port)));
        }
        // Bridges, tunnels, loopback and the ends of containers have no device behind them.
        let real =
            interfaces.unwrap_or_default().into_iter().filter(|name| tree::exists(&plain.join(name).join("device")));
        ports.extend(real.map(|name| interface(&plain.join(&name), name)));
        ports.truncate(MOST_PORTS);
        Ok(Part::Net(Net { ports }))
    }
}

fn rdma_port(dir: &Path, device: &str, port: u32) -> NetPort {
    let counters = dir.join("counters");
    // In words of four bytes.
    let bytes = |name: &str| match tree::value::<u64>(&counters.join(name)) {
        Reading::Value(words) => Reading::from_option(words.checked_mul(4).map(Bytes), Missing::Malformed),
        Reading::Missing(missing) => Reading::Missing(missing),
    };
    let layer = match tree::word(&dir.join("link_layer")) {
        Reading::Value(word) if word == "Ethernet" => Reading::Value(PortLayer::Roce),
        other => other.map(|_| PortLayer::InfiniBand),
    };
    let (state, rate) = (tree::word(&dir.join("state")), tree::word(&dir.join("rate")));
    NetPort {
        device: device.to_owned(),
        port,
        layer,
        up: state.map(|state| state.ends_with("ACTIVE")),
        speed: match rate {
            Reading::Value(rate) => Reading::from_option(parse_rate(&rate), Missing::Malformed),
            Reading::Missing(missing) => Reading::Missing(missing),
        },
        tx: bytes("port_xmit_data"),
        rx: bytes("port_rcv_data"),
        counters: RDMA
            .iter()
            .filter_map(|name| {
                let value = [&counters, &dir.join("hw_counters")]
                    .into_iter()
                    .find_map(|dir| tree::value::<u64>(&dir.join(name)).copied())?;
                Some(((*name).to_owned(), value))
            })
            .collect(),
    }
}

fn interface(dir: &Path, name: String) -> NetPort {
    let statistic = |name: &str| tree::value::<u64>(&dir.join("statistics").join(name)).map(Bytes);
    let counters = INTERFACE.iter().flat_map(|(folder, names)| names.iter().map(move |name| (*folder, *name)));
    NetPort {
        device: name,
        port: 0,
        layer: Reading::Value(PortLayer::Ethernet),
        // An interface that is switched off refuses to say (EINVAL): it is down.
        up: match tree::word(&dir.join("operstate")) {
            Reading::Value(word) if word == "up" => true.into(),
            Reading::Value(word) if word == "unknown" => Reading::Missing(Missing::Unsupported),
            other => other.map(|_| false),
        },
        // -1, or an error, where the link is down or virtual.
        speed: tree::value::<i64>(&dir.join("speed"))
            .copied()
            .and_then(|speed| u32::try_from(speed).ok())
            .map_or(Reading::Missing(Missing::Unsupported), Reading::Value),
        tx: statistic("tx_bytes"),
        rx: statistic("rx_bytes"),
        counters: counters
            .filter_map(|(folder, name)| {
                Some((name.to_owned(), tree::value::<u64>(&dir.join(folder).join(name)).copied()?))
            })
            .collect(),
    }
}

/// `400 Gb/sec (4X NDR)`, `2.5 Gb/sec (1X SDR)`, in megabits.
#[must_use]
pub fn parse_rate(text: &str) -> Option<u32> {
    let (number, rest) = text.split_once(' ')?;
    if !rest.starts_with("Gb/sec") {
        return None;
    }
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenth: u32 = if tenth.len() == 1 { tenth.parse().ok()? } else { return None };
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(tenth * 100)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::{Scratch, shared};

    fn collect(scratch: &Scratch) -> Result<Vec<NetPort>, CollectError> {
        match Ports.collect(&scratch.host(), &Focus::default())? {
            Part::Net(net) => Ok(net.ports),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_shared_ports_read_as_expected() {
        let Some(dir) = shared("kernel") else { return };
        let facts: serde_json::Value = serde_json::from_str(&tree::text(&dir.join("expected.json")).unwrap()).unwrap();
        for (device, of_device) in facts["files"]["infiniband_mixed"].as_object().unwrap() {
            for (number, of_port) in of_device["ports"].as_object().unwrap() {
                let port = number.parse().unwrap();
                let read =
                    rdma_port(&dir.join("infiniband_mixed").join(device).join("ports").join(number), device, port);
                let fact = |key: &str| of_port[key].as_u64();
                assert_eq!(read.up.copied(), Some(of_port["state"] == "ACTIVE"), "{device}/{number}");
                let rate = of_port["rate_gbps"].as_f64().unwrap() * 1000.0;
                assert_eq!(read.speed.copied().map(f64::from), Some(rate));
                assert_eq!(read.tx.copied().map(|b| b.0), fact("xmit_bytes"));
                assert_eq!(read.rx.copied().map(|b| b.0), fact("rcv_bytes"));
                for name in ["link_downed", "link_error_recovery", "symbol_error", "port_xmit_wait"] {
                    let found = read.counters.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
                    assert_eq!(found, fact(name), "{device}/{number} {name}");
                }
                for (name, value) in of_port["hw_counters"].as_object().into_iter().flatten() {
                    let found = read.counters.iter().find(|(own, _)| own == name);
                    assert_eq!(found.is_some(), RDMA.contains(&name.as_str()) && value.is_u64(), "{name}");
                    assert!(found.is_none_or(|(_, read)| Some(*read) == value.as_u64()), "{name}");
                }
            }
        }
    }

    #[test]
    fn real_interfaces_and_rdma_ports_are_read_and_virtual_ones_left_out() {
        let scratch = Scratch::with(&[
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/eth0/operstate", "up\n"),
            ("sys/class/net/eth0/speed", "25000\n"),
            ("sys/class/net/eth0/carrier_changes", "2\n"),
            ("sys/class/net/eth0/statistics/rx_bytes", "1000\n"),
            ("sys/class/net/eth0/statistics/tx_errors", "garbage\n"),
            ("sys/class/net/eth1/operstate", "down\n"),
            ("sys/class/net/eth1/speed", "-1\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "250\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "N/A (no PMA)\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/hw_counters/rp_cnp_handled", "9\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan", "10\n"),
        ]);
        scratch.dir("sys/class/net/eth0/device");
        scratch.dir("sys/class/net/eth1/device");
        let ports = collect(&scratch).unwrap();
        let [rdma, up, down] = ports.as_slice() else { panic!("{ports:?}") };
        assert_eq!((rdma.device.as_str(), rdma.port, rdma.up.copied()), ("mlx5_0", 1, Some(false)));
        assert_eq!((rdma.layer.get(), rdma.speed.copied()), (Some(&PortLayer::Roce), Some(2500)));
        assert_eq!(rdma.tx.copied(), Some(Bytes(1000)));
        assert_eq!(rdma.counters, [("rp_cnp_handled".to_owned(), 9)]);
        assert_eq!((up.up.copied(), up.speed.copied(), up.rx.copied()), (Some(true), Some(25_000), Some(Bytes(1000))));
        assert_eq!(up.counters, [("carrier_changes".to_owned(), 2)]);
        assert_eq!((down.up.copied(), down.speed.missing()), (Some(false), Some(Missing::Unsupported)));
        assert_eq!(collect(&Scratch::new()).unwrap_err().missing, Missing::Unsupported);
    }

    #[test]
    fn the_lists_are_sorted_as_recordings_promise() {
        assert!(RDMA.is_sorted());
        let all: Vec<&str> = INTERFACE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert!(all.is_sorted());
    }

    proptest! {
        #[test]
        fn a_hostile_rate_is_refused_without_a_panic(text in "\\PC{0,40}", number in "[0-9.]{0,24}") {
            let _ = parse_rate(&text);
            let _ = parse_rate(&format!("{number} Gb/sec (4X NDR)"));
        }
    }
}
