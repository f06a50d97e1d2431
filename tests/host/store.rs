//! The store on a real disk: restarts, crashes at any moment, damaged, older and newer files, a full inbox.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuprod::history::Budget;
use gpuprod::pipeline::Frame;
use gpuprod::store::{Committed, Fatal, Keeper, Limits, Place, Store};
use gpuprod_rules::{Judge, Judgement, Ledger};
use gpuprod_snapshot::Tick;

use crate::cli::Scratch;

#[path = "../pure/laws/owners.rs"]
#[allow(dead_code, reason = "shared with the laws")]
mod owners;
#[path = "../pure/laws/schedule.rs"]
#[allow(dead_code, reason = "shared with the laws")]
pub(crate) mod schedule;

use schedule::{Rng, Schedule};

pub(crate) type Said = Arc<Mutex<Vec<String>>>;

pub(crate) fn open(dir: &Path, outbox_bytes: u64) -> (Store, Said) {
    let said = Said::default();
    let ours = Arc::clone(&said);
    let limits = Limits { outbox_bytes, history: Budget { bytes: 0, host: "node".to_owned() } };
    let say = move |line: &str| ours.lock().unwrap().push(line.to_owned());
    (Store::start(Place::Dir(dir.to_owned()), limits, say).unwrap(), said)
}

/// Waits for what the thread does.
pub(crate) fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One process: a keeper on a directory.
pub(crate) struct Process {
    pub(crate) keeper: Keeper,
    pub(crate) said: Said,
}

impl Process {
    pub(crate) fn start(dir: &Path) -> Self {
        let (store, said) = open(dir, 1 << 20);
        Self { keeper: Keeper::new(store, true), said }
    }

    /// Charges one judgement; what is shown.
    pub(crate) fn step(&mut self, judgement: &Judgement) -> Ledger {
        let tick = Tick { stamp: judgement.stamp.clone(), period: judgement.period, ..Tick::default() };
        let frame = Frame {
            known: Cow::Owned(tick),
            judgement: Cow::Borrowed(judgement),
            ledger: Cow::Owned(Ledger::default()),
            alerts: Cow::default(),
            own: Default::default(),
        };
        self.keeper.step(frame).ledger.into_owned()
    }

    pub(crate) fn committed(&self) -> Arc<Committed> {
        until("a commit", || self.keeper.store().committed())
    }

    pub(crate) fn stop(self) {
        self.keeper.stop(&Judge::default());
    }
}

pub(crate) fn rows(dir: &Path) -> BTreeMap<String, u64> {
    let query = "SELECT unit || '|' || bucket || '|' || reason || '|' || weight_source, sum(slice_ns) FROM ledger_rows GROUP BY 1";
    let db = rusqlite::Connection::open_with_flags(dir.join("store.db"), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
    let db = db.unwrap();
    let mut query = db.prepare(query).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap()));
    query.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
}

pub(crate) fn sums(ledger: &Ledger) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (unit, account) in &ledger.accounts {
        for (bucket, source, amount) in account.shares.iter().flat_map(|share| &share.buckets) {
            let key = format!("{unit}|{}|{}|{}", bucket.as_str(), bucket.reason(), source.as_str());
            *sums.entry(key).or_default() += amount;
        }
    }
    sums
}

fn none_decreased(before: &Ledger, after: &Ledger) -> bool {
    let after = sums(after);
    sums(before).iter().all(|(key, amount)| after.get(key).is_some_and(|later| later >= amount))
}

/// The directory as a crash at some moment about now would leave it: the file and its journal are read until neither
/// changed meanwhile, so that both are of one moment.
fn crash(dir: &Path, to: &Path) {
    let read = || ["store.db-journal", "store.db"].map(|name| (name, fs::read(dir.join(name)).ok()));
    let image = until("a moment", || {
        let image = read();
        (image == read()).then_some(image)
    });
    fs::create_dir_all(to).unwrap();
    for (name, bytes) in image {
        if let Some(bytes) = bytes {
            fs::write(to.join(name), bytes).unwrap();
        }
    }
}

#[test]
fn counters_go_on_across_every_clean_end_and_every_crash() {
    let scratch = Scratch::new("store-law");
    let (mut crashes, mut ends) = (0_u32, 0_u32);
    for seed in 0..12 {
        let schedule = Schedule::new(seed);
        let mut rng = Rng(seed ^ 0x5eed);
        let mut life = 0;
        let place = |life: u32| scratch.0.join(format!("{seed}-{life}"));
        let mut process = Process::start(&place(0));
        // The same story to a ledger alone.
        let mut twin = Ledger::default();
        let mut shown = Ledger::default();
        for (n, beat) in schedule.beats.iter().enumerate() {
            // The first stretch of a new process is its absence, in this story and in the files alike.
            if n > 0 && (beat.restart || rng.one_in(9)) {
                if rng.one_in(2) {
                    ends += 1;
                    process.stop();
                } else {
                    crashes += 1;
                    life += 1;
                    crash(&place(life - 1), &place(life));
                    process.stop();
                }
                process = Process::start(&place(life));
                until("the files", || process.keeper.store().opened().then_some(()));
                let left = process.keeper.store().committed();
                // A crash loses what was not committed, and nothing that was shown.
                let left = left.map(|left| left.ledger.as_ref().clone()).unwrap_or_default();
                assert!(none_decreased(&shown, &left), "seed {seed}, beat {n}: shown and gone");
                twin = left;
                twin.resume();
            }
            let now = process.step(&beat.judgement);
            twin.charge(&beat.judgement);
            assert!(none_decreased(&shown, &now) || now == Ledger::default(), "seed {seed}, beat {n}");
            if now != Ledger::default() {
                shown = now;
            }
        }
        process.stop();
        let (store, _) = open(&place(life), 0);
        let kept = until("the ledger", || store.committed());
        store.stop(Duration::from_secs(5));
        assert_eq!(kept.ledger.as_ref(), &twin, "seed {seed}: cut is not the same as not cut");
        assert_eq!(rows(&place(life)), sums(&twin), "seed {seed}: the rows do not sum to the accounts");
    }
    assert!(crashes > 20 && ends > 20, "{crashes} crashes, {ends} ends: too quiet");
}

#[test]
fn a_file_of_version_1_is_brought_forward() {
    let scratch = Scratch::new("store-v1");
    let old = include_str!("../fixtures/store/v1.sql");
    let db = rusqlite::Connection::open(scratch.0.join("store.db")).unwrap();
    db.execute_batch(old).unwrap();
    let version = |db: &rusqlite::Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    assert_eq!(version(&db), Ok(1));
    drop(db);
    let (store, said) = open(&scratch.0, 1 << 20);
    let left = until("the ledger", || store.committed());
    assert_eq!(left.start.0, 1_795_837_575_427_039_199);
    assert_eq!(left.ledger.accounts.len(), 2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let queue = runtime.block_on(store.oldest(9));
    assert_eq!((queue.len(), queue[0].id, queue[0].body.as_ref()), (1, 7, b"hello".as_slice()));
    assert_eq!(runtime.block_on(store.load_alert_state())["desk"], "{\"an\":\"alert\"}");
    store.stop(Duration::from_secs(5));
    let db = rusqlite::Connection::open(scratch.0.join("store.db")).unwrap();
    assert_eq!(version(&db), Ok(3));
    let classes =
        db.query_row("SELECT group_concat(DISTINCT class) FROM ledger_rows", [], |row| row.get::<_, String>(0));
    assert_eq!(classes.as_deref(), Ok("unspecified"));
    assert_eq!(rows(&scratch.0), sums(&left.ledger));
    // Its baselines were learnt under thresholds that have another place today: one short line says so.
    let said = said.lock().unwrap();
    assert!(said.len() == 1 && said[0].starts_with("store: what was learnt cannot be taken over"), "{said:?}");
    assert!(said[0].len() < 200, "{said:?}");
}

#[test]
fn a_newer_file_and_a_second_agent_are_refused_and_nothing_is_touched() {
    let scratch = Scratch::new("store-newer");
    let dir = scratch.0.join("store");
    Process::start(&dir).stop();
    let path = dir.join("store.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&path).unwrap();
    let (store, _) = open(&dir, 0);
    let fatal = until("the refusal", || store.fatal());
    assert!(matches!(fatal, Fatal::Newer { found: 99, known: 3, .. }), "{fatal:?}");
    assert_eq!(fs::read(&path).unwrap(), before);

    // The agent ends with 1 and says which version, which file, what to do.
    let config = scratch.path("agent.yaml");
    let text =
        format!("state_dir: {0}/state\nstore: {{dir: {0}/store}}\nhttp: {{enabled: false}}\n", scratch.0.display());
    fs::write(&config, text).unwrap();
    let agent = || Command::new(env!("CARGO_BIN_EXE_gpuprod")).args(["agent", "--config", &config]).output().unwrap();
    let output = agent();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in ["version 99", "store.db", "up to 3", "move the file away"] {
        assert!(said.contains(word), "{word}: {said}");
    }

    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 3).unwrap();
    let (first, _) = open(&dir, 0);
    until("the files", || first.opened().then_some(()));
    let output = agent();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("in use by another gpuprod agent") && said.contains("store.dir"), "{said}");
    first.stop(Duration::from_secs(5));
}

#[test]
fn a_damaged_file_is_set_aside_and_counters_begin_anew() {
    let scratch = Scratch::new("store-damaged");
    let schedule = Schedule::new(3);
    let mut process = Process::start(&scratch.0);
    until("the files", || process.keeper.store().opened().then_some(()));
    for beat in schedule.beats.iter().take(20) {
        process.step(&beat.judgement);
    }
    let start = process.committed().start;
    process.stop();
    let path = scratch.0.join("store.db");
    let whole = fs::read(&path).unwrap();
    // No database at all; a page of it overwritten; cut off in the middle.
    let mut torn = whole.clone();
    torn[4096..8192].fill(0xa5);
    for damaged in [b"precious, but no database: ".repeat(400), torn, whole[..whole.len() / 2].to_vec()] {
        fs::write(&path, &damaged).unwrap();
        let mut process = Process::start(&scratch.0);
        let aside = until("the new file", || {
            let files = fs::read_dir(&scratch.0).unwrap().flatten().map(|entry| entry.path());
            let aside: Vec<_> = files.filter(|path| path.to_string_lossy().contains(".corrupt-")).collect();
            (process.keeper.store().opened() && !aside.is_empty()).then_some(aside)
        });
        assert!(aside.iter().any(|path| fs::read(path).unwrap() == damaged), "what was damaged is kept: {aside:?}");
        let last = &schedule.beats[30].judgement;
        process.step(last);
        let committed = process.committed();
        assert_eq!(committed.start, last.stamp.realtime, "a new sequence has a new start");
        assert_ne!(committed.start, start);
        let said = process.said.lock().unwrap().join("\n");
        assert!(said.contains("set aside") && said.contains(".corrupt-"), "{said}");
        let status = process.keeper.store().status(last.stamp.boottime);
        assert_eq!(status.errors.get("corrupt"), Some(&1), "{status:?}");
        process.stop();
        for path in aside {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn bodies_wait_in_order_across_a_restart_and_the_oldest_go() {
    let scratch = Scratch::new("store-queue");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (store, _) = open(&scratch.0, 100);
    for n in 0..5_u8 {
        store.enqueue(vec![n; 30]);
    }
    // Five times 30 do not fit into 100: the oldest two are gone.
    let first = |store: &Store| {
        let bodies = runtime.block_on(store.oldest(9));
        bodies.iter().map(|body| (body.id, body.body[0])).collect::<Vec<_>>()
    };
    let held = until("the queue", || Some(first(&store)).filter(|bodies| bodies.len() == 3));
    assert_eq!(held.iter().map(|body| body.1).collect::<Vec<_>>(), [2, 3, 4]);
    let now = gpuprod::clock::boottime();
    assert_eq!((store.status(now).outbox_dropped, store.status(now).outbox_bytes), (2, 90));
    store.done(held[0].0);
    assert_eq!(first(&store)[0].1, 3, "what is done is not given again");
    store.stop(Duration::from_secs(5));
    assert_eq!(runtime.block_on(store.oldest(9)), [], "an ended store answers");
    let (store, _) = open(&scratch.0, 100);
    until("the files", || store.opened().then_some(()));
    store.enqueue(vec![9; 30]);
    assert_eq!(first(&store).iter().map(|body| body.1).collect::<Vec<_>>(), [3, 4, 9]);
    store.stop(Duration::from_secs(5));
}

#[test]
fn a_directory_that_cannot_be_made_costs_nothing_but_patience() {
    let scratch = Scratch::new("store-denied");
    let dir = scratch.0.join("store");
    fs::write(&dir, "a file stands where the directory should be").unwrap();
    let schedule = Schedule::new(5);
    let mut process = Process::start(&dir);
    let mut twin = Ledger::default();
    for beat in schedule.beats.iter().take(30) {
        assert_eq!(process.step(&beat.judgement), Ledger::default(), "nothing is shown that is not durable");
        twin.charge(&beat.judgement);
    }
    let status = until("the failure", || {
        Some(process.keeper.store().status(gpuprod::clock::boottime())).filter(|status| !status.errors.is_empty())
    });
    assert!(status.start.is_none() && status.commits == 0, "{status:?}");
    let said = process.said.lock().unwrap().join("\n");
    assert!(said.contains("store.dir") && said.contains("tried again"), "{said}");
    fs::remove_file(&dir).unwrap();
    until("the files", || process.keeper.store().opened().then_some(()));
    let last = &schedule.beats[30].judgement;
    process.step(last);
    twin.charge(last);
    assert_eq!(process.committed().ledger.as_ref(), &twin, "the wait cost no second");
    process.stop();
    assert_eq!(rows(&dir), sums(&twin));
}
