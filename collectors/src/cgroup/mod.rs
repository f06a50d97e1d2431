//! The cgroups of the processes that hold GPUs: whose they are, what they were allowed and used.

use std::path::PathBuf;

use gpuprod_snapshot::tenant::{Cgroup, CgroupIo, Cgroups};
use gpuprod_snapshot::units::{Bytes, Nanos};

pub use notes::parse_note;
pub use owner::{owner_of, parse_cgroup_file};

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, mountinfo, tree};

mod notes;
pub mod owner;
#[cfg(test)]
mod tests;

/// Cgroups beyond this are left out.
pub const MAX_CGROUPS: usize = 256;
/// Devices of one cgroup beyond this are left out.
const MAX_DEVICES: usize = 512;

/// The cgroups in focus.
pub struct GpuCgroups {
    /// Where a prolog or an epilog leaves its notes.
    notes: Option<PathBuf>,
}

impl GpuCgroups {
    /// With the folder of the site's notes about jobs; none: the host's `run/gpuprod/jobs`.
    #[must_use]
    pub const fn new(notes: Option<PathBuf>) -> Self {
        Self { notes }
    }
}

impl Collector for GpuCgroups {
    fn source(&self) -> Source {
        Source::Cgroup
    }

    fn collect(&mut self, host: &Host, focus: &Focus) -> Result<Part, CollectError> {
        let paths = focus.cgroups.iter().take(MAX_CGROUPS);
        let cgroups: Vec<Cgroup> = paths.map(|path| cgroup(host, path)).collect();
        let dir = self.notes.clone().unwrap_or_else(|| host.proc.with_file_name(notes::FOLDER));
        let (notes, unread) = notes::of(&dir, &cgroups);
        Ok(Part::Cgroup(Cgroups { cgroups, notes, unread }))
    }
}

fn cgroup(host: &Host, path: &str) -> Cgroup {
    let files =
        Files { unified: unified(host, path), legacy: below(path).map(|below| (host.sys.join("fs/cgroup"), below)) };
    let cpu = files.text("cpu.stat", &["cpu", "cpu,cpuacct"], "cpu.stat");
    let micros = key(&cpu, "usage_usec");
    let cpu_used = match micros {
        Reading::Value(micros) => Reading::from_option(micros.checked_mul(1000), Missing::Malformed),
        Reading::Missing(_) => number(files.old(&["cpuacct", "cpu,cpuacct"], "cpuacct.usage")),
    };
    Cgroup {
        path: path.to_owned(),
        owner: owner_of(path),
        cpu_used: cpu_used.map(Nanos),
        periods: key(&cpu, "nr_periods"),
        throttled_periods: key(&cpu, "nr_throttled"),
        mem_used: number(files.text("memory.current", &["memory"], "memory.usage_in_bytes")).map(Bytes),
        mem_limit: limit(files.text("memory.max", &["memory"], "memory.limit_in_bytes")),
        refaults: refaults(&files.text("memory.stat", &["memory"], "memory.stat")),
        oom_kills: key(&files.text("memory.events", &["memory"], "memory.oom_control"), "oom_kill"),
        io: io(files.text("io.stat", &["blkio"], "blkio.throttle.io_service_bytes")),
    }
}

/// The folder of a cgroup in the unified hierarchy (alone, or `unified/` of a mixed one).
#[must_use]
pub fn unified(host: &Host, path: &str) -> Option<PathBuf> {
    let below = below(path)?;
    let root = host.sys.join("fs/cgroup");
    [root.clone(), root.join("unified")]
        .into_iter()
        .find(|root| tree::exists(&root.join("cgroup.controllers")))
        .map(|root| root.join(below))
        .filter(|dir| tree::exists(dir))
}

/// The path below a hierarchy's root. Paths with `..` (another cgroup namespace's view) lead out of it and name
/// nothing here.
fn below(path: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let sane = |part: &&str| *part != ".." && *part != "." && !part.contains('\0');
    parts.iter().all(sane).then(|| parts.iter().collect())
}

/// A cgroup's files, under the names of both versions.
struct Files {
    unified: Option<PathBuf>,
    legacy: Option<(PathBuf, PathBuf)>,
}

impl Files {
    /// From the unified hierarchy, else from the controller's own.
    fn text(&self, name: &str, controllers: &[&str], old: &str) -> Reading<String> {
        let now = match &self.unified {
            Some(dir) => read(dir.join(name)),
            None => Reading::Missing(Missing::Unsupported),
        };
        match now {
            Reading::Missing(Missing::Unsupported) => self.old(controllers, old),
            other => other,
        }
    }

    fn old(&self, controllers: &[&str], name: &str) -> Reading<String> {
        let Some((root, below)) = &self.legacy else {
            return Reading::Missing(Missing::Unsupported);
        };
        controllers
            .iter()
            .map(|controller| root.join(controller).join(below).join(name))
            .find(|path| tree::exists(path))
            .map_or(Reading::Missing(Missing::Unsupported), read)
    }
}

fn read(path: PathBuf) -> Reading<String> {
    match tree::text(&path) {
        Ok(text) => Reading::Value(text),
        Err(error) => Reading::Missing(error.missing),
    }
}

fn number(text: Reading<String>) -> Reading<u64> {
    match text {
        Reading::Value(text) => Reading::from_option(text.trim().parse().ok(), Missing::Malformed),
        Reading::Missing(missing) => Reading::Missing(missing),
    }
}

/// `max`, and version 1's "no limit" of nearly 2^63 bytes, are no limit.
fn limit(text: Reading<String>) -> Reading<Bytes> {
    match text {
        Reading::Value(text) if text.trim() == "max" => Reading::Missing(Missing::Unsupported),
        other => match number(other) {
            Reading::Value(bytes) if bytes >= 1 << 62 => Reading::Missing(Missing::Unsupported),
            other => other.map(Bytes),
        },
    }
}

/// A line `name value`.
fn key(text: &Reading<String>, name: &str) -> Reading<u64> {
    let text = match text {
        Reading::Value(text) => text,
        Reading::Missing(missing) => return Reading::Missing(*missing),
    };
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    match value {
        Some(value) => Reading::from_option(value.trim().parse().ok(), Missing::Malformed),
        None => Reading::Missing(Missing::Unsupported),
    }
}

/// Kernels before 5.9, and the old hierarchy, have one line for files and anonymous memory.
fn refaults(text: &Reading<String>) -> Reading<u64> {
    match key(text, "workingset_refault_file") {
        Reading::Missing(Missing::Unsupported) => key(text, "workingset_refault"),
        other => other,
    }
}

fn io(text: Reading<String>) -> Reading<Vec<CgroupIo>> {
    text.map(|text| parse_io(&text))
}

/// `259:0 rbytes=90430464 wbytes=0 rios=3 …` (version 2) or `8:0 Read 4096` lines (version 1), summed by device.
#[must_use]
pub fn parse_io(text: &str) -> Vec<CgroupIo> {
    let mut devices: Vec<CgroupIo> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(dev) = words.next().and_then(mountinfo::dev) else {
            continue;
        };
        let rest: Vec<&str> = words.collect();
        let named = |key: &str| {
            let value = rest.iter().find_map(|word| word.strip_prefix(key));
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let (read, written) = match rest.as_slice() {
            ["Read", bytes] => (bytes.parse().ok(), None),
            ["Write", bytes] => (None, bytes.parse().ok()),
            _ => (named("rbytes="), named("wbytes=")),
        };
        if read.is_none() && written.is_none() {
            continue;
        }
        let at = match devices.iter().position(|device| device.dev == dev) {
            Some(at) => at,
            None if devices.len() < MAX_DEVICES => {
                devices.push(CgroupIo { dev, ..CgroupIo::default() });
                devices.len() - 1
            }
            None => continue,
        };
        if let Some(device) = devices.get_mut(at) {
            device.read = device.read.saturating_add(Bytes(read.unwrap_or(0)));
            device.written = device.written.saturating_add(Bytes(written.unwrap_or(0)));
        }
    }
    devices
}
