//! Metrics by OTLP over HTTP/protobuf: the catalogue at an interval, through a bounded queue in the store, to one peer.
//!
//! The tick thread encodes and enqueues; it never waits. What the `net` thread sends is oldest first. Messages are
//! built here, since the SDK can set neither a point's own time nor its start and drops a batch after two seconds.

mod deliver;
mod encode;
mod number;
mod peer;
mod resource;

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuprod_snapshot::units::Nanos;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub use deliver::Tally;
pub use encode::{Encoder, Origin, Starts, origin};
pub use peer::{Outcome, Peer, parse as headers};
pub use resource::{attributes, resource};

use crate::pipeline::Frame;
use crate::run::Settings;
use crate::say::Say;
use crate::sink::Sink;
use crate::store::Store;

/// The sink.
#[derive(Debug)]
pub struct Otlp {
    tally: Tally,
    interval: Nanos,
    /// Which interval since boot was exported last.
    slot: Option<u64>,
    shared: Arc<deliver::Shared>,
    sender: JoinHandle<()>,
}

impl Otlp {
    /// Starts the sender on `net`; nothing where no endpoint is configured.
    #[must_use]
    pub fn start(settings: &Settings, net: &Handle, store: &Store, tally: &Tally) -> Option<Self> {
        let config = &settings.config.otlp;
        let endpoint = config.endpoint.as_deref()?;
        let shared = Arc::new(deliver::Shared::new(store.clone(), tally.clone()));
        let (queue, endpoint, headers) = (Arc::clone(&shared), endpoint.to_owned(), config.headers.clone());
        let say = Say::stderr();
        let sender = net.spawn(async move {
            match Peer::new(&endpoint, &headers) {
                Ok(peer) => deliver::deliver(queue, peer, |line: String| say.say(&line)).await,
                Err(words) => say.say(&format!("OTLP: nothing is sent: {words}")),
            }
        });
        tally.encoder().set_resource(resource(&attributes(settings)));
        Some(Self { tally: tally.clone(), interval: config.interval, slot: None, shared, sender })
    }
}

impl Sink for Otlp {
    fn accept(&mut self, frame: &Frame<'_>) {
        let slot = frame.known.stamp.boottime.0 / self.interval.0.max(1);
        if self.slot.replace(slot) != Some(slot) {
            self.shared.put(compressed(&self.tally.encoder().encode(frame).encode_to_vec()));
        }
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

/// As gzip, fast.
#[must_use]
pub fn compressed(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    // Writing to memory cannot fail.
    let _ = gzip.write_all(body);
    gzip.finish().unwrap_or_default()
}
