//! OTLP delivery against a peer in trouble: nothing is lost but what the peer refuses, nothing waits for ever.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use prost::Message;

use gpuprod_fake_nvml::{Gpu, STATE, State};

use crate::cli::{Scratch, gpuprod};

/// What the peer does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Take,
    /// Takes it, but for seven points.
    Partial,
    /// Answers with this status line and headers, and takes nothing.
    Answer(&'static str),
    /// Closes in the middle of the request.
    Close,
    /// Says yes, and closes before the answer's body is complete; takes nothing.
    Torn,
    /// Never answers.
    Stall,
}

/// A peer on the loopback that follows a script, and takes everything after its end.
struct Peer {
    port: u16,
    /// What was done with each body that came whole.
    seen: Arc<Mutex<Vec<(Act, ExportMetricsServiceRequest)>>>,
    headers: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start(port: u16, script: &[Act]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, headers, stop) = (Arc::default(), Arc::default(), Arc::new(AtomicBool::new(false)));
        let (bodies, heads, over) = (Arc::clone(&seen), Arc::clone(&headers), Arc::clone(&stop));
        let script = script.to_vec();
        let thread = std::thread::spawn(move || {
            let mut script = script.into_iter();
            let mut held = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                if let Some(stalled) = serve(stream, script.next().unwrap_or(Act::Take), &bodies, &heads) {
                    held.push(stalled);
                }
            }
        });
        Self { port, seen, headers, stop, thread: Some(thread) }
    }

    /// Ticks of the bodies that it took, in the order in which they came.
    fn ticks(&self) -> Vec<u64> {
        self.of(|act| matches!(act, Act::Take | Act::Partial))
    }

    fn of(&self, wanted: impl Fn(Act) -> bool) -> Vec<u64> {
        self.seen.lock().unwrap().iter().filter(|(act, _)| wanted(*act)).map(|(_, body)| tick(body)).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One request per connection.
fn serve(
    stream: TcpStream,
    act: Act,
    seen: &Mutex<Vec<(Act, ExportMetricsServiceRequest)>>,
    heads: &Mutex<Vec<String>>,
) -> Option<TcpStream> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    if act == Act::Close {
        let _ = reader.read(&mut body[..10]);
        return None;
    }
    reader.read_exact(&mut body).ok()?;
    heads.lock().unwrap().push(head);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
    seen.lock().unwrap().push((act, ExportMetricsServiceRequest::decode(&plain[..]).unwrap()));
    let mut stream = reader.into_inner();
    let mut answer = |status: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
    };
    match act {
        Act::Take | Act::Partial => {
            let partial = ExportMetricsPartialSuccess { rejected_data_points: 7, error_message: "seven".to_owned() };
            let partial_success = (act == Act::Partial).then_some(partial);
            answer("200 OK", &ExportMetricsServiceResponse { partial_success }.encode_to_vec());
        }
        Act::Answer(status) => answer(status, b"no thanks"),
        Act::Torn => drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")),
        Act::Stall => return Some(stream),
        Act::Close => {}
    }
    None
}

/// Milliseconds of the tick that a body carries.
fn tick(request: &ExportMetricsServiceRequest) -> u64 {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let stamp = metrics.iter().find(|metric| metric.name == "gpuprod.self.tick.timestamp").unwrap();
    let Some(Data::Gauge(gauge)) = &stamp.data else { panic!("{stamp:?}") };
    assert!(matches!(gauge.data_points[0].value, Some(Value::AsDouble(_))));
    gauge.data_points[0].time_unix_nano / 1_000_000
}

/// No library: no GPU, whatever the machine has.
const NONE: &str = "/nonexistent.so";

/// A running agent; killed with the test.
struct Agent {
    child: Child,
    address: String,
    said: Arc<Mutex<String>>,
}

impl Agent {
    fn start(scratch: &Scratch, port: u16, store: bool, library: &str) -> Self {
        let path = scratch.path("agent.yaml");
        let text = format!(
            "state_dir: {0}/state\nstore: {{dir: {0}/store, enabled: {store}}}\nhttp: {{listen: \"127.0.0.1:0\"}}\n\
             otlp: {{endpoint: \"http://127.0.0.1:{port}/v1/metrics\", interval: 1s, headers: {{authorization: Bearer s3cret}}}}\n",
            scratch.0.display()
        );
        fs::write(&path, text).unwrap();
        let mut command = gpuprod(scratch, &["agent", "--config", &path, "--nvml-library", library]);
        command.env(STATE, scratch.0.join("nvml.json"));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
        let said = Arc::new(Mutex::new(String::new()));
        let keep = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *keep.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, address, said }
    }

    /// The values of the series about OTLP.
    fn series(&self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let lines = page.lines().filter_map(|line| line.strip_prefix("gpuprod_self_otlp_")?.rsplit_once(' '));
        lines.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for what is wanted.
fn until<T>(seconds: u64, what: &str, mut wanted: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        assert!(Instant::now() < end, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Longest step between two ticks, in the order of time.
fn gap(ticks: &[u64]) -> u64 {
    let mut ticks = ticks.to_vec();
    ticks.sort_unstable();
    ticks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[test]
fn each_trouble_is_counted_and_costs_no_other_batch() {
    let scratch = Scratch::new("otlp-trouble");
    let script = [
        Act::Take,
        Act::Answer("503 Busy\r\nretry-after: 2"),
        Act::Take,
        Act::Close,
        Act::Take,
        Act::Torn,
        Act::Partial,
        Act::Answer("400 Bad Request"),
        Act::Take,
        Act::Answer("302 Found\r\nlocation: http://127.0.0.1:9/"),
        Act::Take,
        Act::Answer("401 Unauthorized"),
    ];
    let peer = Peer::start(0, &script);
    let agent = Agent::start(&scratch, peer.port, false, NONE);
    until(60, "thirteen bodies", || (peer.ticks().len() >= 13).then_some(()));
    let ticks = peer.ticks();
    // Oldest first, nothing twice; of all that was tried, the refused batch is missing and no other.
    assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
    let refused = peer.of(|act| act == Act::Answer("400 Bad Request"));
    let lost: Vec<u64> = peer.of(|_| true).into_iter().filter(|tick| !ticks.contains(tick)).collect();
    assert_eq!((lost.len(), &lost), (1, &refused));
    let series = until(10, "figures", || Some(agent.series()).filter(|series| series.get("sent_total") >= Some(&13.0)));
    for (name, value) in [
        ("failed_total{reason=\"busy\"}", 1.0),
        ("failed_total{reason=\"broken\"}", 2.0),
        ("failed_total{reason=\"refused\"}", 1.0),
        ("failed_total{reason=\"redirect\"}", 1.0),
        ("failed_total{reason=\"denied\"}", 1.0),
        ("dropped_total{reason=\"refused\"}", 1.0),
        ("rejected_total", 7.0),
    ] {
        assert_eq!(series.get(name), Some(&value), "{name}: {series:?}");
    }
    assert!(series["success_age_seconds"] < 10.0, "{series:?}");
    let said = agent.said.lock().unwrap().clone();
    assert_eq!(said.matches("refuses a batch").count(), 1, "{said}");
    assert!(
        said.contains("HTTP 503") && said.contains("HTTP 401: no thanks") && said.contains("takes batches again"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
    let heads = peer.headers.lock().unwrap().join("\n").to_lowercase();
    assert!(heads.contains("authorization: bearer s3cret") && heads.contains("content-encoding: gzip"), "{heads}");
}

#[test]
fn a_peer_that_stalls_and_goes_away_gets_all_of_it_later() {
    let scratch = Scratch::new("otlp-away");
    let peer = Peer::start(0, &[Act::Take, Act::Stall]);
    let port = peer.port;
    let agent = Agent::start(&scratch, port, false, NONE);
    // The stalled request is given up after 10 s; ticks go on meanwhile.
    let series = until(30, "a time-out", || {
        Some(agent.series()).filter(|series| series.contains_key("failed_total{reason=\"timeout\"}"))
    });
    assert!(series["queue_size_bytes"] > 0.0, "{series:?}");
    let mut ticks = peer.ticks();
    drop(peer);
    until(30, "a refused connection", || agent.series().get("failed_total{reason=\"connect\"}").copied());
    let peer = Peer::start(port, &[]);
    let queue = || agent.series().get("queue_size_bytes") == Some(&0.0);
    until(60, "an empty queue", || (peer.ticks().len() > 12 && queue()).then_some(()));
    ticks.extend(peer.ticks());
    assert!(gap(&ticks) < 8_000, "{ticks:?}: the trouble took longer");
    let mut once = ticks.clone();
    once.dedup();
    assert_eq!(once.len(), ticks.len(), "nothing twice");
}

/// Time, start and value of the points of one bucket, summed over GPUs.
fn bucket(body: &ExportMetricsServiceRequest, bucket: &str) -> Vec<(u64, u64, f64)> {
    let metrics = &body.resource_metrics[0].scope_metrics[0].metrics;
    let Some(Data::Sum(sum)) = metrics.iter().find(|m| m.name == "gpuprod.gpu.ledger").and_then(|m| m.data.as_ref())
    else {
        return Vec::new();
    };
    let mut points: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for point in &sum.data_points {
        let says = |word: &str| format!("{:?}", point.attributes).contains(&format!("StringValue({word:?})"));
        if let (true, Some(Value::AsDouble(value))) = (says(bucket), &point.value) {
            *points.entry((point.time_unix_nano, point.start_time_unix_nano)).or_default() += value;
        }
    }
    points.into_iter().map(|((time, start), value)| (time, start, value)).collect()
}

#[test]
fn an_agent_killed_in_an_outage_keeps_its_queue_and_its_start() {
    let Some(library) = gpuprod_fake_nvml::library() else {
        println!("skipped: the fake NVML is not built beside this test");
        return;
    };
    let library = library.to_str().unwrap();
    let scratch = Scratch::new("otlp-kill");
    State { gpus: vec![Gpu::default(); 2], ..State::default() }.write(&scratch.0.join("nvml.json")).unwrap();
    // Takes a first body, so that the receiver knows the series, and goes.
    let peer = Peer::start(0, &[]);
    let port = peer.port;
    let mut agent = Agent::start(&scratch, port, true, library);
    let idle = |body: &ExportMetricsServiceRequest| bucket(body, "unallocated");
    until(30, "a body with accounts", || {
        peer.seen.lock().unwrap().iter().any(|(_, body)| !idle(body).is_empty()).then_some(())
    });
    let mut bodies: Vec<_> = peer.seen.lock().unwrap().drain(..).collect();
    drop(peer);
    let size = |agent: &Agent| agent.series().get("queue_size_bytes").copied().unwrap_or(0.0);
    until(60, "a queue", || (size(&agent) > 20_000.0).then_some(()));
    agent.kill();
    std::thread::sleep(Duration::from_secs(8));
    let agent = Agent::start(&scratch, port, true, library);
    let left = until(30, "the queue of the one before", || Some(size(&agent)).filter(|size| *size > 15_000.0));
    std::thread::sleep(Duration::from_secs(7));
    let peer = Peer::start(port, &[]);
    until(90, "an empty queue", || (size(&agent) == 0.0 && peer.ticks().len() > 10).then_some(()));
    bodies.extend(peer.seen.lock().unwrap().drain(..));
    println!("{} bodies; {left} bytes waited for the second agent", bodies.len());

    let ticks: Vec<u64> = bodies.iter().map(|(_, body)| tick(body)).collect();
    assert!(ticks.windows(2).all(|pair| pair[0] <= pair[1]), "oldest first: {ticks:?}");
    // Eight seconds nobody was there; else nothing is missing.
    let steps: Vec<u64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.iter().filter(|step| **step > 7_900).count(), 1, "{steps:?}");
    // One sequence: the start stays and no sum falls.
    let points: Vec<_> = bodies.iter().flat_map(|(_, body)| idle(body)).collect();
    assert!(points.windows(2).all(|pair| pair[0].1 == pair[1].1 && pair[0].2 <= pair[1].2), "{points:?}");
    let gap: Vec<_> = bodies.iter().flat_map(|(_, body)| bucket(body, "agent_down")).collect();
    assert!(gap.len() > 2 && gap[0].2 == 0.0, "the gap's bucket begins with its zero: {gap:?}");
    assert!((16.0..60.0).contains(&gap[gap.len() - 1].2), "two GPUs, eight seconds or more: {gap:?}");
}
