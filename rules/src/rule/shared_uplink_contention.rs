//! Devices behind one PCIe switch fill the link that they share.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::topology::PciAddress;
use gpuprod_snapshot::units::Nanos;

use super::around::{self, percent};
use super::io_stall::hungry;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation};
use crate::facts::pcie::object;
use crate::policy::table::thresholds;
use crate::signals::pcie::{Member, Uplink};
use crate::{Cause, Evidence, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `shared_uplink_contention`.
    pub struct Thresholds {
        /// Part of what the shared link can carry in one direction, in millionths, from which it is full: headers and
        /// acknowledgements take the rest. PCIe's packets of 256 bytes carry nine tenths of the raw rate at best.
        used: Part = Part(800_000), Part(10_000)..=Part(1_000_001);
        /// Part of what a device moves when it is alone, in millionths, that must be missing. A fifth: more than the
        /// .15 of lost progress that warns.
        squeezed: Part = Part(200_000), Part(0)..=Part::ONE;
        /// How long it must last. A checkpoint or a load fills a link for seconds and is over; longer is two jobs.
        for_ns: Nanos = Nanos::from_secs(15), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) const TEXT: Text = Text {
    means: "GPUs and drives behind one PCIe switch move more together than the switch's link to the host can carry, and each gets \
            less than when it is alone.",
    inputs: "The PCI tree (sysfs) with the link of the bridge that devices share, bytes that each GPU moves over PCIe (NVML), bytes \
             that each drive moves, progress of the workload.",
    formula: "Two devices and more move used of the link's capacity together, in one direction, and each of those whose own \
              measure is known moves squeezed less than the 95th percentile of the blocks in which the others were quiet, for \
              for_ns: information; with a workload that lost progress meanwhile it is the cause.",
    silent: "A full link with one device on it, a link that is full while nobody gets less, devices with links of their own, \
             virtual bridges.",
    advice: "Spread jobs that load or copy over GPUs of different switches, start them one after the other, or move the drive.",
    blind: "Bytes of network cards have no PCI address here; copies between two devices below one switch do not use its uplink and \
            are counted all the same. A device that was never seen alone has no measure.",
};

/// An uplink of the unit that is full.
struct Full<'a> {
    bridge: PciAddress,
    uplink: &'a Uplink,
    own: &'a Member,
    since: Nanos,
    /// What it moves, of what it moves alone.
    left: f64,
}

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let signals = &view.host.signals.pcie;
    if view.unit.rest || view.unit.work.family.is_empty() {
        return Outcome::Absent;
    }
    let Some(gpu) = view.unit.gpu else { return Outcome::Suspended("the driver does not answer".into()) };
    let Some(address) = gpu.pci.copied() else {
        return Outcome::Unsupported("the driver does not tell the GPU's PCI address".into());
    };
    let shared: Vec<&Uplink> = signals.uplinks_of(address).map(|(_, uplink)| uplink).collect();
    if shared.is_empty() {
        return Outcome::Absent;
    }
    if gpu.pcie.rx.get().is_none() || gpu.pcie.tx.get().is_none() {
        return Outcome::Unsupported("the driver does not count what goes over PCIe".into());
    }
    let known = shared.iter().filter_map(|uplink| uplink.member(address));
    if known.clone().all(|own| own.blocks < view.policy.baseline_min_blocks) {
        return Outcome::Suspended("what it moves when it is alone on its uplink is not learnt yet".into());
    }
    let Some(full) = full(view, address, view.active) else { return Outcome::Silent };
    let mut rejected = Vec::new();
    if hungry(view).is_some() {
        match around::blame(view, None, contention(view, &full)) {
            Ok(claim) => return Outcome::Claim(claim),
            Err(why) => rejected.push(why),
        }
    }
    Outcome::Claim(told(&full, rejected))
}

/// Full uplinks of the workload's GPUs: one that is spread over several is as slow as the slowest way.
pub(crate) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    // On most nodes none is full, and nobody's way need be looked at.
    if view.host.signals.pcie.shared_uplinks().all(|(_, uplink)| uplink.full_since.is_none()) {
        return Vec::new();
    }
    let own = view.host.units.iter().filter(|unit| unit.id == view.unit.id || unit.works_with(view.unit));
    own.filter_map(|unit| full(view, unit.gpu?.pci.copied()?, false)).map(|full| contention(view, &full)).collect()
}

/// The fullest of its uplinks on which it, and all others that can be told of, get less than alone.
fn full<'a>(view: &View<'a>, address: PciAddress, active: bool) -> Option<Full<'a>> {
    let least = view.policy.baseline_min_blocks;
    let limit = 1.0 - view.policy.shared_uplink_contention.squeezed.as_fraction();
    let limit = if active { (1.0 + limit) / 2.0 } else { limit };
    let found = view.host.signals.pcie.uplinks_of(address).filter_map(|(bridge, uplink)| {
        let since = uplink.full_since?;
        let own = uplink.member(address)?;
        let left = |member: &Member| {
            let (rate, alone) = (member.rate?, member.alone);
            let (rate, alone) = if uplink.down { (rate.0, alone.0) } else { (rate.1, alone.1) };
            (member.blocks >= least && alone > 0.0).then(|| rate / alone)
        };
        let moves = |member: &&Member| {
            member.rate.is_some_and(|(to, from)| to.max(from) >= uplink.capacity * crate::signals::pcie::COUNTS)
        };
        let several = uplink.members.values().filter(moves).count() > 1;
        let all = uplink.members.values().filter(moves).filter_map(left).all(|left| left <= limit);
        let left = left(own).filter(|left| *left <= limit)?;
        (several && all).then_some(Full { bridge, uplink, own, since, left })
    });
    found.reduce(|most, next| if next.uplink.used > most.uplink.used { next } else { most })
}

fn contention(view: &View<'_>, full: &Full<'_>) -> Candidate {
    // It may crowd whoever is on it before it counts as full.
    let normal = full.uplink.load.deviation(view.policy);
    Candidate {
        cause: Cause::PcieNuma,
        object: object(full.bridge),
        onset: normal.map_or(Some(full.since), |normal| normal.onset),
        pressure: Part::from_fraction(1.0 - full.left),
        saturation: Saturation::of(2),
        // It is the GPU's own way to the host.
        link: Link::Proven,
        series: full.uplink.load.recent().collect(),
        switch: normal.map(|_| full.uplink.load.switch()),
        uses: |unit, object| unit.pcie.shares(object),
        evidence: evidence(full),
        says: says(full),
        advice: advice(full),
    }
}

fn says(full: &Full<'_>) -> String {
    let devices = full.uplink.members.len();
    format!(
        "the uplink {} that {devices} devices share is {} full",
        full.bridge,
        percent(libm::round(full.uplink.used * 1e3) / 1e3)
    )
}

fn told(full: &Full<'_>, rejected: Vec<Rejected>) -> Claim {
    Claim {
        variant: None,
        severity: Severity::Info,
        cause: None,
        object: object(full.bridge),
        deficit: Part(0),
        onset: full.since,
        pressure: Part(0),
        confidence: Part::from_fraction(0.6),
        summary: format!("{}; no loss of progress is proven", says(full)),
        evidence: evidence(full),
        rejected,
        advice: advice(full),
        holders: Vec::new(),
    }
}

fn evidence(full: &Full<'_>) -> Vec<Evidence> {
    let (uplink, bridge) = (full.uplink, full.bridge.to_string());
    let gigas = |bytes: f64| libm::round(bytes / 1e7) / 100.0;
    let pick = |(to, from): (f64, f64)| if uplink.down { to } else { from };
    let direction = if uplink.down { "towards the devices" } else { "from the devices" };
    let mut evidence = alloc::vec![
        Evidence::plain(format!("in use {direction}"), &bridge, libm::round(uplink.used * 1e3) / 10.0, "%"),
        Evidence::plain("can carry in one direction", &bridge, gigas(uplink.capacity), "GB/s"),
        Evidence::plain(
            "the GPU moves when it is alone (95th percentile)",
            &bridge,
            gigas(pick(full.own.alone)),
            "GB/s"
        ),
    ];
    for (address, member) in &uplink.members {
        let name = member.name.clone().unwrap_or_else(|| address.to_string());
        evidence.extend(member.rate.map(|rate| Evidence::plain("moves", &name, gigas(pick(rate)), "GB/s")));
    }
    evidence
}

fn advice(full: &Full<'_>) -> String {
    format!(
        "spread jobs that load or copy over GPUs below other switches than {} (`gpuprod topo`), or let them load one after the other",
        full.bridge
    )
}
