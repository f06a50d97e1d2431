//! What a cgroup path says of its owner. Nothing is looked up and nothing is guessed: a path that tells nothing
//! gives an owner without fields.
//!
//! Paths come from container runtimes, kubelet (with both of its cgroup drivers), Slurm, systemd, LXC and
//! libvirt; each has its own few lines here and tests on real paths. There is no regular expression for
//! `pod<uid>`: one finds a pod in `libpod-<id>`.

use gpuprod_snapshot::tenant::{Owner, Runtime};

use crate::{Missing, Reading};

/// The path that decides in a `/proc/PID/cgroup`, and what it says. An empty file, or the root in every
/// hierarchy, is nobody's.
#[must_use]
pub fn parse_cgroup_file(text: &str) -> (String, Owner) {
    // `4:memory:/a:b`: the path may hold colons, so only the first two separate.
    let best = text
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers) = (parts.next()?, parts.next()?);
            Some((id == "0" && controllers.is_empty(), controllers, parts.next()?))
        })
        .min_by_key(|(unified, controllers, path)| rank(*unified, controllers, path));
    let path = best.map_or("/", |(_, _, path)| path);
    (path.to_owned(), owner_of(path))
}

/// In mixed hierarchies the unified line can name a daemon's slice while the others carry the pod: a line that
/// knows the pod wins, then one that knows the job, then the unified one, then the resource controllers.
fn rank(unified: bool, controllers: &str, path: &str) -> u8 {
    let parts: Vec<&str> = split(path).collect();
    let has = |name: &str| controllers.split(',').any(|controller| controller == name);
    if path.contains("kubepods") {
        0
    } else if slurm_root(&parts).is_some() {
        1
    } else if parts.is_empty() {
        9
    } else if unified {
        2
    } else if has("cpu") || has("memory") {
        3
    } else if has("name=systemd") {
        4
    } else {
        5
    }
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// What one path says.
#[must_use]
pub fn owner_of(path: &str) -> Owner {
    let parts: Vec<&str> = split(path).collect();
    let mut owner = Owner {
        runtime: Reading::Missing(Missing::Unsupported),
        user_uid: parts.iter().find_map(|part| user(part)),
        ..Owner::default()
    };
    let pod = pod(&parts, &mut owner);
    let container = container(&parts, pod, &mut owner);
    let job = slurm(&parts, &mut owner);
    if parts.is_empty() {
        owner.runtime = Runtime::None.into();
    } else if pod.is_none() && !container && !job {
        host(&parts, &mut owner);
    }
    owner
}

/// `user-1000.slice`, or Slurm's `uid_1000`.
fn user(part: &str) -> Option<u32> {
    let systemd = part.strip_prefix("user-").and_then(|rest| rest.strip_suffix(".slice"));
    systemd.or_else(|| part.strip_prefix("uid_"))?.parse().ok()
}

/// Finds the innermost pod; gives its place.
fn pod(parts: &[&str], owner: &mut Owner) -> Option<usize> {
    let found = parts.iter().enumerate().rev().find_map(|(at, part)| Some((at, pod_id(part)?)));
    let (at, id) = found?;
    let part = parts.get(at).copied().unwrap_or_default();
    let before = at.checked_sub(1).and_then(|at| parts.get(at)).copied();
    owner.qos = if part.starts_with("pod") {
        // cgroupfs: the class is the folder above; relative paths hide it.
        match before {
            Some(class @ ("burstable" | "besteffort")) => Some(class.to_owned()),
            Some(root) if root.contains("kubepods") => Some("guaranteed".to_owned()),
            _ => None,
        }
    } else {
        let class =
            ["burstable", "besteffort"].into_iter().find(|class| part.contains(&format!("kubepods-{class}-pod")));
        Some(class.unwrap_or("guaranteed").to_owned())
    };
    // kubelet names a static pod by a hash of its file; the API knows it under another uid.
    owner.static_pod = !id.contains('-');
    owner.pod_uid = Some(id);
    owner.runtime = Runtime::Cri.into();
    Some(at)
}

/// `pod<id>` (cgroupfs) or `[prefix-]kubepods[-class]-pod<id with _>.slice[:…]` (systemd).
fn pod_id(part: &str) -> Option<String> {
    let id = match part.strip_prefix("pod") {
        Some(id) => id,
        None => {
            let (_, tail) = part.split_once("kubepods")?;
            let (class, id) = tail.split_once("-pod")?;
            let id = id.split(':').next()?.strip_suffix(".slice")?;
            matches!(class, "" | "-burstable" | "-besteffort").then_some(id)?
        }
    };
    let id = id.replace('_', "-");
    let hex = id.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = id.bytes().filter(|b| *b == b'-').count();
    let whole = hex + dashes == id.len();
    (whole && hex == 32 && (dashes == 0 || dashes == 4)).then_some(id)
}

/// Inside a pod the first container counts (the rest is what it nests), elsewhere the innermost.
fn container(parts: &[&str], pod: Option<usize>, owner: &mut Owner) -> bool {
    let named = |at: usize| {
        let part = parts.get(at).copied()?;
        let parent = at.checked_sub(1).and_then(|at| parts.get(at)).copied();
        container_name(part, parent)
    };
    let found = match pod {
        Some(at) => (at..parts.len()).find_map(named),
        None => (0..parts.len()).rev().find_map(named),
    };
    let Some((runtime, id, monitor)) = found else {
        return false;
    };
    if let Some(runtime) = runtime {
        owner.runtime = runtime.into();
    }
    owner.infra = monitor;
    if !monitor {
        owner.container_id = Some(id.to_owned());
    }
    true
}

/// `docker-<id>.scope`, `cri-containerd-<id>`, `…slice:cri-containerd:<id>`, a bare id; the flag says that it is
/// the runtime's monitor and not the workload.
fn container_name<'a>(part: &'a str, parent: Option<&str>) -> Option<(Option<Runtime>, &'a str, bool)> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    if is_id(name) {
        let runtime = match parent {
            Some("docker") => Some(Runtime::Docker),
            Some(parent) if parent.starts_with("lxc") => Some(Runtime::Lxc),
            _ => None,
        };
        return Some((runtime, name, false));
    }
    let (prefix, id) = name.rsplit_once(['-', ':'])?;
    if !is_id(id) {
        return None;
    }
    let prefix = prefix.rsplit(':').next().unwrap_or(prefix);
    let (prefix, monitor) = match prefix.strip_suffix("-conmon") {
        Some(prefix) => (prefix, true),
        None => (prefix, false),
    };
    let runtime = match prefix {
        "docker" => Runtime::Docker,
        "crio" => Runtime::Crio,
        "libpod" => Runtime::Podman,
        "cri-containerd" => Runtime::from("containerd"),
        other => Runtime::from(other),
    };
    Some((Some(runtime), id, monitor))
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Where Slurm's own part of the path begins.
fn slurm_root(parts: &[&str]) -> Option<usize> {
    parts.iter().position(|part| part.ends_with("slurmstepd.scope") || *part == "slurm" || part.starts_with("slurm_"))
}

/// `…/slurmstepd.scope/job_211/step_0/user/task_0`, `/slurm/uid_1000/job_211/…`. Since Slurm 26.05 the job's
/// folder can be an id (`sEKNKTV3WPV500`) that holds no job number.
fn slurm(parts: &[&str], owner: &mut Owner) -> bool {
    let Some(root) = slurm_root(parts) else {
        return false;
    };
    let below = parts.get(root + 1..).unwrap_or_default();
    let after = |prefix: &str| {
        let found = below.iter().find_map(|part| part.strip_prefix(prefix));
        found.filter(|rest| !rest.is_empty()).map(ToOwned::to_owned)
    };
    owner.slurm_job = after("job_");
    owner.slurm_step = after("step_");
    owner.slurm_sluid = below.first().filter(is_sluid).map(|part| (*part).to_owned());
    // slurmstepd itself lives beside the user's work.
    let step = below.iter().position(|part| part.starts_with("step_"));
    let inside = step.and_then(|at| below.get(at + 1)).copied();
    owner.infra |= below.first() == Some(&"system") || inside == Some("slurm");
    owner.runtime = Runtime::Slurm.into();
    true
}

fn is_sluid(part: &&&str) -> bool {
    part.len() == 14
        && part.starts_with('s')
        && part.bytes().skip(1).all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

/// Top folders of node daemons on the usual Kubernetes systems.
const DAEMON_SLICES: &[&str] =
    &["azure.slice", "runtime.slice", "reserved.slice", "podruntime.slice", "podruntime", "kube.slice", "init.scope"];
/// Units that run workloads and are none.
const DAEMONS: &[&str] = &[
    "docker.service",
    "containerd.service",
    "kubelet.service",
    "crio.service",
    "cri-docker.service",
    "slurmd.service",
    "podman.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
];

/// Not a pod, container or job: LXC, a virtual machine, a unit of systemd.
fn host(parts: &[&str], owner: &mut Owner) {
    let first = parts.first().copied().unwrap_or_default();
    if lxc(parts, owner) {
        return;
    }
    let unit = parts
        .iter()
        .rev()
        .find(|part| part.ends_with(".service") || part.ends_with(".scope"))
        .map(|unit| unescape(unit));
    let runtime = match (first, &unit) {
        (_, Some(unit)) if unit.starts_with("machine-qemu") => Runtime::Vm,
        ("user.slice", _) => Runtime::from("user"),
        ("podruntime", _) => Runtime::from("talos"),
        ("lsf", _) => Runtime::from("lsf"),
        ("pbs_jobs.service" | "pbspro.service" | "pbspro.slice", _) => Runtime::from("pbs"),
        (_, Some(_)) => Runtime::Systemd,
        _ => return,
    };
    let folder = match runtime.as_str() {
        "talos" => parts.last(),
        "lsf" => parts.iter().find(|part| part.starts_with("job.")),
        "pbs" => parts.get(2),
        _ => None,
    };
    owner.runtime = runtime.into();
    owner.unit = folder.map(|part| (*part).to_owned()).or(unit);
    let daemon = owner.unit.as_deref().is_some_and(|unit| DAEMONS.contains(&unit));
    owner.infra = daemon || DAEMON_SLICES.contains(&first);
}

/// `/lxc/NAME`, `/lxc.payload.NAME/…`, `/lxc.payload/NAME`; `lxc.monitor…` is the monitor.
fn lxc(parts: &[&str], owner: &mut Owner) -> bool {
    let first = parts.first().copied().unwrap_or_default();
    let monitor = first.starts_with("lxc.monitor");
    let name = match first {
        "lxc" | "lxc.payload" | "lxc.monitor" => parts.get(1).copied(),
        _ => first.strip_prefix("lxc.payload.").or_else(|| first.strip_prefix("lxc.monitor.")),
    };
    let Some(name) = name else { return false };
    owner.runtime = Runtime::Lxc.into();
    owner.infra = monitor;
    owner.container_id = Some(name.to_owned());
    true
}

/// systemd writes bytes that would be structure as `\x2d`.
fn unescape(unit: &str) -> String {
    let mut parts = unit.split("\\x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                plain.push_str(part.get(2..).unwrap_or_default());
            }
            _ => {
                plain.push_str("\\x");
                plain.push_str(part);
            }
        }
    }
    plain
}
