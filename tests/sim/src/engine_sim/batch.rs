//! Continuous batching over a paged KV cache: first come, first served while the cache has room; when it has none, the
//! newest request is preempted and computed again later (or swapped to the host).

use std::collections::VecDeque;

use super::arrivals::{Arrival, Traffic};
use super::{Gauges, Latencies};
use crate::words::float;

/// A step without anything in it, and what each request in the batch adds, seconds.
const STEP: f64 = 0.018;
const PER_REQUEST: f64 = 0.000_12;
/// Prompt tokens per second.
const PREFILL: f64 = 20_000.0;
/// Prompt tokens that one step takes: longer prompts go in pieces.
const CHUNK: u32 = 8192;
/// Tokens of cache per second that are swapped between GPU and host (about 0.5 MB each over PCIe).
const SWAP: f64 = 40_000.0;

/// A submission of a request.
#[derive(Clone, Copy, Debug)]
struct Request {
    submitted: f64,
    /// Prompt tokens, without what the prefix cache has: to be computed before the first token.
    prompt: u32,
    known: u32,
    output: u32,
    done: u32,
    /// Tokens that are still to be computed before the next token comes.
    todo: u32,
    /// A client's second try.
    again: bool,
    /// It ran before, so that its queue time and its prompt are told already.
    ran: bool,
    started: Option<f64>,
    number: u64,
}

impl Request {
    const fn held(&self) -> u64 {
        (self.prompt as u64) + (self.done as u64)
    }
}

/// Everything counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) prompt: f64,
    pub(crate) hits: f64,
    pub(crate) generated: f64,
    pub(crate) finished: f64,
    pub(crate) preempted: f64,
    /// Prompt and generated tokens that were computed before, and lost by preemption.
    pub(crate) recomputed: f64,
    /// Generated tokens of second tries: the first gives them too.
    pub(crate) duplicate: f64,
    /// Requests that got their first token, and of those the ones that got it later than was promised.
    pub(crate) first: f64,
    pub(crate) late: f64,
}

impl Totals {
    /// The useful part of what was computed since; a prompt token is a tenth of a generated one.
    pub(crate) fn useful_since(&self, before: Self) -> f64 {
        let work = |totals: &Self| totals.generated + (totals.prompt - totals.hits) / 10.0;
        let all = work(self) - work(&before);
        let lost = (self.recomputed - before.recomputed) / 10.0;
        let again = self.duplicate - before.duplicate;
        if all + lost > 0.0 { ((all - again) / (all + lost)).clamp(0.0, 1.0) } else { 1.0 }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Batch {
    kv: u64,
    most: usize,
    retry: Option<f64>,
    swaps: bool,
    promised: Option<f64>,
    clock: f64,
    used: u64,
    running: Vec<Request>,
    waiting: VecDeque<Request>,
    swapped: VecDeque<Request>,
    /// Submissions whose client may lose patience: when, and which.
    patience: VecDeque<(f64, Request)>,
    /// The last submission that was admitted: whoever came later still waits.
    admitted: u64,
    next: u64,
    pub(crate) totals: Totals,
}

impl Batch {
    pub(crate) fn new(traffic: &Traffic, clock: f64) -> Self {
        Self {
            kv: crate::words::whole(traffic.kv),
            most: usize::try_from(crate::words::whole(traffic.batch)).unwrap_or(1),
            retry: traffic.retries.map(|seconds| float(usize::try_from(seconds).unwrap_or(0))),
            swaps: traffic.swaps,
            promised: traffic.promised.map(|seconds| float(usize::try_from(seconds).unwrap_or(0))),
            clock,
            used: 0,
            running: Vec::new(),
            waiting: VecDeque::new(),
            swapped: VecDeque::new(),
            patience: VecDeque::new(),
            admitted: 0,
            next: 1,
            totals: Totals::default(),
        }
    }

    pub(crate) const fn swaps(&self) -> bool {
        self.swaps
    }

    pub(crate) fn gauges(&self, busy: f64) -> Gauges {
        let share = |part: u64, whole: u64| {
            float(usize::try_from(part).unwrap_or(0)) / float(usize::try_from(whole.max(1)).unwrap_or(1))
        };
        Gauges {
            running: float(self.running.len()),
            waiting: float(self.waiting.len()),
            swapped: float(self.swapped.len()),
            kv: share(self.used, self.kv).min(1.0),
            busy,
        }
    }

    /// Runs until an instant; gives the share of the time in which it stepped.
    pub(crate) fn run(&mut self, until: f64, speed: f64, new: Vec<Arrival>, latencies: &mut Latencies) -> f64 {
        let begin = until - 1.0;
        let mut new: VecDeque<Arrival> = new.into();
        let mut busy = (self.clock - begin).clamp(0.0, 1.0);
        while self.clock < until {
            while new.front().is_some_and(|arrival| arrival.at <= self.clock) {
                new.pop_front().into_iter().for_each(|arrival| self.submit(arrival));
            }
            self.impatience(self.clock);
            self.resume();
            self.admit(latencies);
            if self.running.is_empty() {
                // Nothing to do until somebody comes.
                self.clock = new.front().map_or(until, |arrival| arrival.at.min(until)).max(self.clock + 1e-6);
                continue;
            }
            let took = self.step(speed.max(0.001), latencies);
            busy += took.min((until - (self.clock - took)).max(0.0));
        }
        new.into_iter().for_each(|arrival| self.submit(arrival));
        busy.clamp(0.0, 1.0)
    }

    /// Time passes and requests queue up.
    pub(crate) fn queue(&mut self, until: f64, new: Vec<Arrival>) {
        new.into_iter().for_each(|arrival| self.submit(arrival));
        self.impatience(until);
        self.clock = until;
    }

    /// Time passes and nobody comes.
    pub(crate) fn skip(&mut self, until: f64) {
        self.clock = until;
    }

    pub(crate) fn clear(&mut self, until: f64) {
        self.running.clear();
        self.waiting.clear();
        self.swapped.clear();
        self.patience.clear();
        (self.used, self.clock) = (0, until);
    }

    fn submit(&mut self, arrival: Arrival) {
        self.put(Request {
            submitted: arrival.at,
            prompt: arrival.prompt.max(1),
            known: arrival.known,
            output: arrival.output.max(1),
            done: 0,
            todo: arrival.prompt.saturating_sub(arrival.known).max(1),
            again: false,
            ran: false,
            started: None,
            number: 0,
        });
    }

    fn put(&mut self, request: Request) {
        let request = Request { number: self.next, ..request };
        self.next += 1;
        if let Some(retry) = self.retry {
            self.patience.push_back((request.submitted + retry, request));
        }
        self.waiting.push_back(request);
    }

    /// Clients whose request still waits send it again.
    fn impatience(&mut self, now: f64) {
        while let Some((_, request)) = self.patience.pop_front_if(|(at, _)| *at <= now) {
            if request.number > self.admitted {
                self.put(Request { submitted: now, again: true, ..request });
            }
        }
    }

    fn fits(&self, tokens: u64) -> bool {
        self.running.len() < self.most && self.used.saturating_add(tokens) <= self.kv
    }

    /// What was swapped out goes first.
    fn resume(&mut self) {
        while let Some(request) = self.swapped.front().copied() {
            if !self.fits(request.held() + 1) {
                break;
            }
            self.swapped.pop_front();
            self.used += request.held();
            // Its cache is copied back in the next step.
            self.clock += float(usize::try_from(request.held()).unwrap_or(0)) / SWAP;
            self.running.push(request);
        }
    }

    fn admit(&mut self, latencies: &mut Latencies) {
        while self.swapped.is_empty()
            && let Some(mut request) = self.waiting.front().copied()
        {
            // A request that is longer than the whole cache would block it for ever: it is refused.
            if request.held() >= self.kv {
                self.waiting.pop_front();
                continue;
            }
            if !self.fits(request.held() + 1) {
                break;
            }
            self.waiting.pop_front();
            self.used += request.held();
            self.admitted = self.admitted.max(request.number);
            if !request.ran {
                request.started = Some(self.clock);
                latencies.queue.observe_one((self.clock - request.submitted).max(0.0), 1.0);
            }
            self.running.push(request);
        }
    }

    /// One step of the whole batch; gives its length.
    fn step(&mut self, speed: f64, latencies: &mut Latencies) -> f64 {
        self.make_room();
        let mut budget = CHUNK;
        let mut prefill = 0_u32;
        for request in &mut self.running {
            let piece = request.todo.min(budget);
            (request.todo, budget) = (request.todo - piece, budget - piece);
            prefill += piece;
            if request.ran {
                self.totals.recomputed += f64::from(piece);
            }
        }
        let took = (STEP + PER_REQUEST * float(self.running.len()) + f64::from(prefill) / PREFILL) / speed;
        self.clock += took;
        let now = self.clock;
        let mut tokens = 0.0;
        for request in self.running.iter_mut().filter(|request| request.todo == 0) {
            if request.done == 0 {
                let late = self.promised.is_some_and(|promised| now - request.submitted > promised);
                self.totals.first += 1.0;
                self.totals.late += f64::from(u8::from(late));
                latencies.ttft.observe_one((now - request.submitted).max(0.0), 1.0);
                self.totals.prompt += f64::from(request.prompt);
                self.totals.hits += f64::from(request.known);
            } else {
                latencies.itl.observe_one(took, 1.0);
            }
            request.done += 1;
            request.ran = true;
            self.used += 1;
            tokens += 1.0;
            if request.again {
                self.totals.duplicate += 1.0;
            }
        }
        self.totals.generated += tokens;
        let (used, totals) = (&mut self.used, &mut self.totals);
        self.running.retain(|request| {
            let over = request.done >= request.output;
            if over {
                *used = used.saturating_sub(request.held());
                totals.finished += 1.0;
                latencies.e2e.observe_one((now - request.submitted).max(0.0), 1.0);
            }
            !over
        });
        took
    }

    /// Every request of the batch may need a slot more: the newest give theirs up until there are enough.
    fn make_room(&mut self) {
        while self.used.saturating_add(u64::try_from(self.running.len()).unwrap_or(0)) > self.kv
            && self.running.len() > 1
        {
            let Some(mut request) = self.running.pop() else { return };
            self.used = self.used.saturating_sub(request.held());
            self.totals.preempted += 1.0;
            request.ran = request.done > 0;
            if self.swaps {
                self.clock += float(usize::try_from(request.held()).unwrap_or(0)) / SWAP;
                self.swapped.push_back(request);
            } else {
                // Its prompt and what it has said so far are computed again.
                request.todo = request.prompt.saturating_add(request.done);
                self.waiting.push_front(request);
            }
        }
    }
}
