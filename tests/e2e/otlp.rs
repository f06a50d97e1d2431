//! What goes out by OTLP, taken by programs that are not ours: OpenTelemetry's own Python package decodes it, a real
//! VictoriaMetrics stores it and is asked for it again. Both must say what `/metrics` said at the same tick.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Node, Running, Scratch, agent_with, ask, free_port, get, query};

/// Name and labels.
type Series = (String, BTreeMap<String, String>);
/// One page: every series.
type Page = BTreeMap<Series, f64>;

const TICK: &str = "gpuprod_self_tick_timestamp_seconds";

/// A program that `tests/tools` fetches.
fn tool(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tools").join(name);
    let output = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "tests/tools/{name}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// The OpenMetrics page. Labels without a value are the same as none.
fn parse(text: &str) -> Page {
    let mut page = Page::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, mut rest) = series.split_once('{').unwrap_or((series, "}"));
        let mut labels = BTreeMap::new();
        while let Some((key, quoted)) = rest.split_once("=\"") {
            // None of the test's labels holds a quote.
            let (value, after) = quoted.split_once('"').unwrap();
            if !value.is_empty() {
                labels.insert(key.trim_start_matches(',').to_owned(), value.to_owned());
            }
            rest = after;
        }
        assert_eq!(rest, "}", "{line}");
        let twice = page.insert((name.to_owned(), labels), value.parse().unwrap());
        assert_eq!(twice, None, "{line}");
    }
    page
}

/// Pages by the millisecond of their tick, gathered for a while.
fn pages(address: &str, time: Duration) -> BTreeMap<u64, Page> {
    let end = Instant::now() + time;
    let mut pages = BTreeMap::new();
    while Instant::now() < end {
        let text = ask(address, "/metrics", "application/openmetrics-text");
        // Before the first tick there is no page.
        if let Some(page) = text.filter(|text| text.ends_with("# EOF\n")).map(|text| parse(&text))
            && let Some(tick) = page.get(&(TICK.to_owned(), BTreeMap::new()))
        {
            pages.insert((tick * 1e3).floor().to_string().parse().unwrap(), page);
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    pages
}

fn config(endpoint: &str) -> String {
    format!("labels: {{cluster: lab}}\notlp: {{endpoint: \"{endpoint}\", interval: 1s}}\n")
}

#[test]
#[ignore = "needs OpenTelemetry's Python package (tests/tools/otlp-python)"]
fn the_official_decoder_reads_what_the_page_says() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/e2e/otlp_receiver.py");
    let mut receiver = Running(Command::new(tool("otlp-python")).arg(script).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(receiver.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let endpoint = format!("http://127.0.0.1:{}/v1/metrics", lines.next().unwrap());
    // Bodies as they come: what each said, by its tick.
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut points: Vec<Value> = Vec::new();
        for line in lines {
            let point: Value = serde_json::from_str(&line).unwrap();
            if point["end"] == true {
                let _ = tell.send(std::mem::take(&mut points));
            } else {
                points.push(point);
            }
        }
    });

    let scratch = Scratch::new("otlp-python");
    let node = Node::play("raid_rebuild_serving.scn", 590, &scratch.0.join("host"));
    let (_agent, address) = agent_with(&scratch.0, &node, &config(&endpoint));
    let pages = pages(&address, Duration::from_secs(12));
    let bodies: Vec<Vec<Value>> = told.try_iter().collect();
    assert!(bodies.len() >= 8, "{} bodies in 12 s", bodies.len());

    let mut compared = 0;
    let mut standard = BTreeSet::new();
    for body in &bodies {
        let tick = body.iter().map(|point| point["time"].as_u64().unwrap()).max().unwrap();
        let mut sent = Page::new();
        for point in body {
            let name = point["name"].as_str().unwrap();
            assert_eq!(point["resource"]["service.name"], "gpuprod");
            assert_eq!(point["resource"]["cluster"], "lab");
            assert_eq!(point["scope"][0], "gpuprod");
            assert!(point["start"].as_u64().unwrap() <= point["time"].as_u64().unwrap(), "{point}");
            // The zero of a new series and the end of a gone one stand beside the page.
            if point["time"].as_u64() != Some(tick) || point["flags"] == 1 {
                assert!(point["value"] == 0.0 || point["value"].is_null(), "{point}");
                continue;
            }
            if name.starts_with("hw_") {
                assert_eq!(point["labels"]["hw.type"], "gpu");
                standard.insert(name.to_owned());
                continue;
            }
            let labels = point["labels"].as_object().unwrap().iter();
            let labels = labels.filter(|(key, _)| !key.starts_with("hw."));
            let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
            let twice = sent.insert((name.to_owned(), labels), point["value"].as_f64().unwrap());
            assert_eq!(twice, None, "{point}");
        }
        let Some(page) = pages.get(&(tick / 1_000_000)) else { continue };
        compared += 1;
        assert!(page.len() > 200, "{} series", page.len());
        assert_same(page, &sent, 0.0);
    }
    assert!(compared >= 5, "{compared} ticks seen on both ways");
    let expected = ["hw_energy_joules_total", "hw_gpu_memory_limit_bytes", "hw_gpu_memory_usage_bytes"];
    assert!(expected.iter().all(|name| standard.contains(*name)), "{standard:?}");
    println!(
        "{compared} ticks, {} series each, equal; standard names: {standard:?}",
        pages.values().last().unwrap().len()
    );
}

/// The same series with the same values, to so many parts.
fn assert_same(page: &Page, other: &Page, tolerance: f64) {
    let missing: Vec<_> = page.keys().filter(|series| !other.contains_key(*series)).take(3).collect();
    let strange: Vec<_> = other.keys().filter(|series| !page.contains_key(*series)).take(3).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing {missing:?}, strange {strange:?}");
    for (series, value) in page {
        let far = (other[series] - value).abs() > tolerance * value.abs();
        assert!(!far, "{series:?}: {value} on the page, {} there", other[series]);
    }
}

/// A real VictoriaMetrics that can be stopped and started again.
struct Victoria {
    program: PathBuf,
    dir: PathBuf,
    address: String,
    running: Option<Running>,
}

impl Victoria {
    fn new(dir: PathBuf) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut victoria = Self { program: tool("victoria"), dir, address, running: None };
        victoria.start();
        victoria
    }

    fn start(&mut self) {
        let child = Command::new(&self.program)
            .arg(format!("-storageDataPath={}", self.dir.display()))
            .arg(format!("-httpListenAddr={}", self.address))
            .args(["-opentelemetry.usePrometheusNaming", "-search.latencyOffset=0s", "-memory.allowedBytes=128MB"])
            .args(["-retentionPeriod=1d", "-loggerLevel=WARN"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.running = Some(Running(child));
        let end = Instant::now() + Duration::from_secs(30);
        while get(&self.address, "/health").is_none() {
            assert!(Instant::now() < end, "VictoriaMetrics does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// As an operator stops it: what it took is on its disk.
    fn stop(&mut self) {
        let mut running = self.running.take().unwrap();
        let pid = running.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        running.0.wait().unwrap();
    }

    /// Every sample, by series and millisecond; without the labels of the resource and of the hardware conventions.
    fn samples(&self) -> BTreeMap<Series, BTreeMap<u64, f64>> {
        get(&self.address, "/internal/force_flush").unwrap();
        let text = get(&self.address, "/api/v1/export?match%5B%5D=%7B__name__%21%3D%22%22%7D").unwrap();
        let mut samples: BTreeMap<Series, BTreeMap<u64, f64>> = BTreeMap::new();
        // The answer comes in chunks, whose sizes stand on lines of their own.
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let series: Value = serde_json::from_str(line).unwrap();
            let mut labels: BTreeMap<String, String> = serde_json::from_value(series["metric"].clone()).unwrap();
            let name = labels.remove("__name__").unwrap();
            assert_eq!(labels.remove("service.name").or(labels.remove("service_name")).as_deref(), Some("gpuprod"));
            assert_eq!(labels.remove("cluster").as_deref(), Some("lab"));
            labels.retain(|key, _| !["service", "host", "hw"].iter().any(|own| key.starts_with(own)));
            let times = series["timestamps"].as_array().unwrap().iter().map(|time| time.as_u64().unwrap());
            // A stale marker is exported as null.
            let values = series["values"].as_array().unwrap().iter().map(Value::as_f64);
            let points = times.zip(values).filter_map(|(time, value)| Some((time, value?)));
            samples.entry((name, labels)).or_default().extend(points);
        }
        samples
    }
}

#[test]
#[ignore = "needs Debian trixie's victoria-metrics (tests/tools/victoria)"]
fn a_real_victoria_metrics_has_every_number_after_an_outage() {
    let scratch = Scratch::new("otlp-victoria");
    let mut victoria = Victoria::new(scratch.0.join("victoria"));
    let node = Node::play("raid_rebuild_serving.scn", 590, &scratch.0.join("host"));
    let endpoint = format!("http://{}/opentelemetry/v1/metrics", victoria.address);
    let (_agent, address) = agent_with(&scratch.0, &node, &config(&endpoint));
    let mut seen = pages(&address, Duration::from_secs(10));
    victoria.stop();
    seen.extend(pages(&address, Duration::from_secs(30)));
    victoria.start();
    // Back-off may have grown to 30 s by now.
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        seen.extend(pages(&address, Duration::from_secs(2)));
        let page = seen.values().last().unwrap();
        let queue = page[&("gpuprod_self_otlp_queue_size_bytes".to_owned(), BTreeMap::new())];
        let age = page.get(&("gpuprod_self_otlp_success_age_seconds".to_owned(), BTreeMap::new()));
        if queue == 0.0 && age.is_some_and(|age| *age < 5.0) {
            break;
        }
        assert!(Instant::now() < end, "the queue is not sent: {queue} bytes, last success {age:?}");
    }
    let ticks: Vec<u64> = seen.keys().copied().collect();
    let last = ticks[ticks.len() - 1];
    // The last one is on its way: an export a second, which a busy machine may delay.
    let end = Instant::now() + Duration::from_secs(30);
    let samples = loop {
        std::thread::sleep(Duration::from_secs(1));
        let mut samples = victoria.samples();
        if samples.values().flat_map(|points| points.keys()).any(|time| *time >= last) {
            // What is new since nobody looked at.
            samples.values_mut().for_each(|points| points.retain(|time, _| *time <= last));
            samples.retain(|_, points| !points.is_empty());
            break samples;
        }
        assert!(Instant::now() < end, "the last tick that the page showed never came");
    };

    // Every tick that was seen on the page is there, those of the outage too, with every value.
    let mut compared = Vec::new();
    for (tick, page) in &seen {
        let there: Page = samples
            .iter()
            .filter(|((name, _), _)| !name.starts_with("hw_"))
            .filter_map(|(series, points)| Some((series.clone(), *points.get(tick)?)))
            .filter(|(series, value)| *value != 0.0 || page.contains_key(series))
            .collect();
        // A tick may have come between two exports.
        if there.is_empty() {
            continue;
        }
        assert_same(page, &there, 1e-12);
        compared.push(page);
    }
    assert!(compared.len() + 3 >= seen.len(), "{} of {} ticks are there", compared.len(), seen.len());
    // The names are those of the page; the standard ones go out by OTLP only.
    let names =
        |page: &mut dyn Iterator<Item = &Series>| -> BTreeSet<String> { page.map(|(name, _)| name.clone()).collect() };
    let shown = names(&mut compared.iter().flat_map(|page| page.keys()));
    let (standard, there): (BTreeSet<String>, BTreeSet<String>) =
        names(&mut samples.keys()).into_iter().partition(|name| name.starts_with("hw_"));
    assert_eq!(there, shown);
    println!("{} ticks, {} names, beside {standard:?}", compared.len(), there.len());

    // No gap, nothing twice, nothing lost: what the receiver computes is what the ledger gained.
    let ledger = |page: &Page| -> BTreeMap<Series, f64> {
        let of_ledger = page.iter().filter(|((name, _), _)| name == "gpuprod_gpu_ledger_seconds_total");
        of_ledger.map(|(series, value)| (series.clone(), *value)).collect()
    };
    let gained: f64 = ledger(&seen[&last]).values().sum();
    let total = query(
        &victoria.address,
        &format!("sum(last_over_time(gpuprod_gpu_ledger_seconds_total[10m] @ {}))", last / 1000 + 1),
    );
    assert!((total[0] - gained).abs() <= 8.1, "{total:?} there, {gained} on the page: 8 GPUs, one tick");
    for (series, points) in samples.iter().filter(|((name, _), _)| name == "gpuprod_gpu_ledger_seconds_total") {
        let times: Vec<u64> = points.keys().copied().collect();
        let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        assert!(gap <= 3_000, "{series:?} has a gap of {gap} ms");
        let values: Vec<f64> = points.values().copied().collect();
        assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "{series:?} steps back");
        assert_eq!(values[0], 0.0, "{series:?} begins with its zero");
    }
    let increase = query(
        &victoria.address,
        &format!("sum(increase(gpuprod_gpu_ledger_seconds_total[10m] @ {}))", last / 1000 + 1),
    );
    assert!((increase[0] - gained).abs() <= 8.1, "increase {increase:?}, the ledger gained {gained}");
}
