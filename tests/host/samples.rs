//! The real binary on real inputs: each fact of an expected.json that has a place in `snapshot --json` must
//! stand there. The small set of tests/fixtures always runs; the large one where it lies beside the checkout.

use std::fs;
use std::path::{Path, PathBuf};

use gpuprod_sim::Responder;
use gpuprod_snapshot::Tick;
use gpuprod_snapshot::units::to_f64;
use serde_json::{Map, Value, json};

use crate::cli::{Scratch, gpuprod};

/// Compared so far; null is compared and not counted, since nothing at all would agree with it too.
#[derive(Default)]
struct Tally {
    compared: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn same(&mut self, file: &str, key: &str, got: &Value, want: &Value) {
        self.compared += usize::from(!want.is_null());
        if !agree(got, want) {
            self.wrong.push(format!("{file}: {key}: {got}, expected {want}"));
        }
    }

    /// Every key of an object of facts that `read` knows.
    fn facts(&mut self, file: &str, want: &Value, read: impl Fn(&str) -> Option<Value>) {
        for (key, want) in want.as_object().unwrap() {
            if let Some(got) = read(key) {
                self.same(file, key, &got, want);
            }
        }
    }

    fn end(self, floor: usize) {
        println!("{} values compared", self.compared);
        assert!(self.wrong.is_empty(), "{} of {}:\n{}", self.wrong.len(), self.compared, self.wrong.join("\n"));
        assert!(self.compared >= floor, "only {} values were compared", self.compared);
    }
}

/// Integers exactly; decimals but for what a billionth and a float's last digits are worth.
fn agree(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Number(a), Value::Number(b)) if a.is_u64() && b.is_u64() => a == b,
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9 + b.abs() * 1e-12
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b)),
        _ => got == want,
    }
}

/// The value at a path (`md.value.arrays`); null for what is missing.
fn at(value: &Value, path: &str) -> Value {
    let found = path.split('.').try_fold(value, |value, key| value.get(key));
    match found {
        Some(Value::Object(object)) if object.len() == 1 && object.contains_key("missing") => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

fn list(value: &Value, path: &str) -> Vec<Value> {
    at(value, path).as_array().cloned().unwrap_or_default()
}

/// A number divided; null stays null.
fn over(value: &Value, divisor: u64) -> Value {
    match value.as_u64() {
        Some(number) if number % divisor == 0 => (number / divisor).into(),
        Some(_) => (value.as_f64().unwrap() / to_f64(divisor)).into(),
        None => Value::Null,
    }
}

/// What the binary prints; whoever reads ticks can read it.
fn snapshot(scratch: &Scratch, only: &str, args: &[&str]) -> Value {
    let output = gpuprod(scratch, &["snapshot", "--json", "--only", only]).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Tick>(&output.stdout).unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(shown["derived"].is_object(), "{shown}");
    shown
}

/// A host of which only these files of proc/ are there.
fn with_proc(scratch: &Scratch, only: &str, files: &[(&str, &Path)]) -> Value {
    let root = scratch.0.join("root");
    let _ = fs::remove_dir_all(&root);
    for (name, from) in files {
        let to = root.join("proc").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    snapshot(scratch, only, &["--host-root", root.to_str().unwrap()])
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(path)
}

/// The large set of real inputs.
fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

fn expected(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("expected.json")).unwrap()).unwrap()
}

/// All arrays of a snapshot by name, and the names of those expected.
fn arrays(tally: &mut Tally, file: &str, shown: &Value, want: &Map<String, Value>) -> Vec<Value> {
    let arrays = list(shown, "md.value.arrays");
    let mut names: Vec<&str> = arrays.iter().map(|array| array["name"].as_str().unwrap()).collect();
    let mut wanted: Vec<&str> = want.keys().map(String::as_str).collect();
    names.sort_unstable();
    wanted.sort_unstable();
    tally.same(file, "arrays", &json!(names), &json!(wanted));
    arrays
}

/// A fact of a sample of /proc/mdstat, from an array and from what is derived of it.
fn mdstat_fact(key: &str, array: &Value, derived: &Value) -> Option<Value> {
    let state = at(array, "state");
    let of = |path: &str| at(array, path);
    Some(match key {
        "activity" => if state == "inactive" { "inactive" } else { "active" }.into(),
        "read_only" => match state.as_str() {
            Some("readonly") => "read-only",
            Some("read-auto") => "auto-read-only",
            _ => "no",
        }
        .into(),
        "level" | "metadata" | "raid_disks" | "active_disks" | "slots" | "missing" | "bitmap" | "is_container" => {
            of(key)
        }
        "volume_of" => of("container"),
        // A container holds volumes; its kind stands in the metadata.
        "container" => match of("metadata").as_str().and_then(|metadata| metadata.strip_prefix("external:")) {
            Some(kind) if array["is_container"] == true => kind.into(),
            _ => Value::Null,
        },
        "blocks_kib" => over(&of("size"), 1024),
        "chunk_kib" => over(&of("chunk"), 1024),
        // The samples write near-2 where the kernel has `2 near-copies`.
        "layout" => match of("layout").as_str().and_then(|layout| layout.strip_suffix(" near-copies")) {
            Some(copies) => format!("near-{copies}").into(),
            None => of("layout"),
        },
        "degraded" => of("degraded").as_u64().map_or(Value::Null, |slots| (slots > 0).into()),
        "faulty" => derived["faulty"].clone(),
        "spare" => (list(derived, "spares").len() + list(derived, "rebuilding").len()).into(),
        // The samples keep mdstat's word.
        "action" if of("action") == "recover" => "recovery".into(),
        "action" => of("action"),
        "action_state" => of("sync"),
        "sync_running" => (of("sync") == "running").into(),
        "percent" => derived["sync_percent"].clone(),
        "done_kib" => over(&of("sync_done_fine"), 1024),
        "total_kib" => over(&of("sync_total_fine"), 1024),
        "finish_min" => over(&of("sync_finish_ns"), 60_000_000_000),
        "speed_kib_s" => over(&of("sync_speed"), 1024),
        "members" => list(array, "members").iter().map(mdstat_member).collect(),
        _ => return None,
    })
}

fn mdstat_member(member: &Value) -> Value {
    let letter = |flag: &Value| match flag.as_str() {
        Some("write_mostly") => "W",
        Some("journal") => "J",
        Some("faulty") => "F",
        Some("spare") => "S",
        Some("replacement") => "R",
        _ => "?",
    };
    let flags: Vec<&str> = list(member, "flags").iter().map(letter).collect();
    json!({"dev": member["name"], "nr": member["nr"], "flags": flags})
}

fn mdstat(tally: &mut Tally, file: &str, shown: &Value, want: &Map<String, Value>) {
    for array in arrays(tally, file, shown, want) {
        let name = array["name"].as_str().unwrap();
        let Some(want) = want.get(name) else { continue };
        let derived = &shown["derived"]["md"][name];
        tally.facts(&format!("{file} {name}"), want, |key| mdstat_fact(key, &array, derived));
    }
}

#[test]
fn arrays_of_mdstat() {
    let scratch = Scratch::new("samples-mdstat");
    let mut tally = Tally::default();
    // Read off the text by eye.
    let want = json!({
        "md126": {"level": "raid5", "raid_disks": 4, "active_disks": 0, "missing": 4, "slots": "____", "members": []},
        "md125": {"activity": "inactive", "spare": 2, "blocks_kib": 7932},
        "md20": {"missing": 0, "members": [{"dev": "sda3", "nr": 0, "flags": ["W"]},
            {"dev": "sdb3", "nr": 1, "flags": []}, {"dev": "sdc3", "nr": 3, "flags": ["W", "R"]}]},
        "md127": {"is_container": true, "metadata": "external:imsm", "spare": 2},
        "md124": {"volume_of": "md127", "degraded": false, "blocks_kib": 450_040_832},
        "md_scratch": {"action": "check", "action_state": "running", "percent": 100.0, "done_kib": 2_093_056,
            "finish_min": 0, "speed_kib_s": 200_000, "chunk_kib": 512},
        "md30": {"action_state": "remote", "bitmap": true, "degraded": true},
        "md31": {"level": "raid0", "degraded": null, "chunk_kib": 256},
        "md32": {"level": "raid0", "slots": null, "sync_running": false},
        "md33": {"slots": "UE"},
        "md34": {"members": [{"dev": "nvme0n1p3", "nr": 4, "flags": ["J"]}, {"dev": "sdc", "nr": 2, "flags": []},
            {"dev": "sdb", "nr": 1, "flags": []}, {"dev": "sda", "nr": 0, "flags": []}]},
        "md35": {"sync_running": false, "bitmap": true},
        "md36": {"action": "recovery", "percent": 0.4, "finish_min": 2.45, "metadata": "0.90"},
        "md37": {"action": "resync", "action_state": "delayed", "percent": null},
        "md38": {"percent": 0.0, "finish_min": null, "done_kib": 1},
    });
    let shown = with_proc(&scratch, "md", &[("mdstat", &fixture("mdstat/forms"))]);
    mdstat(&mut tally, "forms", &shown, want.as_object().unwrap());
    tally.end(44);

    let Some(dir) = shared("mdstat") else { return };
    let mut tally = Tally::default();
    for (file, want) in expected(&dir)["files"].as_object().unwrap() {
        let shown = with_proc(&scratch, "md", &[("mdstat", &dir.join(file))]);
        mdstat(&mut tally, file, &shown, want["arrays"].as_object().unwrap());
    }
    tally.end(900);
}

/// A fact of a sample of /sys/block/*/md.
fn sysfs_fact(key: &str, array: &Value, derived: &Value) -> Value {
    match key {
        "array_state" => at(array, "state"),
        "sync_action" => at(array, "action"),
        "sync_done_sectors" => over(&at(array, "sync_done"), 512),
        "sync_total_sectors" => over(&at(array, "sync_total"), 512),
        "metadata_version" => at(array, "metadata"),
        "chunk_bytes" => at(array, "chunk"),
        "sync_percent" | "faulty" | "rebuilding" | "spares" => derived[key].clone(),
        "members" => Value::Object(list(array, "members").iter().map(sysfs_member).collect()),
        key => at(array, key),
    }
}

fn sysfs_member(member: &Value) -> (String, Value) {
    let flags = list(member, "flags");
    let flags: Vec<&str> = flags.iter().filter_map(Value::as_str).collect();
    let facts = json!({"state": flags.join(","), "slot": at(member, "slot")});
    (member["name"].as_str().unwrap().to_owned(), facts)
}

/// The arrays below a root; gives the table that the command prints without --json.
fn sysfs(tally: &mut Tally, scratch: &Scratch, root: &Path, want: &Value) -> String {
    let root = root.to_str().unwrap();
    let shown = snapshot(scratch, "md", &["--host-root", root]);
    let want = want.as_object().unwrap();
    for array in arrays(tally, "sys", &shown, want) {
        let name = array["name"].as_str().unwrap();
        let Some(want) = want.get(name) else { continue };
        let derived = &shown["derived"]["md"][name];
        tally.facts(name, want, |key| Some(sysfs_fact(key, &array, derived)));
    }
    let output = gpuprod(scratch, &["snapshot", "--only", "md", "--host-root", root]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn arrays_of_sysfs() {
    let scratch = Scratch::new("samples-sysfs");
    let root = scratch.0.join("root");
    for (file, content) in [
        ("level", "raid6"),
        ("array_state", "active"),
        ("raid_disks", "4"),
        ("degraded", "2"),
        ("sync_action", "recover"),
        ("sync_completed", "2999 / 4000"),
        ("dev-sda/state", "in_sync"),
        ("dev-sda/slot", "0"),
        ("dev-sdb/state", "spare"),
        ("dev-sdb/slot", "1"),
        ("dev-sdc/state", "spare"),
        ("dev-sdc/slot", "none"),
        ("dev-sdd/state", "faulty"),
        ("dev-sdd/slot", "none"),
    ] {
        let path = root.join("sys/block/md7/md").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }
    let want = json!({"md7": {
        "level": "raid6", "array_state": "active", "degraded": 2, "sync_action": "recover",
        "sync_done_sectors": 2999, "sync_total_sectors": 4000, "sync_percent": 74.9, "uuid": null,
        "faulty": 1, "rebuilding": ["sdb"], "spares": ["sdc"],
        "members": {"sda": {"state": "in_sync", "slot": 0}, "sdb": {"state": "spare", "slot": 1},
            "sdc": {"state": "spare", "slot": null}, "sdd": {"state": "faulty", "slot": null}},
    }});
    let mut tally = Tally::default();
    let table = sysfs(&mut tally, &scratch, &root, &want);
    assert!(table.lines().any(|line| line.contains("md7 raid6") && line.contains("recover 74.9 %")), "{table}");
    tally.end(12);

    let Some(dir) = shared("md-sysfs") else { return };
    let mut tally = Tally::default();
    let table = sysfs(&mut tally, &scratch, &dir, &expected(&dir)["arrays"]);
    assert!(table.lines().any(|line| line.contains("md6") && line.contains("recover 75.0 %")), "{table}");
    tally.end(60);
}

fn hex(value: &Value, digits: usize) -> Value {
    value.as_u64().map_or(Value::Null, |number| format!("0x{number:0digits$x}").into())
}

fn endpoint_fact(key: &str, device: &Value) -> Option<Value> {
    Some(match key {
        // An NVSwitch by its class code alone.
        "kind" if device["kind"] == "nvswitch" => "bridge-other".into(),
        "cls" => hex(&at(device, "class"), 6),
        "vendor" | "device" => hex(&at(device, key), 4),
        "kind" | "root_bus" | "bridges" | "numa_node" | "local_cpulist" => at(device, key),
        _ => return None,
    })
}

fn link_fact(key: &str, device: &Value, state: &Value) -> Option<Value> {
    Some(match key {
        "speed_gts" => over(&at(device, "link.speed"), 1000),
        "max_speed_gts" => over(&at(device, "link.speed_max"), 1000),
        "width" => at(device, "link.width"),
        "max_width" => at(device, "link.width_max"),
        "state" => state.clone(),
        _ => return None,
    })
}

/// A tree of PCI devices and NUMA nodes below `root`.
fn pci(tally: &mut Tally, scratch: &Scratch, name: &str, root: &Path, want: &Value) {
    let shown = snapshot(scratch, "pci,numa", &["--host-root", root.to_str().unwrap()]);
    let devices = list(&shown, "pci.value.devices");
    let derived = &shown["derived"]["pci"];
    tally.same(name, "devices_total", &devices.len().into(), &want["devices_total"]);
    let endpoints = want["endpoints"].as_object().unwrap();
    let links = derived["links"].as_object().cloned().unwrap_or_default();
    tally.same(name, "endpoints", &json!(links.len()), &json!(endpoints.len()));
    for (address, want) in endpoints {
        let file = format!("{name} {address}");
        let device = devices.iter().find(|device| device["address"] == **address).unwrap_or(&Value::Null);
        tally.facts(&file, want, |key| endpoint_fact(key, device));
        tally.facts(&file, &want["link"], |key| link_fact(key, device, &at(derived, "links")[address]));
    }
    let pairs = want["path_class"].as_object().unwrap();
    let classes = derived["path_class"].as_object().map_or(0, Map::len);
    tally.same(name, "pairs", &classes.into(), &pairs.len().into());
    for (pair, class) in pairs {
        let (a, b) = pair.split_once('|').unwrap();
        let sorted = format!("{}|{}", a.min(b), a.max(b));
        tally.same(name, pair, &derived["path_class"][&sorted], class);
    }
    let nodes = list(&shown, "numa.value.nodes");
    let no_nodes = Map::new();
    let wanted = want["numa_nodes"].as_object().unwrap_or(&no_nodes);
    tally.same(name, "nodes", &nodes.len().into(), &wanted.len().into());
    for (id, want) in wanted {
        let node = nodes.iter().find(|node| node["id"].as_u64() == id.parse().ok()).unwrap_or(&Value::Null);
        tally.facts(&format!("{name} node {id}"), want, |key| {
            Some(match key {
                "cpulist" => at(node, "cpulist"),
                "distance" => at(node, "distances"),
                "mem_kib" => over(&at(node, "mem_total"), 1024),
                _ => return None,
            })
        });
    }
    if let Some(partners) = want["pix_partners_of_gpu"].as_object() {
        for (gpu, want) in partners {
            let of_pair = |(pair, class): (&String, &Value)| {
                let (a, b) = pair.split_once('|')?;
                let other = if a == gpu { b } else { a };
                (class == "PIX" && (a == gpu || b == gpu)).then(|| Value::from(other))
            };
            let mut found: Vec<Value> = derived["path_class"].as_object().unwrap().iter().filter_map(of_pair).collect();
            let mut want = want.as_array().unwrap().clone();
            found.sort_by_key(Value::to_string);
            want.sort_by_key(Value::to_string);
            tally.same(name, &format!("pix partners of {gpu}"), &found.into(), &want.into());
        }
    }
}

#[test]
fn trees_of_pci_devices() {
    let scratch = Scratch::new("samples-pci");
    let mut tally = Tally::default();
    let own = fixture("pci/two_sockets");
    pci(&mut tally, &scratch, "two_sockets", &own, &expected(&own));
    tally.end(40);

    let Some(dir) = shared("pci") else { return };
    let (mut tally, mut trees) = (Tally::default(), 0);
    for (name, want) in expected(&dir)["items"].as_object().unwrap() {
        if dir.join(name).join("sys").is_dir() {
            pci(&mut tally, &scratch, name, &dir.join(name), want);
            trees += 1;
        }
    }
    assert!(trees >= 7, "only {trees} trees");
    tally.end(1300);
}

fn diskstats(tally: &mut Tally, file: &str, shown: &Value, want: &Map<String, Value>) {
    let devices = list(shown, "block.value.devices");
    for (name, want) in want {
        let device = devices.iter().find(|device| device["name"] == **name).unwrap_or(&Value::Null);
        // The means are not ours: they follow from counters that are.
        let ours = |key: &str| !key.starts_with("mean_");
        tally.facts(&format!("{file} {name}"), want, |key| ours(key).then(|| at(&at(device, "io"), key)));
    }
}

fn pressure(tally: &mut Tally, file: &str, shown: &Value, resource: &str, want: &Value) {
    for line in ["some", "full"] {
        let stall = at(shown, &format!("psi.value.system.{resource}.{line}"));
        let name = format!("{file} {line}");
        let Some(want) = want.get(line) else {
            tally.same(&name, "line", &stall, &Value::Null);
            continue;
        };
        tally.facts(&name, want, |key| match key {
            "total" => Some(over(&stall["total_ns"], 1000)),
            // Percent on the page, billionths in the tick.
            average => Some(over(&stall[average], 10_000_000)),
        });
    }
}

#[test]
fn counters_of_disks_and_pressure() {
    let scratch = Scratch::new("samples-kernel");
    let mut tally = Tally::default();
    let (disks, cpu) = (fixture("diskstats/widths"), fixture("psi/cpu-before-5.13"));
    let shown = with_proc(&scratch, "block,psi", &[("diskstats", &disks), ("pressure/cpu", &cpu)]);
    // Read off the text by eye.
    let want = json!({
        "sda": {"fields": 11, "reads": 1, "sectors_read": 8, "read_ms": 2, "writes": 3, "sectors_written": 24,
            "write_ms": 4, "in_flight": 0, "io_ticks_ms": 5, "weighted_ms": 6, "discards": null, "flushes": null},
        "sdb": {"fields": 15, "discards": 6, "flushes": null, "flush_ms": null},
        "nvme0n1": {"fields": 17, "weighted_ms": 4_294_967_295_u32, "discards": 6, "flushes": 9, "flush_ms": 10},
        "sdc": {"reads": null, "weighted_ms": null},
    });
    diskstats(&mut tally, "widths", &shown, want.as_object().unwrap());
    let want = json!({"some": {"avg10": 4.2, "avg60": 1.0, "avg300": 0.5, "total": 123_456_789}});
    pressure(&mut tally, "cpu-before-5.13", &shown, "cpu", &want);
    tally.end(21);

    let Some(dir) = shared("kernel") else { return };
    let mut tally = Tally::default();
    let files = ["diskstats", "pressure/cpu", "pressure/io", "pressure/memory"];
    let paths: Vec<PathBuf> = files.iter().map(|file| dir.join(file)).collect();
    let placed: Vec<(&str, &Path)> = files.iter().zip(&paths).map(|(file, path)| (*file, path.as_path())).collect();
    let shown = with_proc(&scratch, "block,psi", &placed);
    let want = &expected(&dir)["files"];
    diskstats(&mut tally, "diskstats", &shown, want["diskstats"].as_object().unwrap());
    let devices = list(&shown, "block.value.devices").len();
    tally.same("diskstats", "devices", &devices.into(), &want["diskstats"].as_object().unwrap().len().into());
    for resource in ["cpu", "io", "memory"] {
        let file = format!("pressure/{resource}");
        pressure(&mut tally, &file, &shown, resource, &want[&file]);
    }
    tally.end(300);
}

fn engine_fact(key: &str, engine: &Value) -> Option<Value> {
    const NAMES: &[(&str, &str)] = &[
        ("engine", "kind"),
        ("model", "model"),
        ("running", "running"),
        ("waiting", "waiting"),
        ("swapped", "swapped"),
        ("prompt_tokens_total", "prompt_tokens"),
        ("generation_tokens_total", "generation_tokens"),
        ("preemptions_total", "preemptions"),
        ("requests_success_total", "requests_success"),
        ("prefix_cache_queries_total", "prefix_queries"),
        ("prefix_cache_hits_total", "prefix_hits"),
        ("kv_capacity_tokens", "kv_capacity_tokens"),
        ("sleep_state", "sleep"),
        ("ttft_count", "ttft.count"),
        ("tpot_count", "itl.count"),
    ];
    match key {
        "kv_usage" => Some(over(&at(engine, "kv_usage"), 1_000_000_000)),
        "ttft_sum_s" => Some(over(&at(engine, "ttft.sum_ns"), 1_000_000_000)),
        "tpot_sum_s" => Some(over(&at(engine, "itl.sum_ns"), 1_000_000_000)),
        key => NAMES.iter().find(|(name, _)| *name == key).map(|(_, path)| at(engine, path)),
    }
}

#[test]
fn pages_of_engines() {
    let scratch = Scratch::new("samples-engines");
    let responder = Responder::start(0).unwrap();
    let url = responder.url();
    let ask = |page: String| {
        responder.show(Some(page));
        let shown = snapshot(&scratch, "engine", &["--engine", &url]);
        let engines = list(&shown, "engine.value.engines");
        assert_eq!(engines.len(), 1, "{shown}");
        engines[0].clone()
    };
    let mut tally = Tally::default();
    let page = "# TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
        vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4.0\n\
        # TYPE vllm:kv_cache_usage_perc gauge\n\
        vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n\
        # TYPE vllm:generation_tokens_total counter\n\
        vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 1.5e+06\n";
    let want = json!({"engine": "vllm", "model": "m", "running": 7, "waiting": null, "kv_usage": 0.25,
        "generation_tokens_total": 1_500_000});
    let engine = ask(page.to_owned());
    tally.facts("own page", &want, |key| engine_fact(key, &engine));
    tally.end(5);

    let Some(dir) = shared("engines") else { return };
    let mut tally = Tally::default();
    for (file, want) in expected(&dir)["files"].as_object().unwrap() {
        let engine = ask(fs::read_to_string(dir.join(file)).unwrap());
        tally.same(file, "page.bad_lines", &at(&engine, "page.bad_lines"), &0.into());
        tally.facts(file, want, |key| engine_fact(key, &engine));
    }
    tally.end(80);
}
