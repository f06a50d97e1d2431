//! Where the tick thread puts frames and the `net` thread takes them, as far as they are rendered.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hyper::body::Bytes;
use tokio::sync::Notify;

use crate::json;
use crate::pipeline::Frame;
use crate::sink::prometheus::{Form, page};
use crate::status;

/// A frame, and its pages as far as somebody has asked for them: an agent that nobody asks renders nothing.
#[derive(Debug)]
pub struct Pages {
    pub(super) frame: Frame<'static>,
    text: OnceLock<Bytes>,
    open_metrics: OnceLock<Bytes>,
    public: OnceLock<Bytes>,
    whole: OnceLock<Bytes>,
    status: OnceLock<Bytes>,
}

impl Pages {
    /// Nothing is rendered yet.
    #[must_use]
    pub fn new(frame: Frame<'static>) -> Self {
        let (text, open_metrics, public) = <(OnceLock<_>, OnceLock<_>, OnceLock<_>)>::default();
        Self { frame, text, open_metrics, public, whole: OnceLock::new(), status: OnceLock::new() }
    }

    /// `/metrics`.
    #[must_use]
    pub fn metrics(&self, form: Form) -> Bytes {
        let place = match form {
            Form::Text => &self.text,
            Form::OpenMetrics => &self.open_metrics,
        };
        place.get_or_init(|| page(&self.frame, form).into()).clone()
    }

    /// Without pids, commands and users: any user of the node can read a loopback port.
    #[must_use]
    pub fn public(&self) -> Bytes {
        self.public.get_or_init(|| json::line(&self.frame.public()).into()).clone()
    }

    /// All of it, one line: for the unix socket.
    #[must_use]
    pub fn whole(&self) -> Bytes {
        self.whole.get_or_init(|| json::line(&self.frame).into()).clone()
    }

    /// `/`.
    #[must_use]
    pub fn status(&self) -> Bytes {
        self.status.get_or_init(|| status::page(&self.frame).into()).clone()
    }
}

/// Frames apart at which somebody asks who will ask again at once.
const NEAR: u64 = 3;

/// Who asks every few frames finds the page rendered: its scrape takes the time of a copy.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    last: Option<u64>,
    until: Option<u64>,
}

impl Habit {
    fn asked(&mut self, frame: u64) {
        if self.last.is_some_and(|last| frame.saturating_sub(last) <= NEAR) {
            self.until = Some(frame.saturating_add(NEAR));
        }
        self.last = Some(frame);
    }

    fn expected(&self, frame: u64) -> bool {
        self.until.is_some_and(|until| frame <= until)
    }
}

#[derive(Debug, Default)]
struct Held {
    pages: Option<Arc<Pages>>,
    /// Frames so far.
    frame: u64,
    text: Habit,
    open_metrics: Habit,
}

impl Held {
    fn habit(&mut self, form: Form) -> &mut Habit {
        match form {
            Form::Text => &mut self.text,
            Form::OpenMetrics => &mut self.open_metrics,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    held: Mutex<Held>,
    expected: Notify,
}

/// The newest frame. Clones are the same shelf.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<Inner>);

impl Shelf {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame in the place of the one before; the lock is held for the exchange of a pointer only.
    pub fn put(&self, frame: &Frame<'_>) {
        let pages = Some(Arc::new(Pages::new(frame.to_owned())));
        let mut held = self.held();
        let old = std::mem::replace(&mut held.pages, pages);
        held.frame = held.frame.saturating_add(1);
        let expected = held.text.expected(held.frame) || held.open_metrics.expected(held.frame);
        drop(held);
        if expected {
            self.0.expected.notify_one();
        }
        drop(old);
    }

    /// The newest frame; none before the first tick.
    #[must_use]
    pub fn newest(&self) -> Option<Arc<Pages>> {
        self.held().pages.clone()
    }

    /// Somebody has asked for `/metrics`.
    pub fn asked(&self, form: Form) {
        let mut held = self.held();
        let frame = held.frame;
        held.habit(form).asked(frame);
    }

    /// Waits for a frame whose page will be asked for, and renders it. On the `net` thread: it delays no tick.
    pub async fn render(&self) {
        self.0.expected.notified().await;
        let (pages, wanted) = {
            let mut held = self.held();
            let frame = held.frame;
            let wanted = [Form::Text, Form::OpenMetrics].map(|form| (form, held.habit(form).expected(frame)));
            (held.pages.clone(), wanted)
        };
        let Some(pages) = pages else { return };
        for (form, _) in wanted.into_iter().filter(|(_, expected)| *expected) {
            drop(pages.metrics(form));
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::Tick;

    use super::*;
    use crate::pipeline::Pipeline;

    /// Frames are put; at some of them somebody asks. At which is the page there before anybody asks?
    fn rendered_at(frames: u64, asks: impl Fn(u64) -> bool) -> Vec<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (shelf, mut pipeline) = (Shelf::default(), Pipeline::default());
        let mut rendered = Vec::new();
        for frame in 1..=frames {
            shelf.put(&pipeline.feed(&Tick::default()));
            runtime.block_on(async {
                let moment = std::time::Duration::from_millis(20);
                let _ = tokio::time::timeout(moment, shelf.render()).await;
            });
            let pages = shelf.newest().unwrap();
            if pages.open_metrics.get().is_some() {
                rendered.push(frame);
            }
            assert!(pages.text.get().is_none(), "nobody asks for the classic text");
            if asks(frame) {
                shelf.asked(Form::OpenMetrics);
            }
        }
        rendered
    }

    #[test]
    fn who_asks_often_finds_the_page_rendered() {
        let nothing = Vec::<u64>::new();
        assert_eq!(rendered_at(6, |_| false), nothing);
        // Each frame, or every second: from the second time on, and no longer than a few frames.
        assert_eq!(rendered_at(5, |_| true), [3, 4, 5]);
        assert_eq!(rendered_at(9, |frame| frame.is_multiple_of(2) && frame < 5), [5, 6, 7]);
        // Every 15 s: rendered when it is asked for.
        assert_eq!(rendered_at(40, |frame| frame.is_multiple_of(15)), nothing);
    }
}
