//! CPU time, memory and network ports of the node.

use gpuprod_snapshot::host::Cpu;
use gpuprod_snapshot::topology::{Net, NetPort, PortLayer};
use gpuprod_snapshot::units::Bytes;

use super::gpus::nanos;
use crate::node::{Node, PortCounters};
use crate::words::{whole, whole32};
use crate::world::World;

/// Hundredths of a second, and whole KiB.
pub(crate) fn cpu(world: &World<'_>) -> Cpu {
    let time = |seconds: f64| nanos(seconds, 10_000_000).into();
    let memory = |bytes: f64| Bytes(whole(bytes) / 1024 * 1024).into();
    Cpu {
        online: whole32(world.scenario.cpus()).into(),
        busy: time(world.node.busy),
        interrupts: time(world.node.interrupts),
        iowait: time(0.0),
        steal: time(world.node.steal),
        mem_total: memory(Node::memory(world.scenario)),
        mem_available: memory(Node::available(world.scenario, &world.jobs)),
    }
}

pub(crate) fn net(world: &World<'_>) -> Net {
    let ports = world.scenario.ports.iter();
    let mut ports: Vec<NetPort> = ports
        .map(|port| {
            let counters = world.node.ports.get(&port.name).cloned().unwrap_or_default();
            show(&port.name, &port.layer, &counters)
        })
        .collect();
    // RDMA devices come first, then interfaces, by name.
    ports.sort_by_key(|port| (port.port == 0, port.device.clone()));
    Net { ports }
}

fn show(name: &str, layer: &str, counters: &PortCounters) -> NetPort {
    let count = |name: &str, value: f64| (name.to_owned(), whole(value.floor()));
    let bytes = |value: f64| Bytes(whole(value / 4.0) * 4);
    let (layer, port, speed, own) = match layer {
        "ethernet" => (
            PortLayer::Ethernet,
            0,
            25_000,
            vec![
                count("carrier_changes", counters.downs * 2.0 - f64::from(u8::from(counters.down))),
                count("rx_dropped", 0.0),
            ],
        ),
        "infiniband" => (
            PortLayer::InfiniBand,
            1,
            400_000,
            vec![count("link_downed", counters.downs), count("port_xmit_wait", counters.waits)],
        ),
        _ => (
            PortLayer::Roce,
            1,
            200_000,
            vec![
                count("link_downed", counters.downs),
                count("np_ecn_marked_roce_packets", counters.congestion * 0.5),
                count("out_of_sequence", 0.0),
                count("rp_cnp_handled", counters.congestion),
            ],
        ),
    };
    NetPort {
        device: name.to_owned(),
        port,
        layer: layer.into(),
        up: (!counters.down).into(),
        speed: speed.into(),
        tx: bytes(counters.sent).into(),
        rx: bytes(counters.received).into(),
        counters: own,
    }
}
