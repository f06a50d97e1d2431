//! Pressure, the processes that hold GPUs, and their cgroups.

use gpuprod_snapshot::host::{CgroupPressures, NodeTime, Pressure, Pressures, Process, Processes, Psi, Stall};
use gpuprod_snapshot::storage::Mount;
use gpuprod_snapshot::tenant::{Cgroup, CgroupIo, Cgroups, Owner, Runtime};
use gpuprod_snapshot::units::{Bytes, Nanos, Ppb};
use gpuprod_snapshot::{Missing, Reading};

use super::gpus::nanos;
use super::storage::number;
use super::{cgroup, pid, topology};
use crate::scenario::{Fate, Work};
use crate::words::{whole, whole32};
use crate::world::{Job, Stalls, World};

/// Where a thread waits that reads a file and finds its page not there.
pub(crate) const WAITS_IN: &str = "folio_wait_bit_common";
/// Of files in the page cache, on the cgroup's account.
const CACHED: f64 = 38_654_705_664.0;

/// Of the node and of each workload's cgroup, by path.
pub(crate) fn psi(world: &World<'_>) -> Psi {
    let mut cgroups: Vec<CgroupPressures> = present(world)
        .map(|(_, work, job)| CgroupPressures {
            path: cgroup(work),
            pressures: pressures(&job.cpu_wait, &job.io, &job.mem_wait),
        })
        .collect();
    cgroups.sort_by(|a, b| a.path.cmp(&b.path));
    cgroups.dedup_by(|a, b| a.path == b.path);
    Psi { system: pressures(&world.cpu, &world.io, &Stalls::default()), cgroups }
}

fn present<'a>(world: &'a World<'_>) -> impl Iterator<Item = (usize, &'a Work, &'a Job)> {
    let all = world.scenario.works.iter().zip(&world.jobs).enumerate();
    all.map(|(index, (work, job))| (index, work, job)).filter(|(_, _, job)| job.pace.up)
}

fn pressures(cpu: &Stalls, io: &Stalls, memory: &Stalls) -> Pressures {
    Pressures {
        // All tasks waiting for a CPU at once is not counted for the system and hardly ever happens below it.
        cpu: pressure(cpu, 0.0).into(),
        io: pressure(io, 0.7).into(),
        memory: pressure(memory, 0.3).into(),
    }
}

fn pressure(some: &Stalls, full: f64) -> Pressure {
    Pressure { some: stall(some, 1.0), full: stall(some, full).into() }
}

/// Hundredths of a per cent, and microseconds.
fn stall(stalls: &Stalls, share: f64) -> Stall {
    let [avg10, avg60, avg300] = stalls.averages.map(|average| Ppb(whole((average * share * 1e4).floor()) * 100_000));
    Stall { avg10, avg60, avg300, total: nanos(stalls.total * share, 1000) }
}

/// One process per workload. `started` turns a second of the scenario into time since boot.
pub(crate) fn processes(world: &World<'_>, boot: u64, started: impl Fn(i64) -> Nanos) -> Processes {
    let there = present(world).filter(|(_, _, job)| job.pace.fate != Some(Fate::Vanish));
    let all = there.map(|(index, work, job)| process(world, index, work, job, boot, started(job.started)));
    let mut processes: Vec<Process> = all.collect();
    processes.sort_by_key(|process| process.pid);
    Processes { processes }
}

fn process(world: &World<'_>, index: usize, work: &Work, job: &Job, boot: u64, start: Nanos) -> Process {
    let blocked = whole32(job.blocked);
    let read = Bytes(whole(job.read.values().sum::<f64>()));
    let mut opens: Vec<String> = job.read.keys().map(|device| open(world, device)).collect();
    opens.sort_unstable();
    opens.dedup();
    let place = match (&job.pace.fate, job.pace.stuck) {
        (Some(Fate::Block(place)), _) => place.as_str(),
        (_, Some(true)) => "rpc_wait_bit_killable",
        _ => WAITS_IN,
    };
    let parent = if world.scenario.has_parent(work) { pid(index, 0, 9) } else { 1 };
    let gpus = world.scenario.gpus.count;
    let (cpus, mems) = topology::everywhere(gpus);
    let sockets = world.scenario.runs_on(work, world.second);
    let most = sockets.iter().reduce(|most, next| if next.1 > most.1 { next } else { most });
    let home = most.map_or(0, |(socket, _)| *socket);
    let times = job.cpu_by_socket.iter().map(|(node, cpu)| NodeTime { node: *node, cpu: nanos(*cpu, 10_000_000) });
    let mut process = Process {
        pid: pid(index, job.generation, boot),
        start: start.into(),
        ppid: parent.into(),
        uid: 1000.into(),
        comm: work.name.chars().take(15).collect::<String>().into(),
        state: 'S'.into(),
        threads: 64.into(),
        threads_blocked: blocked.into(),
        wchan: if blocked > 0 { place.to_owned().into() } else { Reading::Missing(Missing::Gone) },
        cpu: nanos(job.cpu, 10_000_000).into(),
        cpus_allowed: cpus.into(),
        mems_allowed: mems.into(),
        processor: topology::first_cpu(home).into(),
        cpu_by_node: times.collect::<Vec<_>>().into(),
        rss: Bytes(whole(job.ram() + job.host.mapped) / 4096 * 4096).into(),
        anonymous: Bytes(whole(job.ram()) / 4096 * 4096).into(),
        cgroup: cgroup(work).into(),
        read_chars: Bytes(read.0 + whole(job.cached) + 1_000_000).into(),
        written_chars: Bytes(65_536 + whole(job.written)).into(),
        read_bytes: read.into(),
        written_bytes: Bytes(4096 + whole(job.written)).into(),
        opens: opens.into(),
        listens: work.port.into_iter().chain(work.listens).collect::<Vec<u16>>().into(),
        remote_peers: whole32(job.knobs.peers).into(),
        rdma: (job.knobs.rdma > 0.0).into(),
    };
    match job.pace.fate {
        Some(Fate::Crash) => {
            // A zombie has an entry in the table and nothing else.
            (process.state, process.threads, process.threads_blocked) = ('Z'.into(), 1.into(), 0.into());
            let gone = Reading::Missing(Missing::Gone);
            (process.wchan, process.rss, process.anonymous) = (Reading::Missing(Missing::Gone), gone, gone);
            (process.opens, process.listens) = (Vec::new().into(), Vec::new().into());
            (process.remote_peers, process.rdma) = (0.into(), false.into());
        }
        Some(Fate::Orphan) => (process.ppid, process.listens) = (1.into(), Vec::new().into()),
        Some(Fate::Stop) => process.state = 'T'.into(),
        _ => {}
    }
    process
}

/// What a path tells of its owner: a unit of the workload's name, or a Slurm job.
fn owner(work: &Work) -> Owner {
    let part = |prefix: &str| {
        let path = work.cgroup.as_deref()?;
        path.split('/').find_map(|part| part.strip_prefix(prefix)).map(ToOwned::to_owned)
    };
    match (&work.cgroup, part("job_")) {
        (_, Some(job)) => Owner {
            runtime: Runtime::Slurm.into(),
            slurm_job: Some(job),
            slurm_step: part("step_"),
            ..Owner::default()
        },
        (Some(_), None) => Owner { runtime: Runtime::Systemd.into(), ..Owner::default() },
        (None, None) => {
            Owner { runtime: Runtime::Systemd.into(), unit: Some(format!("{}.service", work.name)), ..Owner::default() }
        }
    }
}

/// The mount point that the device carries, or the device.
fn open(world: &World<'_>, device: &str) -> String {
    if let Some(share) = world.scenario.share(device) {
        return share.mount.clone();
    }
    let mounts: Vec<Mount> = super::storage::block(world).mounts;
    let source = format!("/dev/{device}");
    mounts.into_iter().find(|mount| mount.source == source).map_or(source, |mount| mount.point)
}

/// The cgroup of each workload, by path.
pub(crate) fn cgroups(world: &World<'_>) -> Cgroups {
    let mut cgroups: Vec<Cgroup> = present(world)
        .map(|(_, work, job)| Cgroup {
            path: cgroup(work),
            owner: owner(work),
            cpu_used: nanos(job.cpu, 1000).into(),
            periods: whole(job.host.periods.floor()).into(),
            throttled_periods: whole(job.host.throttled.floor()).into(),
            mem_used: Bytes(whole(CACHED + job.ram())).into(),
            mem_limit: match job.knobs.ram_limit {
                ..=0.0 => Reading::Missing(Missing::Unsupported),
                limit => Bytes(whole(limit)).into(),
            },
            oom_kills: whole(job.host.oom_kills).into(),
            refaults: whole(job.host.refaults.floor()).into(),
            io: job
                .read
                .iter()
                .filter(|(device, _)| world.scenario.share(device).is_none())
                .map(|(device, bytes)| CgroupIo {
                    dev: number(device),
                    read: Bytes(whole(*bytes)),
                    written: Bytes(whole(job.written)),
                })
                .collect::<Vec<_>>()
                .into(),
        })
        .collect();
    cgroups.sort_by(|a, b| a.path.cmp(&b.path));
    cgroups.dedup_by(|a, b| a.path == b.path);
    Cgroups { cgroups, ..Cgroups::default() }
}
