//! One verdict per GPU and for the node, from a frame. Pure; who made the frame is the caller's business
//! ([`crate::run`] asks the agent first, [`crate::socket::ask`]).

use std::fmt::Write as _;

use gpuprod_rules::{Finding, Severity, State, UnitId, UnitJudgement, WeightSource};
use gpuprod_snapshot::gpu::GpuHealth;
use gpuprod_snapshot::{Missing, Source};
use serde::Serialize;

use crate::pipeline::Frame;
use crate::{seen, text};

/// How bad, in the words and codes of monitoring plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing is wrong.
    Fine,
    /// Something costs productive time.
    Warning,
    /// Something costs much of it, now.
    Critical,
    /// The evidence does not say.
    CannotTell,
}

impl Level {
    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::CannotTell => 3,
        }
    }

    /// In words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::CannotTell => "cannot tell",
        }
    }

    /// Which of two decides for both: known trouble before ignorance, ignorance before "fine".
    fn worse(self, other: Self) -> Self {
        let rank = |level| match level {
            Self::Fine => 0,
            Self::CannotTell => 1,
            Self::Warning => 2,
            Self::Critical => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// Who looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The running agent: it has baselines.
    Agent,
    /// This command alone: it can only suspect.
    Alone,
}

/// The verdict on one thing.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// What it is about (`GPU 0`, `node`).
    pub about: String,
    /// The unit's identity; empty for the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// How bad.
    pub level: Level,
    /// In one line.
    pub says: String,
    /// Why, and what to do, one line each.
    pub because: Vec<String>,
}

/// All verdicts.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Who looked.
    pub by: By,
    /// The node's verdict.
    pub node: Verdict,
    /// One per unit.
    pub gpus: Vec<Verdict>,
    /// What else was seen, one line each.
    pub seen: Vec<String>,
}

/// Sources whose state is worth a line beside the verdict.
const SEEN: &[Source] = &[Source::Pci, Source::Md, Source::Block, Source::Psi, Source::Engine];

/// Judges a frame.
#[must_use]
pub fn report(frame: &Frame<'_>, by: By) -> Report {
    let held = |level| match (by, level) {
        (By::Alone, Level::Critical) => Level::Warning,
        (_, level) => level,
    };
    let mut gpus: Vec<Verdict> = frame.judgement.units.iter().map(|unit| gpu(unit, frame)).collect();
    lost(frame, &mut gpus);
    for verdict in &mut gpus {
        verdict.level = held(verdict.level);
    }
    let mut node = node(frame, &gpus);
    node.level = held(node.level);
    let seen = SEEN
        .iter()
        .flat_map(|source| {
            let lines = seen::of(&frame.known, *source);
            lines.into_iter().map(|line| format!("{}: {line}", source.as_str()))
        })
        .collect();
    Report { by, node, gpus, seen }
}

fn gpu(unit: &UnitJudgement, frame: &Frame<'_>) -> Verdict {
    let mut level = match unit.state {
        State::Faulted(_) => Level::Critical,
        State::Unknown(_) => Level::CannotTell,
        State::Stalled | State::Squatted | State::Throttled | State::Starved(_) => Level::Warning,
        State::Unallocated | State::Loading(_) | State::Productive(_) | State::Headroom | State::Idle => Level::Fine,
    };
    let mut says = unit.state.as_str().to_owned();
    if !unit.state.reason().is_empty() {
        let _ = write!(says, " ({})", unit.state.reason());
    }
    if unit.weight.source != WeightSource::None {
        let _ = write!(says, ", productive {:.0} % by {}", unit.weight.w.as_fraction() * 100.0, unit.weight.source);
    }
    let since = frame.known.stamp.boottime.saturating_sub(unit.since);
    let _ = write!(says, ", for {}", text::duration(since));
    let mut because = Vec::new();
    for finding in findings_about(frame, &unit.unit) {
        level = level.worse(severity(finding));
        because.extend(words(finding));
    }
    Verdict { about: about(unit), uuid: unit.unit.0.to_string(), level, says, because }
}

/// A board that the driver cannot talk to is trouble whatever was judged of it, and also when nothing was: one
/// that is lost before anybody looked has neither UUID nor address.
fn lost(frame: &Frame<'_>, gpus: &mut Vec<Verdict>) {
    let Some(listed) = frame.known.gpu.as_ref().and_then(|sample| sample.value.get()) else {
        return;
    };
    for gpu in &listed.devices {
        let (reason, because) = match gpu.health.get() {
            Some(GpuHealth::Lost) => ("lost", LOST),
            Some(GpuHealth::ResetRequired) => ("reset_required", RESET),
            _ => continue,
        };
        let about = format!("GPU {}", gpu.index);
        let lines = || because.iter().map(|line| (*line).to_owned());
        let mut judged = false;
        for verdict in gpus.iter_mut().filter(|verdict| verdict.about == about) {
            judged = true;
            verdict.level = verdict.level.worse(Level::Critical);
            verdict.because.extend(lines());
        }
        if !judged {
            let uuid = gpu.uuid.get().cloned().unwrap_or_default();
            let says = format!("faulted ({reason})");
            gpus.push(Verdict { about, uuid, level: Level::Critical, says, because: lines().collect() });
        }
    }
}

/// NVML_ERROR_GPU_IS_LOST, in words.
const LOST: &[&str] = &[
    "the driver has lost it: it has fallen off the bus or does not answer there",
    "do: move the work away and reboot the node; power it off and on if the GPU stays lost",
];
/// NVML_ERROR_RESET_REQUIRED, in words.
const RESET: &[&str] = &[
    "the driver wants it reset before it works again",
    "do: end its processes, then nvidia-smi --gpu-reset, or reboot the node",
];

/// `GPU 3`, or the identity when NVML does not list it any more.
#[must_use]
pub fn about(unit: &UnitJudgement) -> String {
    match unit.index {
        Some(index) => format!("GPU {index}"),
        None => text::clean(&unit.unit.0),
    }
}

fn findings_about<'a>(frame: &'a Frame<'_>, unit: &'a UnitId) -> impl Iterator<Item = &'a Finding> {
    let about = move |finding: &&Finding| finding.victims.contains(unit);
    frame.judgement.findings.iter().filter(about)
}

fn severity(finding: &Finding) -> Level {
    match finding.severity {
        Severity::Info => Level::Fine,
        Severity::Warn => Level::Warning,
        Severity::Critical => Level::Critical,
    }
}

/// At most so many processes of one finding are named.
const MOST_HOLDERS: usize = 8;

fn words(finding: &Finding) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", finding.rule, text::clean(&finding.summary))];
    if !finding.advice.is_empty() {
        lines.push(format!("do: {}", text::clean(&finding.advice)));
    }
    for holder in finding.holders.iter().take(MOST_HOLDERS) {
        let state = holder.state.map_or_else(|| "gone".to_owned(), |state| format!("state {state}"));
        let user = holder.uid.map_or_else(String::new, |uid| format!(", user {uid}"));
        let (comm, cgroup) = (text::clean(&holder.comm), text::clean(&holder.cgroup));
        lines.push(format!("held by: pid {} ({comm}), {state}{user}, {cgroup}", holder.pid));
    }
    lines
}

fn node(frame: &Frame<'_>, gpus: &[Verdict]) -> Verdict {
    let mut level = gpus.iter().fold(Level::Fine, |level, gpu| level.worse(gpu.level));
    let mut because = Vec::new();
    for finding in &frame.judgement.findings {
        level = level.worse(severity(finding));
        because.extend(words(finding));
    }
    for probe in &frame.judgement.probes {
        because.push(format!(
            "{} has been stuck in {} for {}",
            probe.collector,
            text::clean(&probe.call),
            text::duration(probe.age)
        ));
    }
    let says = if gpus.is_empty() {
        level = level.worse(Level::CannotTell);
        format!("no GPU can be judged: {}", no_gpu(frame))
    } else {
        let count = |level| gpus.iter().filter(|gpu| gpu.level == level).count();
        let worst = count(Level::Warning) + count(Level::Critical);
        let unknown = count(Level::CannotTell);
        match (worst, unknown) {
            (0, 0) => format!("all {} GPUs are fine", gpus.len()),
            (0, unknown) => format!("{unknown} of {} GPUs cannot be judged", gpus.len()),
            (worst, _) => format!("{worst} of {} GPUs lose productive time", gpus.len()),
        }
    };
    Verdict { about: "node".to_owned(), uuid: String::new(), level, says, because }
}

/// Why there is no GPU to judge.
pub(crate) fn no_gpu(frame: &Frame<'_>) -> String {
    match frame.known.status(Source::Gpu) {
        None => "NVML was not asked".to_owned(),
        Some(sample) => match sample.value.missing() {
            None => match frame.known.gpu.as_ref().and_then(|sample| sample.value.get()) {
                Some(gpus) if !gpus.devices.is_empty() => {
                    let listed = text::count(gpus.devices.len(), "GPU", "GPUs");
                    format!("NVML lists {listed} without UUID and PCI address")
                }
                _ => "NVML works and lists no GPU".to_owned(),
            },
            Some(Missing::NotYet) => "NVML has not answered yet".to_owned(),
            Some(missing) if sample.why.is_empty() => format!("NVML: {missing}"),
            Some(_) => text::clean(&sample.why),
        },
    }
}

/// As text.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    for verdict in std::iter::once(&report.node).chain(&report.gpus) {
        let _ = writeln!(out, "{:<7} {:<12} {}", verdict.about, verdict.level.word(), verdict.says);
        for line in &verdict.because {
            let _ = writeln!(out, "        {line}");
        }
    }
    if report.by == By::Alone && report.node.level == Level::Warning {
        out.push_str("        suspected only: without a running agent there are no baselines (gpuprod agent)\n");
    }
    if !report.seen.is_empty() {
        out.push_str("seen\n");
        for line in &report.seen {
            let _ = writeln!(out, "        {line}");
        }
    }
    out
}
