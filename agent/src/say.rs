//! Messages of the daemon's threads on stderr, which is the journal under systemd. A thread of its own writes them:
//! nobody who has something to say waits for a terminal or a pipe that nobody reads.

use std::io::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Messages that may wait; what does not fit is lost.
const WAITING: usize = 64;

/// Where messages go.
#[derive(Clone, Debug)]
pub struct Say(Option<SyncSender<String>>);

impl Say {
    /// To stderr. Without a thread to write, nothing is said.
    #[must_use]
    pub fn stderr() -> Self {
        let (tell, told) = sync_channel::<String>(WAITING);
        let write = move || {
            for line in told {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        };
        let thread = std::thread::Builder::new().name("say".to_owned()).spawn(write);
        Self(thread.is_ok().then_some(tell))
    }

    /// One line.
    pub fn say(&self, line: &str) {
        if let Some(tell) = &self.0 {
            let _ = tell.try_send(crate::text::clean(line));
        }
    }
}
