//! The mirror: what a scenario means, written out as a fake host, read by the real collectors, is what was meant.
//!
//! It proves every parser, every mapping and every unit on the way: the writer prints as the kernel, the driver
//! and the engine do, from the vocabulary, and shares no code with the readers. Times of samples are left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuprod_collectors::{Host, Options};
use gpuprod_sim::{Responder, Scenario, materialise, nvml_state, respond};
use gpuprod_snapshot::{Focus, Reading, Sample, Source, Tick};
use serde_json::Value;

/// A directory of this test alone; it goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gpuprod-mirror-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn scenario(file: &str) -> Scenario {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios");
    gpuprod_sim::load(&dir.join(file)).unwrap()
}

/// The NVML child reads the state file that its environment names, so it is started through `env`: tests share
/// one process, and its environment with it.
fn worker(state: &Path) -> Vec<String> {
    let state = format!("{}={}", gpuprod_fake_nvml::STATE, state.display());
    ["/usr/bin/env".to_owned(), state, env!("CARGO_BIN_EXE_gpuprod").to_owned(), "nvml-worker".to_owned()].into()
}

/// All paths at which two values differ, with both sides.
fn differences(path: &str, meant: &Value, found: &Value, out: &mut Vec<String>) {
    match (meant, found) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let null = &Value::Null;
                differences(&format!("{path}.{key}"), a.get(key).unwrap_or(null), b.get(key).unwrap_or(null), out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{at}]"), a, b, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{path}: meant {a}, found {b}")),
    }
}

/// What the two ticks say, source by source, without the times of the samples and of the engines' pages.
fn said(tick: &Tick) -> Value {
    let mut json = serde_json::to_value(tick).unwrap();
    let object = json.as_object_mut().unwrap();
    object.retain(|key, _| Source::ALL.iter().any(|source| source.as_str() == key));
    for sample in object.values_mut() {
        for time in ["at_ns", "took_ns", "why"] {
            sample.as_object_mut().unwrap().remove(time);
        }
    }
    for engine in json.pointer_mut("/engine/value/engines").and_then(Value::as_array_mut).into_iter().flatten() {
        // The words of a failure are the reader's own.
        for key in ["at_ns", "why"] {
            engine.as_object_mut().unwrap().remove(key);
        }
    }
    json
}

/// Plays a scenario up to each of the seconds, writes the host out there, and reads it back.
fn mirror(file: &str, seconds: &[u64]) {
    let mut scenario = scenario(file);
    let scratch = Scratch::new(file);
    let state = scratch.0.join("nvml.json");
    let engines: Vec<String> =
        scenario.works.iter().filter(|work| work.port.is_some()).map(|work| work.name.clone()).collect();
    let responders: Vec<Responder> = engines.iter().map(|_| Responder::start(0).unwrap()).collect();
    for (name, responder) in engines.iter().zip(&responders) {
        scenario.set_port(name, responder.port());
    }
    let options = Options {
        engines: responders.iter().map(Responder::url).collect(),
        nvml_worker: Some(worker(&state)),
        ..Options::default()
    };
    let library = gpuprod_fake_nvml::library().expect("cargo builds the library beside this test");
    let host = Host::at(&scratch.0).with_nvml(Some(library));
    let mut collectors = gpuprod_collectors::all(&options);
    let (mut known, mut older) = (Tick::default(), Tick::default());
    let mut nvml = Value::Null;
    let mut compared = 0;
    let mut ticks = scenario.ticks();
    while let Some(tick) = ticks.next() {
        known.advance(&mut older, &tick);
        nvml_state(&tick, &mut nvml);
        let second = ticks.second();
        // What the driver said before is part of what is said of a board that is lost.
        if !seconds.contains(&second) && !seconds.contains(&(second + 1)) {
            continue;
        }
        materialise(&known, &scratch.0).unwrap();
        // The library's own type checks every key.
        let typed: gpuprod_fake_nvml::State = serde_json::from_value(nvml.clone()).unwrap();
        typed.write(&state).unwrap();
        for responder in &responders {
            responder.show(respond(&known, &responder.url()));
        }
        let focus = Focus::of(&known);
        let mut found = Tick::default();
        for collector in &mut collectors {
            let source = collector.source();
            // Activity (GPM) is a difference of two looks, and of a board's processes each fifth look asks anew.
            // Events are told once.
            let looks = match source {
                Source::Gpu => 5,
                _ => 1,
            };
            for _ in 1..looks {
                let _ = collector.collect(&host, &focus);
                // GPM wants 100 ms between two samples.
                std::thread::sleep(std::time::Duration::from_millis(110));
            }
            let part = collector.collect(&host, &focus);
            let sample = |value| Sample {
                at: known.stamp.boottime,
                took: Default::default(),
                value,
                why: String::new(),
                hung: None,
            };
            match part {
                Ok(part) => found.put(sample(Reading::Value(part))),
                Err(error) => {
                    let Sample { at, took, why, hung, .. } = sample(Reading::Missing(error.missing));
                    found.put_missing(source, Sample { at, took, value: Reading::Missing(error.missing), why, hung });
                }
            }
        }
        if !seconds.contains(&second) {
            continue;
        }
        let mut out = Vec::new();
        differences("", &said(&known), &said(&found), &mut out);
        let shown: Vec<&str> = out.iter().take(40).map(String::as_str).collect();
        assert!(out.is_empty(), "{file} at {second} s, {} differences:\n{}", out.len(), shown.join("\n"));
        compared += 1;
    }
    assert_eq!(compared, seconds.len(), "{file}: the scenario has no tick at some of {seconds:?}");
}

#[test]
fn an_array_that_rebuilds_under_an_engine() {
    mirror("raid_rebuild_serving.scn", &[100, 700, 1100]);
}

#[test]
fn a_check_and_an_array_that_is_not_read() {
    mirror("check_without_victim.scn", &[900]);
    mirror("rebuild_elsewhere.scn", &[800]);
}

#[test]
fn one_engine_on_one_gpu_and_nobody_on_two() {
    mirror("decode_batch1.scn", &[120]);
    mirror("unallocated.scn", &[300]);
}

#[test]
fn a_plain_disk_with_a_neighbour() {
    mirror("disk_neighbour.scn", &[650]);
}

#[test]
fn a_lost_gpu_and_its_line_in_the_kernel_log() {
    mirror("gpu_lost.scn", &[480, 600]);
}

#[test]
fn an_engine_that_is_away_and_back() {
    mirror("engine_restart.scn", &[490, 530]);
}

#[test]
fn a_zombie_peers_and_an_orphan() {
    mirror("squat_zombie.scn", &[350, 400]);
    mirror("spin_remote_peer.scn", &[400]);
    mirror("spin_rdma.scn", &[350]);
    mirror("squat_orphan.scn", &[250, 400]);
}

#[test]
fn a_network_file_system_that_hangs() {
    mirror("io_server_hangs.scn", &[400, 600]);
}

#[test]
fn a_difference_is_found_and_named() {
    let scenario = scenario("raid_rebuild_serving.scn");
    let tick = scenario.ticks().next().unwrap();
    let mut other = tick.clone();
    let Some(Reading::Value(md)) = other.md.as_mut().map(|sample| &mut Arc::make_mut(sample).value) else {
        panic!("md")
    };
    md.arrays[0].degraded = 9.into();
    let mut out = Vec::new();
    differences("", &said(&tick), &said(&other), &mut out);
    assert_eq!(out, [".md.value.arrays[0].degraded: meant 0, found 9"]);
}

#[test]
fn the_node_around_the_gpus() {
    mirror("cpu_busy_without_victim.scn", &[700]);
    mirror("memory_page_cache.scn", &[900]);
    mirror("fabric_busy_without_victim.scn", &[700]);
    mirror("fabric_port_never_up.scn", &[100]);
    mirror("fabric_link_flap.scn", &[604, 640]);
    mirror("cpu_interrupts.scn", &[700]);
    mirror("memory_oom_kill.scn", &[500]);
    mirror("loading_normal.scn", &[1210, 1500]);
}

#[test]
fn the_way_between_gpus_and_the_host() {
    mirror("pcie_link_narrow.scn", &[500, 700]);
    mirror("pcie_slot_is_narrow.scn", &[300]);
    mirror("uplink_shared.scn", &[700]);
    mirror("cross_socket_both.scn", &[300]);
}
