//! `/proc`: the processes, the kernel log, the boot's id.

use std::fmt::Write as _;
use std::io;

use gpuprod_snapshot::gpu::Xid;
use gpuprod_snapshot::host::Process;
use gpuprod_snapshot::{CpuList, Tick};

use super::{Tree, block, value};

/// Clock ticks of `/proc` are 10 ms.
const TICK: u64 = 10_000_000;
const PAGE: u64 = 4096;
/// Number of a socket that somebody listens on: this plus the port.
const INODE: u32 = 510_000;
/// Number of the first socket that leads to another host.
const PEERS: u32 = 610_000;

pub(crate) fn write(tick: &Tick, tree: &Tree) -> io::Result<()> {
    tree.line("proc/sys/kernel/random/boot_id", &tick.stamp.boot_id.0)?;
    let seconds = tick.stamp.boottime.0 / 1_000_000_000;
    tree.line("proc/uptime", format!("{seconds}.00 {seconds}.00"))?;
    let new = value!(tick, xid).into_iter().flat_map(|xids| &xids.events).map(record);
    tree.append("dev/kmsg", &new.collect::<Vec<_>>())?;
    let Some(processes) = value!(tick, proc) else { return Ok(()) };
    for name in tree.names("proc") {
        let pid: Option<u32> = name.parse().ok();
        if pid.is_some_and(|pid| pid != 1 && processes.processes.iter().all(|process| process.pid != pid)) {
            tree.remove(&format!("proc/{name}"))?;
        }
    }
    for process in &processes.processes {
        one(tick, tree, process)?;
    }
    mountstats(tick, tree)
}

/// As `nfs_show_stats` prints it.
fn mountstats(tick: &Tick, tree: &Tree) -> io::Result<()> {
    let mut text = "device proc mounted on /proc with fstype proc\n".to_owned();
    for mount in value!(tick, fs).into_iter().flat_map(|fs| &fs.mounts) {
        let count = |reading: &gpuprod_snapshot::Reading<u64>| reading.copied().unwrap_or(0);
        let bytes = |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Bytes>| {
            reading.copied().map_or(0, |bytes| bytes.0)
        };
        let millis = |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Nanos>| {
            reading.copied().map_or(0, |time| time.0 / 1_000_000)
        };
        let ops = count(&mount.ops);
        let _ = writeln!(
            text,
            "device server:/export mounted on {} with fstype {} statvers=1.1\n\tbytes:\t0 0 0 0 {} {} 0 0\n\
             \txprt:\ttcp 819 0 2 0 38 {} {ops} 0 0 0 2 0 0\n\tper-op statistics\n\
             \t        READ: {ops} {ops} 0 0 0 {} {} {} 0",
            mount.point,
            mount.fs,
            bytes(&mount.read),
            bytes(&mount.written),
            ops + count(&mount.unanswered),
            millis(&mount.queue),
            millis(&mount.rtt),
            millis(&mount.rtt),
        );
    }
    tree.put("proc/1/mountstats", text)
}

/// A line of `/dev/kmsg`.
fn record(xid: &Xid) -> String {
    let pci =
        xid.pci.get().map_or_else(String::new, |pci| format!("{:04x}:{:02x}:{:02x}", pci.domain, pci.bus, pci.device));
    let text = if xid.code == 79 { "GPU has fallen off the bus." } else { "Ch 00000008, intr 10000000." };
    let pid = xid.pid.map_or_else(|| "'<unknown>'".to_owned(), |pid| pid.to_string());
    let name = xid.name.as_deref().unwrap_or("<unknown>");
    format!("3,{},{},-;NVRM: Xid (PCI:{pci}): {}, pid={pid}, name={name}, {text}", xid.seq, xid.at.0 / 1000, xid.code)
}

fn one(tick: &Tick, tree: &Tree, process: &Process) -> io::Result<()> {
    let pid = process.pid;
    let at = |name: &str| format!("proc/{pid}/{name}");
    let comm = process.comm.get().map_or("", String::as_str);
    let state = process.state.copied().unwrap_or('S');
    let cpu = process.cpu.copied().map_or(0, |cpu| cpu.0 / TICK);
    let threads = process.threads.copied().unwrap_or(1);
    let home = process.processor.copied().unwrap_or(0);
    tree.line(&at("stat"), stat(process, pid, state, (cpu, home)))?;
    tree.line(&at("comm"), comm)?;
    let uid = process.uid.copied().unwrap_or(0);
    let memory = process.rss.copied().map_or_else(String::new, |rss| {
        let own = process.anonymous.copied().map_or(0, |own| own.0);
        format!(
            "VmRSS:\t{:8} kB\nRssAnon:\t{:8} kB\nRssFile:\t{:8} kB\n",
            rss.0 / 1024,
            own / 1024,
            rss.0.saturating_sub(own) / 1024
        )
    });
    tree.put(
        &at("status"),
        format!(
            "Name:\t{comm}\nState:\t{state} ({})\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}\n{memory}Threads:\t{threads}\n\
             Cpus_allowed_list:\t{}\nMems_allowed_list:\t{}\n",
            match state {
                'R' => "running",
                'Z' => "zombie",
                _ => "sleeping",
            },
            process.ppid.copied().unwrap_or(1),
            process.cpus_allowed.get().map_or("0", String::as_str),
            process.mems_allowed.get().map_or("0", String::as_str),
        ),
    )?;
    let number = |reading: &gpuprod_snapshot::Reading<gpuprod_snapshot::units::Bytes>| {
        reading.copied().map_or(0, |bytes| bytes.0)
    };
    tree.put(
        &at("io"),
        format!(
            "rchar: {}\nwchar: {}\nsyscr: 0\nsyscw: 0\nread_bytes: {}\nwrite_bytes: {}\ncancelled_write_bytes: 0\n",
            number(&process.read_chars),
            number(&process.written_chars),
            number(&process.read_bytes),
            number(&process.written_bytes)
        ),
    )?;
    tree.line(&at("cgroup"), format!("0::{}", process.cgroup.get().map_or("/", String::as_str)))?;
    tree.put(&at("wchan"), "0")?;
    let blocked = process.threads_blocked.copied().unwrap_or(0);
    let nodes = value!(tick, numa).map(|numa| numa.nodes.as_slice()).unwrap_or_default();
    let first = |node: u32| {
        let cpus = nodes.iter().find(|known| known.id == node).and_then(|known| CpuList::parse(known.cpulist.get()?));
        cpus.and_then(|cpus| cpus.first()).unwrap_or(home)
    };
    // One thread for each node does all that was done there; the leader is the first.
    let mut works = process.cpu_by_node.get().cloned().unwrap_or_default();
    works.sort_by_key(|time| first(time.node) != home);
    let mut works = works.into_iter();
    for thread in 0..threads {
        // Of those that do not work the last ones are blocked.
        let waits = thread > 0 && thread + blocked >= threads;
        let tid = pid + thread;
        let letter = if thread == 0 {
            state
        } else if waits {
            'D'
        } else {
            'S'
        };
        let used = works.next().map_or((0, home), |time| (time.cpu.0 / TICK, first(time.node)));
        tree.line(&at(&format!("task/{tid}/stat")), stat(process, tid, letter, used))?;
        let wchan = process.wchan.get().filter(|_| waits).map_or("0", String::as_str);
        tree.put(&at(&format!("task/{tid}/wchan")), wchan)?;
        tree.put(&at(&format!("task/{tid}/children")), "")?;
    }
    if let Some(block) = value!(tick, block) {
        tree.put(&at("mountinfo"), block::mountinfo(block, value!(tick, fs)))?;
    }
    descriptors(tree, process)
}

/// `stat` has 52 fields; what no collector reads is 0.
fn stat(process: &Process, id: u32, state: char, (cpu, processor): (u64, u32)) -> String {
    let system = cpu / 10;
    let user = cpu - system;
    let start = process.start.copied().map_or(0, |start| start.0 / TICK);
    let rss = process.rss.copied().map_or(0, |rss| rss.0 / PAGE);
    format!(
        "{id} ({}) {state} {} {id} {id} 0 -1 4194304 0 0 0 0 {user} {system} 0 0 20 0 {} 0 {start} 68719476736 {rss} \
         18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 {processor} 0 0 0 0 0 0 0 0 0 0 0 0 0",
        process.comm.get().map_or("", String::as_str),
        process.ppid.copied().unwrap_or(1),
        process.threads.copied().unwrap_or(1),
    )
}

/// Open files and listening sockets.
fn descriptors(tree: &Tree, process: &Process) -> io::Result<()> {
    let at = |name: &str| format!("proc/{}/{name}", process.pid);
    // A zombie has closed what it had open.
    if process.state.copied() == Some('Z') {
        tree.remove(&at("fd"))?;
    }
    tree.link(&at("fd/0"), "/dev/null")?;
    for (fd, path) in (3_u32..).zip(process.opens.get().into_iter().flatten()) {
        let target = if path.starts_with("/dev/") { path.clone() } else { format!("{path}/model-00001.safetensors") };
        tree.link(&at(&format!("fd/{fd}")), target)?;
    }
    let mut tcp =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n".to_owned();
    tree.put(&at("net/tcp6"), &tcp)?;
    for (row, port) in (0_u32..).zip(process.listens.get().into_iter().flatten()) {
        let inode = INODE + u32::from(*port);
        let _ = writeln!(
            tcp,
            "{row:4}: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000000000000000 100 0 0 10 0"
        );
        tree.link(&at(&format!("fd/{}", 20 + row)), format!("socket:[{inode}]"))?;
    }
    for peer in 0..process.remote_peers.copied().unwrap_or(0) {
        let inode = PEERS + peer;
        let _ = writeln!(
            tcp,
            "{:4}: 0500000A:9C40 {:02X}01000A:9C41 01 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000000000000000 20 4 30 10 -1",
            100 + peer,
            peer % 200 + 1
        );
        tree.link(&at(&format!("fd/{}", 100 + peer)), format!("socket:[{inode}]"))?;
    }
    if process.rdma.copied() == Some(true) {
        tree.link(&at("fd/90"), "/dev/infiniband/uverbs0")?;
    }
    tree.put(&at("net/tcp"), tcp)
}
