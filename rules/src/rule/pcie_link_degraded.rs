//! A GPU's PCIe link has fewer lanes than card and slot could have, is slower than both under load, or replays.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::units::Nanos;

use super::around::{self};
use super::io_stall::hungry;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation, victim_onset};
use crate::facts::UnitFacts;
use crate::policy::table::thresholds;
use crate::signals::device::Lie;
use crate::signals::pcie::Board;
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

thresholds! {
    /// Thresholds of `pcie_link_degraded`.
    pub struct Thresholds {
        /// How long the link must be degraded: a link that changes its speed with the load is down for a second or two.
        for_ns: Nanos = Nanos::from_secs(10), Nanos(0)..=Nanos::from_secs(3_600);
        /// Replays per minute, over ten minutes, from which a link is bad at full width and speed: a healthy one has none
        /// for days.
        replays: f64 = 1.0, 0.0..=1e9;
        /// So long before the victim's trouble a link may have fallen and still be its cause: deficits may grow
        /// slowly. CUSUM sees a slow deficit minutes after it began.
        near_ns: Nanos = Nanos::from_secs(900), Nanos(0)..=Nanos::from_secs(86_400);
        /// Part of what the degraded link can carry, in millionths, from which it limits whoever has lived with it for
        /// longer than that. Headers and acknowledgements leave about nine tenths of the raw rate: half is a link that
        /// matters without being full.
        filled: Part = Part(500_000), Part(0)..=Part::ONE;
    }
}

pub(super) const TEXT: Text = Text {
    means: "A GPU's PCIe link runs with fewer lanes than card and slot could have (narrow), slower than both could while it \
            works (slow), or repeats packets that were damaged (replays).",
    inputs: "NVML: link width and generation, now and at most (of card and slot together), replays, bytes moved, utilization; \
             where the driver is silent, sysfs, with the largest values of the port above.",
    formula: "Fewer lanes than possible at any time, or a lower generation than possible in every reading taken while the GPU \
              moves more than 100 MB/s, or is above 10 % of utilization with a process on it or power above idle, for for_ns; or more than replays per minute over ten \
              minutes. A warning; with a workload that lost progress when the link fell (near_ns before it at most) or that \
              fills what is left (filled), it is the cause, and critical from starved_critical.",
    silent: "A low generation at rest: GPUs save power that way, and utilization that nobody makes is rest. A card in a slot with fewer lanes: that is how the node was \
             built, and `topo` tells it. Readings of 0, 63 and 255 lanes, which are no widths.",
    advice: "Reseat the card, look at riser, retimer and cable; drain the node if the link does not come back after a reset.",
    blind: "A link that is degraded at the slot's own maximum (a wrong slot) looks healthy. Links of network cards and drives \
            are told by `topo`, not judged here.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    if view.unit.rest {
        return Outcome::Absent;
    }
    if view.unit.gpu.is_none() {
        return Outcome::Suspended("the driver does not answer".into());
    }
    if lies(view.unit) {
        return Outcome::Suspended("the GPU's readings cannot be believed".into());
    }
    let Some(board) = view.unit.pcie.board.filter(|board| board.link.lanes.known()) else {
        return Outcome::Unsupported("neither the driver nor sysfs tells width and speed of its link".into());
    };
    let Some(trouble) = trouble(view, &view.unit.name, board) else { return Outcome::Silent };
    let mut rejected = Vec::new();
    if hungry(view).is_some() {
        match candidate_of(view, view.unit, board, &trouble)
            .map(|candidate| around::blame(view, Some(trouble.variant), candidate))
        {
            Some(Ok(claim)) => return Outcome::Claim(claim),
            Some(Err(why)) => rejected.push(why),
            None => {}
        }
    }
    Outcome::Claim(told(view, board, &trouble, rejected))
}

/// Frozen readings are of another time, and what keeps the link of a ghost awake is not there.
fn lies(unit: &UnitFacts<'_>) -> bool {
    unit.device.is(Lie::Frozen) || unit.device.is(Lie::Ghost)
}

/// What is wrong with it, and since when.
struct Trouble {
    variant: &'static str,
    since: Nanos,
    says: String,
}

fn trouble(view: &View<'_>, name: &str, board: &Board) -> Option<Trouble> {
    let link = &board.link;
    let lanes = link.lanes;
    if let (Some(since), Some((now, most))) = (link.narrow_since, lanes.width) {
        return Some(Trouble {
            variant: "narrow",
            since,
            says: format!("the PCIe link of {name} has x{now} of x{most} lanes"),
        });
    }
    if let (Some(since), Some((now, most))) = (link.slow_since, lanes.generation) {
        let says = format!("the PCIe link of {name} runs at generation {now} of {most} under load");
        return Some(Trouble { variant: "slow", since, says });
    }
    let replays = link.replays_per_minute().filter(|rate| *rate > view.policy.pcie_link_degraded.replays)?;
    let says =
        format!("the PCIe link of {name} repeats {} damaged packets a minute", Micro::from_f64(libm::round(replays)));
    // The rate is that of ten minutes: it needs no further hold.
    Some(Trouble {
        variant: "replays",
        since: view.host.now.saturating_sub(view.policy.pcie_link_degraded.for_ns),
        says,
    })
}

/// Degraded links of the workload's GPUs: one that is spread over several is as slow as the slowest way.
pub(crate) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let units = view.host.units.iter().filter(|unit| unit.id == view.unit.id || unit.works_with(view.unit));
    let candidate = |unit: &UnitFacts<'_>| {
        let board = unit.pcie.board.filter(|_| !lies(unit))?;
        candidate_of(view, unit, board, &trouble(view, &unit.name, board)?)
    };
    units.filter_map(candidate).collect()
}

fn candidate_of(view: &View<'_>, unit: &UnitFacts<'_>, board: &Board, trouble: &Trouble) -> Option<Candidate> {
    let thresholds = &view.policy.pcie_link_degraded;
    let (now, most) = board.link.lanes.rates().filter(|(now, most)| now < most)?;
    let moved = board.received.latest().into_iter().chain(board.sent.latest()).reduce(f64::max);
    let onset = board.link.was_full.then_some(trouble.since);
    let victim = victim_onset(view).unwrap_or(view.host.now);
    let fell = onset.is_some_and(|at| victim.saturating_sub(at) <= thresholds.near_ns);
    let filled = moved.is_some_and(|moved| moved >= now * thresholds.filled.as_fraction());
    let saturation = match u8::from(fell) + u8::from(filled) {
        0 => Saturation::none(format!(
            "its link was like that long before, and moves {} of {} GB/s",
            Micro::from_f64(moved.unwrap_or(0.0) / 1e9),
            Micro::from_f64(now / 1e9)
        )),
        points => Saturation::of(points),
    };
    Some(Candidate {
        cause: Cause::PcieNuma,
        object: object(unit),
        onset,
        pressure: Part::from_fraction(1.0 - now / most),
        saturation,
        // It is the workload's own way to the host.
        link: Link::Proven,
        series: Vec::new(),
        switch: None,
        uses: |unit, object| unit.gpu.and_then(|gpu| gpu.pci.copied()).is_some_and(|pci| pci.to_string() == object),
        evidence: evidence(view, unit, board),
        says: trouble.says.clone(),
        advice: advice(trouble).into(),
    })
}

fn object(unit: &UnitFacts<'_>) -> String {
    let address = unit.gpu.and_then(|gpu| gpu.pci.get());
    address.map_or_else(|| unit.name.clone(), ToString::to_string)
}

fn told(view: &View<'_>, board: &Board, trouble: &Trouble, rejected: Vec<Rejected>) -> Claim {
    Claim {
        variant: Some(trouble.variant.into()),
        severity: Severity::Warn,
        cause: None,
        object: object(view.unit),
        deficit: Part(0),
        onset: trouble.since,
        pressure: Part(0),
        confidence: Part::from_fraction(0.9),
        summary: format!("{}; no harm to the workload is proven", trouble.says),
        evidence: evidence(view, view.unit, board),
        rejected,
        advice: advice(trouble).into(),
        holders: Vec::new(),
    }
}

fn evidence(view: &View<'_>, unit: &UnitFacts<'_>, board: &Board) -> Vec<Evidence> {
    let (name, lanes) = (unit.name.as_str(), board.link.lanes);
    let mut evidence = Vec::new();
    for (what, pair) in [("lanes", lanes.width), ("link generation", lanes.generation)] {
        if let Some((now, most)) = pair {
            evidence.push(Evidence::plain(format!("{what} (of {most})"), name, f64::from(now), ""));
        }
    }
    if let Some((now, _)) = lanes.rates() {
        evidence.push(Evidence::plain(
            "the link can carry now, in one direction",
            name,
            libm::round(now / 1e7) / 100.0,
            "GB/s",
        ));
    }
    for (what, track) in [("received", &board.received), ("sent", &board.sent)] {
        if let Some(rate) = track.latest() {
            evidence.push(Evidence::plain(what, name, libm::round(rate / 1e7) / 100.0, "GB/s"));
        }
    }
    if let Some(replays) = board.link.replays_per_minute() {
        evidence.push(Evidence::plain("replays per minute", name, replays, ""));
    }
    evidence.push(Evidence::plain("GPUs of this node whose links are whole", "node", whole(view), ""));
    evidence
}

/// Its siblings: if theirs are whole, it is this one's card, seat or riser.
fn whole(view: &View<'_>) -> f64 {
    let boards = view.host.units.iter().filter_map(|unit| unit.pcie.board);
    let whole = boards.filter(|board| board.link.lanes.width.is_some_and(|(now, most)| now == most));
    f64::from(u32::try_from(whole.filter(|board| board.link.slow_since.is_none()).count()).unwrap_or(u32::MAX))
}

const fn advice(trouble: &Trouble) -> &'static str {
    match trouble.variant.as_bytes() {
        b"replays" => {
            "watch AER counters (`nvidia-smi -q -d PCIE`, aer_dev_correctable); reseat the card, swap riser or retimer"
        }
        _ => {
            "reset the GPU; if the link stays down, reseat the card and swap riser, retimer or cable (`lspci -vv`: LnkSta against LnkCap)"
        }
    }
}
