//! What users plug in accepts what we send: real programs from Debian's packages. They are not everywhere, so
//! these tests run on request: `cargo test --release -p gpuprod --test e2e -- --include-ignored`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "e2e/alerts.rs"]
mod alerts;
#[path = "e2e/clients.rs"]
mod clients;
#[path = "e2e/grafana.rs"]
mod grafana;
#[path = "e2e/kill.rs"]
mod kill;
#[path = "e2e/otlp.rs"]
mod otlp;
#[path = "e2e/top.rs"]
mod top;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuprod_sim::{Responder, Scenario, materialise, nvml_state, respond};
use gpuprod_snapshot::Tick;
use serde_json::Value;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gpuprod-e2e-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program of ours; ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A scenario played in real time into a host tree, an NVML state file and an engine's page.
struct Node {
    engine: Responder,
    stop: Arc<AtomicBool>,
    player: Option<JoinHandle<()>>,
}

impl Node {
    fn play(file: &str, skip: usize, dir: &Path) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios").join(file);
        let mut scenario = gpuprod_sim::load(&path).unwrap();
        let engine = Responder::start(0).unwrap();
        let name = scenario.works.iter().find(|work| work.port.is_some()).map(|work| work.name.clone()).unwrap();
        scenario.set_port(&name, engine.port());
        let mut stage = Stage::new(&scenario, dir, skip);
        engine.show(stage.step(&engine.url()));
        let stop = Arc::new(AtomicBool::new(false));
        let (over, url) = (Arc::clone(&stop), engine.url());
        let shown = engine.clone_screen();
        let player = std::thread::spawn(move || {
            let begun = Instant::now();
            for second in 1..600_u64 {
                std::thread::sleep(Duration::from_secs(second).saturating_sub(begun.elapsed()));
                if over.load(Ordering::Relaxed) {
                    break;
                }
                shown(stage.step(&url));
            }
        });
        Self { engine, stop, player: Some(player) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(player) = self.player.take() {
            let _ = player.join();
        }
    }
}

/// What the player has on stage.
struct Stage {
    ticks: std::vec::IntoIter<Tick>,
    known: Tick,
    older: Tick,
    nvml: Value,
    dir: PathBuf,
}

impl Stage {
    fn new(scenario: &Scenario, dir: &Path, skip: usize) -> Self {
        let ticks: Vec<Tick> = scenario.ticks().collect();
        let mut stage = Self {
            ticks: ticks.into_iter(),
            known: Tick::default(),
            older: Tick::default(),
            nvml: Value::Null,
            dir: dir.into(),
        };
        for _ in 0..skip {
            if let Some(tick) = stage.ticks.next() {
                stage.known.advance(&mut stage.older, &tick);
                nvml_state(&tick, &mut stage.nvml);
            }
        }
        stage
    }

    fn step(&mut self, url: &str) -> Option<String> {
        let tick = self.ticks.next()?;
        self.known.advance(&mut self.older, &tick);
        materialise(&self.known, &self.dir).unwrap();
        nvml_state(&tick, &mut self.nvml);
        let new = self.dir.join("nvml.json.new");
        std::fs::write(&new, self.nvml.to_string()).unwrap();
        std::fs::rename(new, self.dir.join("nvml.json")).unwrap();
        respond(&self.known, url)
    }
}

/// Body of an answer of a server on the loopback.
fn get(address: &str, path: &str) -> Option<String> {
    ask(address, path, "*/*")
}

fn ask(address: &str, path: &str, accept: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\naccept: {accept}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The values of an instant query.
fn query(prometheus: &str, expression: &str) -> Vec<f64> {
    let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let body = get(prometheus, &format!("/api/v1/query?query={escaped}")).unwrap();
    let json: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{expression}: {body}"));
    assert_eq!(json["status"], "success", "{expression}: {body}");
    let result = json["data"]["result"].as_array().unwrap();
    result.iter().map(|series| series["value"][1].as_str().unwrap().parse().unwrap()).collect()
}

/// Names of the metrics on a page.
fn names(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .filter(|name| !name.is_empty())
        .collect()
}

fn one(prometheus: &str, expression: &str) -> f64 {
    let values = query(prometheus, expression);
    assert_eq!(values.len(), 1, "{expression}: {values:?}");
    values[0]
}

fn agent(scratch: &Path, node: &Node) -> (Running, String) {
    agent_with(scratch, node, "")
}

/// With more lines of config.
fn agent_with(scratch: &Path, node: &Node, more: &str) -> (Running, String) {
    let config = scratch.join("agent.yaml");
    // Any port, unless they name one.
    let http = if more.starts_with("http:") { "" } else { "http: {listen: \"127.0.0.1:0\"}\n" };
    let text = format!("state_dir: {0}/state\nstore: {{dir: {0}/store}}\n{http}{more}", scratch.display());
    std::fs::write(&config, text).unwrap();
    let library = gpuprod_fake_nvml::library().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpuprod"))
        .args(["agent", "--config", config.to_str().unwrap(), "--host-root", scratch.join("host").to_str().unwrap()])
        .args(["--nvml-library", library.to_str().unwrap(), "--engine", &node.engine.url()])
        .env(gpuprod_fake_nvml::STATE, scratch.join("host/nvml.json"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    (Running(child), address)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
#[ignore = "needs Debian's prometheus"]
fn a_real_prometheus_scrapes_for_a_minute_and_loses_and_doubles_nothing() {
    let scratch = Scratch::new("prometheus");
    let node = Node::play("raid_rebuild_serving.scn", 590, &scratch.0.join("host"));
    let (_agent, address) = agent(&scratch.0, &node);

    let port = free_port();
    let prometheus = format!("127.0.0.1:{port}");
    let config = scratch.0.join("prometheus.yml");
    std::fs::write(
        &config,
        format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- {{job_name: gpuprod, static_configs: [{{targets: ['{address}']}}]}}\n- {{job_name: self, static_configs: [{{targets: ['{prometheus}']}}]}}\n"
        ),
    )
    .unwrap();
    let _prometheus = Running(
        Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.0.join("tsdb").display()))
            .arg(format!("--web.listen-address={prometheus}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is not installed"),
    );
    std::thread::sleep(Duration::from_secs(75));

    // The form that Prometheus asks for; the classic one, without hours, goes to promtool below.
    let page = ask(&address, "/metrics", "application/openmetrics-text").unwrap();
    let lines = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
    println!("series on the page: {lines}");
    assert!((200..=1500).contains(&lines), "{lines} series with 8 GPUs");

    let scraped = one(&prometheus, "count_over_time(up{job=\"gpuprod\"}[60s])");
    assert!(scraped >= 55.0, "{scraped} scrapes in a minute");
    assert_eq!(one(&prometheus, "min_over_time(up{job=\"gpuprod\"}[60s])"), 1.0);
    let stored = one(&prometheus, "count({job=\"gpuprod\", __name__!~\"up|scrape_.*\"})");
    assert!((stored - lines as f64).abs() <= 4.0, "{lines} lines on the page, {stored} series stored");
    for name in ["duplicate_timestamp", "out_of_bounds", "out_of_order"] {
        let refused = query(&prometheus, &format!("prometheus_target_scrapes_sample_{name}_total"));
        assert!(refused.iter().all(|count| *count == 0.0), "{name}: {refused:?}");
    }
    // A series that was there half a minute ago has every sample since.
    let everything = "{job=\"gpuprod\", __name__!~\"up|scrape_.*\"}";
    for metric in names(&page) {
        let gaps = query(
            &prometheus,
            &format!(
                "count_over_time({metric}{{job=\"gpuprod\"}}[30s]) < 28 and {metric}{{job=\"gpuprod\"}} offset 32s"
            ),
        );
        assert!(gaps.is_empty(), "{metric}: {} series with gaps", gaps.len());
    }
    let before = one(&prometheus, &format!("count({everything} offset 32s)"));
    assert!(stored >= before, "{before} series half a minute ago, {stored} now");
    for counter in names(&page).into_iter().filter(|name| name.ends_with("_total")) {
        let resets = query(&prometheus, &format!("resets({counter}[60s]) > 0"));
        assert!(resets.is_empty(), "{counter}: {resets:?}");
    }
    // All buckets of eight GPUs sum to the observed time: eight seconds a second.
    // Counters move with each commit, every 5 s: a minute's rate is right to one of them.
    let rate = one(&prometheus, "sum(rate(gpuprod_gpu_ledger_seconds_total[60s]))");
    assert!((rate - 8.0).abs() < 8.0 * 6.0 / 60.0, "{rate} GPU-seconds a second");

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is not installed");
    let page = get(&address, "/metrics").unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&verdict.stdout).into_owned() + &String::from_utf8_lossy(&verdict.stderr);
    assert!(verdict.status.success() && said.trim().is_empty(), "promtool: {said}");
}
