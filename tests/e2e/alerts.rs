//! From the verdict to the page, with a real Prometheus, real Alertmanagers and the files as they are shipped: what a
//! person would get is what the webhook here gets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuprod::sink::alertmanager::body::Item;
use gpuprod_sim::{Responder, Scenario};
use gpuprod_snapshot::units::Nanos;
use serde_json::Value;

use crate::{Node, Running, Scratch, Stage, agent_with, free_port, get, query};

/// Somebody who is paged: takes what Alertmanagers send, by path.
#[derive(Clone)]
struct Webhook {
    address: String,
    got: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Webhook {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hook = Self { address: listener.local_addr().unwrap().to_string(), got: Arc::default() };
        let got = Arc::clone(&hook.got);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(message) = take(stream) {
                    got.lock().unwrap().push(message);
                }
            }
        });
        hook
    }

    /// Messages on this path, oldest first: status, and of each alert its status, labels, annotations.
    fn at(&self, path: &str) -> Vec<Value> {
        let got = self.got.lock().unwrap();
        got.iter().filter(|(to, _)| to.starts_with(path)).map(|(_, message)| message.clone()).collect()
    }

    fn states(&self, path: &str) -> Vec<String> {
        self.at(path).iter().map(|message| message["status"].as_str().unwrap().to_owned()).collect()
    }
}

fn take(mut stream: TcpStream) -> Option<(String, Value)> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).ok()?;
        text.extend_from_slice(&piece[..read]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok()?;
            let path = head.split(' ').nth(1)?.to_owned();
            return Some((path, serde_json::from_str(body).ok()?));
        }
        if read == 0 {
            return None;
        }
    }
}

fn quiet(command: &mut Command) -> Running {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Running(child.unwrap_or_else(|error| panic!("{program} is not installed: {error}")))
}

/// An Alertmanager with the shipped routes, quicker, and with the webhook behind them under this name.
fn alertmanager(dir: &Path, name: &str, hook: &Webhook) -> (Running, String) {
    let shipped = std::fs::read_to_string(dir.join("shipped/alertmanager.yml")).unwrap();
    let config = shipped
        .replace("http://127.0.0.1:9099/", &format!("http://{}/{name}/", hook.address))
        .replace("group_interval: 5m", "group_interval: 5s")
        .replace("group_wait: 10s", "group_wait: 2s");
    assert!(
        config.contains("group_interval: 5s") && config.contains("group_wait: 2s") && config.contains(&hook.address)
    );
    let file = dir.join(format!("{name}.yml"));
    std::fs::write(&file, config).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let running = quiet(
        Command::new("prometheus-alertmanager")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", dir.join(name).display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address="),
    );
    until(30, "Alertmanager is ready", || get(&address, "/-/ready"));
    (running, address)
}

fn prometheus(dir: &Path, agent: &str, alertmanagers: &[&str]) -> (Running, String) {
    let config = dir.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 2s, external_labels: {{cluster: lab}}}}\n\
         rule_files: ['{}']\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: {alertmanagers:?}}}]}}]}}\n\
         scrape_configs: [{{job_name: gpuprod, static_configs: [{{targets: ['{agent}']}}]}}]\n",
        dir.join("shipped/rules.yml").display()
    );
    std::fs::write(&config, text).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let running = quiet(
        Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
            .arg(format!("--web.listen-address={address}")),
    );
    until(30, "Prometheus is ready", || get(&address, "/-/ready").filter(|said| said.contains("Ready")));
    (running, address)
}

/// Looks twice a second.
fn until<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            println!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(seconds), "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn ship(dir: &Path) {
    let to = dir.join("shipped");
    let status = Command::new(env!("CARGO_BIN_EXE_gpuprod")).arg("dashboards").arg(&to).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

#[test]
#[ignore = "needs Debian's prometheus and prometheus-alertmanager"]
fn promtool_and_amtool_take_the_shipped_files() {
    let scratch = Scratch::new("shipped");
    ship(&scratch.0);
    let checked = said(Command::new("promtool").args(["check", "rules"]).arg(scratch.0.join("shipped/rules.yml")));
    assert!(checked.contains("SUCCESS"), "{checked}");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/rules.test.yml");
    let tested = said(Command::new("promtool").args(["test", "rules"]).arg(tests));
    assert!(tested.contains("SUCCESS"), "{tested}");
    said(Command::new("amtool").arg("check-config").arg(scratch.0.join("shipped/alertmanager.yml")));
}

/// Eight GPUs and an engine that reads an array; whoever tells the story says when the array is rebuilt, and until when.
#[derive(Clone, Copy, Default)]
struct Story {
    rebuild: Option<usize>,
    end: Option<usize>,
}

impl Story {
    fn scenario(self, port: u16) -> Scenario {
        let mut text = "scenario alert_story\nseed 7\nlength 20m\n\
            gpu 8 model \"NVIDIA H100 80GB HBM3\" limit 700W\n\
            engine vllm gpus 0-7 rate 2400tok/s running 32 waiting 4\n\
            array md0 raid5 members nvme0n1 nvme1n1 nvme2n1 spare nvme3n1 mount /models\n\
            reads vllm md0 900MB/s\n"
            .to_owned();
        if let Some(second) = self.rebuild {
            text += &format!("at {second}s rebuild md0 speed 180MB/s slows vllm to 0.5\n");
        }
        if let Some(second) = self.end {
            text += &format!("at {second}s end md0\n");
        }
        let mut scenario = Scenario::parse(&text).unwrap();
        scenario.set_port("vllm", port);
        scenario
    }
}

/// What happens next is said while it plays, so that nothing depends on how fast this machine is.
struct Stagehand {
    node: Node,
    dir: PathBuf,
    story: Story,
    second: Arc<AtomicUsize>,
    next: Arc<Mutex<Option<(usize, Stage)>>>,
}

impl Stagehand {
    fn play(dir: &Path) -> Self {
        let engine = Responder::start(0).unwrap();
        let (url, story) = (engine.url(), Story::default());
        let mut stage = Stage::new(&story.scenario(engine.port()), dir, 0);
        engine.show(stage.step(&url));
        let stop = Arc::new(AtomicBool::new(false));
        let (second, next) = (Arc::new(AtomicUsize::new(1)), Arc::new(Mutex::new(None)));
        let shown = engine.clone_screen();
        let (over, at, coming) = (Arc::clone(&stop), Arc::clone(&second), Arc::clone(&next));
        let player = std::thread::spawn(move || {
            let begun = Instant::now();
            while !over.load(Ordering::Relaxed) {
                let now = at.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_secs(now as u64).saturating_sub(begun.elapsed()));
                // The same seed: up to this second, the new story is the old one.
                if let Some((_, new)) = coming.lock().unwrap().take_if(|(from, _)| *from == now) {
                    stage = new;
                }
                shown(stage.step(&url));
                at.store(now + 1, Ordering::Relaxed);
            }
        });
        Self { node: Node { engine, stop, player: Some(player) }, dir: dir.to_owned(), story, second, next }
    }

    /// Goes on with another story: it is made ready beside, and begins a few seconds before it differs.
    fn go_on(&mut self, change: impl Fn(&mut Story, usize)) {
        for patience in [10, 30, 90] {
            let from = self.second.load(Ordering::Relaxed) + patience;
            change(&mut self.story, from + 2);
            let stage = Stage::new(&self.story.scenario(self.node.engine.port()), &self.dir, from);
            let mut next = self.next.lock().unwrap();
            if self.second.load(Ordering::Relaxed) < from {
                *next = Some((from, stage));
                return;
            }
        }
        panic!("a story takes longer than 90 s to make");
    }

    fn rebuild(&mut self) {
        self.go_on(|story, at| story.rebuild = Some(at));
    }

    fn end(&mut self) {
        self.go_on(|story, at| story.end = Some(at));
    }
}

/// Learns in 40 s instead of two minutes, and is sure after 5 s instead of 30 s.
const QUICK: &str = "policy: {baseline_min_blocks: 8, starved_for_ns: 5000000000, starved_clear_ns: 10000000000}";

#[test]
#[ignore = "needs Debian's prometheus and prometheus-alertmanager"]
fn one_page_by_each_path_and_one_by_both_and_it_resolves() {
    let scratch = Scratch::new("alerts");
    let dir = scratch.0.as_path();
    ship(dir);
    let hook = Webhook::start();
    let (_a, by_rules) = alertmanager(dir, "rules", &hook);
    let (_b, direct) = alertmanager(dir, "direct", &hook);
    let (_c, both) = alertmanager(dir, "both", &hook);
    let nobody = format!("127.0.0.1:{}", free_port());
    let mut story = Stagehand::play(&dir.join("host"));
    let listen = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "http: {{listen: \"{listen}\"}}\n\
         labels: {{cluster: lab}}\n\
         alerts: {{alertmanagers: ['http://me:s3cret@{nobody}', 'http://{direct}', 'http://{both}'], resolve_after: 150s, node: gpu-17}}\n\
         rules: {{modes: {{raid_rebuild_impact: page}}, {QUICK}}}\n"
    );
    let (agent, address) = agent_with(dir, &story.node, &config);
    assert_eq!(address, listen);
    let (_prometheus, prometheus) = prometheus(dir, &address, &[&by_rules, &both]);

    learnt(&address);
    assert!(hook.got.lock().unwrap().is_empty(), "nothing has happened yet");
    story.rebuild();
    let paths = ["/rules/pages", "/direct/pages", "/both/pages"];
    until(180, "all three have paged", || paths.iter().all(|path| !hook.at(path).is_empty()).then_some(()));
    dashboards_show_data(&prometheus);
    rules_are_healthy(&prometheus);
    let mut labels = Vec::new();
    for path in paths {
        let message = hook.at(path)[0].clone();
        assert_eq!(
            (&message["status"], message["alerts"].as_array().unwrap().len()),
            (&"firing".into(), 1),
            "{message}"
        );
        let alert = &message["alerts"][0];
        println!("{path}: {}", alert["annotations"]["summary"]);
        assert!(alert["annotations"]["summary"].as_str().unwrap().contains("md0"), "{alert}");
        assert_eq!(alert["annotations"]["severity"], "critical", "{alert}");
        labels.push(alert["labels"].clone());
    }
    let identity = serde_json::json!({"alertname": "GpuprodRaidRebuildImpact", "node": "gpu-17", "object": "md0",
        "rule": "raid_rebuild_impact", "mode": "page", "cluster": "lab"});
    assert_eq!(labels, [identity.clone(), identity.clone(), identity]);
    let evidence = hook.at("/direct/pages")[0]["alerts"][0]["annotations"]["evidence"].to_string();
    assert!(evidence.contains("latency of the members"), "the direct page carries the finding whole: {evidence}");

    // Who is down costs the others nothing, is counted, and is not shown with its password.
    let page = get(&address, "/metrics").unwrap();
    let failures = format!("gpuprod_self_alerts_failures_total{{alertmanager=\"http://{nobody}/\"}} ");
    assert!(
        page.lines().any(|line| line.strip_prefix(&failures).is_some_and(|n| n.parse::<u32>().unwrap() > 0)),
        "{page}"
    );
    assert!(!page.contains("s3cret"));

    let _agent = restarts(dir, &story, &config, agent, &direct);
    story.end();
    let over = |path: &&str| hook.states(path).last().is_some_and(|state| state == "resolved");
    until(400, "all three are resolved", || paths.iter().all(over).then_some(()));
    // Whoever says something again would do so with the next repeat.
    std::thread::sleep(Duration::from_secs(20));
    for path in paths {
        assert_eq!(hook.states(path), ["firing", "resolved"], "{path}");
    }
    assert_eq!(hook.got.lock().unwrap().len(), 6, "and nothing else: no tickets, nothing of other rules");
}

/// Ends it politely, then kills it, while its alert fires: the same alert goes on, by each path.
fn restarts(dir: &Path, story: &Stagehand, config: &str, agent: Running, alertmanager: &str) -> Running {
    let alert = || {
        let said: Value = serde_json::from_str(&get(alertmanager, "/api/v2/alerts")?).ok()?;
        said.as_array()?.first().map(|alert| (alert["startsAt"].clone(), alert["updatedAt"].clone()))
    };
    let began = alert().unwrap().0;
    let mut agent = Some(agent);
    for end in ["-TERM", "-KILL"] {
        let mut before = agent.take().unwrap();
        // What was learnt is written when it ends; when it is killed, that is still there.
        assert!(Command::new("kill").args([end, &before.0.id().to_string()]).status().unwrap().success());
        before.0.wait().unwrap();
        let posted = alert().unwrap().1;
        agent = Some(agent_with(dir, &story.node, config).0);
        until(60, "after a restart it is posted again", || {
            let (starts, updated) = alert()?;
            assert_eq!(starts, began, "after {end}");
            (updated.as_str() > posted.as_str()).then_some(())
        });
    }
    agent.unwrap()
}

fn learnt(agent: &str) {
    let learnt = "gpuprod_rule_state{rule=\"busy_but_starved\",status=\"evaluated\"} 8";
    until(300, "the baseline is learnt", || get(agent, "/metrics").filter(|page| page.contains(learnt)));
    // The latency of its disks is learnt with the same blocks; one more for good measure.
    std::thread::sleep(Duration::from_secs(6));
}

/// Every expression of the dashboard, with its variables filled in, has data while an array rebuilds.
fn dashboards_show_data(prometheus: &str) {
    let text = include_str!("../../dashboards/node.json");
    let board: Value = serde_json::from_str(text).unwrap();
    let mut empty = BTreeMap::new();
    let mut asked = 0;
    let panels = board["panels"].as_array().unwrap().iter().chain(board["annotations"]["list"].as_array().unwrap());
    for panel in panels {
        let own = panel["expr"].as_str().into_iter();
        let targets = panel["targets"].as_array().into_iter().flatten().filter_map(|target| target["expr"].as_str());
        for expr in own.chain(targets) {
            let filled =
                ["$job", "$instance", "$node"].iter().fold(expr.to_owned(), |text, name| text.replace(name, ".+"));
            let filled = filled.replace("$__rate_interval", "15s").replace("$__range", "1m");
            asked += 1;
            if query(prometheus, &filled).is_empty() {
                empty.insert(panel["title"].to_string(), filled);
            }
        }
    }
    println!("{asked} expressions asked");
    assert!(asked > 25 && empty.is_empty(), "without data: {empty:#?}");
}

fn rules_are_healthy(prometheus: &str) {
    let said: Value = serde_json::from_str(&get(prometheus, "/api/v1/rules").unwrap()).unwrap();
    let mut count = 0;
    for rule in said["data"]["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        assert_eq!(rule["health"], "ok", "{rule}");
        count += 1;
    }
    assert!(count > 30, "{count} rules");
}

#[test]
#[ignore = "needs Debian's prometheus-alertmanager"]
fn an_alert_that_began_in_the_future_can_still_be_resolved() {
    let scratch = Scratch::new("clock");
    ship(&scratch.0);
    let hook = Webhook::start();
    let (_alertmanager, address) = alertmanager(&scratch.0, "clock", &hook);
    let now = || {
        Nanos(
            u64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos())
                .unwrap(),
        )
    };
    let hour = Nanos::from_secs(3_600);
    let mut item = Item {
        labels: [
            ("alertname", "GpuprodSquatter".to_owned()),
            ("object", "GPU-1".to_owned()),
            ("mode", "page".to_owned()),
        ]
        .into(),
        site: BTreeMap::new(),
        annotations: BTreeMap::new(),
        starts_at: now().saturating_add(hour),
        ended_at: None,
    };
    // The clock is an hour ahead when it fires; then it is set right, and the finding ends.
    post(&address, &item, now().saturating_add(hour));
    until(30, "it fires", || (hook.states("/clock") == ["firing"]).then_some(()));
    item.ended_at = Some(now());
    post(&address, &item, now());
    until(30, "it is resolved", || (hook.states("/clock") == ["firing", "resolved"]).then_some(()));
}

fn post(address: &str, item: &Item, realtime: Nanos) {
    let body = serde_json::to_string(&[item.postable(realtime, Nanos::from_secs(240))]).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /api/v2/alerts HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
}
