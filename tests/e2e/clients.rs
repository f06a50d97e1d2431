//! NVML clients that nobody here wrote see the same fake GPUs as we do: the fake library is no mirror of our own reading.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use gpuprod_fake_nvml::{Gpu, Process, STATE, State};
use serde_json::Value;

use super::{Running, Scratch};

/// What a screen says of one GPU.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    util: u32,
    watts: u32,
    celsius: u32,
    /// In GiB, to one digit.
    memory: f64,
    pid: u32,
}

fn tools() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tools/gpu-clients");
    let output = Command::new(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("bin")
}

/// The number before a word (`84%`, `402W`), counted from the left.
fn number<T: std::str::FromStr>(text: &str, unit: &str, place: usize) -> Option<T> {
    let end = text.match_indices(unit).nth(place)?.0;
    let before = text[..end].trim_end();
    let begin = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |place| place + 1);
    before[begin..].parse().ok()
}

fn gib(text: &str) -> Option<f64> {
    let value = number::<f64>(text, "GiB", 0).or_else(|| number::<f64>(text, "MiB", 0).map(|mib| mib / 1024.0))?;
    Some((value * 10.0).round() / 10.0)
}

/// `nvitop --once`, as it is printed.
fn nvitop(text: &str) -> Vec<Seen> {
    let boards = text.lines().filter(|line| line.contains("Default |"));
    let pid = |gpu: usize| {
        let rows = text.lines().filter(|line| line.contains("sleep"));
        let words = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        rows.map(words).find(|words| words[1] == gpu.to_string()).map(|words| words[2].parse().unwrap())
    };
    let seen = |(gpu, line): (usize, &str)| Seen {
        celsius: number(line, "C ", 0).unwrap(),
        watts: number(line, "W /", 0).unwrap(),
        memory: gib(line.split('|').nth(2).unwrap().split('/').next().unwrap()).unwrap(),
        util: number(line.split('|').nth(3).unwrap(), "%", 0).unwrap(),
        pid: pid(gpu).unwrap(),
    };
    boards.enumerate().map(seen).collect()
}

/// nvtop's screen. `reserved`: it asks for the first version of NVML's memory figures, whose "used" includes what the
/// driver keeps for itself.
fn nvtop(screen: &str, gpus: usize, reserved: f64) -> Option<Vec<Seen>> {
    let line = |what: &str| screen.lines().find(|line| line.contains(what));
    let (sensors, bars) = (line("TEMP")?, line("GPU[")?);
    let memory = |gpu: usize| {
        let used: f64 = number(bars.split("MEM[").nth(gpu + 1)?, "Gi/", 0)?;
        Some(((used - reserved) * 10.0).round() / 10.0)
    };
    let pid = |gpu: usize| {
        let rows = screen.lines().filter(|line| line.contains("Compute"));
        let mut words = rows.map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.find(|words| words[2] == gpu.to_string())?[0].parse().ok()
    };
    let seen = |gpu: usize| {
        Some(Seen {
            celsius: number(sensors, "°C", gpu)?,
            watts: number(sensors, "/ 700 W", gpu)?,
            util: number(bars.split("GPU[").nth(gpu + 1)?, "%]", 0)?,
            memory: memory(gpu)?,
            pid: pid(gpu)?,
        })
    };
    (0..gpus).map(seen).collect()
}

/// A terminal in which a program runs.
struct Terminal(PathBuf);

impl Terminal {
    fn open(socket: PathBuf, command: &str) -> Self {
        let terminal = Self(socket);
        terminal.tmux(&["new-session", "-d", "-x", "160", "-y", "50", command]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.0).args(args).output().expect("Debian's tmux");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.0).arg("kill-server").status();
    }
}

/// What we say: `top --once` for a person, the snapshot for the rest.
fn ours(scratch: &Path, library: &str, state: &Path) -> Vec<Seen> {
    let config = scratch.join("gpuprod.yaml");
    std::fs::write(&config, format!("state_dir: {0}/state\nstore: {{dir: {0}/store}}\n", scratch.display())).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprod"));
        command.args(args).arg("--config").arg(&config).args(["--nvml-library", library]).env(STATE, state);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let page = run(&["top", "--once"]);
    let tick: Value = serde_json::from_str(&run(&["snapshot", "--only", "gpu", "--json"])).unwrap();
    let devices = tick["gpu"]["value"]["devices"].as_array().unwrap();
    let row = |gpu: usize| page.lines().find(|line| line.starts_with(&format!("GPU {gpu} "))).unwrap();
    let seen = |(gpu, device): (usize, &Value)| Seen {
        // The first share is the productive one.
        util: number(row(gpu), " %", 1).unwrap(),
        watts: number(row(gpu), " W", 0).unwrap(),
        memory: gib(row(gpu)).unwrap(),
        celsius: device["temp"].as_u64().unwrap().try_into().unwrap(),
        pid: device["processes"][0]["pid"].as_u64().unwrap().try_into().unwrap(),
    };
    devices.iter().enumerate().map(seen).collect()
}

#[test]
#[ignore = "needs nvtop, nvitop (tests/tools/gpu-clients) and Debian's tmux"]
fn nvtop_and_nvitop_show_the_same_numbers() {
    let library = gpuprod_fake_nvml::library().expect("the fake library");
    let scratch = Scratch::new("clients");
    let bin = tools();
    let work: Vec<Running> = (0..2).map(|_| Running(sleep())).collect();
    let gpu = |util, watts: u32, temp, gib: u64, work: &Running| Gpu {
        util: Some(util),
        power_mw: Some(watts * 1_000),
        temp: Some(temp),
        mem_used: Some(gib << 30),
        processes: vec![Process {
            pid: work.0.id(),
            mem_used: Some((gib << 30) - (1 << 30)),
            sm: Some(util),
            ..Process::default()
        }],
        ..Gpu::default()
    };
    let gpus = vec![gpu(84, 402, 61, 48, &work[0]), gpu(7, 118, 39, 12, &work[1])];
    let reserved = gpus[0].mem_reserved as f64 / f64::from(1 << 30);
    let state = scratch.0.join("nvml.json");
    State { gpus, ..State::default() }.write(&state).unwrap();
    // Under the name that others load.
    let lib = scratch.0.join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::copy(&library, lib.join("libnvidia-ml.so.1")).unwrap();
    let seen = |util, watts, celsius, memory, work: &Running| Seen { util, watts, celsius, memory, pid: work.0.id() };
    let truth = vec![seen(84, 402, 61, 48.0, &work[0]), seen(7, 118, 39, 12.0, &work[1])];

    assert_eq!(ours(&scratch.0, library.to_str().unwrap(), &state), truth, "gpuprod");

    let mut command = Command::new(bin.join("nvitop"));
    command.args(["--once", "--no-unicode"]).env("LD_LIBRARY_PATH", &lib).env(STATE, &state).env("COLUMNS", "140");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(nvitop(&text), truth, "nvitop:\n{text}");

    let command = format!(
        "env LD_LIBRARY_PATH={} {STATE}={} TERM=screen {} -C",
        lib.display(),
        state.display(),
        bin.join("nvtop").display()
    );
    let terminal = Terminal::open(scratch.0.join("tmux"), &command);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        if nvtop(&screen, 2, reserved).as_ref() == Some(&truth) {
            break;
        }
        assert!(Instant::now() < end, "nvtop: {:?} of\n{screen}", nvtop(&screen, 2, reserved));
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn sleep() -> Child {
    Command::new("sleep").arg("3600").spawn().unwrap()
}
