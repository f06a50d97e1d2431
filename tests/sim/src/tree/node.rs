//! `/proc/stat`, `/proc/meminfo`, and the network ports below `/sys/class`.

use std::fmt::Write as _;
use std::io;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::host::Cpu;
use gpuprod_snapshot::topology::NetPort;

use super::{Tree, value};

/// Clock ticks of `/proc` are 10 ms.
const TICK: u64 = 10_000_000;

pub(crate) fn write(tick: &Tick, tree: &Tree) -> io::Result<()> {
    if let Some(cpu) = value!(tick, cpu) {
        tree.put("proc/stat", stat(cpu))?;
        let kib = |bytes: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Bytes>| {
            bytes.copied().map_or(0, |b| b.0 / 1024)
        };
        let (total, available) = (kib(&cpu.mem_total), kib(&cpu.mem_available));
        tree.put(
            "proc/meminfo",
            format!(
                "MemTotal:       {total:>8} kB\nMemFree:        {available:>8} kB\nMemAvailable:   {available:>8} kB\n"
            ),
        )?;
    }
    std::fs::create_dir_all(tree.path("sys/class/net"))?;
    value!(tick, net).into_iter().flat_map(|net| &net.ports).try_for_each(|port| self::port(tree, port))
}

fn stat(cpu: &Cpu) -> String {
    let ticks = |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Nanos>| {
        reading.copied().map_or(0, |time| time.0 / TICK)
    };
    let irq = ticks(&cpu.interrupts);
    let user = ticks(&cpu.busy).saturating_sub(irq);
    let line =
        format!("{user} 0 0 900000 {} {} {} {} 0 0", ticks(&cpu.iowait), irq / 4, irq - irq / 4, ticks(&cpu.steal));
    let mut text = format!("cpu  {line}\n");
    for number in 0..cpu.online.copied().unwrap_or(1) {
        let _ = writeln!(text, "cpu{number} 1 0 0 1 0 0 0 0 0 0");
    }
    text + "intr 1 0 1\nctxt 1\n"
}

fn port(tree: &Tree, port: &NetPort) -> io::Result<()> {
    let up = port.up.copied().unwrap_or(false);
    let bytes =
        |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Bytes>| reading.copied().map_or(0, |b| b.0);
    let (tx, rx) = (bytes(&port.tx), bytes(&port.rx));
    let speed = port.speed.copied().unwrap_or(0);
    if port.port == 0 {
        let at = |name: &str| format!("sys/class/net/{}/{name}", port.device);
        std::fs::create_dir_all(tree.path(&at("device")))?;
        tree.line(&at("operstate"), if up { "up" } else { "down" })?;
        tree.line(&at("speed"), speed)?;
        tree.line(&at("statistics/tx_bytes"), tx)?;
        tree.line(&at("statistics/rx_bytes"), rx)?;
        return port.counters.iter().try_for_each(|(name, value)| {
            let folder = if name == "carrier_changes" { "" } else { "statistics/" };
            tree.line(&at(&format!("{folder}{name}")), value)
        });
    }
    let at = |name: &str| format!("sys/class/infiniband/{}/ports/{}/{name}", port.device, port.port);
    tree.line(&at("state"), if up { "4: ACTIVE" } else { "1: DOWN" })?;
    tree.line(&at("phys_state"), if up { "5: LinkUp" } else { "2: Polling" })?;
    let layer = port.layer.get().map_or("", |layer| layer.as_str());
    tree.line(&at("link_layer"), if layer == "infiniband" { "InfiniBand" } else { "Ethernet" })?;
    tree.line(&at("rate"), format!("{} Gb/sec (4X NDR)", speed / 1000))?;
    tree.line(&at("counters/port_xmit_data"), tx / 4)?;
    tree.line(&at("counters/port_rcv_data"), rx / 4)?;
    port.counters.iter().try_for_each(|(name, value)| {
        let folder = if matches!(name.as_str(), "link_downed" | "port_xmit_wait") { "counters" } else { "hw_counters" };
        tree.line(&at(&format!("{folder}/{name}")), value)
    })
}
