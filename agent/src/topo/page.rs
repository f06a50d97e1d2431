//! The topology as text: a tree, a matrix, and what is worth knowing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuprod_snapshot::host::NodeTime;
use gpuprod_snapshot::topology::{LinkState, PathClass};
use gpuprod_snapshot::{Missing, Reading, units::MegaTransfers};

use super::{Device, Drive, Held, Node, Placement, Topo, placed};
use crate::text;

/// The matrix has at most so many columns; the rest is in the JSON.
const COLUMNS: usize = 24;

/// As text.
#[must_use]
pub fn page(topo: &Topo) -> String {
    let mut out = String::new();
    tree(&mut out, topo);
    matrix(&mut out, topo);
    processes(&mut out, topo);
    for (title, warn) in [("FINDINGS", true), ("PLACEMENT AND LINKS", false)] {
        let mut notes = topo.findings.iter().filter(|note| note.warn == warn).peekable();
        if notes.peek().is_some() || warn {
            let _ = writeln!(out, "\n{title}");
        }
        if notes.peek().is_none() && warn {
            let judged = topo.devices.iter().any(|device| device.link != LinkState::Unknown);
            let none =
                if judged { "none: no link runs below what both of its ends can do" } else { "no link can be judged" };
            let _ = writeln!(out, "  {none}");
        }
        for note in notes {
            let _ = writeln!(out, "  {:<10} {}", note.about, note.says);
        }
    }
    for note in &topo.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// Devices below their bridges, root buses below their nodes.
fn tree(out: &mut String, topo: &Topo) {
    let mut by_node: BTreeMap<Option<u32>, BTreeMap<String, Vec<&Device>>> = BTreeMap::new();
    for node in &topo.nodes {
        by_node.entry(Some(node.id)).or_default();
    }
    for device in &topo.devices {
        let root = device.root_bus.get().map_or_else(|| "?".to_owned(), |root| text::clean(root));
        by_node.entry(device.node.copied()).or_default().entry(root).or_default().push(device);
    }
    if topo.devices.is_empty() {
        out.push_str("no GPU, NVMe controller or network card on PCI\n");
    }
    for (node, roots) in by_node {
        match node {
            None => out.push_str("node ?  (firmware does not say)\n"),
            Some(id) => {
                let known = topo.nodes.iter().find(|node| node.id == id);
                let _ = writeln!(out, "node {id}{}", known.map(about).unwrap_or_default());
            }
        }
        for (root, mut devices) in roots {
            let _ = writeln!(out, "  {root}");
            devices.sort_by(|a, b| (&a.bridges, a.address).cmp(&(&b.bridges, b.address)));
            branch(out, &devices);
        }
    }
}

fn about(node: &Node) -> String {
    let cpus = match node.cpus.get().map(String::as_str) {
        Some("") => "no CPU (memory of a device)".to_owned(),
        Some(cpus) => format!("CPUs {}", text::clean(cpus)),
        None => "CPUs ?".to_owned(),
    };
    let memory = match (node.mem_total.copied(), node.mem_free.copied()) {
        (Some(total), Some(free)) => format!(", {} of memory, {} free", text::bytes(total.0), text::bytes(free.0)),
        (Some(total), None) => format!(", {} of memory", text::bytes(total.0)),
        _ => String::new(),
    };
    format!("  {cpus}{memory}")
}

/// Devices of one root bus, sorted by their bridges: a bridge is printed where it first appears.
fn branch(out: &mut String, devices: &[&Device]) {
    let mut above: &[_] = &[];
    for device in devices {
        let shared = above.iter().zip(&device.bridges).take_while(|(a, b)| a == b).count();
        for (depth, bridge) in device.bridges.iter().enumerate().skip(shared) {
            let _ = writeln!(out, "  {:indent$}{bridge} bridge", "", indent = (depth + 1) * 2);
        }
        above = &device.bridges;
        let indent = (device.bridges.len() + 1) * 2;
        let _ = writeln!(out, "  {:indent$}{} {}  {}", "", device.address, device.name, link(device));
    }
}

fn link(device: &Device) -> String {
    let number = |reading: &Reading<u32>| reading.copied().map_or_else(|| "?".to_owned(), |value| value.to_string());
    let gigas = |reading: &Reading<MegaTransfers>| {
        reading.copied().map_or_else(|| "?".to_owned(), |speed| (f64::from(speed.0) / 1000.0).to_string())
    };
    if device.width.0.get().is_none() && device.speed.0.get().is_none() {
        return "no PCIe link".to_owned();
    }
    format!(
        "x{} of x{}, {} of {} GT/s",
        number(&device.width.0),
        number(&device.width.1),
        gigas(&device.speed.0),
        gigas(&device.speed.1)
    )
}

fn matrix(out: &mut String, topo: &Topo) {
    if topo.devices.len() < 2 {
        return;
    }
    let shown = topo.devices.len().min(COLUMNS);
    let mut class: BTreeMap<(usize, usize), &PathClass> = BTreeMap::new();
    for path in &topo.paths {
        class.insert((path.a, path.b), &path.class);
        class.insert((path.b, path.a), &path.class);
    }
    let name = |device: &Device| {
        // A column is as narrow as can be: the tree says which kind an address is.
        let bare = device.name.strip_prefix(&device.kind).map(str::trim_start);
        bare.filter(|bare| bare.contains(':')).map_or_else(|| device.name.replace(' ', ""), str::to_owned)
    };
    let width = topo.devices.iter().take(shown).map(|device| name(device).chars().count()).max().unwrap_or(4).max(4);
    let _ = write!(out, "\n{:<width$}", "PATHS");
    for device in topo.devices.iter().take(shown) {
        let _ = write!(out, " {:>width$}", name(device));
    }
    out.push('\n');
    for (row, device) in topo.devices.iter().enumerate().take(shown) {
        let _ = write!(out, "{:<width$}", name(device));
        for column in 0..shown {
            let word = match class.get(&(row, column)) {
                _ if row == column => "X".to_owned(),
                Some(PathClass::Unknown) | None => "?".to_owned(),
                Some(class) => class.to_string(),
            };
            let _ = write!(out, " {word:>width$}");
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "PIX one bridge, PXB several, PHB the host bridge, NODE within a node, SYS across nodes, ? not said"
    );
    if topo.devices.len() > shown {
        let _ = writeln!(out, "{} more devices: --json has every pair", topo.devices.len() - shown);
    }
}

/// Who holds which GPU, and where it runs.
fn processes(out: &mut String, topo: &Topo) {
    if topo.processes.is_empty() {
        return;
    }
    out.push_str("\nPROCESSES\n");
    let mut last = "";
    for held in &topo.processes {
        let gpu = if held.gpu == last { String::new() } else { held.gpu.clone() };
        last = held.gpu.as_str();
        let nodes: Vec<String> = held.nodes.iter().map(u32::to_string).collect();
        let runs = match held.cpus.get() {
            Some(cpus) => format!("CPUs {} (node {})", text::clip(&text::clean(cpus), 32), nodes.join(",")),
            None => format!(
                "CPUs ? ({})",
                held.cpus.missing().filter(|why| *why != Missing::NotYet).map_or("not read", Missing::as_str)
            ),
        };
        let drives = match held.storage.get().map(Vec::as_slice) {
            None => "? (not to be seen)".to_owned(),
            Some([]) => "none".to_owned(),
            Some(drives) => text::clip(&drives.iter().map(drive).collect::<Vec<_>>().join(" "), 60),
        };
        let word = match held.placement {
            Placement::Near => "near",
            Placement::Anywhere => "not bound to one socket",
            Placement::Away => "AWAY",
            Placement::CannotTell => "cannot tell",
        };
        let _ = writeln!(
            out,
            "  {gpu:<8} {}: {word}; may run on {runs}; ran on {}; storage {drives}",
            placed::who(held),
            ran(held)
        );
    }
    out.push_str("  where their memory lies is not read: numa_maps holds up the process that it is asked of\n");
}

fn drive(drive: &Drive) -> String {
    format!("{} (node {})", drive.name, drive.node.copied().map_or_else(|| "?".to_owned(), |node| node.to_string()))
}

/// Shares of CPU time by node.
fn ran(held: &Held) -> String {
    let times = held.cpu_by_node.get().map(Vec::as_slice).unwrap_or_default();
    let sum: u128 = times.iter().map(|time| u128::from(time.cpu.0)).sum();
    let share = |time: &NodeTime| match (u128::from(time.cpu.0) * 100).checked_div(sum) {
        Some(percent) => format!("node {} {percent} %", time.node),
        None => format!("node {}", time.node),
    };
    match (times, held.processor.copied()) {
        ([], None) => "?".to_owned(),
        ([], Some(cpu)) => format!("CPU {cpu}"),
        (times, _) => times.iter().map(share).collect::<Vec<_>>().join(", "),
    }
}
