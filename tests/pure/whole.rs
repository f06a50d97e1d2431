//! The node as a whole: what is left, what is stranded, what is allocated and unused.

use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod_rules::node::Resource;
use gpuprod_rules::{Allocation, Class, Declared, Policy, RuleId, RuleStatus, Severity, Shape, State};
use gpuprod_sim::Scenario;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text).unwrap()
}

fn run(scenario: &Scenario, policy: &Policy, seconds: usize) -> Frame<'static> {
    let mut pipeline = Pipeline::new(policy.clone());
    let mut last = None;
    for tick in scenario.ticks().take(seconds + 1) {
        last = Some(pipeline.feed(&tick).to_owned());
    }
    last.unwrap()
}

fn finding<'a>(frame: &'a Frame<'_>, rule: RuleId) -> Option<&'a gpuprod_rules::Finding> {
    frame.judgement.findings.iter().find(|finding| finding.rule == rule)
}

fn status(frame: &Frame<'_>, rule: RuleId) -> RuleStatus {
    frame.judgement.rules.iter().find(|report| report.rule == rule).unwrap().status.clone()
}

const BESIDE_A_REBUILD: &str = "
scenario beside_a_rebuild
about a GPU is free, and the array that every job would read is being rebuilt
seed 91
length 30m
gpu 2
engine vllm gpus 0 rate 1200tok/s running 16 waiting 4
array md0 raid5 members nvme0n1 nvme1n1 nvme2n1 spare nvme3n1 mount /models
reads vllm md0 900MB/s
at 10m rebuild md0 speed 180MB/s slows vllm to 0.5
at 20m end md0
";

#[test]
fn a_free_gpu_beside_saturated_storage_is_stranded() {
    let scenario = scenario(BESIDE_A_REBUILD);
    let before = run(&scenario, &Policy::default(), 590);
    assert!(finding(&before, RuleId::StrandedCapacity).is_none());
    let residual = |frame: &Frame<'_>, resource| {
        frame
            .judgement
            .node
            .residual
            .iter()
            .find(|residual| residual.resource == resource)
            .map(|residual| residual.ratio.as_fraction())
    };
    assert!((residual(&before, Resource::Gpu).unwrap() - 0.58).abs() < 0.05, "one of two, and 16 % of the other");
    assert!(residual(&before, Resource::Hbm).is_some_and(|free| (0.4..0.7).contains(&free)));
    let during = run(&scenario, &Policy::default(), 1_000);
    assert_eq!(
        residual(&during, Resource::StorageBandwidth),
        Some(0.0),
        "nothing is left while a rebuild starves somebody"
    );
    let found = finding(&during, RuleId::StrandedCapacity).unwrap();
    assert_eq!((found.severity, found.variant.as_deref()), (Severity::Warn, Some("storage_bandwidth")));
    assert_eq!(found.victims.len(), 1, "{:?}", found.victims);
    let stranded = during.judgement.node.stranded().unwrap();
    assert_eq!(stranded.as_f64(), 1.0);
    // A minute after the finding of the rebuild is over it is over too.
    let after = run(&scenario, &Policy::default(), 1_500);
    assert!(finding(&after, RuleId::StrandedCapacity).is_none());
    // Jobs that read nothing find room.
    let shapes = vec![Shape { name: "compute".into(), gpu_milli: 1_000, ..Shape::default() }];
    let policy = Policy { declared: Declared { shapes, ..Declared::default() }, ..Policy::default() };
    let compute = run(&scenario, &policy, 1_000);
    assert!(finding(&compute, RuleId::StrandedCapacity).is_none());
    assert_eq!(compute.judgement.node.rooms[0].jobs, Some(1));
}

const UNUSED: &str = "
scenario allocated_no_process
about a job has a GPU for an hour and never starts
seed 92
length 90m
gpu 2
engine vllm gpus 0 rate 1200tok/s running 16
";

fn declared(gpu: &str, class: Class, standby: bool) -> Policy {
    let record = Allocation { gpu: gpu.into(), owner: "job 4711".into(), class: Some(class), standby };
    Policy { declared: Declared { allocations: vec![record], ..Declared::default() }, ..Policy::default() }
}

#[test]
fn a_gpu_that_is_allocated_and_unused_is_told_then_warned_of() {
    let scenario = scenario(UNUSED);
    let policy = declared("1", Class::Batch, false);
    let quarter = run(&scenario, &policy, 890);
    assert!(finding(&quarter, RuleId::AllocatedWithoutProcess).is_none());
    let unit = &quarter.judgement.units[1];
    assert_eq!(unit.state, State::Idle, "somebody has it: it is not unallocated");
    let told = run(&scenario, &policy, 930);
    let found = finding(&told, RuleId::AllocatedWithoutProcess).unwrap();
    assert_eq!((found.severity, found.subject.as_str()), (Severity::Info, "GPU-1"));
    let warned = run(&scenario, &policy, 3_700);
    assert_eq!(finding(&warned, RuleId::AllocatedWithoutProcess).unwrap().severity, Severity::Warn);
    assert!(warned.judgement.findings.iter().all(|finding| finding.severity < Severity::Critical));
}

#[test]
fn a_record_that_is_met_or_stands_by_is_no_waste() {
    let scenario = scenario(UNUSED);
    for policy in [declared("0", Class::Batch, false), declared("1", Class::Serving, true)] {
        let frame = run(&scenario, &policy, 3_700);
        assert!(finding(&frame, RuleId::AllocatedWithoutProcess).is_none(), "{:?}", policy.declared);
    }
    // A serving replica may wait for an hour.
    let serving = run(&scenario, &declared("1", Class::Serving, false), 3_500);
    assert!(finding(&serving, RuleId::AllocatedWithoutProcess).is_none());
    let nobody = run(&scenario, &Policy::default(), 60);
    assert!(matches!(status(&nobody, RuleId::AllocatedWithoutProcess), RuleStatus::Unsupported(_)));
    assert_eq!(nobody.judgement.units[1].state, State::Unallocated);
}

/// While the driver hangs nobody can tell who is on the GPU.
#[test]
fn a_hung_driver_is_no_empty_gpu() {
    let text = format!("{UNUSED}at 5m hang nvml nvmlDeviceGetPowerUsage\n");
    let frame = run(&scenario(&text), &declared("1", Class::Batch, false), 1_500);
    assert!(finding(&frame, RuleId::AllocatedWithoutProcess).is_none());
    assert!(matches!(status(&frame, RuleId::AllocatedWithoutProcess), RuleStatus::Suspended(_) | RuleStatus::Absent));
}

#[test]
fn what_nothing_says_the_size_of_is_not_listed() {
    let frame = run(&scenario("scenario bare\nlength 5m\ngpu 1\n"), &Policy::default(), 200);
    let listed: Vec<Resource> = frame.judgement.node.residual.iter().map(|residual| residual.resource).collect();
    assert!(!listed.contains(&Resource::StorageBandwidth), "no drive was read: {listed:?}");
    assert!(listed.contains(&Resource::Gpu) && listed.contains(&Resource::Hbm), "{listed:?}");
}
