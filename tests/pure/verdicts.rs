//! Labelled scenarios: the verdict must be right where its author says what is right, and silent where its
//! author wants silence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::RuleId as R;
use gpuprod_rules::{Allocation, Finding, Gate, Part, Policy, RULES, RuleId, RuleStatus, Severity, UnitJudgement};
use gpuprod_sim::{Blame, Scenario};
use gpuprod_snapshot::units::Nanos;

/// A state may be recognised so much later (the target for starvation from a deficit of .30 on is 45 s).
fn grace(state: &str) -> Nanos {
    Nanos::from_secs(if state == "starved" { 45 } else { 5 })
}

struct Seen {
    /// Time since the scenario's start.
    at: Nanos,
    units: Vec<UnitJudgement>,
    findings: Vec<Finding>,
}

/// What each rule has said of itself: `told` where a finding of it stood, else the status of its report.
type Said = BTreeMap<RuleId, BTreeSet<&'static str>>;

fn play(scenario: &Scenario, policy: Policy) -> Vec<Seen> {
    play_and_note(scenario, policy, &mut Said::new())
}

fn play_and_note(scenario: &Scenario, mut policy: Policy, said: &mut Said) -> Vec<Seen> {
    let record = |(gpu, owner, standby): &(usize, String, bool)| Allocation {
        gpu: gpu.to_string(),
        owner: owner.clone(),
        standby: *standby,
        ..Allocation::default()
    };
    policy.declared.allocations = scenario.records.iter().map(record).collect();
    let mut pipeline = Pipeline::new(policy);
    let mut begin = None;
    // The reports come in the same order in nearly every tick: what was said a second ago was noted then.
    let mut last: Vec<(RuleId, &'static str)> = Vec::new();
    scenario
        .ticks()
        .map(|tick| {
            let real = tick.stamp.realtime;
            let at = real.saturating_sub(*begin.get_or_insert(real));
            let frame = pipeline.feed(&tick);
            let judged = &frame.judgement;
            let now: Vec<_> = judged.rules.iter().map(|report| (report.rule, word(&report.status))).collect();
            for (place, (rule, word)) in now.iter().enumerate() {
                if last.get(place) != Some(&(*rule, *word)) {
                    said.entry(*rule).or_default().insert(word);
                }
            }
            last = now;
            for rule in judged.findings.iter().flat_map(|finding| finding.also.iter().chain([&finding.rule])) {
                said.entry(*rule).or_default().insert("told");
            }
            Seen { at, units: judged.units.clone(), findings: judged.findings.clone() }
        })
        .collect()
}

fn word(status: &RuleStatus) -> &'static str {
    match status {
        RuleStatus::Evaluated => "evaluated",
        RuleStatus::Suspended(_) => "suspended",
        RuleStatus::Unsupported(_) => "unsupported",
        RuleStatus::Absent => "absent",
    }
}

fn blames(finding: &Finding, word: &str) -> bool {
    word == "all"
        || finding.rule.as_str() == word
        || finding.also.iter().any(|rule| rule.as_str() == word)
        || finding.variant.as_deref() == Some(word)
        || finding.cause.is_some_and(|cause| cause.as_str() == word)
        || finding.severity.as_str() == word
}

/// Every way in which the verdicts of one scenario are wrong.
fn faults(scenario: &Scenario, policy: Policy) -> Vec<String> {
    faults_of(scenario, &play(scenario, policy))
}

fn faults_of(scenario: &Scenario, seen: &[Seen]) -> Vec<String> {
    let mut faults = Vec::new();
    for truth in scenario.truth() {
        let from = truth.from.saturating_add(grace(&truth.state));
        let ticks: Vec<&UnitJudgement> = seen
            .iter()
            .filter(|seen| seen.at >= from && seen.at < truth.to)
            .filter_map(|seen| {
                seen.units.iter().find(|unit| {
                    unit.index.is_none_or(|i| i as usize == truth.unit)
                        && seen.units.iter().position(|other| other.unit == unit.unit) == Some(truth.unit)
                })
            })
            .collect();
        if ticks.is_empty() {
            // In an unknown stretch nobody ticks; the ledger's laws cover it.
            if truth.state != "unknown" && truth.to > from {
                faults.push(format!("GPU {}: no tick for {} from {from} to {}", truth.unit, truth.state, truth.to));
            }
            continue;
        }
        let wrong: Vec<String> = ticks
            .iter()
            .filter(|unit| {
                let cause = truth.cause.as_deref().is_none_or(|cause| cause == unit.state.reason());
                unit.state.as_str() != truth.state || !cause
            })
            .map(|unit| format!("{}{{{}}}", unit.state.as_str(), unit.state.reason()))
            .collect();
        if wrong.len() * 20 > ticks.len() {
            let (stretch, first) = (format!("{}..{} s", from.0 / 1_000_000_000, truth.to.0 / 1_000_000_000), &wrong[0]);
            faults.push(format!(
                "GPU {} in {stretch}: {} of {} ticks are not {}{{{}}}, first {first}",
                truth.unit,
                wrong.len(),
                ticks.len(),
                truth.state,
                truth.cause.as_deref().unwrap_or("*")
            ));
        }
        if let Some(expected) = truth.w {
            let mean = ticks.iter().map(|unit| unit.weight.w.as_fraction()).sum::<f64>() / ticks.len() as f64;
            if (mean - expected).abs() > 0.05 {
                faults.push(format!("GPU {}: w is {mean:.3}, expected {expected:.3}", truth.unit));
            }
        }
    }
    // What can be said can be asked for.
    let variants = seen.iter().flat_map(|seen| &seen.findings).filter_map(|finding| {
        let variant = finding.variant.as_deref()?;
        Some((finding.rule.as_str(), variant))
    });
    for (rule, variant) in variants.collect::<BTreeSet<_>>() {
        let known = |(of, its): &(&str, &[&str])| *of == rule && its.contains(&variant);
        if !gpuprod_sim::vocabulary::RULES.iter().any(known) {
            faults.push(format!("scenarios have no word for {rule}{{{variant}}}"));
        }
    }
    for blame in &scenario.blames {
        let found = seen.iter().filter(|seen| seen.at >= blame.from && seen.at < blame.to).any(|seen| {
            seen.findings.iter().any(|finding| {
                let object = blame.object.as_ref().is_none_or(|object| *object == finding.subject);
                finding.severity > Severity::Info && blames(finding, &blame.cause) && object
            })
        });
        if !found {
            faults.push(format!("nobody blamed {} {}", blame.cause, blame.object.as_deref().unwrap_or("")));
        }
    }
    for seen in seen {
        for finding in seen.findings.iter().filter(|finding| finding.severity > Severity::Info) {
            if let Some(word) = scenario.silent.iter().find(|word| blames(finding, word)) {
                faults.push(format!(
                    "{} s: {} must be silent, but: {}",
                    seen.at.0 / 1_000_000_000,
                    word,
                    finding.summary
                ));
            }
            // Without a word about silence all is false that nobody was to be blamed for.
            let covers = |blame: &Blame| {
                let object = blame.object.as_ref().is_none_or(|object| *object == finding.subject);
                object && blames(finding, &blame.cause)
            };
            if scenario.silent.is_empty() && !scenario.blames.iter().chain(&scenario.may).any(covers) {
                let at = seen.at.0 / 1_000_000_000;
                faults
                    .push(format!("{at} s: no line covers {} {}: {}", finding.rule, finding.subject, finding.summary));
            }
            // One page per cause object, never two findings about the same.
            let same = seen.findings.iter().filter(|other| other.subject == finding.subject).count();
            if same > 1 {
                faults.push(format!("{same} findings about {}", finding.subject));
            }
        }
    }
    // Nobody is paged twice for one trouble: blame of an object comes once and stays until it is lifted.
    let blamed: Vec<BTreeSet<&str>> = seen
        .iter()
        .map(|seen| {
            let loud = seen.findings.iter().filter(|finding| finding.severity > Severity::Info);
            loud.map(|finding| finding.subject.as_str()).collect()
        })
        .collect();
    let subjects: BTreeSet<&str> = blamed.iter().flatten().copied().collect();
    for subject in subjects {
        let rises = blamed.windows(2).filter(|pair| !pair[0].contains(subject) && pair[1].contains(subject)).count();
        if rises > 1 {
            faults.push(format!("{subject} was blamed {rises} times"));
        }
    }
    faults.truncate(12);
    faults
}

/// The judge's saved form is all of it: saved, loaded and going on is the same as never having stopped.
#[test]
fn a_judge_that_was_saved_goes_on_as_if_nothing_had_happened() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/raid_rebuild_serving.scn");
    let ticks: Vec<_> = gpuprod_sim::load(&path).unwrap().ticks().collect();
    let mut whole = gpuprod_rules::Judge::default();
    let mut cut = gpuprod_rules::Judge::default();
    for (place, tick) in ticks.iter().enumerate() {
        // Before the trouble, in its hold, within it, in its clearing, and after.
        if [200, 610, 700, 975, 1100].contains(&place) {
            cut = serde_json::from_str(&serde_json::to_string(&cut).unwrap()).unwrap();
        }
        let (whole, cut) = (whole.step(tick), cut.step(tick));
        assert_eq!(serde_json::to_string(&whole).unwrap(), serde_json::to_string(&cut).unwrap(), "tick {place}");
    }
}

#[test]
fn a_tick_with_more_gpus_than_any_node_is_cut_to_size() {
    let gpu =
        |index: u32| gpuprod_snapshot::gpu::Gpu { index, uuid: format!("GPU-{index}").into(), ..Default::default() };
    let gpus = gpuprod_snapshot::gpu::Gpus { devices: (0..5000).map(gpu).collect(), ..Default::default() };
    let sample =
        gpuprod_snapshot::Sample { at: Nanos(1), took: Nanos(1), value: gpus.into(), why: String::new(), hung: None };
    let tick = gpuprod_snapshot::Tick { gpu: Some(sample.into()), period: Nanos::from_secs(1), ..Default::default() };
    assert_eq!(gpuprod_rules::Judge::default().step(&tick).units.len(), 1024);
}

#[test]
fn every_scenario_is_judged_as_its_author_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
    let scenarios = gpuprod_sim::load_all(&dir).unwrap();
    assert!(scenarios.len() >= 12, "only {} scenarios in {}", scenarios.len(), dir.display());
    let (mut report, mut said) = (String::new(), Said::new());
    for (_, scenario) in &scenarios {
        let seen = play_and_note(scenario, Policy::default(), &mut said);
        for fault in faults_of(scenario, &seen) {
            report += &format!("\n{}: {fault}", scenario.name);
        }
    }
    assert!(report.is_empty(), "{report}");
    // No rule is silently dead, and none says of a node what it cannot know: all that they said there.
    let now: Vec<String> = said
        .iter()
        .map(|(rule, words)| format!("(R::{rule:?}, \"{}\"),", words.iter().copied().collect::<Vec<_>>().join(" ")))
        .collect();
    let wanted: Said = SAID.iter().map(|(rule, words)| (*rule, words.split(' ').collect())).collect();
    assert!(said == wanted, "the rules have said:\n{}", now.join("\n"));
    assert_eq!(said.len(), RULES.len());
}

/// What each rule says of itself over all scenarios.
const SAID: &[(R, &str)] = &[
    (R::GpuFault, "evaluated suspended told"),
    (R::TelemetryDegraded, "evaluated suspended told"),
    (R::Squatter, "absent evaluated suspended told"),
    (R::SilentThrottling, "evaluated suspended told"),
    (R::RaidRebuildImpact, "absent evaluated suspended told"),
    (R::IoStall, "absent evaluated suspended told"),
    (R::CpuStarvedLoader, "absent evaluated suspended told"),
    (R::MemoryLeak, "absent evaluated suspended told"),
    (R::CrossSocketFeeding, "absent evaluated suspended told"),
    (R::SharedUplinkContention, "absent evaluated suspended told"),
    (R::PcieLinkDegraded, "evaluated suspended told"),
    (R::FabricCongestion, "absent evaluated suspended told"),
    (R::KvSaturation, "absent evaluated suspended told"),
    (R::QueueInstability, "absent evaluated suspended told"),
    (R::PreemptionThrash, "absent evaluated suspended told"),
    (R::EngineStall, "absent evaluated suspended told"),
    (R::LoadingSlow, "absent evaluated suspended told"),
    (R::StragglerLocal, "absent evaluated suspended told"),
    (R::NoisyNeighbour, "absent evaluated suspended told"),
    (R::LatencyClassViolation, "absent evaluated suspended told"),
    (R::HeadroomBreach, "absent evaluated suspended told"),
    (R::ThroughputRegression, "absent evaluated suspended told"),
    (R::StrandedCapacity, "absent evaluated suspended told unsupported"),
    (R::NodeFit, "evaluated suspended told"),
    (R::AllocatedWithoutProcess, "absent evaluated suspended told unsupported"),
    (R::BusyButStarved, "absent evaluated suspended told unsupported"),
];

fn scenario(name: &str) -> Scenario {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
    gpuprod_sim::load(&dir.join(format!("{name}.scn"))).unwrap()
}

/// A threshold that is taken away, and the scenario that then goes wrong.
type Ablation = (&'static str, fn(&mut Policy), &'static str);

fn without(policy: &mut Policy, gate: Gate) {
    policy.without.insert(gate);
}

/// Every threshold earns its place: without it a scenario is misjudged.
#[test]
fn without_a_threshold_a_scenario_goes_wrong() {
    let ablations: &[Ablation] = &[
        ("hung_ns", |policy| policy.telemetry_degraded.hung_ns = Nanos::from_secs(3_600), "telemetry_driver_hangs"),
        ("errors_ns", |policy| policy.telemetry_degraded.errors_ns = Nanos::from_secs(3_600), "telemetry_driver_fails"),
        ("frozen_ns", |policy| policy.telemetry_degraded.frozen_ns = Nanos::from_secs(3_600), "telemetry_frozen"),
        ("ghost_ns", |policy| policy.telemetry_degraded.ghost_ns = Nanos::from_secs(3_600), "telemetry_ghost"),
        ("page_ns", |policy| policy.telemetry_degraded.page_ns = Nanos(0), "telemetry_page_short"),
        ("works", |policy| policy.telemetry_degraded.works = Part(0), "squat_engine_died"),
        ("works_power", |policy| policy.telemetry_degraded.works_power = Part::ONE, "telemetry_dead_engine"),
        ("throttle share", |policy| policy.silent_throttling.share = Part(10_000), "throttle_short"),
        ("throttle deficit", |policy| policy.silent_throttling.deficit = Part(0), "throttle_short"),
        ("cap_clock", |policy| policy.silent_throttling.cap_clock = Part(0), "throttle_hidden_cap"),
        ("throttle clear_ns", |policy| policy.silent_throttling.clear_ns = Nanos(0), "throttle_in_bursts"),
        ("fault_hold_ns", |policy| policy.fault_hold_ns = Nanos(0), "fault_double_bit"),
        ("peer_deficit", |policy| policy.gpu_fault.peer_deficit = Part(1_000_001), "fault_peers_spin"),
        ("squatter.mem", |policy| policy.squatter.mem = Part(0), "context_only"),
        ("squatter.for_ns", |policy| policy.squatter.for_ns = Nanos::from_secs(60), "pause_below_ten_minutes"),
        ("squatter.interactive_ns", |policy| policy.squatter.interactive_ns = policy.squatter.for_ns, "notebook_pause"),
        ("squatter.io_bytes", |policy| policy.squatter.io_bytes = 1e15, "loading_for_long"),
        ("squatter.phase_cpus", |policy| policy.squatter.phase_cpus = 1e3, "cpu_phase"),
        ("squatter.dead_mem", |policy| policy.squatter.dead_mem = Part::ONE, "squat_zombie"),
        ("squatter.dead_ns", |policy| policy.squatter.dead_ns = Nanos::from_secs(3_600), "squat_vanished"),
        ("squatter.refused_ns", |policy| policy.squatter.refused_ns = Nanos::from_secs(3_600), "squat_engine_died"),
        ("squatter.spin_util", |policy| policy.squatter.spin_util = Part(1_000_001), "spin_engine_hang"),
        ("squatter.spin_power", |policy| policy.squatter.spin_power = Part(0), "spin_without_gpm"),
        ("io_stall.wait_blocked", |policy| policy.io_stall.wait_blocked = Part(1_000_001), "io_server_hangs"),
        ("io_stall.hungry_util", |policy| policy.io_stall.hungry_util = Part(0), "io_drive_fails_half_busy"),
        ("io_stall.await_ratio", |policy| policy.io_stall.await_ratio = 1e6, "io_engine_drive_late"),
        ("io_stall.await_far", |policy| policy.io_stall.await_far = 1e6, "io_engine_drive_far_from_normal"),
        ("io_stall.background", |policy| policy.io_stall.background = Part(1_000_001), "io_neighbour_floods"),
        ("link for_ns", |policy| policy.pcie_link_degraded.for_ns = Nanos(0), "pcie_link_retrains"),
        ("replays", |policy| policy.pcie_link_degraded.replays = 0.0, "pcie_replays_few"),
        ("near_ns", |policy| policy.pcie_link_degraded.near_ns = Nanos::from_secs(7_200), "pcie_link_was_narrow"),
        ("filled", |policy| policy.pcie_link_degraded.filled = Part::ONE, "pcie_link_filled"),
        ("away", |policy| policy.cross_socket_feeding.away = Part(200_000), "cross_socket_partly"),
        ("feed", |policy| policy.cross_socket_feeding.feed = 0.0, "cross_socket_idle_link"),
        ("away for_ns", |policy| policy.cross_socket_feeding.for_ns = Nanos(0), "cross_socket_short"),
        ("order of a move", |policy| without(policy, Gate::Order), "cross_socket_after_slowdown"),
        ("order of an uplink", |policy| without(policy, Gate::Order), "uplink_after_slowdown"),
        ("used", |policy| policy.shared_uplink_contention.used = Part(400_000), "uplink_half_full"),
        ("squeezed", |policy| policy.shared_uplink_contention.squeezed = Part(0), "uplink_little_less"),
        ("io_stall.refault", |policy| policy.io_stall.refault = Part(3_000_000), "io_cache_thrash"),
        ("io_stall.small_read", |policy| policy.io_stall.small_read = 0.0, "io_small_files"),
        ("straggler resident", |policy| policy.straggler_local.resident = Part(1_000_001), "straggler_slow"),
        ("straggler gap", |policy| policy.straggler_local.gap = Part(1_000_001), "straggler_starved"),
        ("straggler ratio", |policy| policy.straggler_local.ratio = 100.0, "straggler_slow"),
        ("straggler warm_ns", |policy| policy.straggler_local.warm_ns = Nanos(0), "straggler_warms_up"),
        ("straggler for_ns", |policy| policy.straggler_local.for_ns = Nanos::from_secs(3_600), "straggler_slow"),
        ("neighbour score", |policy| policy.noisy_neighbour.score = 0, "neighbour_before_unrelated"),
        ("neighbour busy", |policy| policy.noisy_neighbour.busy = Part(1_000_001), "neighbour_timeslice"),
        ("neighbour for_ns", |policy| policy.noisy_neighbour.for_ns = Nanos::from_secs(3_600), "neighbour_one_guilty"),
        ("order", |policy| without(policy, Gate::Order), "io_after_slowdown"),
        ("link", |policy| without(policy, Gate::Link), "rebuild_elsewhere_disks_late"),
        ("link: it waits", |policy| without(policy, Gate::Link), "check_before_unrelated_slowdown"),
        ("counterfactual", |policy| without(policy, Gate::Counterfactual), "both_slow_during_rebuild"),
        ("liveness", |policy| without(policy, Gate::Liveness), "reserve_holds_all"),
        ("class", |policy| without(policy, Gate::Class), "person_holds_all"),
        ("order_slack_blocks", |policy| policy.order_slack_blocks = 10_000, "io_after_slowdown"),
    ];
    for &(name, change, of) in ablations {
        let mut policy = Policy::default();
        change(&mut policy);
        assert!(!faults(&scenario(of), policy).is_empty(), "{of} is judged right without {name}");
    }
}

/// What is told and wakes nobody: the variant, the state, and the last word of the rule.
#[test]
fn what_is_no_squatter_says_what_it_is() {
    for (name, variant) in [
        ("reserve_for_long", "idle_reserve"),
        ("spin_remote_peer", "peer_wait"),
        ("spin_rdma", "peer_wait"),
        ("spin_for_local_rank", "peer_wait"),
    ] {
        let seen = play(&scenario(name), Policy::default());
        let last = seen.last().unwrap();
        let found = last.findings.iter().find(|finding| finding.rule == RuleId::Squatter).unwrap();
        assert_eq!((found.variant.as_deref(), found.severity), (Some(variant), Severity::Info), "{name}");
        assert!(!found.summary.is_empty() && !found.evidence.is_empty() && !found.rejected.is_empty(), "{name}");
    }
    // What was not read is told, and nobody is woken for it.
    let told = play(&scenario("telemetry_samples_lost"), Policy::default());
    let coverage = told.iter().any(|seen| {
        let told = seen.findings.iter().find(|finding| finding.rule == RuleId::TelemetryDegraded);
        told.is_some_and(|told| told.variant.as_deref() == Some("coverage") && told.severity == Severity::Info)
    });
    assert!(coverage, "a tenth of the samples is lost and nobody says so");
    // Why the rule is silent stands in its report.
    for (name, why) in [
        ("server_without_page", "may be a server"),
        ("notebook_pause", "a person may pause"),
        ("one_gpu_of_the_job_works", "is or was at work"),
        ("stopped_by_scheduler", "is or was stopped"),
        ("held_while_nvml_hangs", "the driver does not answer"),
        ("reserve_page_times_out", "an engine that answers is a reserve"),
    ] {
        let mut pipeline = Pipeline::default();
        let scenario = scenario(name);
        let said = scenario.ticks().any(|tick| {
            let frame = pipeline.feed(&tick);
            frame.judgement.rules.iter().any(|report| match &report.status {
                RuleStatus::Suspended(text) => report.rule == RuleId::Squatter && text.contains(why),
                _ => false,
            })
        });
        assert!(said, "{name}: nobody said `{why}`");
    }
}
