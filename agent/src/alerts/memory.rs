//! The desk's memory over restarts: one text in the store. The tick thread waits for neither reading nor writing.

use gpuprod_snapshot::Stamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Desk, Kept};
use crate::store::Store;

const KEY: &str = "desk";

/// Between desk and store.
#[derive(Debug)]
pub struct Memory {
    store: Store,
    /// Until it has answered nothing is written: what an earlier agent left must not be lost.
    waiting: Option<oneshot::Receiver<Option<String>>>,
    kept: Kept,
}

impl Memory {
    /// Asks for what an earlier agent left.
    #[must_use]
    pub fn ask(store: &Store, net: &Handle) -> Self {
        let (reply, waiting) = oneshot::channel();
        let asked = store.clone();
        net.spawn(async move {
            // If the agent has ended meanwhile, nobody is there to tell.
            let _ = reply.send(asked.load_alert_state().await.remove(KEY));
        });
        Self { store: store.clone(), waiting: Some(waiting), kept: Kept::default() }
    }

    /// Hands it to the desk when it has come.
    pub fn recall(&mut self, desk: &mut Desk, now: &Stamp) {
        let Some(answer) = self.waiting.as_mut().map(oneshot::Receiver::try_recv) else {
            return;
        };
        let text = match answer {
            Err(oneshot::error::TryRecvError::Empty) => return,
            Err(oneshot::error::TryRecvError::Closed) => None,
            Ok(text) => text,
        };
        self.waiting = None;
        // What cannot be read is of another version: alerts begin anew, and old ones run out at Alertmanager.
        self.kept = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        desk.resume(self.kept.clone(), now);
    }

    /// Writes what has changed.
    pub fn keep(&mut self, desk: &Desk) {
        if self.waiting.is_some() {
            return;
        }
        let kept = desk.kept();
        if kept != self.kept {
            self.store.put_alert_state(KEY, serde_json::to_string(&kept).ok());
            self.kept = kept;
        }
    }
}
