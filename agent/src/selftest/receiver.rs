//! Who is paged: a listener on the loopback interface that takes what an Alertmanager takes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Channel, Sender, channel};
use std::time::Duration;

use gpuprod_snapshot::units::Nanos;
use serde::Deserialize;

use crate::clock::boottime;

/// Largest body that is taken.
const LARGEST: u64 = 1 << 20;
/// A client that says nothing for so long is hung up on.
const PATIENCE: Duration = Duration::from_secs(5);

/// An alert that came in.
#[derive(Debug, Deserialize)]
pub(super) struct Came {
    pub(super) labels: Labels,
    /// When it was complete here, CLOCK_BOOTTIME.
    #[serde(skip)]
    pub(super) at: Nanos,
}

/// The labels that the test looks at.
#[derive(Debug, Deserialize)]
pub(super) struct Labels {
    pub(super) rule: String,
    /// Names the case: each has a node of its own.
    pub(super) node: String,
}

/// Listens until the process ends.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Where.
    pub(super) url: String,
    came: Channel<Came>,
}

impl Receiver {
    pub(super) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let (send, came) = channel();
        std::thread::Builder::new().name("receiver".to_owned()).spawn(move || serve(&listener, &send))?;
        Ok(Self { url, came })
    }

    /// The first alert of a rule on a node, if it comes within the time.
    pub(super) fn wait(&self, node: &str, rule: &str, time: Duration) -> Option<Came> {
        let until = boottime().saturating_add(Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
        loop {
            let left = until.saturating_sub(boottime());
            let came = self.came.recv_timeout(Duration::from_nanos(left.0)).ok()?;
            if came.labels.node == node && came.labels.rule == rule {
                return Some(came);
            }
        }
    }
}

fn serve(listener: &TcpListener, send: &Sender<Came>) {
    for stream in listener.incoming().flatten() {
        let send = send.clone();
        // Whoever keeps its connection open keeps nobody else waiting.
        let thread = std::thread::Builder::new().name("receiver".to_owned());
        let _ = thread.spawn(move || {
            let _ = answer(stream, &send);
        });
    }
}

/// Requests of one connection, until it ends.
fn answer(stream: TcpStream, send: &Sender<Came>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if reader.by_ref().take(LARGEST).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let head = line.trim_end().to_ascii_lowercase();
            if let Some(value) = head.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0).min(LARGEST);
            }
            if head.is_empty() {
                break;
            }
        }
        let mut body = vec![0; usize::try_from(length).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let alerts: Vec<Came> = serde_json::from_slice(&body).unwrap_or_default();
        let at = boottime();
        for came in alerts {
            let _ = send.send(Came { at, ..came });
        }
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    }
}
