//! The clocks are held down, by heat, by a power brake, or by a limit that somebody set.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::{Nanos, to_f64};

use super::{Claim, Outcome, Text, View};
use crate::policy::table::thresholds;
use crate::signals::device::{Clocks, Held, HeldDown};
use crate::{Cause, Evidence, Micro, Part, Rejected, Severity};

pub(super) const TEXT: Text = Text {
    means: "The GPU looks busy and its clocks are held down: by heat, by a power brake of the hardware, or by a power limit \
            that somebody lowered.",
    inputs: "NVML's clock event reasons, SM clock, power, the limit in force and the product's; the GPU's own clock and \
             power while it works and nothing holds it.",
    formula: "A warning when a thermal, hardware slowdown or power brake reason (0x8, 0x20, 0x40, 0x80) is on in share of the \
              last minute and the SM clock is deficit below its own normal; critical from starved_critical. A software power \
              cap (0x4) counts when the limit in force is below the highest that was seen or the product's own, or when the \
              clock is below cap_clock of its normal at no more power than normal. Lost time: one minus clock over normal \
              clock. It ends after clear_ns of less than half of share.",
    silent: "A GPU at its power limit (reason 0x4 at the default limit): that is how it is meant to run. Reasons without a \
             lower clock are information, and so is a lowered limit under which the own normal was learnt.",
    advice: "Thermal: fans, airflow, inlet temperature, the board's paste. Power brake: power supplies and the rack's power. \
             A limit: nvidia-smi -pl.",
    blind: "Violation times are not read, only the reasons at each reading. Without an own normal (24 healthy blocks) the \
            largest clock of the board is taken, which few loads reach.",
};

thresholds! {
    /// Thresholds of `silent_throttling`.
    pub struct Thresholds {
        /// Share of the last minute, in millionths, in which a reason must be on: shorter ones come with every load
        /// step. A tenth of the time at lowered clocks is what the state `throttled` asks for as well.
        share: Part = Part(100_000), Part(10_000)..=Part::ONE;
        /// Part of the own normal SM clock, in millionths, that must be missing: below it clocks scatter of their own.
        deficit: Part = Part(50_000), Part(0)..=Part::ONE;
        /// A software power cap at an unchanged limit counts below this part of the own normal clock, in millionths: GPUs
        /// of one model differ by 8 % (GPU variability, SC 2022).
        cap_clock: Part = Part(900_000), Part(0)..=Part::ONE;
        /// How long the clocks must be free before the rule is silent again. Heat comes and goes with the load of
        /// minutes: one finding for one hot afternoon, not twenty.
        clear_ns: Nanos = Nanos::from_secs(120), Nanos(0)..=Nanos::from_secs(3_600);
    }
}

pub(super) fn judge(view: &View<'_>) -> Outcome {
    let unit = view.unit;
    if unit.rest {
        return Outcome::Absent;
    }
    let (Some(gpu), Some(signals)) = (unit.gpu, unit.device.signals) else {
        return Outcome::Suspended("the driver does not answer".into());
    };
    if gpu.clock_reasons.get().is_none() {
        return Outcome::Unsupported("the driver does not tell why clocks are held down".into());
    }
    let clocks = &signals.clocks;
    let Some(down) = clocks.held(view.host.now) else { return Outcome::Silent };
    let share = view.policy.silent_throttling.share.as_fraction();
    if down.share < if view.active { share / 2.0 } else { share } {
        return Outcome::Silent;
    }
    let missing = clocks.deficit(view.host.now, view.policy);
    let floor = view.policy.silent_throttling.deficit.as_fraction();
    let hurts = missing.is_some_and(|missing| missing >= if view.active { floor / 2.0 } else { floor });
    Outcome::Claim(claim(view, gpu, clocks, down, missing.filter(|_| hurts)))
}

fn claim(view: &View<'_>, gpu: &Gpu, clocks: &Clocks, down: HeldDown, missing: Option<f64>) -> Claim {
    let now = view.host.now;
    let name = &view.unit.name;
    let (what, object, variant, advice) = words(down.held);
    let share = Micro::from_f64(down.share * 100.0);
    let learnt = clocks.clock.normal(view.policy).is_some();
    let summary = match (missing, clocks.recent(now), clocks.usual(view.policy)) {
        (Some(missing), Some(clock), Some(usual)) => format!(
            "{name}: {what} in {share} % of the last minute: {} MHz, {} % below {} {} MHz",
            Micro::from_f64(libm::round(clock)),
            Micro::from_f64(libm::round(missing * 1e3) / 10.0),
            if learnt { "its normal" } else { "the board's largest" },
            Micro::from_f64(libm::round(usual)),
        ),
        _ => format!("{name}: {what} in {share} % of the last minute, without a lower clock under load"),
    };
    let critical = missing.is_some_and(|missing| missing >= view.policy.starved_critical.as_fraction());
    Claim {
        variant: Some(variant.into()),
        severity: match missing {
            None => Severity::Info,
            Some(_) if critical && learnt => Severity::Critical,
            Some(_) => Severity::Warn,
        },
        cause: missing.map(|_| Cause::Throttle),
        object: object.into(),
        deficit: view.unit.weight.w.rest(),
        onset: down.since,
        pressure: Part::from_fraction(missing.unwrap_or(0.0)),
        confidence: Part::from_fraction(if learnt { 0.95 } else { 0.7 }),
        summary,
        evidence: evidence(view, gpu, clocks, down),
        rejected: rejected(gpu, clocks, down),
        advice: advice.into(),
        holders: Vec::new(),
    }
}

/// What is said of it, the object that is to blame, the variant, and the advice. Heat and power reach many GPUs of a
/// node at once: that is one trouble, with the GPUs as its victims.
const fn words(held: Held) -> (&'static str, &'static str, &'static str, &'static str) {
    match held {
        Held::Thermal => (
            "clocks held down by heat",
            "cooling",
            "thermal",
            "look at fans, airflow and inlet temperature; one hot GPU among cool ones wants its board looked at",
        ),
        Held::PowerBrake => (
            "clocks held down by a power brake of the hardware",
            "power brake",
            "power_brake",
            "look at the power supplies and the rack's power: the board was told to draw less",
        ),
        Held::Slowdown => (
            "clocks held down by the hardware",
            "hardware slowdown",
            "hw_slowdown",
            "look at power and cooling: the hardware does not tell which",
        ),
        Held::PowerCap => (
            "clocks held down by a lowered power limit",
            "power limit",
            "power_cap",
            "see who lowered the limit (`nvidia-smi -q -d POWER`), and raise it (`nvidia-smi -pl`) if nobody wants it",
        ),
    }
}

fn evidence(view: &View<'_>, gpu: &Gpu, clocks: &Clocks, down: HeldDown) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    let mut push = |what: &'static str, value: f64, unit: &'static str, normal| {
        evidence.push(Evidence { normal, ..Evidence::plain(what, &view.unit.name, value, unit) });
    };
    push("a reason to hold the clocks down, of the last minute", down.share * 100.0, "%", None);
    if let Some(clock) = clocks.recent(view.host.now) {
        let normal = clocks.clock.deviation(view.policy).map(|deviation| deviation.as_normal());
        push("SM clock of the last 10 s", clock, "MHz", normal);
    }
    let watts = |milliwatts: u64| to_f64(milliwatts) / 1e3;
    if let Some(power) = gpu.power.copied() {
        let normal = clocks.power.deviation(view.policy).map(|deviation| deviation.as_normal());
        push("power", watts(power.0), "W", normal);
    }
    if let Some(limit) = gpu.power_limit.copied() {
        push("power limit in force", watts(limit.0), "W", None);
    }
    if let Some(limit) = gpu.power_limit_default.copied() {
        push("power limit of the product", watts(limit.0), "W", None);
    }
    if let Some(temp) = gpu.temp.copied() {
        push("temperature", f64::from(temp.0), "C", None);
    }
    evidence
}

fn rejected(gpu: &Gpu, clocks: &Clocks, down: HeldDown) -> Vec<Rejected> {
    let mut rejected = Vec::new();
    if down.held == Held::PowerCap && !clocks.lowered(gpu) {
        let why: String = "the limit is the usual one: something below the driver's limit holds the power down".into();
        rejected.push(Rejected { cause: Cause::Throttle, of: "power limit".into(), why });
    }
    rejected
}
