//! The agent as a service: a new config without a restart, and the GPUs let go of for a while.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use gpuprod_fake_nvml::{Fault, Gpu, STATE, State};

use crate::agent::Agent;
use crate::cli::{Scratch, gpuprod};

fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
}

fn run(scratch: &Scratch, args: &[&str]) -> (Option<i32>, String) {
    let output: Output = gpuprod(scratch, args).env(STATE, scratch.0.join("nvml.json")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said)
}

#[test]
fn a_good_file_is_taken_over_and_a_bad_one_is_not() {
    let scratch = Scratch::new("reload");
    let agent = Agent::start(&scratch, &["--nvml-library", "/nonexistent.so"]);
    let file = scratch.path("agent.yaml");
    let first = fs::read_to_string(&file).unwrap();
    let page = agent.until(10, |page| page.contains("gpuprod_self_config_reloads_total 0"));
    let taken = value(&page, "gpuprod_self_config_timestamp_seconds").unwrap();
    let observed = |page: &str| value(page, "gpuprod_self_tick_timestamp_seconds").unwrap();
    let begin = observed(&page);

    // An engine appears, a rule goes, and the port would need a restart.
    let engine = "http://127.0.0.1:1/metrics";
    let other = first.replace("127.0.0.1:0", "127.0.0.1:1");
    let text = format!("{other}engines: [\"{engine}\"]\nrules: {{modes: {{raid_rebuild_impact: off}}}}\n");
    fs::write(&file, text).unwrap();
    agent.signal("-HUP");
    let page = agent.until(20, |page| page.contains("gpuprod_self_config_reloads_total 1"));
    let said = agent.says();
    assert!(said.contains("config taken over: engines, rules.modes; waiting for a restart: http.listen"), "{said}");
    assert!(value(&page, "gpuprod_self_config_timestamp_seconds").unwrap() > taken);
    agent.until(20, |page| page.contains(&format!("gpuprod_engine_up{{engine=\"{engine}\"}} 0")));
    assert!(agent.get("/").1.contains("waiting for a restart: http.listen"));

    // A typo, then no file at all: the one before stays.
    for wrong in [Some("engins: []\n"), None] {
        match wrong {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        agent.signal("-HUP");
        let said = agent.says();
        assert!(said.contains("the one before stays in force") && said.contains("agent.yaml"), "{said}");
        if wrong.is_some() {
            let more: Vec<String> = (0..3).map(|_| agent.says()).collect();
            assert!(said.contains("unknown key `engins`") && more.concat().contains("did you mean"), "{said} {more:?}");
        }
    }
    let page = agent.until(20, |page| page.contains("gpuprod_self_config_failures_total 2"));
    assert!(page.contains("gpuprod_engine_up"), "the engine is still read");
    assert!(agent.get("/").1.contains("was refused"));

    // The engine goes again, and no second was left out meanwhile.
    fs::write(&file, first).unwrap();
    agent.signal("-HUP");
    let page = agent.until(20, |page| page.contains("gpuprod_self_config_reloads_total 2"));
    assert!(observed(&page) > begin);
    agent.until(20, |page| !page.contains("gpuprod_engine_up"));
    assert!(!agent.get("/").1.contains("was refused"));
    agent.stop();
}

#[test]
fn the_service_manager_is_told() {
    let scratch = Scratch::new("notify");
    let socket = UnixDatagram::bind(scratch.0.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let hear = || {
        let mut room = [0; 4096];
        let length = socket.recv(&mut room).expect("a message in time");
        String::from_utf8_lossy(&room[..length]).into_owned()
    };
    let until = |word: &str| {
        let found = (0..50).map(|_| hear()).find(|message| message.lines().any(|line| line.starts_with(word)));
        found.unwrap_or_else(|| panic!("no {word} in 50 messages"))
    };
    let mut agent = crate::agent::Agent::start_with(&scratch, &["--nvml-library", "/nonexistent.so"], |command| {
        command.env("NOTIFY_SOCKET", scratch.0.join("notify")).env("WATCHDOG_USEC", "3000000");
    });
    let first = hear();
    assert!(first.starts_with("READY=1\nWATCHDOG=1\n") && first.contains("WATCHDOG_USEC=13000000"), "{first}");
    until("STATUS=0 GPUs, 0 findings");
    let begin = Instant::now();
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1\n");
    }
    assert!(begin.elapsed() > Duration::from_secs(1), "with each tick, not oftener");
    agent.signal("-HUP");
    assert!(until("RELOADING=1").contains("MONOTONIC_USEC="));
    until("READY=1");
    agent.signal("-TERM");
    until("STOPPING=1");
    agent.child.wait().unwrap();
}

/// Processes below the agent that have the fake library mapped, and the agent itself if it has.
fn holders(agent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = |pid: &u32| {
        let parent = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = parent.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        *pid == agent || parent == Some(agent)
    };
    let maps = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("fake_nvml"));
    pids.filter(ours).filter(maps).collect()
}

#[test]
fn released_gpus_are_held_by_nobody_and_come_back() {
    let Some(library) = gpuprod_fake_nvml::library() else {
        println!("skipped: the fake NVML is not built beside this test");
        return;
    };
    let scratch = Scratch::new("lease");
    let state_file = scratch.0.join("nvml.json");
    let mut state = State { gpus: vec![Gpu::default(); 2], ..State::default() };
    state.write(&state_file).unwrap();
    let agent = Agent::start(&scratch, &["--nvml-library", library.to_str().unwrap()]);
    let pid = agent.child.id();
    let info = |page: &str| page.matches("gpuprod_gpu_utilization_ratio{").count();
    let page = agent.until(20, |page| info(page) == 2);
    assert_eq!((holders(pid).len(), value(&page, "gpuprod_self_gpu_lease_remaining_seconds")), (1, None));
    if gpuprod::state_dir::own_uid() != 0 {
        println!("skipped: only root may let go of the GPUs");
        return;
    }

    let (code, said) = run(&scratch, &["release-gpu", "--for", "60s", "--config", &scratch.path("cli.yaml")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("released for ") && said.contains("no driver handle is open"), "{said}");
    assert_eq!(holders(pid), [0_u32; 0], "the command returns when the child is gone");
    let page = agent.until(20, |page| page.contains("reason=\"released\"") && info(page) == 0);
    let left = value(&page, "gpuprod_self_gpu_lease_remaining_seconds").unwrap();
    assert!(left > 20.0 && left < 60.0, "{left}");
    let (_, check) = run(&scratch, &["check"]);
    assert!(check.contains("GPU 1   cannot tell  unknown (released)"), "which GPU is still known: {check}");
    let (_, doctor) = run(&scratch, &["doctor"]);
    assert!(doctor.contains("gpu     released") && doctor.contains("gpuprod resume-gpu"), "{doctor}");
    assert!(agent.get("/").1.contains("let go of for another"));

    let (code, said) = run(&scratch, &["resume-gpu", "--config", &scratch.path("cli.yaml")]);
    assert_eq!((code, said.as_str()), (Some(0), "resumed: 2 GPUs are read again\n"));
    assert_eq!(holders(pid).len(), 1);

    // A lease ends by itself.
    let (code, said) = run(&scratch, &["release-gpu", "--for", "2s", "--config", &scratch.path("cli.yaml")]);
    assert_eq!(code, Some(0), "{said}");
    agent.until(20, |page| info(page) == 2 && !page.contains("gpu_lease"));

    // A child that is stuck in the driver is no release.
    state.faults = vec![Fault::hang("nvmlDeviceGetPowerUsage")];
    state.write(&state_file).unwrap();
    agent.until(20, |page| page.contains("gpuprod_self_probe_hung_seconds{"));
    let (code, said) = run(&scratch, &["release-gpu", "--for", "5m", "--config", &scratch.path("cli.yaml")]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stuck in nvmlDeviceGetPowerUsage for 1"), "its age: {said}");
    state.faults.clear();
    state.write(&state_file).unwrap();
    agent.until(20, |page| page.contains("gpuprod_self_collector_missing{collector=\"gpu\",reason=\"released\"} 1"));
    assert_eq!(holders(pid), [0_u32; 0], "the order stood");
    agent.stop();

    // A restart takes the GPUs back.
    let agent = Agent::start(&scratch, &["--nvml-library", library.to_str().unwrap()]);
    agent.until(20, |page| info(page) == 2);
    agent.stop();
}

/// What the socket answers to bytes; none: nothing is written, and the writing side stays open.
fn socket(path: &Path, request: Option<&str>) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    if let Some(request) = request {
        stream.write_all(request.as_bytes()).unwrap();
    }
    let mut answer = Vec::new();
    // Who writes on and on is cut off, perhaps before he has read.
    if stream.read_to_end(&mut answer).is_err() {
        answer = b"{\"error\":\"cut off\"}".to_vec();
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn the_socket_understands_three_lines_and_obeys_root_alone() {
    let scratch = Scratch::new("orders");
    let agent = Agent::start(&scratch, &["--nvml-library", "/nonexistent.so"]);
    agent.until(20, |page| page.contains("gpuprod_self_info"));
    let path = scratch.0.join("state/gpuprod.sock");
    for request in [None, Some("frame\n"), Some("\n")] {
        let frame: serde_json::Value = serde_json::from_str(&socket(&path, request)).unwrap();
        assert!(frame["known"]["period_ns"].is_u64(), "{request:?}");
    }
    let long = "x".repeat(5_000);
    for request in
        ["release\n", "release -1\n", "release 1 2\n", "release 99999999999999999999\n", "format c:\n", &long]
    {
        assert!(socket(&path, Some(request)).starts_with("{\"error\":"), "{request:?}");
    }
    if gpuprod::state_dir::own_uid() != 0 {
        println!("skipped: the orders of root and of another user");
        return;
    }
    for request in ["release 0\n", "release 18446744073709551615\n"] {
        assert!(socket(&path, Some(request)).contains("between 1s and 24h"), "{request:?}");
    }
    // A member of the socket's group reads the frame and gives no orders.
    let binary = scratch.0.join("gpuprod");
    fs::copy(env!("CARGO_BIN_EXE_gpuprod"), &binary).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    for place in [scratch.0.join("state"), path] {
        chown(place, None, Some(65_534)).unwrap();
    }
    fs::write(scratch.0.join("cli.yaml"), format!("state_dir: {}/state\n", scratch.0.display())).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).arg("--config").arg(scratch.0.join("cli.yaml")).uid(65_534).gid(65_534);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout),
        )
    };
    for order in [&["release-gpu", "--for", "10s"][..], &["resume-gpu"]] {
        let (code, said) = nobody(order);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("only root may let go of the GPUs"), "{said}");
    }
    let (code, said) = nobody(&["check", "--json"]);
    assert_eq!(code, Some(3));
    assert!(said.contains("\"by\":\"agent\""), "{said}");
    assert!(!agent.get("/metrics").1.contains("gpu_lease"), "nothing was let go of");
    agent.stop();
}
