//! Whether the next job should be placed here, in the form that each scheduler's health check takes.
//!
//! Unfit is what harms any job on this node: a broken GPU, a hung driver, storage that has failed or starves the GPUs,
//! confirmed by a running agent. What belongs to the workload (its queue, its cache, its peers) says nothing about the
//! node. "Cannot tell" drains nobody unless that was asked for.

use gpuprod_rules::{Cause, Finding, Severity, State};
use gpuprod_snapshot::gpu::GpuHealth;
use gpuprod_snapshot::storage::MdState;
use serde::Serialize;

use crate::check::{self, By};
use crate::pipeline::Frame;
use crate::text;
use crate::top::lost;

/// The verdict, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Place jobs.
    Fit,
    /// The evidence does not say.
    CannotTell,
    /// Jobs run here, and lose time.
    Degraded,
    /// Place none.
    Unfit,
}

/// Whose health check asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Slurm's HealthCheckProgram and Prolog: one line, exit 0 or 1
    Slurm,
    /// A custom plugin of node-problem-detector: at most 80 bytes, exit 0 OK, 1 problem, 2 unknown
    Npd,
    /// A monitoring plugin: exit 0, 1, 2, 3, with performance data
    Nagios,
    /// JSON, exit 0 fit, 1 degraded, 2 unfit, 3 cannot tell
    Json,
}

/// What counts as unfit beside unfit itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Also {
    /// A node that loses time
    Degraded,
    /// A node of which nothing can be said
    CannotTell,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What it makes of the node.
    pub verdict: Verdict,
    /// In one line.
    pub says: String,
}

/// The verdict and what it rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The worst of the reasons.
    pub verdict: Verdict,
    /// Worst first.
    pub reasons: Vec<Reason>,
    /// Who looked; alone, nothing can be confirmed and nothing is unfit.
    pub by: Option<By>,
    /// Units that were judged.
    pub units: usize,
    /// Whole GPUs' worth of time that is productive now.
    pub productive: f64,
    /// Whole GPUs' worth of time that is lost now.
    pub lost: f64,
}

/// Causes that lie in the node: the next job would meet them too.
const fn is_host_side(cause: Cause) -> bool {
    match cause {
        Cause::Fault
        | Cause::Throttle
        | Cause::Storage
        | Cause::HostMem
        | Cause::HostCpu
        | Cause::PcieNuma
        | Cause::Network => true,
        Cause::BackgroundIo
        | Cause::Squat
        | Cause::Stall
        | Cause::Kv
        | Cause::Peer
        | Cause::Upstream
        | Cause::Unexplained => false,
    }
}

impl Fit {
    /// When nobody could look.
    #[must_use]
    pub fn unknown(why: &str) -> Self {
        let reasons = vec![Reason { verdict: Verdict::CannotTell, says: text::clean(why) }];
        Self { verdict: Verdict::CannotTell, reasons, by: None, units: 0, productive: 0.0, lost: 0.0 }
    }

    /// Of a frame.
    #[must_use]
    pub fn of(frame: &Frame<'_>, by: By) -> Self {
        let mut reasons = Vec::new();
        gpus(frame, &mut reasons);
        arrays(frame, &mut reasons);
        reasons.extend(frame.judgement.findings.iter().filter_map(finding));
        for reason in &mut reasons {
            // Hold times and baselines take minutes: whoever looks for seconds can only suspect.
            if by == By::Alone && reason.verdict == Verdict::Unfit {
                reason.verdict = Verdict::Degraded;
                reason.says.insert_str(0, "suspected: ");
            }
        }
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.says.cmp(&b.says)));
        let verdict = reasons.first().map_or(Verdict::Fit, |reason| reason.verdict);
        let units = &frame.judgement.units;
        let whole = |unit: &gpuprod_rules::UnitJudgement| f64::from(unit.slices) / f64::from(unit.slices_whole.max(1));
        let productive = units.iter().fold(0.0, |sum, unit| sum + unit.weight.w.as_fraction() * whole(unit));
        let lost = units.iter().fold(0.0, |sum, unit| sum + lost(unit));
        Self { verdict, reasons, by: Some(by), units: units.len(), productive, lost }
    }

    /// What is printed, and the exit code.
    #[must_use]
    pub fn told(&self, format: Format, also: &[Also]) -> (String, u8) {
        let drains = match self.verdict {
            Verdict::Unfit => true,
            Verdict::Degraded => also.contains(&Also::Degraded),
            Verdict::CannotTell => also.contains(&Also::CannotTell),
            Verdict::Fit => false,
        };
        let line = self.line();
        match format {
            Format::Slurm => (format!("{line}\n"), u8::from(drains)),
            Format::Npd => {
                let code = if self.verdict == Verdict::CannotTell && !drains { 2 } else { u8::from(drains) };
                (format!("{}\n", short(&line, 80)), code)
            }
            Format::Nagios => self.nagios(drains),
            Format::Json => {
                let code = match self.verdict {
                    _ if drains => 2,
                    Verdict::Fit => 0,
                    Verdict::Degraded => 1,
                    Verdict::Unfit => 2,
                    Verdict::CannotTell => 3,
                };
                (serde_json::to_string(self).unwrap_or_default() + "\n", code)
            }
        }
    }

    /// `unfit: GPU 3 is faulted (xid); +1 more`.
    fn line(&self) -> String {
        let word = match self.verdict {
            Verdict::Fit => {
                return format!("fit: {} judged, none is in trouble", text::count(self.units, "GPU", "GPUs"));
            }
            Verdict::CannotTell => "cannot tell",
            Verdict::Degraded => "degraded",
            Verdict::Unfit => "unfit",
        };
        let first = self.reasons.first().map_or("", |reason| reason.says.as_str());
        match self.reasons.len().saturating_sub(1) {
            0 => format!("{word}: {first}"),
            more => format!("{word}: {first}; +{more} more"),
        }
    }

    fn nagios(&self, drains: bool) -> (String, u8) {
        let (word, code) = match self.verdict {
            _ if drains => ("CRITICAL", 2),
            Verdict::Fit => ("OK", 0),
            Verdict::Degraded => ("WARNING", 1),
            Verdict::Unfit => ("CRITICAL", 2),
            Verdict::CannotTell => ("UNKNOWN", 3),
        };
        // A bar begins the performance data: none may come from a name.
        let line = self.line().replace('|', "/");
        let units = self.units;
        let data = if self.by.is_none() || units == 0 {
            String::new()
        } else {
            format!(" | productive={:.3};;;0;{units} lost={:.3};;;0;{units} units={units}", self.productive, self.lost)
        };
        (format!("GPUPROD {word} - {line}{data}\n"), code)
    }
}

fn gpus(frame: &Frame<'_>, reasons: &mut Vec<Reason>) {
    let mut say = |verdict, says: String| reasons.push(Reason { verdict, says });
    let units = &frame.judgement.units;
    for unit in units {
        let about = check::about(unit);
        match unit.state {
            State::Faulted(fault) => say(Verdict::Unfit, format!("{about} is faulted ({fault})")),
            State::Unknown(why) => say(Verdict::CannotTell, format!("{about}: unknown ({why})")),
            _ => {}
        }
    }
    let listed = frame.known.gpu.as_ref().and_then(|sample| sample.value.get());
    for gpu in listed.map_or(&[][..], |gpus| &gpus.devices) {
        let faulted = |unit: &gpuprod_rules::UnitJudgement| {
            unit.index == Some(gpu.index) && matches!(unit.state, State::Faulted(_))
        };
        match gpu.health.get() {
            Some(GpuHealth::Lost | GpuHealth::ResetRequired) if !units.iter().any(faulted) => {
                let word = gpu.health.get().map_or("", |health| health.as_str());
                say(Verdict::Unfit, format!("GPU {} is {}", gpu.index, word.replace('_', " ")));
            }
            _ => {}
        }
    }
    let stuck = frame.judgement.probes.iter().find(|probe| probe.collector == "gpu");
    if let Some(probe) = stuck {
        let (call, age) = (text::clean(&probe.call), text::duration(probe.age));
        say(Verdict::Unfit, format!("the driver hangs: {call} for {age}"));
    }
    if units.is_empty() && listed.is_none_or(|gpus| gpus.devices.is_empty()) && stuck.is_none() {
        say(Verdict::CannotTell, check::no_gpu(frame));
    }
}

fn arrays(frame: &Frame<'_>, reasons: &mut Vec<Reason>) {
    let md = frame.known.md.as_ref().and_then(|sample| sample.value.get());
    for array in md.map_or(&[][..], |md| &md.arrays) {
        let name = text::clip(&text::clean(&array.name), 32);
        if array.state.get() == Some(&MdState::Broken) {
            reasons.push(Reason { verdict: Verdict::Unfit, says: format!("array {name} has failed") });
        } else if let Some(missing) = array.degraded.copied().filter(|missing| *missing > 0) {
            let says = format!(
                "array {name} lacks {}",
                text::count(usize::try_from(missing).unwrap_or(0), "member", "members")
            );
            reasons.push(Reason { verdict: Verdict::Degraded, says });
        }
    }
}

fn finding(finding: &Finding) -> Option<Reason> {
    let verdict = match (finding.severity, finding.cause) {
        (Severity::Info, _) => return None,
        (Severity::Critical, Some(cause)) if is_host_side(cause) => Verdict::Unfit,
        _ => Verdict::Degraded,
    };
    let subject = text::clip(&text::clean(&finding.subject), 40);
    let cause = finding.cause.map_or_else(String::new, |cause| format!(" ({cause})"));
    let victims = text::count(finding.victims.len(), "GPU", "GPUs");
    Some(Reason { verdict, says: format!("{} {subject}{cause}, {victims}", finding.rule) })
}

/// In ASCII, at most so many bytes.
fn short(line: &str, most: usize) -> String {
    let plain: String = line.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    if plain.len() <= most {
        return plain;
    }
    let cut: String = plain.chars().take(most.saturating_sub(3)).collect();
    cut + "..."
}
