//! Whether the next job should be placed here, in the form that each scheduler's health check takes.
//!
//! What makes a node unfit, and for how long, is the rules' business ([`gpuprod_rules::node::fit`]); here it is told.
//! "Cannot tell" drains nobody unless that was asked for.

use gpuprod_rules::node::fit::{self, Seen};
pub use gpuprod_rules::node::{Reason, Verdict};
use gpuprod_rules::{Class, Policy, Serving};
use serde::Serialize;

use crate::check::{self, By};
use crate::pipeline::Frame;
use crate::text;
use crate::top::lost;

/// Longest reason that is told.
const LONGEST: usize = 160;

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

/// For whom the node should be fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum For {
    /// Jobs that can live with what costs them a little time
    #[default]
    Batch,
    /// Whoever is measured by latency: stricter
    Serving,
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
    /// Load and room of the node's serving engines.
    pub engines: Vec<Serving>,
}

/// What to print on stdout, and the code, when the command line itself is wrong; none when it asked for no fit. What
/// the form's users take for "cannot tell": a typing error drains no node. The form is guessed where it was misspelt:
/// of all of them Slurm's is the one that costs a fleet.
#[must_use]
pub fn misused(args: &[String], why: &str) -> Option<(String, u8)> {
    use clap::ValueEnum as _;
    let rest = args.iter().position(|arg| arg == "fit").and_then(|at| args.get(at..))?;
    let after = |arg: &String| Some(arg.strip_prefix("--format")?.trim_start_matches('=').to_owned());
    let at = rest.iter().position(|arg| arg.starts_with("--format"));
    let word =
        at.and_then(|at| rest.get(at).and_then(after).filter(|word| !word.is_empty()).or(rest.get(at + 1).cloned()));
    let format = match word {
        _ if rest.iter().any(|arg| arg.contains("slurm")) => Format::Slurm,
        Some(word) => Format::from_str(&word, false).unwrap_or(Format::Slurm),
        None if at.is_some() => Format::Slurm,
        None => Format::Json,
    };
    let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
    Some(Fit::unknown(&format!("wrong usage: {}", text::masked(why))).told(format, &[]))
}

impl Fit {
    /// When nobody could look.
    #[must_use]
    pub fn unknown(why: &str) -> Self {
        let reasons = vec![Reason { verdict: Verdict::CannotTell, says: text::clean(why), since: None }];
        Self {
            verdict: Verdict::CannotTell,
            reasons,
            by: None,
            units: 0,
            productive: 0.0,
            lost: 0.0,
            engines: Vec::new(),
        }
    }

    /// Of a frame. A running agent's verdict stands for a while ([`gpuprod_rules::node::fit`]); alone, it is what can
    /// be seen now.
    #[must_use]
    pub fn of(frame: &Frame<'_>, by: By, whom: For) -> Self {
        let judgement = frame.judgement.as_ref();
        let class = match whom {
            For::Batch => Class::Batch,
            For::Serving => Class::Serving,
        };
        let judged = judgement.node.fit_for(class);
        let standing = judged.filter(|_| by == By::Agent);
        let mut reasons = judged.map_or_else(|| now(frame, class), |judged| judged.reasons.clone());
        if judgement.units.is_empty() {
            for reason in reasons.iter_mut().filter(|reason| reason.verdict == Verdict::CannotTell) {
                reason.says = check::no_gpu(frame);
            }
        }
        for reason in &mut reasons {
            reason.says = text::clip(&text::clean(&reason.says), LONGEST);
            // Hold times and baselines take minutes: whoever looks for seconds can only suspect.
            if by == By::Alone && reason.verdict == Verdict::Unfit {
                reason.verdict = Verdict::Degraded;
                reason.says.insert_str(0, "suspected: ");
            }
        }
        reasons.sort_by(|a, b| b.verdict.cmp(&a.verdict).then_with(|| a.says.cmp(&b.says)));
        let worst = reasons.first().map_or(Verdict::Fit, |reason| reason.verdict);
        let verdict = standing.map_or(worst, |standing| standing.verdict);
        if verdict > worst {
            let says = "it was worse within the last minutes, and has to stay better for a while".to_owned();
            reasons.insert(0, Reason { verdict, says, since: standing.map(|standing| standing.since) });
        }
        let units = &frame.judgement.units;
        let whole = |unit: &gpuprod_rules::UnitJudgement| f64::from(unit.slices) / f64::from(unit.slices_whole.max(1));
        let productive = units.iter().fold(0.0, |sum, unit| sum + unit.weight.w.as_fraction() * whole(unit));
        let lost = units.iter().fold(0.0, |sum, unit| sum + lost(unit));
        let engines = judgement.serving.clone();
        Self { verdict, reasons, by: Some(by), units: units.len(), productive, lost, engines }
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
                let judged = text::count(self.units, "GPU", "GPUs");
                return match self.reasons.first() {
                    None => format!("fit: {judged} judged, none is in trouble"),
                    Some(young) => format!("fit: {judged} judged; too young to count: {}", young.says),
                };
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

/// What speaks against the node now, by the frame of an agent that has not judged it: without what only a judge knows,
/// which is what was there before and is not any more.
fn now(frame: &Frame<'_>, class: Class) -> Vec<Reason> {
    let judgement = frame.judgement.as_ref();
    let seen = Seen {
        units: &judgement.units,
        findings: &judgement.findings,
        probes: &judgement.probes,
        known: &frame.known,
        read_only: &[],
        dark: &[],
        lost_warn: Policy::default().node_fit.lost_warn,
    };
    fit::reasons(&seen, class)
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
