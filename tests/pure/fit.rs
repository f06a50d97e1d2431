//! The node-fit verdict, in each form, held against what each health check does with codes and text.

use std::path::Path;
use std::sync::Arc;

use gpuprod::check::By;
use gpuprod::fit::{Also, Fit, For, Format, Verdict};
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
    let fit = Fit::of(&at("serving_healthy.scn", 300), By::Agent, For::Batch);
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
    let fit = Fit::of(&frame, By::Agent, For::Batch);
    assert_eq!((fit.verdict, codes(&fit, &[])), (Verdict::Unfit, [1, 1, 2, 2]));
    assert!(fit.told(Format::Slurm, &[]).0.starts_with("unfit: "), "{}", fit.told(Format::Slurm, &[]).0);
    let alone = Fit::of(&frame, By::Alone, For::Batch);
    assert_eq!((alone.verdict, codes(&alone, &[])), (Verdict::Degraded, [0, 0, 1, 1]));
    assert_eq!(codes(&alone, &[Also::Degraded]), [1, 1, 2, 2]);
}

#[test]
fn storage_that_starves_all_gpus_is_unfit() {
    let mut frame = at("raid_rebuild_serving.scn", 660);
    let fit = Fit::of(&frame, By::Agent, For::Batch);
    assert_eq!(fit.verdict, Verdict::Unfit);
    let (line, code) = fit.told(Format::Npd, &[]);
    assert!(line.starts_with("unfit: raid_rebuild_impact md0 (storage), 8 GPUs"), "{line}");
    assert!(line.len() <= 81 && line.is_ascii() && code == 1);
    assert_eq!(Fit::of(&frame, By::Agent, For::Serving).verdict, Verdict::Unfit);
    // The same finding of a workload's own making says nothing about the node.
    frame.judgement.to_mut().node.fit.clear();
    let findings = &mut frame.judgement.to_mut().findings;
    for finding in findings.iter_mut().filter(|finding| finding.severity > Severity::Info) {
        assert_eq!(finding.severity, Severity::Critical);
        finding.cause = Some(Cause::Kv);
    }
    assert_eq!(Fit::of(&frame, By::Agent, For::Batch).verdict, Verdict::Degraded);
}

/// A rebuild that costs a quarter is a warning: batch lives with it, serving does not. After its end the verdict waits.
#[test]
fn serving_is_stricter_and_the_verdict_rises_slowly() {
    let verdicts = |seconds| {
        let frame = at("rebuild_mild.scn", seconds);
        [For::Batch, For::Serving].map(|whom| Fit::of(&frame, By::Agent, whom).verdict)
    };
    assert_eq!(verdicts(590), [Verdict::Fit, Verdict::Fit]);
    assert_eq!(verdicts(700), [Verdict::Degraded, Verdict::Unfit]);
}

/// The hour after an incident: what stood stays for five minutes, and says so.
#[test]
fn what_was_unfit_has_to_stay_better_for_a_while() {
    let frame = at("raid_rebuild_serving.scn", 1_100);
    assert!(frame.judgement.findings.iter().all(|finding| finding.severity == Severity::Info));
    let fit = Fit::of(&frame, By::Agent, For::Batch);
    assert_eq!(fit.verdict, Verdict::Unfit);
    assert!(fit.reasons[0].says.contains("has to stay better"), "{:?}", fit.reasons);
    assert_eq!(Fit::of(&frame, By::Alone, For::Batch).verdict, Verdict::Fit);
}

/// A link that was lost while nobody used it, for half a minute; a port that never had one says nothing.
#[test]
fn a_port_that_lost_its_link_degrades() {
    let fit = |seconds| Fit::of(&at("fabric_dark_port.scn", seconds), By::Agent, For::Batch);
    assert_eq!(fit(320).verdict, Verdict::Fit);
    let fit = fit(340);
    assert_eq!((fit.verdict, fit.reasons[0].says.as_str()), (Verdict::Degraded, "port mlx5_0 has lost its link"));
    assert_eq!(fit.reasons.len(), 1);
    // Who looks alone has judged by the same rules: what turned while it looked is told, too.
    let alone = Fit::of(&at("fabric_dark_port.scn", 340), By::Alone, For::Batch);
    assert_eq!((alone.verdict, alone.reasons[0].says.as_str()), (Verdict::Degraded, "port mlx5_0 has lost its link"));
}

#[test]
fn a_hung_driver_is_unfit() {
    let fit = Fit::of(&at("nvml_hang.scn", 540), By::Agent, For::Batch);
    assert_eq!(fit.verdict, Verdict::Unfit);
    assert!(fit.reasons[0].says.contains("the driver hangs: nvmlDeviceGetPowerUsage"), "{:?}", fit.reasons);
}

#[test]
fn a_failed_array_is_unfit() {
    let mut frame = at("serving_healthy.scn", 300);
    frame.judgement.to_mut().node.fit.clear();
    if let Some(Reading::Value(md)) = frame.known.to_mut().md.as_mut().map(|sample| &mut Arc::make_mut(sample).value) {
        md.arrays[0].state = MdState::Broken.into();
    }
    let fit = Fit::of(&frame, By::Agent, For::Batch);
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
