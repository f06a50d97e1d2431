//! The running agent: `/metrics`, `/healthz`, the frame, the socket, a hung driver, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gpuprod_fake_nvml::{Fault, Gpu, STATE, State};

use crate::cli::{Scratch, gpuprod};

/// A running agent on a port of its own; killed with the test if it has not ended before.
pub(crate) struct Agent {
    pub(crate) child: Child,
    address: SocketAddr,
    said: Receiver<String>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn config(scratch: &Scratch, listen: &str) -> String {
    let path = scratch.path("agent.yaml");
    let text =
        format!("state_dir: {0}/state\nstore: {{dir: {0}/store}}\nhttp: {{listen: {listen:?}}}\n", scratch.0.display());
    fs::write(&path, text).unwrap();
    path
}

impl Agent {
    pub(crate) fn start(scratch: &Scratch, args: &[&str]) -> Self {
        Self::start_with(scratch, args, |_| {})
    }

    pub(crate) fn start_with(scratch: &Scratch, args: &[&str], with: impl FnOnce(&mut Command)) -> Self {
        let config = config(scratch, "127.0.0.1:0");
        let mut command = gpuprod(scratch, &["agent", "--config", &config]);
        command.args(args).env(STATE, scratch.0.join("nvml.json")).stderr(Stdio::piped());
        with(&mut command);
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, said) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let line = said.recv_timeout(Duration::from_secs(20)).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        Self { child, address, said }
    }

    /// The next line that it says on stderr.
    pub(crate) fn says(&self) -> String {
        self.said.recv_timeout(Duration::from_secs(20)).expect("a line on stderr")
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Head and body of the answer.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> (String, String) {
        self.ask(&format!("GET {path} HTTP/1.1"))
    }

    /// Waits until `/metrics` has what is wanted.
    pub(crate) fn until(&self, seconds: u64, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            let page = self.get("/metrics").1;
            if wanted(&page) {
                return page;
            }
            assert!(Instant::now() < end, "not within {seconds} s:\n{page}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks it to end and tells how long that took.
    pub(crate) fn stop(mut self) -> Duration {
        let begin = Instant::now();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        while begin.elapsed() < Duration::from_secs(10) {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return begin.elapsed();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the agent did not end");
    }
}

fn promtool(page: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: no promtool here");
        return;
    };
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "promtool, {}: {said}", output.status);
}

#[test]
fn without_a_gpu_it_serves_and_ends() {
    let scratch = Scratch::new("agent");
    let agent = Agent::start(&scratch, &["--nvml-library", "/nonexistent.so"]);
    let page = agent.until(5, |page| page.contains("gpuprod_self_info"));
    assert!(page.contains("gpuprod_self_collector_success{collector=\"gpu\"} 0"), "{page}");
    assert!(page.contains("gpuprod_self_collector_success{collector=\"md\"} 1"), "{page}");
    promtool(&page);
    let (head, body) = agent.ask("GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0");
    assert!(head.contains("application/openmetrics-text; version=1.0.0") && body.ends_with("# EOF\n"), "{head}");
    assert!(agent.get("/healthz").0.starts_with("HTTP/1.1 200"));
    agent.until(20, |_| agent.get("/readyz").0.starts_with("HTTP/1.1 200"));
    let (head, body) = agent.get("/");
    assert!(head.contains("text/html") && head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(body.contains("cannot tell") && body.contains("href=\"/metrics\""), "{body}");
    let (head, body) = agent.get("/nothing");
    assert!(head.starts_with("HTTP/1.1 404") && body.contains("/readyz"), "{body}");
    assert!(agent.ask("POST /metrics HTTP/1.1\r\ncontent-length: 0").0.starts_with("HTTP/1.1 405"));
    let frame: serde_json::Value = serde_json::from_str(&agent.get("/api/v1/frame").1).unwrap();
    assert!(frame["known"]["psi"]["at_ns"].is_u64() && frame["known"]["proc"].is_null());

    // Clients that take every place, and never ask or never read, make room at once.
    let idle: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(agent.address).unwrap()).collect();
    let many = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let deaf = idle.iter().take(40).filter(|stream| (&mut &**stream).write_all(many.as_bytes()).is_ok()).count();
    let begin = Instant::now();
    assert!(agent.get("/healthz").0.starts_with("HTTP/1.1 200"));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?} behind {deaf} deaf ones", begin.elapsed());
    drop(idle);

    // A closed terminal does not end it.
    agent.signal("-HUP");
    std::thread::sleep(Duration::from_millis(200));
    assert!(agent.get("/healthz").0.starts_with("HTTP/1.1 200"));

    // check asks it instead of looking for ten seconds.
    let begin = Instant::now();
    let check = gpuprod(&scratch, &["check", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!((report["by"].as_str(), check.status.code()), (Some("agent"), Some(3)));
    assert!(begin.elapsed() < Duration::from_secs(2));

    // A second agent is told what is wrong.
    let config = config(&scratch, &agent.address.to_string());
    let second = gpuprod(&scratch, &["agent", "--config", &config]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("is another agent running?") && said.contains("http.listen"), "{said}");

    let took = agent.stop();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(!scratch.0.join("state/gpuprod.sock").exists(), "the socket is taken away");
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let scratch = Scratch::new("socket");
    let path = scratch.0.join("state/gpuprod.sock");
    let dead = gpuprod::socket::bind(&path).unwrap();
    let error = gpuprod::socket::bind(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(dead);
    assert!(path.exists(), "a dead agent's socket stays");
    // A process that another test starts just now holds a copy of the listener from its fork to its exec.
    let replaced = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        gpuprod::socket::bind(&path).ok()
    });
    drop(replaced.expect("it is replaced"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(gpuprod::socket::bind(&path).is_err(), "a file is never replaced");
}

#[test]
fn an_agent_that_takes_no_more_connections_hangs_nobody() {
    let scratch = Scratch::new("full");
    let path = scratch.0.join("gpuprod.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _inside = runtime.enter();
    let socket = tokio::net::UnixSocket::new_stream().unwrap();
    socket.bind(&path).unwrap();
    let _listener = socket.listen(1).unwrap();
    // Whoever comes after the first two blocks in connect.
    for _ in 0..4 {
        let path = path.clone();
        std::thread::spawn(move || {
            let held = std::os::unix::net::UnixStream::connect(path);
            std::thread::sleep(Duration::from_secs(60));
            drop(held);
        });
    }
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    let error = gpuprod::socket::ask(&path).map(|_| ()).unwrap_err();
    assert!(matches!(error, gpuprod::socket::AskError::Answer(_)), "{error:?}");
    let error = gpuprod::socket::bind(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    assert!(path.exists(), "it is not taken from a living agent");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let scratch = Scratch::new("port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config(&scratch, &taken.local_addr().unwrap().to_string());
    let output = gpuprod(&scratch, &["agent", "--config", &config]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.matches("in use").count(), 1, "the cause, once: {said}");
}

#[test]
fn eight_gpus_and_a_driver_that_hangs() {
    let Some(library) = gpuprod_fake_nvml::library() else {
        println!("skipped: the fake NVML is not built beside this test");
        return;
    };
    let scratch = Scratch::new("hang");
    let state_file = scratch.0.join("nvml.json");
    let mut state = State { gpus: vec![Gpu::default(); 8], ..State::default() };
    state.write(&state_file).unwrap();
    let agent = Agent::start(&scratch, &["--nvml-library", library.to_str().unwrap()]);
    let page = agent.until(6, |page| page.matches("gpuprod_gpu_ledger_seconds_total{").count() >= 16);
    assert_eq!(page.matches("gpuprod_gpu_info{").count(), 8, "{page}");
    assert!(page.lines().filter(|line| !line.starts_with('#')).count() <= 1_500);
    promtool(&page);
    let check = gpuprod(&scratch, &["check", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(report["gpus"].as_array().unwrap().len(), 8, "{report}");

    state.faults = vec![Fault::hang("nvmlDeviceGetPowerUsage")];
    state.write(&state_file).unwrap();
    let begin = Instant::now();
    let page = agent.until(5, |page| page.contains("gpuprod_self_probe_hung_seconds{"));
    println!("the hang was seen after {:?}", begin.elapsed());
    assert!(page.contains("collector=\"gpu\",call=\"nvmlDeviceGetPowerUsage\""), "{page}");
    let ticks = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("gpuprod_self_tick_timestamp_seconds "));
        line.map(str::to_owned).unwrap()
    };
    let before = ticks(&page);
    agent.until(3, |page| ticks(page) != before);
    assert!(agent.get("/healthz").0.starts_with("HTTP/1.1 200"), "ticks go on");
    let took = agent.stop();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
