//! Direct posts against Alertmanagers that misbehave: each is its own business, and none reaches the tick thread.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use gpuprod::alerts::{Desk, Posts, plan};
use gpuprod::config::Config;
use gpuprod::own::Own;
use gpuprod::pipeline::Frame;
use gpuprod::sink::Sink;
use gpuprod::sink::alertmanager::{Tally, start};
use gpuprod_rules::{Finding, Judgement, Ledger, Part, RuleId, Severity};
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Stamp, Tick};
use serde_json::Value;

/// Answers every request in its own way; what was posted comes out of the channel.
fn peer(answer: fn(TcpStream)) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (got, out): (Sender<String>, _) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let Some(request) = request(&mut stream) else { continue };
            let _ = got.send(request);
            std::thread::spawn(move || answer(stream));
        }
    });
    (address, out)
}

fn request(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        text.push_str(std::str::from_utf8(&piece[..read]).ok()?);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length? {
            return Some(text);
        }
    }
}

fn say(mut stream: TcpStream, head: &str) {
    let _ = write!(stream, "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_that_is_down_slow_or_rude_costs_the_others_nothing() {
    let (good, posted) = peer(|stream| say(stream, "200 OK"));
    let (silent, asked) = peer(|_stream| std::thread::sleep(Duration::from_secs(60)));
    let (moved, _) = peer(|stream| say(stream, "302 Found\r\nlocation: http://127.0.0.1:1/api/v2/alerts"));
    let (endless, _) = peer(|mut stream| {
        let _ = write!(stream, "HTTP/1.1 400 Bad Request\r\n\r\nbad labels ");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    });
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let yaml = format!(
        "rules: {{mode: page}}\nlabels: {{cluster: a}}\nalerts: {{repeat: 1s, alertmanagers: ['http://me:s3cret@{silent}', 'http://{moved}', 'http://{endless}', 'http://{gone}', 'http://{good}/prefix/']}}"
    );
    let config = Config::parse(&yaml, Path::new("g.yaml")).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let net = std::thread::spawn(move || runtime.block_on(ended));
    let tally = Tally::default();
    let mut sink = start(&config, &handle, &tally).unwrap();
    let mut desk = Desk::new(plan(&config, "gpu-17"));
    let begun = Instant::now();
    for second in 0..50_u64 {
        let stamp =
            Stamp { boottime: Nanos::from_secs(second), realtime: Nanos::from_secs(1_800_000_000), ..Stamp::default() };
        let judgement = Judgement { findings: vec![finding()], ..Judgement::default() };
        let alerts = Cow::Owned(desk.step(&judgement.findings, &stamp).clone());
        let mut frame = frame(judgement);
        frame.alerts = alerts;
        sink.accept(&frame);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "the tick thread waits for nobody: {:?}", begun.elapsed());

    let request = until("the good one is told", || posted.try_recv().ok());
    assert!(request.starts_with("POST /prefix/api/v2/alerts HTTP/1.1\r\n"), "{request}");
    assert!(request.to_ascii_lowercase().contains("content-type: application/json"), "{request}");
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&body[0]["labels"]["object"], &body[0]["labels"]["cluster"]), (&"md0".into(), &"a".into()));
    until("and again before it would run out", || posted.try_recv().ok());
    until("the silent one is asked", || asked.try_recv().ok());

    let of = |address: &str| tally.posts().into_iter().find(|posts| posts.alertmanager.contains(address)).unwrap();
    let failed = |address: &str| until(address, || Some(of(address)).filter(|posts: &Posts| posts.failed > 0));
    assert!(failed(&gone).why.unwrap().contains("refused"));
    assert!(failed(&moved).why.unwrap().starts_with("HTTP 302"), "and is not followed");
    let refused = failed(&endless).why.unwrap();
    assert!(refused.starts_with("HTTP 400: bad labels xxx") && refused.chars().count() <= 200, "{refused}");
    let silent = failed(&silent);
    assert!(
        !silent.alertmanager.contains("s3cret") && !silent.why.as_deref().unwrap_or("").contains("s3cret"),
        "{silent:?}"
    );
    assert!(of(&good).taken >= 2 && of(&good).why.is_none(), "{:?}", of(&good));
    drop((sink, end));
    let _ = net.join();
}

fn frame(judgement: Judgement) -> Frame<'static> {
    Frame {
        known: Cow::Owned(Tick::default()),
        judgement: Cow::Owned(judgement),
        ledger: Cow::Owned(Ledger::default()),
        alerts: Cow::default(),
        own: Own::default(),
    }
}

fn finding() -> Finding {
    Finding {
        rule: RuleId::RaidRebuildImpact,
        variant: None,
        severity: Severity::Critical,
        subject: "md0".to_owned(),
        victims: Vec::new(),
        onset: Nanos(0),
        since: Nanos(0),
        since_realtime: Nanos::from_secs(1_800_000_000),
        confidence: Part(900_000),
        cause: None,
        summary: "md0 recovers".to_owned(),
        evidence: Vec::new(),
        rejected: Vec::new(),
        lost: Nanos(0),
        also: Vec::new(),
        advice: String::new(),
        holders: Vec::new(),
    }
}
