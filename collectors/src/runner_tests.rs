use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use gpuprod_snapshot::{gpu, host, storage, topology};

use super::*;

type Act = Box<dyn FnMut(&Focus) -> Result<Part, CollectError> + Send>;

/// A collector whose answers the test writes.
struct Fake {
    source: Source,
    act: Act,
    call: Option<&'static str>,
}

impl Collector for Fake {
    fn source(&self) -> Source {
        self.source
    }
    fn collect(&mut self, _host: &Host, focus: &Focus) -> Result<Part, CollectError> {
        (self.act)(focus)
    }
    fn watch(&self) -> Option<Watch> {
        let call = self.call?;
        Some(Arc::new(move || Some(call.to_owned())))
    }
}

fn fake(source: Source, act: impl FnMut(&Focus) -> Result<Part, CollectError> + Send + 'static) -> Box<dyn Collector> {
    Box::new(Fake { source, act: Box::new(act), call: None })
}

fn md(_: &Focus) -> Result<Part, CollectError> {
    Ok(Part::Md(storage::Md::default()))
}

/// Blocks until the test sends, as a driver call does.
fn blocking(call: Option<&'static str>) -> (Sender<u64>, Box<dyn Collector>) {
    let (free, wait): (Sender<u64>, Receiver<u64>) = channel();
    let act: Act = Box::new(move |_| {
        let overwritten = wait.recv().map_err(|_| CollectError::new(Missing::Gone, "the test is over"))?;
        Ok(Part::Xid(gpu::Xids { events: Vec::new(), overwritten }))
    });
    (free, Box::new(Fake { source: Source::Xid, act, call }))
}

fn host() -> Host {
    Host::at(Path::new("/nowhere"))
}

fn tick() -> Tick {
    Tick { period: Nanos::from_secs(1), ..Tick::default() }
}

fn soon() -> Nanos {
    crate::now::boottime().saturating_add(Nanos::from_secs(10))
}

/// A clock of the test's own, one per test.
macro_rules! clock {
    ($name:ident, $read:ident) => {
        static $name: AtomicU64 = AtomicU64::new(1_000_000_000);
        fn $read() -> Nanos {
            Nanos($name.load(Ordering::SeqCst))
        }
    };
}

#[test]
fn periods_divide_the_ticks_number() {
    let numa = |_: &Focus| Ok(Part::Numa(topology::Numa::default()));
    let pci = |_: &Focus| Ok(Part::Pci(topology::Pci::default()));
    let runner = Runner::start(
        host(),
        vec![fake(Source::Md, md), fake(Source::Pci, pci), fake(Source::Numa, numa)],
        crate::now::boottime,
    );
    let seen = |number| {
        let mut tick = tick();
        runner.trigger(number, &Focus::default());
        runner.gather(soon(), &mut tick);
        (tick.md.is_some(), tick.pci.is_some(), tick.numa.is_some())
    };
    // Source::period_ticks: md 1, pci 10, numa 60.
    assert_eq!(seen(0), (true, true, true));
    assert_eq!(seen(1), (true, false, false));
    assert_eq!(seen(10), (true, true, false));
    assert_eq!(seen(60), (true, true, true));
}

#[test]
fn a_hung_collector_costs_the_others_nothing_and_says_where_it_hangs() {
    clock!(NOW, now);
    let (free, hung) = blocking(Some("nvmlDeviceGetPowerUsage"));
    let runner = Runner::start(host(), vec![hung, fake(Source::Md, md)], now);
    for second in 0..8_u64 {
        let mut tick = tick();
        runner.trigger(second, &Focus::default());
        // The fake clock stands still while the others answer, then passes the deadline.
        let deadline = now().saturating_add(Nanos::from_millis(500));
        while runner.post.open()[1].busy.is_some() {
            std::thread::yield_now();
        }
        NOW.fetch_add(1_000_000_000, Ordering::SeqCst);
        runner.gather(deadline, &mut tick);
        assert!(tick.md.is_some(), "tick {second} lost the healthy source");
        let status = tick.status(Source::Xid);
        // Asked at 1 s; the gather of tick n is at n+2 s; more than 3 s of it is from n = 3 on.
        if second < 3 {
            assert_eq!(status, None, "tick {second}");
        } else {
            let sample = status.expect("said to be hung");
            assert_eq!(sample.value, Reading::Missing(Missing::TimedOut));
            let expected = Hung { call: "nvmlDeviceGetPowerUsage".into(), since: Nanos::from_secs(1) };
            assert_eq!(sample.hung, Some(expected));
            assert_eq!(sample.took, Nanos::from_secs(second + 1));
            assert!(sample.why.contains("nvmlDeviceGetPowerUsage"), "{}", sample.why);
        }
    }
    // It comes back: its answer, late as it is, is a good one and stands in the next tick.
    free.send(7).unwrap();
    settle(&runner, 0);
    let mut tick = tick();
    runner.gather(Nanos(0), &mut tick);
    let xid = tick.xid.expect("the late answer");
    assert_eq!(xid.value.get().map(|xids| xids.overwritten), Some(7));
    assert_eq!(xid.hung, None);
}

#[test]
fn a_collector_without_a_watch_hangs_under_its_own_name() {
    clock!(NOW, now);
    let (_free, hung) = blocking(None);
    let runner = Runner::start(host(), vec![hung], now);
    runner.trigger(0, &Focus::default());
    NOW.fetch_add(3_000_000_001, Ordering::SeqCst);
    let mut tick = tick();
    runner.gather(Nanos(0), &mut tick);
    let call = tick.xid.and_then(|sample| sample.hung.clone()).map(|hung| hung.call);
    assert_eq!(call.as_deref(), Some("xid"));
}

#[test]
fn patience_is_three_periods_and_three_seconds_at_least() {
    let worker = |source| Worker { source, generation: 0, watch: None, asks: None, thread: None };
    assert_eq!(worker(Source::Md).patience(Nanos::from_millis(100)), Nanos::from_secs(3));
    assert_eq!(worker(Source::Md).patience(Nanos::from_secs(2)), Nanos::from_secs(6));
    assert_eq!(worker(Source::Pci).patience(Nanos::from_secs(1)), Nanos::from_secs(30));
}

/// Waits until a collector is idle again.
fn settle(runner: &Runner, index: usize) {
    while runner.post.open()[index].busy.is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn a_late_state_gives_way_to_a_newer_one_and_late_events_are_kept() {
    let mut calls = 0_u64;
    let xid = move |_: &Focus| {
        calls += 1;
        if calls == 3 {
            return Err(CollectError::new(Missing::Denied, "open /dev/kmsg"));
        }
        let event =
            crate::nvml::xid::parse_record(&format!("4,{calls},1,-;NVRM: Xid (PCI:0000:9b:00): 31, pid=1, name=x"));
        Ok(Part::Xid(gpu::Xids { events: event.into_iter().collect(), overwritten: calls }))
    };
    let mut rounds = 0;
    let numa = move |_: &Focus| {
        rounds += 1;
        let node = topology::NumaNode { id: rounds, ..topology::NumaNode::default() };
        Ok(Part::Numa(topology::Numa { nodes: vec![node] }))
    };
    let runner = Runner::start(host(), vec![fake(Source::Xid, xid), fake(Source::Numa, numa)], crate::now::boottime);
    // Three rounds that nobody fetched.
    for _ in 0..3 {
        runner.trigger(0, &Focus::default());
        settle(&runner, 0);
        settle(&runner, 1);
    }
    let mut tick = tick();
    runner.gather(Nanos(0), &mut tick);
    let xids = tick.xid.unwrap().value.get().unwrap().clone();
    let seen: Vec<u64> = xids.events.iter().map(|event| event.seq).collect();
    assert_eq!(seen, [1, 2], "in order, and not lost to the error");
    assert_eq!(xids.overwritten, 3);
    assert_eq!(tick.numa.unwrap().value.get().unwrap().nodes[0].id, 3);
}

#[test]
fn an_error_and_a_panic_are_answers() {
    let denied = |_: &Focus| Err(CollectError::new(Missing::Denied, "open /dev/kmsg").hint("run as root"));
    let mut calls = 0;
    let panics_once = move |_: &Focus| {
        calls += 1;
        assert!(calls > 1, "the first call panics");
        Ok(Part::Psi(host::Psi::default()))
    };
    let runner =
        Runner::start(host(), vec![fake(Source::Xid, denied), fake(Source::Psi, panics_once)], crate::now::boottime);
    let round = |number| {
        let mut tick = tick();
        runner.trigger(number, &Focus::default());
        runner.gather(soon(), &mut tick);
        tick
    };
    let first = round(0);
    let xid = first.status(Source::Xid).expect("an error is an answer");
    assert_eq!(xid.value, Reading::Missing(Missing::Denied));
    assert_eq!(xid.why, "open /dev/kmsg: denied; run as root");
    let psi = first.status(Source::Psi).expect("a panic is an answer");
    assert_eq!(psi.value, Reading::Missing(Missing::Malformed));
    assert_eq!(psi.why, "collector psi panicked: the first call panics");
    assert!(round(1).psi.is_some_and(|sample| sample.value.get().is_some()), "it goes on");
}

#[test]
fn dropping_it_waits_for_nobody_and_ends_the_threads() {
    struct Farewell(Sender<()>);
    impl Drop for Farewell {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let (free, hung) = blocking(None);
    let (ended, end) = channel();
    let farewell = Farewell(ended);
    let idle = fake(Source::Md, move |focus| {
        let _held = &farewell;
        md(focus)
    });
    let runner = Runner::start(host(), vec![hung, idle], crate::now::boottime);
    runner.trigger(0, &Focus::default());
    drop(runner);
    end.recv_timeout(Duration::from_secs(10)).expect("the idle thread ended");
    drop(free);
}

#[test]
fn once_hands_the_first_rounds_focus_to_the_second() {
    let gpus = |_: &Focus| {
        let process = gpu::GpuProcess {
            pid: 4711,
            kind: gpu::ContextKind::Compute,
            mem_used: Reading::default(),
            sm: Reading::default(),
            gi: None,
        };
        let device = gpu::Gpu { processes: Reading::Value(vec![process]), ..gpu::Gpu::default() };
        Ok(Part::Gpu(gpu::Gpus { devices: vec![device], ..gpu::Gpus::default() }))
    };
    let (tell, told) = channel();
    let asked = move |focus: &Focus| {
        tell.send(focus.pids.iter().copied().collect::<Vec<u32>>()).unwrap();
        Ok(Part::Proc(host::Processes::default()))
    };
    let (_free, hung) = blocking(None);
    let collectors = vec![fake(Source::Gpu, gpus), fake(Source::Proc, asked), hung];
    let tick = Runner::once(host(), collectors, crate::now::boottime, 2, Nanos::from_millis(300));
    assert!(tick.gpu.is_some() && tick.proc.is_some());
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [vec![], vec![4711]]);
    let late = tick.status(Source::Xid).expect("a line for who did not answer");
    assert_eq!(late.value, Reading::Missing(Missing::TimedOut));
    assert_eq!(late.hung.map(|hung| hung.call).as_deref(), Some("xid"));
}

#[test]
fn a_collector_that_gives_up_by_itself_is_hung_since_its_first_attempt() {
    let mut attempts = 0;
    let act: Act = Box::new(move |_| {
        attempts += 1;
        match attempts {
            1..=2 => Err(CollectError::new(Missing::TimedOut, "the child is in a call")),
            3 => Ok(Part::Gpu(gpu::Gpus::default())),
            _ => Err(CollectError::new(Missing::TimedOut, "again")),
        }
    });
    let collector = Fake { source: Source::Gpu, act, call: Some("nvmlDeviceGetPowerUsage") };
    // A clock that moves by a millisecond with each look, so that instants differ.
    static NOW: AtomicU64 = AtomicU64::new(1);
    let clock: Clock = || Nanos(NOW.fetch_add(1_000_000, Ordering::Relaxed));
    let runner = Runner::start(Host::at(Path::new("/")), vec![Box::new(collector)], clock);
    let mut hung = Vec::new();
    for number in 0..4 {
        let mut tick = Tick::default();
        runner.trigger(number, &Focus::default());
        while tick.gpu.is_none() {
            runner.gather(clock().saturating_add(Nanos::from_secs(1)), &mut tick);
        }
        hung.push(tick.gpu.unwrap().hung.clone());
    }
    let first = hung[0].clone().unwrap();
    assert_eq!(first.call, "nvmlDeviceGetPowerUsage");
    assert_eq!(hung[1], Some(first.clone()), "the same wait");
    assert_eq!(hung[2], None);
    assert!(hung[3].clone().unwrap().since > first.since, "another wait");
}

#[test]
fn a_replaced_collectors_late_answer_is_not_taken() {
    let (free, old) = blocking(None);
    let mut runner = Runner::start(host(), vec![old, fake(Source::Md, md)], crate::now::boottime);
    let ask = |runner: &Runner| {
        let mut tick = tick();
        runner.trigger(0, &Focus::default());
        runner.gather(crate::now::boottime().saturating_add(Nanos::from_millis(300)), &mut tick);
        tick.xid.and_then(|xid| xid.value.get().map(|xids| xids.overwritten))
    };
    assert_eq!(ask(&runner), None, "the old one is in its call");
    let (free_new, new) = blocking(None);
    runner.replace(new);
    free.send(1).unwrap();
    // The old thread has delivered and ended when its end of the channel is gone.
    while free.send(2).is_ok() {
        std::thread::yield_now();
    }
    free_new.send(3).unwrap();
    assert_eq!(ask(&runner), Some(3));
    runner.replace(fake(Source::Numa, |_| Err(CollectError::new(Missing::Gone, "nobody reads this here"))));
    assert_eq!(runner.workers.len(), 2, "a source that is not there is not added");
}

#[test]
fn the_end_waits_for_those_who_can_end() {
    /// Says that it was dropped.
    struct Slow(Sender<()>);
    impl Collector for Slow {
        fn source(&self) -> Source {
            Source::Md
        }
        fn collect(&mut self, _: &Host, focus: &Focus) -> Result<Part, CollectError> {
            md(focus)
        }
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            let _ = self.0.send(());
        }
    }
    let (tell, told) = channel();
    Runner::start(host(), vec![Box::new(Slow(tell))], crate::now::boottime).end(Duration::from_secs(20));
    assert_eq!(told.try_recv(), Ok(()), "it was closed before the end came back");
    let (_free, stuck) = blocking(None);
    let runner = Runner::start(host(), vec![stuck], crate::now::boottime);
    runner.trigger(0, &Focus::default());
    // Comes back at all.
    runner.end(Duration::from_millis(100));
}
