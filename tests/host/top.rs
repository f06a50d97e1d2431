//! `top`, `demo`, `fit` and `topo` as commands: pages, codes, time travel.

use std::path::Path;
use std::process::Output;

use gpuprod::history::{Budget, Writer};
use serde_json::Value;

use crate::cli::{Scratch, gpuprod};

fn run(scratch: &Scratch, args: &[&str]) -> (String, String, Option<i32>) {
    let Output { stdout, stderr, status } = gpuprod(scratch, args).output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code())
}

fn with_store(scratch: &Scratch) -> String {
    let path = scratch.path("top.yaml");
    let text = format!("state_dir: {0}/state\nstore: {{dir: {0}/store}}\n", scratch.0.display());
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_time_that_has_passed_is_shown_as_it_was() {
    let scratch = Scratch::new("since");
    let config = with_store(&scratch);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/raid_rebuild_serving.scn");
    let scenario = gpuprod_sim::load(&path).unwrap();
    let budget = Budget { bytes: 100 << 20, host: "node7".to_owned() };
    let mut writer = Writer::open(&scratch.0.join("store/history"), budget.clone()).unwrap();
    for tick in scenario.ticks() {
        writer.write(&tick).unwrap();
    }
    drop(writer);
    let page = |since: &str| run(&scratch, &["top", "--once", "--config", &config, "--since", since]);
    // What came before the asked-for time was judged unseen: own normals are known.
    let (during, err, code) = page("2026-03-01T02:12:00Z");
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert!(during.contains("2026-03-01T02:12:0") || during.contains("2026-03-01T02:11:59"), "{during}");
    assert!(during.contains("the rebuild of md0 starves all 8 GPUs since 02:10:0"), "{during}");
    let (before, _, _) = page("2026-03-01T02:09:00Z");
    assert!(before.contains("nothing is wrong") && before.contains("2026-03-01T02:0"), "{before}");
    // A segment that is damaged is a gap, and the gap is said, with its name.
    let files = gpuprod::history::segments(&scratch.0.join("store/history")).unwrap();
    let broken = files[0].path.to_str().unwrap();
    let mut bytes = std::fs::read(broken).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    std::fs::write(broken, bytes).unwrap();
    let (out, err, code) = page("2026-03-01T02:12:00Z");
    // 02:12 is beyond the middle: nothing is left of it, and that is said too.
    assert!(code == Some(1) && out.is_empty(), "{out}{err}");
    assert!(err.contains("no history from") && err.contains(&format!("{broken} is damaged: ")), "{err}");
    let mut writer = Writer::open(&scratch.0.join("store/history"), budget.clone()).unwrap();
    scenario
        .ticks()
        .filter(|tick| tick.stamp.realtime.0 >= 1_772_331_100_000_000_000)
        .for_each(|tick| writer.write(&tick).unwrap());
    drop(writer);
    let (out, err, code) = page("2026-03-01T02:12:00Z");
    assert!(code == Some(0) && out.contains("2026-03-01T02:1"), "{out}{err}");
    assert!(err.starts_with(&format!("note: skipped in the history: {broken} is damaged: ")), "{err}");
    assert!(err.contains("line") && err.lines().count() == 1, "{err}");
    // After the last tick there is nothing, and that is said; so is a time that is none.
    let (_, err, code) = page("1s");
    assert!(code == Some(1) && err.contains("no history from"), "{err}");
    let (_, err, code) = page("yesterday");
    assert!(code == Some(3) && err.contains("is no time; write how long ago"), "{err}");
}

#[test]
fn without_a_terminal_it_is_a_page_and_says_so() {
    let scratch = Scratch::new("no-terminal");
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/lab/raid_rebuild.ticks");
    let (out, err, code) = run(&scratch, &["top", "--replay", recording.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("this is no terminal") && out.contains("GPU 7"), "{out}{err}");
    assert!(!out.contains('\u{1b}') && out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (list, _, code) = run(&scratch, &["demo", "--list"]);
    assert!(code == Some(0) && list.starts_with("raid_rebuild "), "{list}");
    let (_, err, code) = run(&scratch, &["demo", "nope"]);
    assert!(code == Some(1) && err.contains("raid_rebuild"), "{err}");
    let (_, err, code) = run(&scratch, &["top", "--once", "--attach", "http://127.0.0.1:9"]);
    assert!(code == Some(1) && err.contains("ask http://127.0.0.1:9/api/v1/frame"), "{err}");
}

#[test]
fn fit_without_a_driver_cannot_tell_and_drains_nobody() {
    let scratch = Scratch::new("fit");
    let config = with_store(&scratch);
    let blind = ["--config", config.as_str(), "--nvml-library", "/nonexistent/libnvidia-ml.so.1"];
    for (form, wanted) in [("slurm", 0), ("npd", 2), ("nagios", 3), ("json", 3)] {
        let (out, _, code) = run(&scratch, &[&["fit", "--format", form], &blind[..]].concat());
        assert_eq!(code, Some(wanted), "{form}: {out}");
        assert_eq!(out.lines().count(), 1, "{form}: {out}");
    }
    // A config that is wrong is "cannot tell", too.
    let (out, _, code) = run(&scratch, &["fit", "--format", "slurm", "--config", "/nonexistent/gpuprod.yaml"]);
    assert!(code == Some(0) && out.contains("/nonexistent/gpuprod.yaml"), "{out}");
    let (_, _, code) =
        run(&scratch, &[&["fit", "--format", "slurm", "--unfit-on", "cannot-tell"], &blind[..]].concat());
    assert_eq!(code, Some(1));
}

#[test]
fn topo_says_at_which_end_a_link_is_narrow_and_what_is_near() {
    let scratch = Scratch::new("topo");
    let config = with_store(&scratch);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pci/two_sockets");
    let args = ["topo", "--config", &config, "--host-root", root.to_str().unwrap()];
    let (page, err, code) = run(&scratch, &args);
    assert_eq!(code, Some(0), "{err}");
    // The fixture: a GPU at x8 of x16 on node 0 beside a network card, another GPU on node 1.
    let matrix = page.lines().find(|line| line.starts_with("17:00.0 ")).unwrap_or_else(|| panic!("{page}"));
    assert_eq!(matrix.split_whitespace().collect::<Vec<_>>(), ["17:00.0", "X", "SYS", "PIX"], "{page}");
    assert!(page.contains("link x8 of x16"), "{page}");
    assert!(page.contains("node 0: pin to CPUs 0-31; nearest network card nic 18:00.0 (PIX)"), "{page}");
    let (json, _, _) = run(&scratch, &[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["devices"].as_array().unwrap().len(), 3);
    assert_eq!(json["paths"].as_array().unwrap().len(), 3);
    assert_eq!(json["findings"][0]["warn"], true);
}
