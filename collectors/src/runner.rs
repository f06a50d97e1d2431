//! A thread and a mailbox of one slot per collector, and a deadline for all of them together.
//!
//! The tick thread asks ([`Runner::trigger`]) and fetches what is there ([`Runner::gather`]); it waits for the
//! deadline at most and never for a collector. What comes late lies in its mailbox until the next tick; a newer
//! answer takes its place, but for events, which exist once and are kept.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuprod_snapshot::Hung;
use gpuprod_snapshot::units::Nanos;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Sample, Source, Tick, Watch};

/// Reads CLOCK_BOOTTIME. The agent hands in its own; tests hand in a fake.
pub type Clock = fn() -> Nanos;

/// A collector is called hung when it is busy for longer than this many of its periods,
const HUNG_PERIODS: u64 = 3;
/// and for longer than this.
const HUNG_AT_LEAST: Nanos = Nanos::from_secs(3);
/// Longest sleep between two looks at the clock: the deadline is on the caller's clock, the sleep on the kernel's.
const LOOK: Nanos = Nanos::from_millis(100);

/// The collectors' threads. Dropping it lets each thread end after the call that it is in; none is waited for.
pub struct Runner {
    clock: Clock,
    host: Arc<Host>,
    workers: Vec<Worker>,
    post: Arc<Post>,
}

struct Worker {
    source: Source,
    /// Which of the collectors that have stood in this place.
    generation: u64,
    watch: Option<Watch>,
    /// Closing it ends the thread. None: the thread could not be started.
    asks: Option<SyncSender<Focus>>,
    thread: Option<JoinHandle<()>>,
}

/// The mailboxes, in the order of the workers.
struct Post {
    boxes: Mutex<Vec<Mailbox>>,
    arrived: Condvar,
}

#[derive(Default)]
struct Mailbox {
    /// Whose answers are taken; those of a collector that was replaced are not.
    generation: u64,
    /// Asked for then, and not answered yet.
    busy: Option<Nanos>,
    /// Asked for since the last gather: the gather waits for it.
    awaited: bool,
    answer: Option<Answer>,
}

struct Answer {
    at: Nanos,
    took: Nanos,
    result: Result<Part, (Missing, String)>,
    /// The call that it gave up waiting for, and since when it has been waiting.
    hung: Option<Hung>,
}

impl Post {
    fn open(&self) -> MutexGuard<'_, Vec<Mailbox>> {
        // Nothing that can panic runs under the lock, and a mailbox is whole at any moment.
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, index: usize, generation: u64, answer: Answer) {
        if let Some(mailbox) = self.open().get_mut(index).filter(|mailbox| mailbox.generation == generation) {
            mailbox.busy = None;
            mailbox.answer = Some(match mailbox.answer.take() {
                Some(late) => answer.after(late),
                None => answer,
            });
        }
        self.arrived.notify_all();
    }
}

impl Runner {
    /// Starts a thread per collector, named after its source. All are idle until [`Runner::trigger`].
    #[must_use]
    pub fn start(host: Host, collectors: Vec<Box<dyn Collector>>, clock: Clock) -> Self {
        let host = Arc::new(host);
        let post = Arc::new(Post {
            boxes: Mutex::new(collectors.iter().map(|_| Mailbox::default()).collect()),
            arrived: Condvar::new(),
        });
        let collectors = collectors.into_iter().enumerate();
        let workers = collectors.map(|(index, collector)| Worker::start((index, 0), collector, &host, &post, clock));
        let workers = workers.collect();
        Self { clock, host, workers, post }
    }

    /// Puts a collector in the place of the one that reads the same source. The old one's thread ends after the call
    /// that it is in, and what that call gives is not taken.
    pub fn replace(&mut self, collector: Box<dyn Collector>) {
        let source = collector.source();
        let Some((index, worker)) = self.workers.iter_mut().enumerate().find(|(_, worker)| worker.source == source)
        else {
            return;
        };
        let generation = worker.generation.saturating_add(1);
        if let Some(mailbox) = self.post.open().get_mut(index) {
            *mailbox = Mailbox { generation, ..Mailbox::default() };
        }
        *worker = Worker::start((index, generation), collector, &self.host, &self.post, self.clock);
    }

    /// Ends the threads, and waits so long for those that are in no call: their collectors can then close what they hold
    /// (the driver's library) before the process is gone.
    pub fn end(mut self, patience: Duration) {
        for worker in &mut self.workers {
            worker.asks = None;
        }
        let still = |worker: &Worker| worker.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        let step = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while waited < patience && self.workers.iter().any(still) {
            std::thread::sleep(step);
            waited += step;
        }
    }

    /// Asks every collector whose period divides the tick's number and that is idle. Tick 0 asks all of them.
    pub fn trigger(&self, tick_number: u64, focus: &Focus) {
        let now = (self.clock)();
        for (index, worker) in self.workers.iter().enumerate() {
            if !tick_number.is_multiple_of(u64::from(worker.source.period_ticks())) {
                continue;
            }
            // Marked before it is asked: the answer can come before the next line runs.
            let idle = match self.post.open().get_mut(index) {
                Some(mailbox) if mailbox.busy.is_none() => {
                    mailbox.busy = Some(now);
                    mailbox.awaited = true;
                    true
                }
                _ => false,
            };
            if !idle {
                continue;
            }
            let asked = worker.asks.as_ref().is_some_and(|asks| asks.try_send(focus.clone()).is_ok());
            if !asked {
                let why = format!("the thread of collector {} does not run", worker.source.as_str());
                self.post.deliver(
                    index,
                    worker.generation,
                    Answer { at: now, took: Nanos(0), result: Err((Missing::Gone, why)), hung: None },
                );
            }
        }
    }

    /// Waits until all that were asked have answered or the deadline (on the runner's clock) has passed, and
    /// puts every answer that is there into the tick. A collector that is stuck puts what it is stuck in.
    pub fn gather(&self, deadline: Nanos, tick: &mut Tick) {
        let mut boxes = self.post.open();
        while boxes.iter().any(|mailbox| mailbox.awaited && mailbox.busy.is_some()) {
            let left = deadline.saturating_sub((self.clock)());
            if left == Nanos(0) {
                break;
            }
            let (guard, _) = self
                .post
                .arrived
                .wait_timeout(boxes, Duration::from_nanos(left.min(LOOK).0))
                .unwrap_or_else(PoisonError::into_inner);
            boxes = guard;
        }
        let fetched: Vec<(Option<Answer>, Option<Nanos>)> = boxes
            .iter_mut()
            .map(|mailbox| {
                mailbox.awaited = false;
                (mailbox.answer.take(), mailbox.busy)
            })
            .collect();
        drop(boxes);
        let now = (self.clock)();
        for (worker, (answer, busy)) in self.workers.iter().zip(fetched) {
            if let Some(answer) = answer {
                answer.put(worker.source, tick);
            } else if let Some(since) = busy {
                let busy_for = now.saturating_sub(since);
                if busy_for > worker.patience(tick.period) {
                    tick.put_missing(worker.source, worker.stuck(now, since));
                }
            }
        }
    }

    /// For one look at a host: asks all collectors `rounds` times, each time with the focus that the round
    /// before gave (the GPUs' pids are known after the first, their cgroups after the second), and keeps the
    /// newest answer of each. The caller stamps the tick. Who has not answered at all by `patience` per round
    /// is `TimedOut`.
    #[must_use]
    pub fn once(host: Host, collectors: Vec<Box<dyn Collector>>, clock: Clock, rounds: u32, patience: Nanos) -> Tick {
        let runner = Self::start(host, collectors, clock);
        let (mut known, mut displaced) = (Tick::default(), Tick::default());
        for _ in 0..rounds {
            let mut tick = Tick::default();
            runner.trigger(0, &Focus::of(&known));
            runner.gather(clock().saturating_add(patience), &mut tick);
            known.advance(&mut displaced, &tick);
        }
        let now = clock();
        let busy: Vec<Option<Nanos>> = runner.post.open().iter().map(|m| m.busy).collect();
        for (worker, busy) in runner.workers.iter().zip(busy) {
            if let (Some(since), None) = (busy, known.status(worker.source)) {
                known.put_missing(worker.source, worker.stuck(now, since));
            }
        }
        known
    }
}

impl Worker {
    fn start(
        (index, generation): (usize, u64),
        collector: Box<dyn Collector>,
        host: &Arc<Host>,
        post: &Arc<Post>,
        clock: Clock,
    ) -> Self {
        let (source, watch) = (collector.source(), collector.watch());
        let (asks, asked) = sync_channel(1);
        let (host, post) = (Arc::clone(host), Arc::clone(post));
        let deliver = move |answer| post.deliver(index, generation, answer);
        let thread = std::thread::Builder::new()
            .name(source.as_str().to_owned())
            .spawn(move || work(collector, &host, &asked, deliver, clock));
        let thread = thread.ok();
        Self { source, generation, watch, asks: thread.is_some().then_some(asks), thread }
    }

    fn patience(&self, period: Nanos) -> Nanos {
        let period = if period == Nanos(0) { Nanos::from_secs(1) } else { period };
        let ticks = u64::from(self.source.period_ticks()).saturating_mul(HUNG_PERIODS);
        Nanos(period.0.saturating_mul(ticks)).max(HUNG_AT_LEAST)
    }

    fn stuck(&self, now: Nanos, since: Nanos) -> Sample<()> {
        let name = self.source.as_str();
        let call = self.watch.as_ref().and_then(|watch| watch()).unwrap_or_else(|| name.to_owned());
        let busy_for = now.saturating_sub(since);
        Sample {
            at: now,
            took: busy_for,
            value: Reading::Missing(Missing::TimedOut),
            why: format!("collector {name} has been in {call} for {:.1} s", busy_for.as_secs_f64()),
            hung: Some(Hung { call, since }),
        }
    }
}

impl Answer {
    /// This answer in the place of one that was not fetched. A state replaces the older state; events are added.
    fn after(mut self, late: Self) -> Self {
        let Ok(Part::Xid(older)) = late.result else {
            return self;
        };
        match &mut self.result {
            Ok(Part::Xid(newer)) => {
                newer.events.splice(0..0, older.events);
                newer.overwritten = newer.overwritten.saturating_add(older.overwritten);
            }
            // The error will be there again in the next tick; the events would not.
            _ => self.result = Ok(Part::Xid(older)),
        }
        self
    }

    fn put(self, source: Source, tick: &mut Tick) {
        let Self { at, took, result, hung } = self;
        match result {
            Ok(part) => tick.put(Sample { at, took, value: Reading::Value(part), why: String::new(), hung: None }),
            Err((missing, why)) => {
                tick.put_missing(source, Sample { at, took, value: Reading::Missing(missing), why, hung })
            }
        }
    }
}

/// A collector's thread: until the runner is gone.
fn work(
    mut collector: Box<dyn Collector>,
    host: &Host,
    asked: &Receiver<Focus>,
    deliver: impl Fn(Answer),
    clock: Clock,
) {
    // A collector that gives up waiting by itself (a supervised child) is hung as well: since the first time.
    let mut waiting = None;
    while let Ok(focus) = asked.recv() {
        let begin = clock();
        // A panic is a bug of one collector: it costs this answer, never the thread, never the tick.
        let outcome = catch_unwind(AssertUnwindSafe(|| collector.collect(host, &focus)));
        let at = clock();
        let result = match outcome {
            Ok(result) => result.map_err(|error: CollectError| (error.missing, error.to_string())),
            Err(panic) => {
                let why = format!("collector {} panicked: {}", collector.source().as_str(), message(&*panic));
                Err((Missing::Malformed, why))
            }
        };
        let took = at.saturating_sub(begin);
        let hung = match &result {
            Err((Missing::TimedOut, _)) => {
                let since = *waiting.get_or_insert(begin);
                let call = collector.watch().and_then(|watch| watch());
                call.map(|call| Hung { call, since })
            }
            _ => {
                waiting = None;
                None
            }
        };
        deliver(Answer { at, took, result, hung });
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
