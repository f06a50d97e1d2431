//! kill -9 at random moments under a real Prometheus that scrapes every second: no counter steps back, no second is
//! lost or doubled, and what nobody saw is unknown. The same with the state directory on a file system that fills up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gpuprod_fake_nvml::{Gpu, State};
use gpuprod_rules::{Ledger, Unknown};
use gpuprod_snapshot::units::Nanos;
use serde_json::Value;

use super::{Running, Scratch, free_port, get, one, query};

/// What tells the series of one counter apart.
const LABELS: [&str; 5] = ["uuid", "bucket", "state", "reason", "weight_source"];

/// One series as Prometheus holds it.
struct Series {
    selector: String,
    /// Unix time in seconds, value.
    values: Vec<(f64, f64)>,
}

/// The counters of the ledger, which outlive the process: what each series must be, by its labels.
fn booked(ledger: &Ledger) -> [(&'static str, BTreeMap<String, f64>); 5] {
    let accounts = || ledger.accounts.iter();
    let buckets = accounts().flat_map(|(unit, account)| account.totals().into_iter().map(move |total| (unit, total)));
    let buckets = buckets.map(|(unit, total)| {
        let (bucket, source) = (total.bucket, total.source.as_str());
        (format!("{unit}|{}||{}|{source}", bucket.as_str(), bucket.reason()), total.time.as_secs_f64())
    });
    let states = accounts().flat_map(|(unit, account)| account.states().into_iter().map(move |state| (unit, state)));
    let states = states
        .map(|(unit, (state, time))| (format!("{unit}||{}|{}|", state.as_str(), state.reason()), time.as_secs_f64()));
    let hours = accounts().map(|(unit, account)| (unit, account.productive().as_secs_f64() / 3600.0));
    let observed = accounts().map(|(unit, account)| (unit, account.observed_gpu().as_secs_f64()));
    let steps = f64::from(u32::try_from(ledger.clock_steps).unwrap());
    [
        ("gpuprod_gpu_ledger_seconds_total", buckets.collect()),
        ("gpuprod_gpu_state_time_seconds_total", states.collect()),
        ("gpuprod_gpu_productive_hours_total", hours.map(|(unit, hours)| (format!("{unit}||||"), hours)).collect()),
        ("gpuprod_gpu_observed_seconds_total", observed.map(|(unit, time)| (format!("{unit}||||"), time)).collect()),
        ("gpuprod_self_clock_steps_total", [("||||".to_owned(), steps)].into()),
    ]
}

/// Splitmix64, seeded by the clock; the seed is printed.
struct Rng(u64);

impl Rng {
    fn new() -> Self {
        let seed = std::env::var("GPUPROD_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| gpuprod::clock::realtime().0);
        println!("seed {seed} (again with GPUPROD_SEED={seed})");
        Self(seed)
    }

    fn moment(&mut self) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Two of three die young, before, in and after their first commit; the third around those that follow.
        Duration::from_millis(if z.is_multiple_of(3) { 4_000 + z % 4_500 } else { 300 + z % 1_200 })
    }
}

/// A node with eight boards, a port of its own, and a Prometheus that scrapes it.
struct Stand {
    scratch: Scratch,
    store: PathBuf,
    address: String,
    prometheus: String,
    alive: Duration,
    _server: Running,
}

impl Stand {
    fn new(name: &str, store: impl FnOnce(&Path) -> PathBuf) -> Self {
        let scratch = Scratch::new(name);
        let store = store(&scratch.0);
        let board = |n: u32| Gpu { util: Some(n * 14), power_mw: Some(80_000 + n * 80_000), ..Gpu::default() };
        let state = State { gpus: (0..8).map(board).collect(), ..State::default() };
        state.write(&scratch.0.join("nvml.json")).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let config = format!(
            "state_dir: {0}/state\nstore: {{dir: {1}}}\nhttp: {{listen: \"{address}\"}}\n",
            scratch.0.display(),
            store.display()
        );
        std::fs::write(scratch.0.join("agent.yaml"), config).unwrap();
        let prometheus = format!("127.0.0.1:{}", free_port());
        let job = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- {{job_name: gpuprod, static_configs: [{{targets: ['{address}']}}]}}\n"
        );
        std::fs::write(scratch.0.join("prometheus.yml"), job).unwrap();
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", scratch.0.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", scratch.0.join("tsdb").display()))
            .arg(format!("--web.listen-address={prometheus}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is not installed");
        Self { scratch, store, address, prometheus, alive: Duration::ZERO, _server: Running(server) }
    }

    fn start(&self) -> Running {
        let library = gpuprod_fake_nvml::library().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gpuprod"))
            .args(["agent", "--config", self.scratch.0.join("agent.yaml").to_str().unwrap()])
            .args(["--nvml-library", library.to_str().unwrap()])
            .env(gpuprod_fake_nvml::STATE, self.scratch.0.join("nvml.json"))
            .stderr(std::fs::File::options().create(true).append(true).open(self.scratch.0.join("agent.log")).unwrap())
            .spawn();
        Running(child.unwrap())
    }

    /// Agents that are killed, one after the other.
    fn kill(&mut self, times: u32, rng: &mut Rng) {
        for _ in 0..times {
            let begun = Instant::now();
            let agent = self.start();
            std::thread::sleep(rng.moment());
            // SIGKILL, and waited for.
            drop(agent);
            self.alive += begun.elapsed();
        }
    }

    fn page(&self) -> String {
        get(&self.address, "/metrics").unwrap_or_default()
    }

    fn value(&self, series: &str) -> Option<f64> {
        let page = self.page();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    }

    fn until(&self, seconds: u64, what: &str, look: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(seconds);
        while !look(self) {
            let log = std::fs::read_to_string(self.scratch.0.join("agent.log")).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: not within {seconds} s\n{}\n{log}", self.page());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A last agent, killed after its last commit was scraped: the page that Prometheus holds is the ledger on disk.
    fn last(&mut self) {
        let begun = Instant::now();
        let agent = self.start();
        let commits = |stand: &Self| stand.value("gpuprod_self_store_commits_total").unwrap_or(0.0);
        self.until(60, "two commits", |stand| commits(stand) >= 2.0);
        let seen = commits(self);
        std::thread::sleep(Duration::from_millis(2_500));
        assert!((commits(self) - seen).abs() < 0.5, "the next commit was sooner than 2.5 s after");
        drop(agent);
        self.alive += begun.elapsed();
    }

    /// The ledger as it lies on the disk, and when its counters began.
    fn ledger(&self) -> (Ledger, Nanos) {
        // A reader of its own: nothing of the agent's.
        let script = "import sqlite3,sys\nfor row in sqlite3.connect(sys.argv[1]).execute('select start_ns, body from ledger'): print(*row)";
        let path = self.store.join("store.db");
        let output = Command::new("python3").args(["-c", script]).arg(path).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (start, body) = text.trim().split_once(' ').unwrap();
        (serde_json::from_str(body).unwrap(), Nanos(start.parse().unwrap()))
    }

    /// Every sample that Prometheus holds of a counter, by the labels that tell its series apart.
    fn samples(&self, counter: &str) -> BTreeMap<String, Series> {
        let path = format!("/api/v1/query?query={counter}%5B30m%5D");
        let json: Value = serde_json::from_str(&get(&self.prometheus, &path).unwrap()).unwrap();
        let series = json["data"]["result"].as_array().unwrap().iter().map(|series| {
            let label = |name: &str| series["metric"][name].as_str().unwrap_or("").to_owned();
            let key = LABELS.map(label).join("|");
            let labels = LABELS.map(|name| format!("{name}=\"{}\"", label(name))).join(",");
            let values = series["values"].as_array().unwrap().iter();
            let value = |pair: &Value| (pair[0].as_f64().unwrap(), pair[1].as_str().unwrap().parse().unwrap());
            (key, Series { selector: format!("{counter}{{{labels}}}"), values: values.map(value).collect() })
        });
        series.collect()
    }

    /// What Prometheus makes of a series: its first value and what `increase()` says over exactly the samples that are
    /// there, so that nothing is extrapolated.
    fn total(&self, series: &Series) -> f64 {
        let (first, last) = (series.values[0], series.values[series.values.len() - 1]);
        let range = ((last.0 - first.0) * 1e3).ceil() + 1.0;
        if series.values.len() < 2 {
            return first.1;
        }
        first.1 + one(&self.prometheus, &format!("increase({}[{range:.0}ms] @ {:.3})", series.selector, last.0))
    }

    /// What must hold after all of it.
    fn hold_against_the_ledger(&self) {
        let (ledger, start) = self.ledger();
        assert_eq!(ledger.accounts.len(), 8);
        let (mut worst, mut compared) = (0.0_f64, 0);
        for (counter, mut booked) in booked(&ledger) {
            let resets = query(&self.prometheus, &format!("resets({counter}[30m]) > 0"));
            assert!(resets.is_empty(), "{counter}: {resets:?}");
            let scraped = self.samples(counter);
            assert!(!scraped.is_empty(), "{counter} was never scraped");
            let tick = if counter.ends_with("_hours_total") { 1.0 / 3600.0 } else { 1.0 };
            for (labels, series) in &scraped {
                let values = &series.values;
                assert!(values.is_sorted_by(|a, b| a.1 <= b.1), "{counter} {labels}: {values:?}");
                // Shown with zero from the start, and never booked.
                let booked = booked.remove(labels).unwrap_or(0.0);
                let last = values[values.len() - 1].1;
                worst = worst.max((last - booked).abs());
                let total = self.total(series);
                assert!((total - booked).abs() <= tick, "{counter} {labels}: increase {total}, ledger {booked}");
                compared += 1;
            }
            assert!(booked.is_empty(), "{counter}: booked and never scraped: {booked:?}");
        }
        let upto = ledger.upto.clone().unwrap().realtime;
        let span = upto.saturating_sub(start).as_secs_f64();
        let observed_series = self.samples("gpuprod_gpu_observed_seconds_total");
        let mut down = 0.0;
        for (unit, account) in &ledger.accounts {
            let observed = account.observed().as_secs_f64();
            assert!((observed - span).abs() < 0.1, "{unit}: {observed} s booked of {span} s");
            let gap = account.time_in(|bucket| bucket == gpuprod_rules::Bucket::Unknown(Unknown::AgentDown));
            down = gap.as_secs_f64();
            let unseen = account.time_in(|bucket| matches!(bucket, gpuprod_rules::Bucket::Unknown(_))).as_secs_f64();
            let seen = observed - unseen;
            assert!(seen <= self.alive.as_secs_f64(), "{unit}: {seen} s seen, {:?} alive", self.alive);
            let first = observed_series[&format!("{unit}||||")].values[0];
            assert!(first.1 < 6.0, "{unit}: the first sample was {first:?}");
        }
        assert!(worst < 1e-6, "the last page and the ledger on disk differ by {worst} s");
        let report = Command::new(env!("CARGO_BIN_EXE_gpuprod"))
            .args(["report", "--since", "2h", "--json", "--dir", self.store.to_str().unwrap()])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let all: u64 = ledger.accounts.values().map(|account| account.observed().0).sum();
        assert_eq!(report["total"]["observed_ns"].as_u64(), Some(all), "the report is the ledger");
        println!(
            "{span:.1} s a unit, of which {down:.1} s agent_down; {compared} series: increase() is the ledger, the last page differs by {worst}"
        );
    }
}

#[test]
#[ignore = "needs Debian's prometheus and python3"]
fn killed_a_hundred_times_under_a_real_prometheus() {
    let mut rng = Rng::new();
    let mut stand = Stand::new("kill", |scratch| scratch.join("store"));
    stand.kill(100, &mut rng);
    stand.last();
    stand.hold_against_the_ledger();
    // The history has what was flushed; torn ends cost no more than that.
    let history = gpuprod::history::between(&stand.store.join("history"), Nanos(0), Nanos(u64::MAX)).unwrap();
    let ticks = history.collect::<Result<Vec<_>, _>>().unwrap();
    println!("{} ticks in the history", ticks.len());
    assert!(!ticks.is_empty());
}

/// A small file system of its own, taken down with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=0755", "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs Debian's prometheus and python3, and root for a small file system"]
fn killed_while_the_state_directory_is_full() {
    let mut rng = Rng::new();
    let place = std::env::temp_dir().join(format!("gpuprod-e2e-full-{}", std::process::id()));
    let Some(mount) = Mount::new(place) else {
        println!("skipped: a file system cannot be mounted here (not root?)");
        return;
    };
    let mut stand = Stand::new("full", |_| mount.0.join("store"));
    stand.kill(6, &mut rng);

    let filler = mount.0.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    let agent = stand.start();
    let begun = Instant::now();
    stand.until(90, "the full disk is told", |stand| {
        stand.page().contains("gpuprod_self_store_errors_total{reason=\"full\"}")
    });
    let lag = |stand: &Stand| stand.value("gpuprod_self_store_lag_seconds").unwrap_or(0.0);
    let tick = |stand: &Stand| stand.value("gpuprod_self_tick_timestamp_seconds").unwrap_or(0.0);
    let (held, ticked) = (ledger_lines(&stand.page()), tick(&stand));
    stand.until(30, "the lag grows", |stand| lag(stand) > 9.0);
    assert_eq!(ledger_lines(&stand.page()), held, "counters hold still");
    assert!(tick(&stand) > ticked, "ticks go on");
    drop(agent);
    stand.alive += begun.elapsed();
    stand.kill(10, &mut rng);

    // Room again, while an agent runs: what it saw meanwhile is not lost.
    let begun = Instant::now();
    let agent = stand.start();
    std::thread::sleep(Duration::from_secs(8));
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    stand.until(30, "commits go on", |stand| stand.value("gpuprod_self_store_commits_total").unwrap_or(0.0) >= 1.0);
    drop(agent);
    stand.alive += begun.elapsed();
    stand.kill(6, &mut rng);
    stand.last();
    stand.hold_against_the_ledger();
}

fn ledger_lines(page: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with("gpuprod_gpu_ledger_seconds_total")).map(str::to_owned).collect()
}
