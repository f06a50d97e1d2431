//! The store's file beside its readers and on disks that fail: commits that were cut off, files of earlier versions with
//! their WAL, a reader that holds up a commit, a read-only mount, a disk that never answers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuprod::state_dir::own_uid;
use gpuprod::store::reader;
use gpuprod_rules::Ledger;
use rusqlite::Connection;

use crate::agent::Agent;
use crate::cli::Scratch;
use crate::store::schedule::Schedule;
use crate::store::{Process, open, rows, sums, until};

const BLIND: [&str; 2] = ["--nvml-library", "/nonexistent.so"];

/// What of a directory is mapped into this process.
fn mapped(dir: &Path) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(dir.to_str().unwrap())).map(str::to_owned).collect()
}

/// A store with some hours in it; what was booked.
fn filled(dir: &Path) -> Ledger {
    let mut process = Process::start(dir);
    until("the files", || process.keeper.store().opened().then_some(()));
    let mut twin = Ledger::default();
    for beat in Schedule::new(3).beats.iter().take(30) {
        process.step(&beat.judgement);
        twin.charge(&beat.judgement);
    }
    process.stop();
    assert_eq!(rows(dir), sums(&twin));
    twin
}

fn total(ledger: &Ledger) -> u64 {
    sums(ledger).values().sum()
}

fn read(dir: &Path) -> Result<u64, reader::Error> {
    reader::gains(dir, 0).map(|(gains, _)| gains.rows.values().sum())
}

/// The file in the middle of a commit, as kill -9 leaves it: pages of it written, the journal beside it.
fn cut_off(from: &Path, to: &Path) {
    let mut db = Connection::open(from.join("store.db")).unwrap();
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "TRUNCATE", |row| row.get(0)).unwrap();
    assert_eq!(mode, "truncate");
    let all = db.transaction().unwrap();
    all.execute_batch("UPDATE ledger_rows SET slice_ns = slice_ns + 1; UPDATE ledger SET body = '{}'").unwrap();
    all.cache_flush().unwrap();
    fs::create_dir_all(to).unwrap();
    for name in ["store.db", "store.db-journal"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    all.rollback().unwrap();
    // This image can hurt: without its journal the file is another one.
    assert_ne!(fs::read(to.join("store.db")).unwrap(), fs::read(from.join("store.db")).unwrap());
    assert!(fs::metadata(to.join("store.db-journal")).unwrap().len() > 512);
}

#[test]
fn a_commit_that_was_cut_off_is_taken_back() {
    let scratch = Scratch::new("store-cut");
    let whole = scratch.0.join("whole");
    let booked = filled(&whole);
    let image = |name: &str| {
        let to = scratch.0.join(name);
        cut_off(&whole, &to);
        to
    };
    // By an agent that starts,
    let dir = image("agent");
    let (store, said) = open(&dir, 0);
    let left = until("the ledger", || store.committed());
    assert_eq!(left.ledger.as_ref(), &booked);
    store.stop(Duration::from_secs(5));
    assert_eq!((rows(&dir), said.lock().unwrap().len()), (sums(&booked), 0));
    // by a reader who may,
    assert_eq!(read(&image("reader")).unwrap(), total(&booked));
    // and a reader who may not says who could, and shows nothing of it.
    if own_uid() != 0 {
        println!("skipped: a reader who may not write (not root)");
        return;
    }
    let dir = image("other");
    let binary = scratch.0.join("gpuprod");
    fs::copy(env!("CARGO_BIN_EXE_gpuprod"), &binary).unwrap();
    let report = || {
        let mut command = Command::new(&binary);
        command.args(["report", "--json", "--dir"]).arg(&dir).uid(65_534).gid(65_534);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for name in ["store.db", "store.db-journal"] {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let (code, out, err) = report();
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("cut off") && err.contains("start the agent"), "{err}");
    read(&dir).unwrap();
    assert_eq!(report().0, Some(0), "when it is whole again, everybody may read it");
}

#[test]
fn a_file_with_a_wal_is_taken_over_and_nothing_is_ever_mapped() {
    let scratch = Scratch::new("store-wal");
    let (old, dir) = (scratch.0.join("old"), scratch.0.join("store"));
    let booked = filled(&old);
    // As earlier versions kept it, killed: the last commits are in the WAL alone.
    let db = Connection::open(old.join("store.db")).unwrap();
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    db.execute("INSERT INTO alerts VALUES ('in', 'the WAL')", []).unwrap();
    assert_eq!(mapped(&old).len(), 1, "a WAL is mapped: {:?}", mapped(&old));
    fs::create_dir_all(&dir).unwrap();
    for name in ["store.db", "store.db-wal"] {
        fs::copy(old.join(name), dir.join(name)).unwrap();
    }
    drop(db);
    assert_eq!(read(&dir).unwrap(), total(&booked), "a reader comes before the agent");
    let (store, said) = open(&dir, 0);
    let left = until("the ledger", || store.committed());
    assert_eq!(left.ledger.as_ref(), &booked);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(store.load_alert_state())["in"], "the WAL");
    store.put_alert_state("in", Some("the journal".to_owned()));
    until("a commit", || (store.status(gpuprod::clock::boottime()).commits > 0).then_some(()));
    assert_eq!(mapped(&dir), Vec::<String>::new());
    assert_eq!(read(&dir).unwrap(), total(&booked), "a reader beside the agent");
    let header = fs::read(dir.join("store.db")).unwrap();
    assert_eq!(header[18..20], [1, 1], "the file's own word for a rollback journal");
    let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["lock", "store.db", "store.db-journal"]);
    store.stop(Duration::from_secs(5));
    assert!(said.lock().unwrap().is_empty(), "{said:?}");
}

#[test]
fn a_reader_that_does_not_let_go_delays_a_commit_and_loses_nothing() {
    let scratch = Scratch::new("store-reader");
    let mut booked = filled(&scratch.0);
    let mut process = Process::start(&scratch.0);
    until("the files", || process.keeper.store().opened().then_some(()));
    let shown = process.committed();
    let db = Connection::open(scratch.0.join("store.db")).unwrap();
    db.execute_batch("BEGIN; SELECT count(*) FROM ledger_rows").unwrap();
    let beat = &Schedule::new(3).beats[31].judgement;
    booked.resume();
    booked.charge(beat);
    process.step(beat);
    let status = until("the failure", || {
        Some(process.keeper.store().status(beat.stamp.boottime)).filter(|status| status.errors.contains_key("busy"))
    });
    assert_eq!(status.commits, 0);
    assert_eq!(process.committed(), shown, "what is shown holds still");
    let said = process.said.lock().unwrap().join("\n");
    assert!(said.contains("another program reads it") && said.contains("nothing is lost"), "{said}");
    db.execute_batch("COMMIT").unwrap();
    until("a commit", || (process.keeper.store().status(beat.stamp.boottime).commits > 0).then_some(()));
    process.stop();
    assert_eq!(rows(&scratch.0), sums(&booked));
}

/// A file whose opening does not come back, as on a dead disk: another program has a lease on it (F_SETLEASE) and does
/// not give it up, for which the kernel waits 45 s.
struct Hung(Child);

impl Hung {
    fn new(dir: &Path) -> Self {
        const HOLD: &str = r#"use Fcntl; $SIG{IO} = "IGNORE"; open(F, "+>", $ARGV[0]) or die; fcntl(F, 1024, F_WRLCK) or die $!;
            $| = 1; print "held\n"; sleep 120"#;
        fs::create_dir_all(dir).unwrap();
        let mut perl = Command::new("perl");
        let mut perl = perl.args(["-e", HOLD]).arg(dir.join("lock")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(perl.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(perl)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_end_waits_two_seconds_for_a_disk_that_does_not_answer_and_no_longer() {
    let scratch = Scratch::new("store-hung");
    let dir = scratch.0.join("store");
    let hung = Hung::new(&dir);
    let mut process = Process::start(&dir);
    let beats = Schedule::new(3).beats;
    let begun = Instant::now();
    for beat in beats.iter().take(30) {
        assert_eq!(process.step(&beat.judgement), Ledger::default(), "nothing is shown that is not durable");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "a tick waited for the disk: {:?}", begun.elapsed());
    let begun = Instant::now();
    process.stop();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1_900), "it gave up after {took:?}");
    assert!(took < Duration::from_secs(8), "it waited {took:?}");
    // The disk answers: the thread finds that it is to end.
    drop(hung);

    // The real agent: served meanwhile, and gone in time.
    let scratch = Scratch::new("store-hung-agent");
    let _hung = Hung::new(&scratch.0.join("store"));
    let agent = Agent::start(&scratch, &BLIND);
    agent.until(60, |page| page.contains("gpuprod_self_store_lag_seconds"));
    assert!(agent.get("/readyz").1.contains("the store has not answered yet"), "{}", agent.get("/readyz").1);
    assert!(agent.get("/healthz").0.contains("200 OK"));
    let took = agent.stop();
    assert!(took >= Duration::from_millis(1_900), "it gave up after {took:?}");
}

/// A small file system of its own, taken down with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m,mode=0755", "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }

    fn remount(&self, how: &str) {
        let output = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_read_only_mount_ticks_go_on_and_no_counter_is_shown() {
    let scratch = Scratch::new("store-ro");
    let Some(mount) = Mount::new(scratch.0.join("store")) else {
        println!("skipped: a file system cannot be mounted here (not root?)");
        return;
    };
    let Some(library) = gpuprod_fake_nvml::library() else {
        println!("skipped: the fake NVML is not built beside this test");
        return;
    };
    let state = gpuprod_fake_nvml::State { gpus: vec![gpuprod_fake_nvml::Gpu::default()], ..Default::default() };
    state.write(&scratch.0.join("nvml.json")).unwrap();
    let start = || Agent::start(&scratch, &["--nvml-library", library.to_str().unwrap()]);
    let observed = |page: &str| {
        let values = page.lines().filter_map(|line| line.strip_prefix("gpuprod_gpu_observed_seconds_total"));
        values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, f64::max)
    };
    let agent = start();
    let before = observed(&agent.until(60, |page| observed(page) > 2.0));
    agent.stop();

    mount.remount("ro");
    let agent = start();
    let said = (0..5).map(|_| agent.says()).find(|line| line.contains("store: "));
    let said = said.unwrap_or_default();
    assert!(said.contains("Read-only file system") && said.contains("tried again"), "{said}");
    let page = agent.until(60, |page| page.contains("gpuprod_gpu_utilization"));
    assert!(page.contains("gpuprod_self_store_errors_total{reason=\"read_only\"}"), "{page}");
    assert!(!page.contains("gpuprod_gpu_ledger_seconds_total{"), "{page}");
    assert!(agent.get("/readyz").1.contains("the store has failed: read_only"), "{}", agent.get("/readyz").1);
    let tick =
        |page: &str| page.lines().find(|line| line.starts_with("gpuprod_self_tick_timestamp")).map(str::to_owned);
    let then = tick(&page);
    agent.until(60, |page| tick(page) != then);

    // What it saw meanwhile is booked when it can be; the first page may still show what the file said.
    mount.remount("rw");
    agent.until(60, |page| observed(page) > before);
    agent.stop();
    drop(mount);
}
