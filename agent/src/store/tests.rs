//! What stands in the place of the files, and what is said of it.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::Nanos;
use rusqlite::Connection;

use super::reader::{self, Error};
use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gpuprod-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn db(&self) -> PathBuf {
        self.0.join("store.db")
    }

    fn sql(&self, text: &str) {
        Connection::open(self.db()).unwrap().execute_batch(text).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Said = Arc<Mutex<Vec<String>>>;

fn start(dir: &Path) -> (Store, Said) {
    let said = Said::default();
    let ours = Arc::clone(&said);
    let limits = Limits { outbox_bytes: 1 << 20, history: Budget { bytes: 1 << 20, host: "node".to_owned() } };
    let say = move |line: &str| ours.lock().unwrap().push(line.to_owned());
    (Store::start(Place::Dir(dir.to_owned()), limits, say).unwrap(), said)
}

fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if wanted() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 30 s");
}

/// A store of ours.
fn fresh(scratch: &Scratch) {
    let (store, _) = start(&scratch.0);
    until("the files", || store.opened());
    store.stop(Duration::from_secs(5));
}

fn said(said: &Said) -> String {
    said.lock().unwrap().join("\n")
}

fn refused(scratch: &Scratch) -> (String, usize) {
    let error = reader::gains(&scratch.0, 0).map(drop).unwrap_err().to_string();
    let lines = error.lines().count();
    (error, lines)
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let marks = ["PRAGMA application_id = 252006674;", "PRAGMA user_version = 3;", ""];
    for (number, mark) in marks.into_iter().enumerate() {
        let scratch = Scratch::new(&format!("foreign-{number}"));
        scratch.sql(&format!("{mark} CREATE TABLE alerts (precious); INSERT INTO alerts VALUES ('mine');"));
        let before = fs::read(scratch.db()).unwrap();
        let (store, _) = start(&scratch.0);
        until("the refusal", || store.fatal().is_some());
        let told = store.fatal().unwrap().to_string();
        assert!(told.contains(scratch.db().to_str().unwrap()) && told.contains("no store of gpuprod"), "{told}");
        assert!(told.contains("alerts") || told.contains("252006674"), "{told}");
        assert!(told.contains("store.dir"), "{told}");
        drop(store);
        assert_eq!(fs::read(scratch.db()).unwrap(), before);
        assert!(matches!(reader::gains(&scratch.0, 0), Err(Error::Foreign { .. })));
    }
}

#[test]
fn a_file_whose_tables_are_not_as_they_were_made_is_damaged() {
    for (number, harm) in [
        "DROP TABLE ledger_rows",
        "DROP TABLE learnt",
        "ALTER TABLE io_rows DROP COLUMN written_bytes",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -5",
    ]
    .into_iter()
    .enumerate()
    {
        let scratch = Scratch::new(&format!("harmed-{number}"));
        fresh(&scratch);
        scratch.sql(harm);
        let (store, told) = start(&scratch.0);
        until("a new file", || store.opened());
        let told = said(&told);
        assert!(told.contains("set aside") && told.contains("counters begin anew"), "{harm}: {told}");
        assert!(!told.contains("nothing is lost"), "{harm}: {told}");
        assert_eq!(store.status(Nanos(0)).errors.get("corrupt"), Some(&1), "{harm}");
        store.stop(Duration::from_secs(5));
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    for name in ["store.db", "lock", "store.db-journal"] {
        let scratch = Scratch::new(&format!("pipe-{name}"));
        let path = scratch.0.join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (store, told) = start(&scratch.0);
        until("a word", || !told.lock().unwrap().is_empty());
        let words = said(&told);
        assert!(words.contains(path.to_str().unwrap()) && words.contains("a pipe stands in the place"), "{words}");
        if name == "store.db" {
            let (error, _) = refused(&scratch);
            assert!(error.contains("store.db"), "{error}");
        }
        // Once it is away, the store begins.
        fs::remove_file(path).unwrap();
        until("the files", || store.opened());
        store.stop(Duration::from_secs(5));
    }
    let scratch = Scratch::new("socket");
    let _held = UnixListener::bind(scratch.db()).unwrap();
    let (store, told) = start(&scratch.0);
    until("a word", || !told.lock().unwrap().is_empty());
    assert!(said(&told).contains("a socket stands in the place"), "{}", said(&told));
    store.stop(Duration::from_secs(5));
}

#[test]
fn a_history_that_cannot_be_written_is_said_once() {
    let scratch = Scratch::new("history");
    let path = scratch.0.join("history");
    fs::write(&path, "in the way").unwrap();
    let (store, told) = start(&scratch.0);
    until("the files", || store.opened());
    for second in 1..4 {
        let mut tick = Tick { period: Nanos::from_secs(1), ..Tick::default() };
        tick.stamp.boottime = Nanos::from_secs(second);
        store.keep(tick);
    }
    until("the ticks", || store.status(Nanos(0)).history_dropped == 3);
    let words = said(&told);
    assert_eq!(words.lines().filter(|line| line.starts_with("history: ")).count(), 1, "{words}");
    assert!(words.contains(path.to_str().unwrap()) && words.contains("tried again"), "{words}");
    store.stop(Duration::from_secs(5));
}

#[test]
fn a_report_reads_what_it_can_and_says_plainly_what_it_cannot() {
    let scratch = Scratch::new("reader");
    fs::write(scratch.db(), "").unwrap();
    let (error, _) = refused(&scratch);
    assert!(error.contains("is empty") && !error.contains("SELECT"), "{error}");
    fs::remove_file(scratch.db()).unwrap();
    fresh(&scratch);
    let row = |unit: &str, class: &str, bucket: &str| {
        scratch
            .sql(&format!("INSERT INTO ledger_rows VALUES (5, '{unit}', '', '{class}', '{bucket}', '', 'gpm', 1, 7)"));
    };
    row("GPU-a", "batch", "productive");
    row("GPU-b", "of tomorrow", "productive");
    row("GPU-c", "batch", "of tomorrow");
    let (gains, skipped) = reader::gains(&scratch.0, 0).unwrap();
    assert_eq!(gains.rows.values().sum::<u64>(), 7);
    assert_eq!((skipped.rows, skipped.word.is_some_and(|word| word.contains("of tomorrow"))), (2, true));
    scratch.sql("DROP TABLE ledger_rows");
    let (error, lines) = refused(&scratch);
    assert!(error.contains("damaged") && lines == 1, "{error}");
}
