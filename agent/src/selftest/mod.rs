//! `gpuprod selftest`: does each rule fire, and how long until the page? Recorded faults go through the pipeline, the
//! desk and the sink for Alertmanagers that the agent uses, up to a receiver on the loopback interface.

mod cases;
mod receiver;
mod sample;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Cursor;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuprod_rules::{Declared, Finding, Judgement, RULES, RuleId, RuleStatus, Severity};
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;
use serde::Serialize;
use tokio::runtime::Handle;

use self::cases::{CASES, Case, UNTRIED};
use self::receiver::Receiver;
pub use self::sample::{Sample, sample};
use crate::alerts::{Desk, plan};
use crate::clock::boottime;
use crate::config::{Config, Mode};
use crate::pipeline::Pipeline;
use crate::recording::Recording;
use crate::sink::{Sink as _, alertmanager};
use crate::text;

/// A post must come within this.
const DELIVERY: Duration = Duration::from_secs(10);
/// What takes longer in the recording is replayed, in real time too.
const LIVE: Nanos = Nanos::from_secs(60);

/// How one rule fared.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Which rule.
    pub rule: RuleId,
    /// What was injected; none when no fault is built in for it.
    pub fault: Option<&'static str>,
    /// Whether it fired, and was told to the receiver if it pages.
    pub fired: bool,
    /// From the fault to the finding, in recorded time.
    pub found_ns: Option<Nanos>,
    /// From the finding to the receiver, on this machine.
    pub delivered_ns: Option<Nanos>,
    /// Whether it was played in real time.
    pub real_time: bool,
    /// What it said, or why it did not.
    pub says: String,
    /// Whether it can speak on this node, and if not, why.
    pub here: String,
}

/// How all of them fared.
#[derive(Debug, Serialize)]
pub struct Report {
    /// In the order of precedence.
    pub rules: Vec<Line>,
    /// Rules with a built-in fault that did not fire.
    pub failed: usize,
}

/// Plays every fault, or those of the named rules. `here` is a tick of this node.
///
/// # Errors
/// When the receiver or the network thread cannot be started.
pub fn run(config: &Config, here: &Tick, only: &[RuleId], real_time: bool) -> Result<Report> {
    let receiver = Receiver::open().context("listen on 127.0.0.1 for the pages")?;
    let net = net()?;
    let mut pipeline = Pipeline::new(config.rules.policy());
    let judged = pipeline.feed(here).judgement.into_owned();
    let chosen = |rule: RuleId| only.is_empty() || only.contains(&rule);
    let mut rules = Vec::new();
    for rule in RULES.iter().filter(|rule| chosen(rule.id)) {
        let mut line = match CASES.iter().find(|case| case.rule == rule.id) {
            Some(case) => play(case, config, &receiver, &net, real_time)?,
            None => Line::new(rule.id, None, untried(rule.id).to_owned()),
        };
        line.here = speaks(&judged, rule.id, config);
        rules.push(line);
    }
    let failed = rules.iter().filter(|line| line.fault.is_some() && !line.fired).count();
    Ok(Report { rules, failed })
}

fn untried(rule: RuleId) -> &'static str {
    UNTRIED.iter().find(|(id, _)| *id == rule).map_or("no fault is built in for it", |(_, why)| why)
}

/// The `net` thread, as the agent has one; it ends with the process.
fn net() -> Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("start the network runtime")?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("net".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("start the net thread")?;
    Ok(handle)
}

impl Line {
    fn new(rule: RuleId, fault: Option<&'static str>, says: String) -> Self {
        Self {
            rule,
            fault,
            fired: false,
            found_ns: None,
            delivered_ns: None,
            real_time: false,
            says,
            here: String::new(),
        }
    }
}

/// The config of the node with the rule at its loudest, and the receiver as the only one who is told. No other rule may
/// alert: the page would go by the name of whichever told the trouble first.
fn loud(config: &Config, case: &Case, url: &str) -> Config {
    let mut config = config.clone();
    config.rules.modes.retain(|_, mode| *mode == Mode::Off);
    config.rules.mode = config.rules.mode.min(Mode::Shadow);
    config.rules.modes.insert(case.rule, Mode::Page);
    let nothing = Declared::default();
    (config.rules.shapes, config.rules.allocations) = (nothing.shapes, nothing.allocations);
    (case.declare)(&mut config.rules);
    config.alerts = crate::config::Alerts {
        alertmanagers: vec![url.to_owned()],
        node: Some(format!("selftest-{}", case.rule)),
        ..crate::config::Alerts::default()
    };
    config
}

fn play(case: &Case, config: &Config, receiver: &Receiver, net: &Handle, real_time: bool) -> Result<Line> {
    let config = loud(config, case, &receiver.url);
    let mut line = Line::new(case.rule, Some(case.about), "it said nothing".to_owned());
    // How long it takes is known from a first, silent run: what is slow is not waited for.
    let expected = found(case, &config, |_| {})?.map(|(after, _)| after);
    line.real_time = real_time && expected.is_some_and(|after| after <= LIVE);
    let mut desk = Desk::new(plan(&config, "selftest"));
    let tally = alertmanager::Tally::default();
    let mut sink = alertmanager::start(&config, net, &tally).context("no receiver")?;
    let begun = boottime();
    let onset = Nanos::from_secs(case.onset);
    let mut told = None;
    let live = line.real_time;
    let found = found(case, &config, |step| {
        if live && step.at >= onset {
            let due = begun.saturating_add(step.at.saturating_sub(onset));
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(boottime()).0));
        }
        let mut frame = step.frame.to_owned();
        desk.step(&frame.judgement.findings, &frame.known.stamp);
        frame.alerts = Cow::Owned(desk.told().clone());
        told = Some(boottime());
        sink.accept(&frame);
    })?;
    let Some((after, finding)) = found else { return Ok(line) };
    line.found_ns = Some(after);
    line.says = text::clip(&text::clean(&finding.summary), 160);
    if case.informs {
        line.fired = true;
        return Ok(line);
    }
    let node = config.alerts.node.unwrap_or_default();
    match receiver.wait(&node, case.rule.as_str(), DELIVERY) {
        Some(came) => {
            line.fired = true;
            line.delivered_ns = told.map(|told| came.at.saturating_sub(told));
        }
        None => {
            let why = tally.posts().into_iter().find_map(|posts| posts.why).unwrap_or_default();
            line.says = format!("found, but no page arrived within {} s; {why}", DELIVERY.as_secs());
        }
    }
    Ok(line)
}

impl Case {
    /// Whether the rule speaks as loudly as it should.
    fn is_loud(&self, finding: &Finding) -> bool {
        let its = finding.rule == self.rule || finding.also.contains(&self.rule);
        its && (self.informs || finding.rule == self.rule && finding.severity > Severity::Info)
    }
}

/// A tick of a recording, judged.
struct Step<'a, 'b> {
    /// Since its start.
    at: Nanos,
    frame: &'a crate::pipeline::Frame<'b>,
}

/// Plays until the rule speaks as loudly as it should: how long after the fault, and what it says.
fn found(case: &Case, config: &Config, mut each: impl FnMut(&Step<'_, '_>)) -> Result<Option<(Nanos, Finding)>> {
    let mut pipeline = Pipeline::new(config.rules.policy());
    let mut begin = None;
    let onset = Nanos::from_secs(case.onset);
    for tick in Recording::read(Cursor::new(case.bytes))? {
        let tick = tick?;
        let at = tick.stamp.boottime.saturating_sub(*begin.get_or_insert(tick.stamp.boottime));
        let frame = pipeline.feed(&tick);
        each(&Step { at, frame: &frame });
        if at >= onset
            && let Some(finding) = frame.judgement.findings.iter().find(|finding| case.is_loud(finding))
        {
            return Ok(Some((at.saturating_sub(onset), finding.clone())));
        }
    }
    Ok(None)
}

/// Whether the rule can speak on this node.
fn speaks(judged: &Judgement, rule: RuleId, config: &Config) -> String {
    if config.rules.mode_of(rule) == Mode::Off {
        return "off: rules.modes switches it off".to_owned();
    }
    let mut reports = judged.rules.iter().filter(|report| report.rule == rule).peekable();
    if reports.peek().is_none() {
        return "cannot fire: no GPU is read here (gpuprod doctor says why)".to_owned();
    }
    let rank = |status: &RuleStatus| match status {
        RuleStatus::Evaluated => 0,
        RuleStatus::Suspended(_) => 1,
        RuleStatus::Absent => 2,
        RuleStatus::Unsupported(_) => 3,
    };
    match reports.map(|report| &report.status).min_by_key(|status| rank(status)) {
        Some(RuleStatus::Suspended(why)) => format!("not yet: {}", text::clip(&text::clean(why), 120)),
        Some(RuleStatus::Unsupported(why)) => format!("cannot fire: {}", text::clip(&text::clean(why), 120)),
        Some(RuleStatus::Absent) => "nothing to judge: what it is about does not exist here now".to_owned(),
        _ => "speaks".to_owned(),
    }
}

/// As text.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    for line in &report.rules {
        let word = match (line.fault, line.fired) {
            (None, _) => "untested",
            (_, true) => "fired",
            (_, false) => "FAILED",
        };
        let _ = writeln!(out, "{:<9}{}: {}", word, line.rule, line.fault.unwrap_or(&line.says));
        if let Some(found) = line.found_ns {
            let how = if line.real_time { "in real time" } else { "replayed" };
            let told = line.delivered_ns.map_or_else(
                || "it informs and pages nobody".to_owned(),
                |told| format!("page at the receiver {} later", text::duration(told)),
            );
            let _ = writeln!(out, "         found {} after the fault ({how}); {told}", text::duration(found));
        }
        if line.fault.is_some() {
            let _ = writeln!(out, "         says: {}", line.says);
        }
        let _ = writeln!(out, "         here: {}", line.here);
    }
    let tested = report.rules.iter().filter(|line| line.fault.is_some()).count();
    let untested = report.rules.len() - tested;
    let _ = match untested {
        0 => writeln!(out, "{} of {tested} fired", tested - report.failed),
        _ => writeln!(out, "{} of {tested} fired; {untested} rules have no fault built in", tested - report.failed),
    };
    out
}
