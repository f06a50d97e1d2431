use gpuprod_snapshot::tenant::{Owner, Runtime};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::scratch::{Scratch, fixture, shared};

const C: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const U: &str = "6a4ce4a0-ba47-11ea-b2a7-0cc47ac5979e";

/// All facts of an owner in one line, so that one comparison covers each of them.
fn line(owner: &Owner) -> String {
    let runtime = owner.runtime.get().map_or("?", Runtime::as_str).to_owned();
    let mut words = vec![runtime];
    let mut say = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name}={value}")));
    };
    say("cid", owner.container_id.clone().map(|id| if id == C { "C".to_owned() } else { id }));
    say("pod", owner.pod_uid.clone().map(|id| if id == U { "U".to_owned() } else { id }));
    say("static", owner.static_pod.then(|| "yes".to_owned()));
    say("qos", owner.qos.clone());
    say("job", owner.slurm_job.clone());
    say("step", owner.slurm_step.clone());
    say("sluid", owner.slurm_sluid.clone());
    say("unit", owner.unit.clone());
    say("uid", owner.user_uid.map(|uid| uid.to_string()));
    say("infra", owner.infra.then(|| "yes".to_owned()));
    words.join(" ")
}

/// The own table: path forms and what they say, `C` and `U` standing for ids. Every form that is known.
#[test]
fn every_known_path_form() {
    let table = tree::text(&fixture("cgroup/paths")).unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(" => ").unwrap())
        .collect();
    assert!(rows.len() >= 40, "{}", rows.len());
    for (path, expected) in rows {
        let full = path.replace("{C}", C).replace("{U}", U).replace("{U_}", &U.replace('-', "_"));
        let (read, owner) = parse_cgroup_file(&format!("0::{full}\n"));
        assert_eq!(read, full);
        assert_eq!(line(&owner), expected, "{path}");
    }
}

#[test]
fn the_shared_rows_read_as_expected() {
    let Some(dir) = shared("cgroup") else { return };
    let read = |name: &str| tree::text(&dir.join(name)).unwrap();
    let expected: Value = serde_json::from_str(&read("expected.json")).unwrap();
    let expected = expected["rows"].as_object().unwrap();
    let rows = read("cgroup.jsonl");
    let mut seen = 0;
    for row in rows.lines().filter(|row| !row.is_empty()) {
        let row: Value = serde_json::from_str(row).unwrap();
        let id = row["id"].as_str().unwrap();
        let facts = &expected[id];
        let (_, owner) = parse_cgroup_file(row["raw"].as_str().unwrap());
        let word = |key: &str| match &facts[key] {
            Value::Null => None,
            Value::Number(number) => Some(number.to_string()),
            other => other.as_str().map(ToOwned::to_owned),
        };
        let runtime = match facts["runtime"].as_str().unwrap() {
            "crio" => "cri-o",
            other => other,
        };
        assert_eq!(owner.runtime.get().map(Runtime::as_str), Some(runtime), "{id}");
        assert_eq!(owner.container_id, word("container_id"), "{id}");
        assert_eq!(owner.pod_uid, word("pod_uid"), "{id}");
        assert_eq!(Some(owner.static_pod), facts["static_pod"].as_bool(), "{id}");
        assert_eq!(owner.qos, word("qos"), "{id}");
        assert_eq!(owner.slurm_job, word("slurm_job"), "{id}");
        assert_eq!(owner.slurm_step, word("slurm_step"), "{id}");
        assert_eq!(owner.slurm_sluid, word("slurm_sluid"), "{id}");
        assert_eq!(owner.unit, word("unit"), "{id}");
        assert_eq!(owner.user_uid.map(|uid| uid.to_string()), word("user_uid"), "{id}");
        assert_eq!(Some(owner.infra), facts["infra"].as_bool(), "{id}");
        seen += 1;
    }
    assert_eq!((seen, expected.len()), (40, 40));
}

#[test]
fn in_mixed_hierarchies_the_line_that_knows_the_tenant_wins() {
    let pod = format!("/kubepods/burstable/pod{U}/{C}");
    let text = format!("12:memory:{pod}\n9:misc:/\n1:name=systemd:/x.service\n0::/reserved.slice/containerd.service\n");
    assert_eq!(parse_cgroup_file(&text).0, pod);
    let text = "4:memory:/slurm/uid_7/job_9/step_batch\n0::/system.slice/slurmd.service\n";
    assert_eq!(line(&parse_cgroup_file(text).1), "slurm job=9 step=batch uid=7");
    let text = "3:freezer:/\n2:cpu,cpuacct:/\n1:name=systemd:/system.slice/vllm.service\n0::/\n";
    assert_eq!(line(&parse_cgroup_file(text).1), "systemd unit=vllm.service");
    assert_eq!(parse_cgroup_file("").0, "/");
}

fn collect(scratch: &Scratch, paths: &[&str]) -> Vec<Cgroup> {
    let focus = Focus { cgroups: paths.iter().map(|path| (*path).to_owned()).collect(), ..Focus::default() };
    match GpuCgroups::new(None).collect(&scratch.host(), &focus).unwrap() {
        Part::Cgroup(found) => found.cgroups,
        other => panic!("{other:?}"),
    }
}

#[test]
fn version_2_files() {
    let scratch = Scratch::with(&[
        ("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n"),
        ("sys/fs/cgroup/job/cpu.stat", "usage_usec 5531521992\nuser_usec 1\nnr_periods 40\nnr_throttled 3\n"),
        ("sys/fs/cgroup/job/memory.current", "131047424\n"),
        ("sys/fs/cgroup/job/memory.max", "max\n"),
        ("sys/fs/cgroup/job/memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"),
        ("sys/fs/cgroup/job/io.stat", "259:0 rbytes=4096 wbytes=512 rios=1 wios=1\n9:0 rbytes=8\n8:0\nbad\n"),
        ("secret/memory.current", "1\n"),
    ]);
    let found = collect(&scratch, &["/job", "/../../../secret", "/job/../../../../secret"]);
    assert_eq!(found.len(), 3);
    let job = found.iter().find(|cgroup| cgroup.path == "/job").unwrap();
    assert_eq!(job.cpu_used.copied(), Some(Nanos(5_531_521_992_000)));
    assert_eq!((job.periods.copied(), job.throttled_periods.copied()), (Some(40), Some(3)));
    assert_eq!(job.mem_used.copied(), Some(Bytes(131_047_424)));
    assert_eq!(job.mem_limit.missing(), Some(Missing::Unsupported), "no limit");
    assert_eq!(job.oom_kills.copied(), Some(1));
    let io = job.io.get().unwrap();
    assert_eq!(io.len(), 2);
    assert_eq!((io[0].dev, io[0].read, io[0].written), ((259, 0), Bytes(4096), Bytes(512)));
    for escaped in found.iter().filter(|cgroup| cgroup.path != "/job") {
        assert_eq!(escaped.mem_used.missing(), Some(Missing::Unsupported), "{}", escaped.path);
    }
}

#[test]
fn version_1_files() {
    let scratch = Scratch::with(&[
        (
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat",
            "nr_periods 380975143\nnr_throttled 5583849\nthrottled_time 254005032764376\n",
        ),
        ("sys/fs/cgroup/cpu,cpuacct/job/cpuacct.usage", "77\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5\n"),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        (
            "sys/fs/cgroup/blkio/job/blkio.throttle.io_service_bytes",
            "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n",
        ),
    ]);
    let job = collect(&scratch, &["/job"]).remove(0);
    assert_eq!(job.cpu_used.copied(), Some(Nanos(77)));
    assert_eq!((job.periods.copied(), job.throttled_periods.copied()), (Some(380_975_143), Some(5_583_849)));
    assert_eq!(job.mem_used.copied(), Some(Bytes(5)));
    assert_eq!(job.mem_limit.missing(), Some(Missing::Unsupported));
    assert_eq!(job.oom_kills.copied(), Some(4));
    let io = CgroupIo { dev: (8, 0), read: Bytes(10), written: Bytes(20) };
    assert_eq!(job.io.get().unwrap(), &[io]);
}

#[test]
fn the_shared_counters_read_as_expected() {
    let Some(dir) = shared("kernel") else { return };
    let scratch = Scratch::with(&[("sys/fs/cgroup/cgroup.controllers", "")]);
    for name in ["cpu.stat", "memory.current", "memory.max"] {
        let text = tree::text(&dir.join("cgroup2_docker").join(name)).unwrap();
        scratch.file(&format!("sys/fs/cgroup/job/{name}"), &text);
    }
    let facts: Value = serde_json::from_str(&tree::text(&dir.join("expected.json")).unwrap()).unwrap();
    let facts = &facts["files"];
    let job = collect(&scratch, &["/job"]).remove(0);
    let cpu = &facts["cgroup2_docker/cpu.stat"];
    assert_eq!(job.cpu_used.copied().map(|used| used.0 / 1000), cpu["usage_usec"].as_u64());
    assert_eq!(job.periods.copied(), cpu["nr_periods"].as_u64());
    let bytes = |name: &str| facts[name].as_str().unwrap().parse().ok().map(Bytes);
    assert_eq!(job.mem_used.copied(), bytes("cgroup2_docker/memory.current"));
    assert_eq!(job.mem_limit.copied(), bytes("cgroup2_docker/memory.max"));
    assert_eq!(job.oom_kills.missing(), Some(Missing::Unsupported), "no such file");
}

proptest! {
    #[test]
    fn hostile_paths_neither_panic_nor_escape(text in "\\PC{0,300}", parts in proptest::collection::vec("(\\.\\.|\\.|pod|-pod|kubepods|docker-|\\\\x2|:|[a-f0-9]{64}|\\PC{1,5})", 0..8)) {
        let _ = parse_cgroup_file(&text);
        let path = format!("/{}", parts.join("/"));
        let (read, _) = parse_cgroup_file(&format!("0::{path}\n"));
        prop_assert!(path.starts_with(&read) || path.contains(['\n', '\r']));
        if let Some(below) = below(&path) {
            prop_assert!(below.components().all(|part| matches!(part, std::path::Component::Normal(_))), "{below:?}");
        }
        let _ = parse_io(&text);
    }
}
