//! The node-fit verdict, in each form, held against what each health check does with codes and text.

use std::path::Path;

use gpuprod::check::By;
use gpuprod::fit::{Also, Fit, Format, Verdict};
use gpuprod::pipeline::{Frame, Pipeline};
use gpuprod_rules::{Cause, Policy, Severity};
use gpuprod_snapshot::Reading;
use gpuprod_snapshot::storage::MdState;

fn at(scenario: &str, seconds: usize) -> Frame<'static> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios").join(scenario);
    let scenario = gpuprod_sim::load(&path).unwrap();
    let mut pipeline = Pipeline::new(Policy::default());
    let mut last = None;
    for tick in scenario.ticks().take(seconds + 1) {
        last = Some(pipeline.feed(&tick).to_owned());
    }
    last.unwrap()
}

fn codes(fit: &Fit, also: &[Also]) -> [u8; 4] {
    [Format::Slurm, Format::Npd, Format::Nagios, Format::Json].map(|format| fit.told(format, also).1)
}

#[test]
fn a_healthy_node_is_fit() {
    let fit = Fit::of(&at("serving_healthy.scn", 300), By::Agent);
    assert_eq!((fit.verdict, codes(&fit, &[])), (Verdict::Fit, [0, 0, 0, 0]));
    let (line, _) = fit.told(Format::Nagios, &[]);
    assert_eq!(
        line,
        "GPUPROD OK - fit: 8 GPUs judged, none is in trouble | productive=8.000;;;0;8 lost=0.000;;;0;8 units=8\n"
    );
}

#[test]
fn a_lost_gpu_is_unfit_and_alone_it_is_suspected() {
    let frame = at("gpu_lost.scn", 560);
    let fit = Fit::of(&frame, By::Agent);
    assert_eq!((fit.verdict, codes(&fit, &[])), (Verdict::Unfit, [1, 1, 2, 2]));
    assert!(fit.told(Format::Slurm, &[]).0.starts_with("unfit: "), "{}", fit.told(Format::Slurm, &[]).0);
    let alone = Fit::of(&frame, By::Alone);
    assert_eq!((alone.verdict, codes(&alone, &[])), (Verdict::Degraded, [0, 0, 1, 1]));
    assert_eq!(codes(&alone, &[Also::Degraded]), [1, 1, 2, 2]);
}

#[test]
fn storage_that_starves_all_gpus_is_unfit() {
    let mut frame = at("raid_rebuild_serving.scn", 660);
    let fit = Fit::of(&frame, By::Agent);
    assert_eq!(fit.verdict, Verdict::Unfit);
    let (line, code) = fit.told(Format::Npd, &[]);
    assert!(line.starts_with("unfit: raid_rebuild_impact md0 (storage), 8 GPUs"), "{line}");
    assert!(line.len() <= 81 && line.is_ascii() && code == 1);
    // The same finding of a workload's own making says nothing about the node.
    for finding in &mut frame.judgement.to_mut().findings {
        assert_eq!(finding.severity, Severity::Critical);
        finding.cause = Some(Cause::Kv);
    }
    assert_eq!(Fit::of(&frame, By::Agent).verdict, Verdict::Degraded);
}

#[test]
fn a_hung_driver_is_unfit() {
    let fit = Fit::of(&at("nvml_hang.scn", 540), By::Agent);
    assert_eq!(fit.verdict, Verdict::Unfit);
    assert!(fit.reasons[0].says.contains("the driver hangs: nvmlDeviceGetPowerUsage"), "{:?}", fit.reasons);
}

#[test]
fn a_failed_array_is_unfit() {
    let mut frame = at("serving_healthy.scn", 300);
    if let Some(Reading::Value(md)) = frame.known.to_mut().md.as_mut().map(|sample| &mut sample.value) {
        md.arrays[0].state = MdState::Broken.into();
    }
    let fit = Fit::of(&frame, By::Agent);
    assert_eq!((fit.verdict, fit.reasons[0].says.as_str()), (Verdict::Unfit, "array md0 has failed"));
}

#[test]
fn cannot_tell_drains_nobody() {
    let fit = Fit::unknown("no agent, and \u{1b}[2J | no driver");
    assert_eq!(codes(&fit, &[]), [0, 2, 3, 3]);
    assert_eq!(codes(&fit, &[Also::CannotTell]), [1, 1, 2, 2]);
    let (line, _) = fit.told(Format::Nagios, &[]);
    // No escape sequence, and no bar that would begin performance data.
    assert_eq!(line, "GPUPROD UNKNOWN - cannot tell: no agent, and ?[2J / no driver\n");
    let long = Fit::unknown(&"grün ".repeat(100));
    let (line, _) = long.told(Format::Npd, &[]);
    assert!(line.trim_end().len() == 80 && line.is_ascii(), "{line}");
}
