//! The network that a job's ranks talk over is congested, or its link fails.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use gpuprod_snapshot::topology::{NetPort, PortLayer};
use gpuprod_snapshot::units::Nanos;

use super::around::{self, Calm, Raised, raised};
use super::io_stall::hungry;
use super::{Claim, Outcome, Text, View};
use crate::attribution::{Candidate, Link, Saturation};
use crate::facts::UnitFacts;
use crate::policy::table::thresholds;
use crate::signals::borne::Borne;
use crate::signals::host::{Port, name_of};
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity, attribution};

thresholds! {
    /// Thresholds of `fabric_congestion`.
    pub struct Thresholds {
        /// Notifications of congestion, losses and repetitions per second below which no port is congested. Congestion
        /// control sends a few all the time on a busy fabric.
        events: f64 = 100.0, 0.0..=1e12;
        /// Growth of port_xmit_wait over its own normal from which an InfiniBand port is held back; its ticks have no
        /// specified length, so that only the own normal can be a measure.
        wait_ratio: f64 = 3.0, 1.0..=1e6;
        /// How long it must last before the rule speaks. Congestion control (DCQCN) reacts within milliseconds and
        /// bursts pass in seconds; what stays for so long is starvation as any other.
        for_ns: Nanos = Nanos::from_secs(30), Nanos(0)..=Nanos::from_secs(3_600);
        /// Symbols that came broken, per terabit that the link could have carried in five minutes, above which it
        /// fails: one is a bit error rate of 10^-12, the limit that ibdiagnet's BER test has by default.
        broken: f64 = 1.0, 0.0..=1e12;
        /// A link that failed is told for so long.
        failed_ns: Nanos = Nanos::from_secs(60), Nanos::from_secs(1)..=Nanos::from_secs(86_400);
    }
}

pub(super) const TEXT: Text = Text {
    means: "A network port that the workload uses is told of congestion or loses packets while the workload loses progress, or \
            its link fails or damages what it carries (fabric_fault).",
    inputs: "RDMA ports' counters and hw_counters, interfaces' statistics, state of the links; whether the workload holds an \
             RDMA device or has connections with other hosts; its progress, or its GPU's activity.",
    formula: "The sum of the counters of congestion and loss reaches events per second and its own normal is left (or \
              port_xmit_wait reaches wait_ratio times its normal), before or with the victim's trouble, for for_ns. A link that \
              went down or recovered within failed_ns is a fault at once, and so is one with more than broken damaged symbols \
              (symbol_error, local_link_integrity_errors) per terabit of its speed: a warning without a cause.",
    silent: "Congestion that costs nobody anything, or is no worse than it was for two minutes while nobody suffered, ports that the workload does not use, congestion after the slowdown, a port \
             that was never up, counters that stand at the largest value of their width.",
    advice: "Look at the port's counters and at the switch; the other nodes of the job and of the switch see it too.",
    blind: "Pause frames (ethtool's counters), damaged packets (port_rcv_errors, rx_icrc_encapsulated, rx_errors) and buffer \
            overruns, which are read and not judged; a width or speed below the port's own; drivers with other names than mlx5, \
            and what happens beyond the first switch.",
};

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.work.family.is_empty() || !(unit.work.ties.rdma || unit.work.ties.peers) {
        return Outcome::Absent;
    }
    let Some(net) = view.host.around.net else {
        return Outcome::Unsupported("network ports are not read".into());
    };
    let used: Vec<(String, &NetPort)> =
        net.ports.iter().filter(|port| uses(view.unit, port)).map(|port| (name_of(port), port)).collect();
    if used.is_empty() {
        return Outcome::Absent;
    }
    let signals = &view.host.signals.host.ports;
    let since = hungry(view);
    let (mut worst, mut rejected, mut counted): (Option<(String, Raised)>, Vec<Rejected>, bool) =
        (None, Vec::new(), false);
    let mut damaged = None;
    for (name, read) in &used {
        let Some(port) = signals.get(name) else { continue };
        damaged = damaged.or_else(|| broken(view, name, port, read));
        counted |= port.events.latest().is_some() || port.waits.latest().is_some();
        if let Some(failed) = failed(view, port) {
            return Outcome::Claim(fault(view, name, port, failed, since));
        }
        match congested(view, name, port) {
            Ok(raised) if worst.as_ref().is_none_or(|(_, most)| raised.value > most.value) => {
                worst = Some((name.clone(), raised));
            }
            Ok(_) => {}
            Err(calm) => {
                rejected.push(Rejected { cause: Cause::Network, of: name.clone(), why: calm.why(rate) });
            }
        }
    }
    let told = worst.map(|(name, raised)| told(view, &name, raised, since, rejected));
    match (told, damaged) {
        // Congestion that costs something comes first, and one that costs nothing last.
        (Some(Outcome::Claim(claim)), None) => Outcome::Claim(claim),
        (Some(Outcome::Claim(claim)), _) if claim.severity > Severity::Info => Outcome::Claim(claim),
        (_, Some(damaged)) => Outcome::Claim(damaged),
        (None, None) if !counted => Outcome::Suspended("no counter of its ports has been read twice yet".into()),
        (told, None) => told.unwrap_or(Outcome::Silent),
    }
}

/// Congestion that a port is told of: blame where it cost the workload something, else information.
fn told(view: &View<'_>, name: &str, raised: Raised, since: Option<Nanos>, rejected: Vec<Rejected>) -> Outcome {
    if since.is_none() {
        return Outcome::Claim(harmless(view, name, &raised));
    }
    match around::blame(view, None, congestion(view, name, raised)) {
        Ok(mut claim) => {
            if !view.active && view.host.now.saturating_sub(claim.onset) < view.policy.fabric_congestion.for_ns {
                return Outcome::Silent;
            }
            claim.rejected.extend(rejected);
            Outcome::Claim(claim)
        }
        Err(_) => Outcome::Silent,
    }
}

/// Congested ports that the workload uses.
pub(crate) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let ports = view.host.around.net.into_iter().flat_map(|net| &net.ports).filter(|port| uses(view.unit, port));
    let congested = ports.filter_map(|port| {
        let name = name_of(port);
        let raised = congested(view, &name, view.host.signals.host.ports.get(&name)?).ok()?;
        Some(congestion(view, &name, raised))
    });
    congested.collect()
}

/// RDMA ports serve whoever holds an RDMA device; interfaces serve connections of everybody else.
fn uses(unit: &UnitFacts<'_>, port: &NetPort) -> bool {
    let interface = port.layer.get() == Some(&PortLayer::Ethernet);
    if interface { unit.work.ties.peers && !unit.work.ties.rdma } else { unit.work.ties.rdma }
}

fn rate(value: f64) -> String {
    format!("{} per second", Micro::from_f64(value))
}

fn congested(view: &View<'_>, name: &str, port: &Port) -> Result<Raised, Calm> {
    let thresholds = &view.policy.fabric_congestion;
    let [told, waited] = &port.borne;
    let told = worse(view, name, raised(view, &port.events, thresholds.events), told);
    if told.is_ok() || port.waits.latest().is_none() {
        return told;
    }
    let normal = port.waits.normal(view.policy).ok_or(Calm::NoNormal)?;
    worse(view, name, raised(view, &port.waits, (normal * thresholds.wait_ratio).max(1.0)), waited)
}

/// What stood beside full progress and got no worse is not why the workload makes less now.
fn worse(view: &View<'_>, name: &str, raised: Result<Raised, Calm>, borne: &Borne) -> Result<Raised, Calm> {
    let raised = raised?;
    let normal = raised.normal.map_or(0.0, |normal| normal.normal);
    let borne = borne.as_bad(raised.value, normal).filter(|_| !view.blames(name) && hungry(view).is_some());
    borne.map_or(Ok(raised.clone()), |borne| Err(Calm::Borne(raised.value, borne)))
}

/// When its link failed last, if that is told still.
fn failed(view: &View<'_>, port: &Port) -> Option<Nanos> {
    let recent = |at: &Nanos| view.host.now.saturating_sub(*at) < view.policy.fabric_congestion.failed_ns;
    port.down_since.or_else(|| port.failed.filter(recent))
}

/// Symbols come broken over the link more often than its kind may have. What that costs is not known: packets are sent
/// again, and links train anew.
fn broken(view: &View<'_>, name: &str, port: &Port, read: &NetPort) -> Option<Claim> {
    let terabits = f64::from(*read.speed.get()?) / 1e6;
    let rate = port.damage.rate();
    if terabits <= 0.0 || rate <= view.policy.fabric_congestion.broken * terabits {
        return None;
    }
    let evidence = |what: &'static str, value: f64, unit: &'static str| Evidence::plain(what, name, value, unit);
    Some(Claim {
        variant: Some("fabric_fault".into()),
        severity: Severity::Warn,
        summary: format!(
            "the link of {name} damages {} symbols per terabit that it can carry",
            Micro::from_f64(rate / terabits)
        ),
        evidence: alloc::vec![
            evidence("damaged symbols", rate, "/s"),
            evidence("speed of the link", terabits * 1e3, "Gb/s"),
            evidence("link failures that were seen", gpuprod_snapshot::units::to_f64(port.failures), ""),
        ],
        advice: check(name),
        confidence: Part::from_fraction(0.9),
        ..costless(view, name)
    })
}

fn congestion(view: &View<'_>, name: &str, raised: Raised) -> Candidate {
    let port = view.host.signals.host.ports.get(name);
    let mut evidence = alloc::vec![raised.evidence("congestion and loss", name, 1.0, "/s")];
    evidence.extend(
        port.and_then(|port| port.worst.as_ref())
            .map(|(counter, rate)| Evidence::plain(counter.clone(), name, *rate, "/s")),
    );
    evidence.extend(
        port.and_then(|port| port.bytes.latest()).map(|bytes| Evidence::plain("traffic", name, bytes / 1e9, "GB/s")),
    );
    Candidate {
        cause: Cause::Network,
        object: name.to_string(),
        onset: raised.onset,
        // What it waits for the network nobody counts: it may be the whole loss.
        pressure: Part::ONE,
        saturation: Saturation::of(1),
        // It holds an RDMA device, or has connections over this interface.
        link: Link::Proven,
        uses: |unit, _| unit.work.ties.rdma || unit.work.ties.peers,
        evidence,
        says: format!("{name} is told of congestion {}", rate(raised.value)),
        advice: format!(
            "look at the switch behind {name} (buffer drops, ECN marks, pause frames) and for a job that began at that time; `rdma statistic show`, `ethtool -S`"
        ),
        series: raised.series,
        switch: raised.switch,
    }
}

/// A claim about a port that costs nobody anything, to be filled in.
fn costless(view: &View<'_>, name: &str) -> Claim {
    Claim {
        variant: None,
        severity: Severity::Info,
        cause: None,
        object: name.to_string(),
        deficit: Part(0),
        onset: view.host.now,
        pressure: Part(0),
        confidence: Part::from_fraction(0.7),
        summary: String::new(),
        evidence: Vec::new(),
        rejected: Vec::new(),
        advice: String::new(),
        holders: Vec::new(),
    }
}

fn harmless(view: &View<'_>, name: &str, raised: &Raised) -> Claim {
    Claim {
        onset: raised.onset.unwrap_or(view.host.now),
        summary: format!("{name} is told of congestion {}; no harm to the workload is proven", rate(raised.value)),
        evidence: alloc::vec![raised.evidence("congestion and loss", name, 1.0, "/s")],
        advice: format!("nothing now; look at the switch behind {name} if jobs slow down"),
        ..costless(view, name)
    }
}

fn check(name: &str) -> String {
    format!(
        "check cable and transceiver of {name} (`mlxlink`, `ethtool -m`) and the switch's log; drain the node if it goes on"
    )
}

fn fault(view: &View<'_>, name: &str, port: &Port, at: Nanos, since: Option<Nanos>) -> Claim {
    let down = port.down_since.is_some();
    let mut evidence = if since.is_some() { attribution::victim_evidence(view) } else { Vec::new() };
    evidence.push(Evidence::plain(
        "link failures that were seen",
        name,
        gpuprod_snapshot::units::to_f64(port.failures),
        "",
    ));
    Claim {
        variant: Some("fabric_fault".into()),
        severity: if down && since.is_some() { Severity::Critical } else { Severity::Warn },
        cause: since.map(|_| Cause::Network),
        object: name.to_string(),
        deficit: since.map_or(Part(0), |_| view.unit.weight.w.rest()),
        onset: at,
        pressure: if since.is_some() { Part::ONE } else { Part(0) },
        confidence: Part::from_fraction(0.9),
        summary: if down {
            format!("the link of {name} is down")
        } else {
            format!("the link of {name} went down and came back")
        },
        evidence,
        rejected: Vec::new(),
        advice: check(name),
        holders: Vec::new(),
    }
}
