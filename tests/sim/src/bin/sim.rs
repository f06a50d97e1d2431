//! Plays a scenario: into a recording, or in real time into a host tree with NVML state and an engine's page.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test tool prints and keeps time"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gpuprod_sim::{Responder, Scenario, load, materialise, nvml_state, respond, write_recording};
use gpuprod_snapshot::Tick;

const USAGE: &str = "usage: sim SCENARIO --ticks OUT.ticks
       sim SCENARIO --tree DIR [--serve 127.0.0.1:PORT] [--speed 1]
       sim SCENARIO --truth
--tree writes DIR/proc, DIR/sys, DIR/dev and DIR/nvml.json (GPUPROD_FAKE_NVML) once per second of the scenario;
--serve serves the first engine's page there. --speed 10 plays ten seconds in one.";

enum Task {
    Ticks(PathBuf),
    Tree { dir: PathBuf, port: Option<u16>, speed: f64 },
    Truth,
}

fn main() -> ExitCode {
    if std::env::args().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(std::env::args().skip(1)).and_then(|(path, task)| run(&path, task)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(PathBuf, Task), String> {
    let path = args.next().ok_or(USAGE)?;
    let (mut ticks, mut tree, mut port, mut speed, mut truth) = (None, None, None, 1.0, false);
    while let Some(flag) = args.next() {
        if flag == "--truth" {
            truth = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--ticks" => ticks = Some(PathBuf::from(value)),
            "--tree" => tree = Some(PathBuf::from(value)),
            "--serve" => {
                let given = value.strip_prefix("127.0.0.1:").and_then(|port| port.parse().ok());
                port = Some(given.ok_or("--serve takes 127.0.0.1:PORT")?);
            }
            "--speed" => {
                speed = value
                    .parse()
                    .ok()
                    .filter(|speed| *speed > 0.0 && *speed < 1e6)
                    .ok_or("--speed takes a number above 0")?;
            }
            _ => return Err(format!("{flag} is not understood\n{USAGE}")),
        }
    }
    let task = match (ticks, tree, truth) {
        (Some(out), None, false) => Task::Ticks(out),
        (None, Some(dir), false) => Task::Tree { dir, port, speed },
        (None, None, true) => Task::Truth,
        _ => return Err(USAGE.into()),
    };
    Ok((PathBuf::from(path), task))
}

fn run(path: &Path, task: Task) -> Result<(), String> {
    let mut scenario = load(path).map_err(|error| error.to_string())?;
    match task {
        Task::Ticks(out) => write_recording(&scenario, &out).map_err(|error| format!("{}: {error}", out.display())),
        Task::Tree { dir, port, speed } => {
            play(&mut scenario, &dir, port, speed).map_err(|error| format!("{}: {error}", dir.display()))
        }
        Task::Truth => {
            for truth in scenario.truth() {
                let (from, to) = (truth.from.as_secs_f64(), truth.to.as_secs_f64());
                let cause = truth.cause.as_deref().unwrap_or("-");
                let w = truth.w.map_or("-".to_owned(), |w| w.to_string());
                println!("{from} {to} gpu {} {} {cause} {w}", truth.unit, truth.state);
            }
            Ok(())
        }
    }
}

fn play(scenario: &mut Scenario, dir: &Path, port: Option<u16>, speed: f64) -> std::io::Result<()> {
    let responder = port.map(Responder::start).transpose()?;
    if let Some(responder) = &responder {
        let engine = scenario.works.iter().find(|work| work.port.is_some()).map(|work| work.name.clone());
        scenario.set_port(&engine.unwrap_or_default(), responder.port());
        eprintln!("sim: {}", responder.url());
    }
    let (mut known, mut older) = (Tick::default(), Tick::default());
    let mut nvml = serde_json::Value::Null;
    let begun = Instant::now();
    let mut ticks = scenario.ticks();
    while let Some(tick) = ticks.next() {
        // Seconds without a tick (a gap, a suspend) pass as well.
        let second = ticks.second();
        std::thread::sleep(Duration::from_secs(second).div_f64(speed).saturating_sub(begun.elapsed()));
        known.advance(&mut older, &tick);
        materialise(&known, dir)?;
        nvml_state(&tick, &mut nvml);
        // The library hangs at once; the tick says so only when the agent would have noticed.
        if let Some((call, _)) = scenario.nvml_hangs(second) {
            nvml["faults"] = serde_json::json!([{ "hang": { "call": call } }]);
        }
        let new = dir.join("nvml.json.new");
        std::fs::write(&new, nvml.to_string())?;
        std::fs::rename(new, dir.join("nvml.json"))?;
        if let Some(responder) = &responder {
            responder.show(respond(&known, &responder.url()));
        }
    }
    Ok(())
}
