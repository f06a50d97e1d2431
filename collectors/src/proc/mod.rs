//! The processes that hold GPUs, their ancestors and children, and whoever listens on the ports of this node's
//! engines.
//!
//! Everything here is read without stopping or touching the process: no `maps`, no `smaps`, no `stat` on its
//! files. A process that ends between two reads is left out; what we may not read is `Denied`, field by field.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_snapshot::host::{Process, Processes};
use gpuprod_snapshot::units::Nanos;

use crate::{CollectError, Collector, Focus, Host, Missing, Part, Reading, Source, cgroup, tree};

pub mod fds;
mod find;
mod place;
#[cfg(test)]
mod tests;
pub mod text;

/// Threads of one process that are looked at.
const MAX_TASKS: usize = 512;
/// Open files change slowly and are costly to list: they are read anew on every fifth collection.
const REFRESH: u32 = 5;

/// The processes.
#[derive(Default)]
pub struct GpuProcesses {
    /// What was found behind the open files of a process, with its age in collections.
    files: BTreeMap<(u32, Nanos), Files>,
    finder: find::Finder,
    placed: place::Placed,
}

#[derive(Clone)]
struct Files {
    opens: Reading<Vec<String>>,
    listens: Reading<Vec<u16>>,
    remote_peers: Reading<u32>,
    rdma: Reading<bool>,
    age: u32,
}

impl Collector for GpuProcesses {
    fn source(&self) -> Source {
        Source::Proc
    }

    fn collect(&mut self, host: &Host, focus: &Focus) -> Result<Part, CollectError> {
        if focus.pids.is_empty() && focus.ports.is_empty() {
            self.files.clear();
            self.placed = place::Placed::default();
            return Ok(Part::Proc(Processes::default()));
        }
        let mut listeners = fds::Listeners::new(host);
        let pids = self.finder.find(host, focus, &mut listeners);
        let mut reader = Reader {
            host,
            places: fds::Places::new(host),
            listeners,
            before: std::mem::take(&mut self.files),
            files: BTreeMap::new(),
            placed: self.placed.next(host),
        };
        let processes = pids.iter().filter_map(|pid| reader.process(*pid)).collect();
        self.files = reader.files;
        self.placed = reader.placed;
        Ok(Part::Proc(Processes { processes }))
    }
}

/// One collection.
struct Reader<'a> {
    host: &'a Host,
    places: fds::Places<'a>,
    listeners: fds::Listeners<'a>,
    before: BTreeMap<(u32, Nanos), Files>,
    files: BTreeMap<(u32, Nanos), Files>,
    placed: place::Placed,
}

impl Reader<'_> {
    /// Nothing when the process is not there any more, or another has its pid by the end.
    fn process(&mut self, pid: u32) -> Option<Process> {
        let dir = self.host.proc.join(pid.to_string());
        let stat = find::stat(self.host, pid)?;
        let status = match tree::text(&dir.join("status")) {
            Ok(text) => text::status(&text),
            Err(error) => text::Status::missing(error.missing),
        };
        let io = tree::text(&dir.join("io"));
        let counter = |name: &str| match &io {
            Ok(text) => text::io(text, name),
            Err(error) => Reading::Missing(error.missing),
        };
        let denied = io.as_ref().is_err_and(|error| error.missing == Missing::Denied);
        let threads = self.threads(pid, &stat);
        let (threads_blocked, wchan) = self.blocked(pid, &threads, denied);
        let cpu_by_node = match &threads {
            Ok(threads) => self.placed.count((pid, stat.start), threads),
            Err(missing) => Reading::Missing(*missing),
        };
        let files = self.files(pid, stat.start);
        let cgroup = match tree::text(&dir.join("cgroup")) {
            Ok(text) if text.trim().is_empty() => Reading::Missing(Missing::Gone),
            Ok(text) => Reading::Value(cgroup::parse_cgroup_file(&text).0),
            Err(error) => Reading::Missing(error.missing),
        };
        let process = Process {
            pid,
            start: stat.start.into(),
            ppid: stat.ppid.into(),
            uid: status.uid,
            comm: stat.comm.into(),
            state: stat.state.into(),
            threads: stat.threads.into(),
            threads_blocked,
            wchan,
            cpu: stat.cpu.into(),
            cpus_allowed: status.cpus,
            mems_allowed: status.mems,
            processor: Reading::from_option(stat.processor, Missing::Unsupported),
            cpu_by_node,
            rss: status.rss,
            anonymous: status.anonymous,
            cgroup,
            read_chars: counter("rchar"),
            written_chars: counter("wchar"),
            read_bytes: counter("read_bytes"),
            written_bytes: counter("write_bytes"),
            opens: files.opens,
            listens: files.listens,
            remote_peers: files.remote_peers,
            rdma: files.rdma,
        };
        let still = find::stat(self.host, pid)?;
        (still.start == stat.start).then_some(process)
    }

    /// The threads by number. The only one of a process is its leader, which was read already.
    fn threads(&self, pid: u32, leader: &text::Stat) -> Result<Vec<(u32, text::Stat)>, Missing> {
        let dir = self.host.proc.join(pid.to_string()).join("task");
        let tasks = tree::names(&dir).map_err(|error| error.missing)?;
        if leader.threads == 1 {
            return Ok(vec![(pid, leader.clone())]);
        }
        let stat =
            |task: &String| Some((task.parse().ok()?, text::stat(&tree::text(&dir.join(task).join("stat")).ok()?)?));
        Ok(tasks.iter().take(MAX_TASKS).filter_map(stat).collect())
    }

    /// Threads in state D, and where the first of them waits.
    fn blocked(
        &self,
        pid: u32,
        threads: &Result<Vec<(u32, text::Stat)>, Missing>,
        denied: bool,
    ) -> (Reading<u32>, Reading<String>) {
        let threads = match threads {
            Ok(threads) => threads,
            Err(missing) => return (Reading::Missing(*missing), Reading::Missing(*missing)),
        };
        let mut blocked = threads.iter().filter(|(_, stat)| stat.state == 'D').map(|(task, _)| task).peekable();
        let wchan = match blocked.peek() {
            Some(task) => match tree::word(&self.host.proc.join(format!("{pid}/task/{task}/wchan"))) {
                // The kernel prints 0 to those who may not know, and for a thread that runs again.
                Reading::Value(word) if word == "0" && denied => Reading::Missing(Missing::Denied),
                Reading::Value(word) if word == "0" => Reading::Missing(Missing::Gone),
                other => other,
            },
            None => Reading::Missing(Missing::Gone),
        };
        (Reading::from_option(u32::try_from(blocked.count()).ok(), Missing::Malformed), wchan)
    }

    fn files(&mut self, pid: u32, start: Nanos) -> Files {
        let key = (pid, start);
        let kept = self.before.remove(&key).filter(|files| files.age + 1 < REFRESH);
        let files = match kept {
            Some(files) => Files { age: files.age + 1, ..files },
            None => self.open(pid),
        };
        self.files.insert(key, files.clone());
        files
    }

    fn open(&mut self, pid: u32) -> Files {
        match fds::targets(self.host, pid) {
            Ok(targets) => Files {
                opens: Reading::Value(self.places.behind(pid, &targets)),
                listens: self.listeners.of(&pid.to_string(), &targets),
                remote_peers: self.listeners.remote(&pid.to_string(), &targets),
                rdma: Reading::Value(fds::rdma(&targets)),
                age: 0,
            },
            Err(missing) => Files {
                opens: Reading::Missing(missing),
                listens: Reading::Missing(missing),
                remote_peers: Reading::Missing(missing),
                rdma: Reading::Missing(missing),
                age: 0,
            },
        }
    }
}

/// The pids of `/proc`, ascending.
fn all_pids(host: &Host) -> BTreeSet<u32> {
    let names = tree::names(&host.proc).unwrap_or_default();
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
