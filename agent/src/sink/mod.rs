//! Forms in which frames leave the process.

pub mod alertmanager;
pub mod otlp;
pub mod prometheus;

use tokio::runtime::Handle;

use crate::http::Shelf;
use crate::pipeline::Frame;
use crate::run::Settings;
use crate::store::Store;

/// Takes each frame on the tick thread. It never blocks and never fails: it renders or enqueues; delivery and its
/// failures live on the `net` thread.
pub trait Sink {
    /// One frame. Its counters are committed already.
    fn accept(&mut self, frame: &Frame<'_>);
}

impl Sink for Shelf {
    fn accept(&mut self, frame: &Frame<'_>) {
        self.put(frame);
    }
}

/// Every sink that the config asks for; what one delivers runs on `net`, what one keeps lies in the store.
#[must_use]
pub fn all(_settings: &Settings, shelf: Shelf, _net: &Handle, _store: &Store) -> Vec<Box<dyn Sink>> {
    vec![Box::new(shelf)]
}
