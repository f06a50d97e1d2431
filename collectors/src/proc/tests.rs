use proptest::prelude::*;

use gpuprod_snapshot::CpuList;
use gpuprod_snapshot::units::Bytes;

use super::text::Status;
use super::*;
use crate::scratch::{Scratch, fixture};

/// Of `proc(5)`: 52 fields, the name in parentheses second.
fn stat_line(pid: u32, comm: &str, state: char, ppid: u32, threads: u32, start: u64) -> String {
    format!(
        "{pid} ({comm}) {state} {ppid} 7 7 0 -1 4194560 1 2 3 4 250 50 6 7 20 0 {threads} 0 {start} 1000 100 \
         18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
}

struct Node(Scratch);

impl Node {
    fn new() -> Self {
        let node = Self(Scratch::new());
        node.0.file(
            "proc/1/mountinfo",
            "20 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 9:0 / /data rw - xfs /dev/md0 rw\n\
             30 27 0:44 / /dev/shm rw - tmpfs tmpfs rw\n31 27 0:50 / /models rw - nfs4 srv:/m rw\n",
        );
        for name in ["md0", "nvme0n1", "dm-3"] {
            node.0.dir(&format!("sys/class/block/{name}"));
        }
        node
    }

    fn process(&self, pid: u32, ppid: u32, comm: &str) {
        self.0.file(&format!("proc/{pid}/stat"), &stat_line(pid, comm, 'S', ppid, 1, 1000));
        self.0.file(&format!("proc/{pid}/status"), "Name:\tx\nUid:\t1000\t0\t0\t0\nVmRSS:\t    2048 kB\n");
        self.0.file(&format!("proc/{pid}/task/{pid}/stat"), &stat_line(pid, comm, 'S', ppid, 1, 1000));
        self.0.file(&format!("proc/{pid}/task/{pid}/children"), "");
        self.0.dir(&format!("proc/{pid}/fd"));
    }

    fn open(&self, pid: u32, fd: u32, target: &str) {
        self.0.link(&format!("proc/{pid}/fd/{fd}"), target);
    }

    fn collect(&self, collector: &mut GpuProcesses, pids: &[u32], ports: &[u16]) -> Vec<Process> {
        let focus =
            Focus { pids: pids.iter().copied().collect(), ports: ports.iter().copied().collect(), ..Focus::default() };
        match collector.collect(&self.0.host(), &focus).unwrap() {
            Part::Proc(found) => found.processes,
            other => panic!("{other:?}"),
        }
    }

    fn once(&self, pids: &[u32], ports: &[u16]) -> Vec<Process> {
        self.collect(&mut GpuProcesses::default(), pids, ports)
    }
}

fn pids(processes: &[Process]) -> Vec<u32> {
    processes.iter().map(|process| process.pid).collect()
}

#[test]
fn without_focus_there_is_nothing_to_do() {
    assert_eq!(Node::new().once(&[], &[]), []);
}

#[test]
fn one_process_with_all_its_facts() {
    let node = Node::new();
    node.process(70, 1, "python) R 1 (3");
    node.0.file("proc/70/stat", &stat_line(70, "python) R 1 (3", 'S', 1, 3, 1234));
    for (task, state) in [(70, 'S'), (71, 'D'), (72, 'D')] {
        node.0.file(&format!("proc/70/task/{task}/stat"), &stat_line(task, "w", state, 1, 3, 1234));
    }
    node.0.file("proc/70/task/71/wchan", "wait_barrier");
    node.0.file("proc/70/io", &tree::text(&fixture("proc/io")).unwrap());
    node.0.file("proc/70/cgroup", "0::/system.slice/vllm.service\n");
    for (fd, target) in [
        (0, "/dev/null"),
        (1, "pipe:[5]"),
        (2, "/dev/nvidia0"),
        (3, "/dev/md0"),
        (4, "/dev/nvme0"),
        (5, "/data/shard 0"),
        (6, "/dev/shm/sem"),
        (7, "/models/a.safetensors (deleted)"),
        (8, "socket:[31337]"),
        (9, "anon_inode:[eventfd]"),
        (10, "/proc/70/stat"),
        (11, "socket:[99]"),
        (12, "/dev/mapper/vg-data"),
        (13, "/data/shard 1"),
    ] {
        node.open(70, fd, target);
    }
    node.0.file("proc/70/net/tcp", &tree::text(&fixture("proc/net-tcp")).unwrap());
    let found = node.once(&[70], &[]);
    assert_eq!(pids(&found), [70]);
    let process = &found[0];
    assert_eq!(process.comm.get().unwrap(), "python) R 1 (3");
    assert_eq!((process.state.copied(), process.ppid.copied()), (Some('S'), Some(1)));
    assert_eq!(process.start.copied(), Some(Nanos(12_340_000_000)), "hundredths of a second");
    assert_eq!(process.cpu.copied(), Some(Nanos::from_secs(3)), "250 + 50 ticks");
    assert_eq!((process.uid.copied(), process.rss.copied()), (Some(1000), Some(Bytes(2 << 20))));
    assert_eq!((process.threads.copied(), process.threads_blocked.copied()), (Some(3), Some(2)));
    assert_eq!(process.wchan.get().unwrap(), "wait_barrier");
    assert_eq!(process.cgroup.get().unwrap(), "/system.slice/vllm.service");
    let io = [&process.read_chars, &process.written_chars, &process.read_bytes, &process.written_bytes];
    assert_eq!(io.map(|bytes| bytes.copied().map(|b| b.0)), [Some(9_000), Some(800), Some(4_096), Some(512)]);
    assert_eq!(process.opens.get().unwrap(), &["/data", "/dev/mapper/vg-data", "/dev/md0", "/models"]);
    assert_eq!(process.listens.get().unwrap(), &[8080], "99 is connected, not listening");
}

#[test]
fn what_may_not_be_read_is_missing_field_by_field() {
    let node = Node::new();
    node.process(70, 1, "a");
    node.0.remove("proc/70/fd");
    let process = node.once(&[70], &[]).remove(0);
    assert_eq!(process.opens.missing(), Some(Missing::Unsupported));
    assert_eq!(process.listens.missing(), Some(Missing::Unsupported));
    assert_eq!(process.read_bytes.missing(), Some(Missing::Unsupported));
    assert_eq!(process.cgroup.missing(), Some(Missing::Unsupported));
    assert_eq!(process.wchan.missing(), Some(Missing::Gone), "nobody is blocked");
    assert_eq!(process.threads_blocked.copied(), Some(0));
    assert_eq!(process.state.copied(), Some('S'));
}

#[test]
fn a_path_in_a_container_is_told_by_the_nodes_mount() {
    let node = Node::new();
    node.process(70, 1, "a");
    node.0.link("proc/70/ns/mnt", "mnt:[4026532]");
    node.0.file(
        "proc/70/mountinfo",
        "1 0 0:90 / / rw - overlay overlay rw\n2 1 9:0 /sets/x /mnt/in rw - xfs /dev/md0 rw\n\
         3 1 9:7 / /own rw - xfs /dev/md7 rw\n",
    );
    node.open(70, 3, "/mnt/in/shard");
    node.open(70, 4, "/usr/lib/libc.so");
    node.open(70, 5, "/own/x");
    let process = node.once(&[70], &[]).remove(0);
    assert_eq!(process.opens.get().unwrap(), &["/data", "/own"]);
}

#[test]
fn ancestors_and_children_come_along() {
    let node = Node::new();
    let chain = [(1, 0), (10, 1), (20, 10), (30, 20), (40, 30), (50, 40), (60, 50), (70, 60)];
    for (pid, parent) in chain {
        node.process(pid, parent, "a");
    }
    for (pid, parent) in [(80, 70), (81, 70), (90, 80), (99, 1)] {
        node.process(pid, parent, "loader");
    }
    node.0.file("proc/70/task/70/children", "80 81 ");
    assert_eq!(pids(&node.once(&[70], &[])), [30, 40, 50, 60, 70, 80, 81]);
    assert_eq!(pids(&node.once(&[20], &[])), [10, 20], "process 1 is nobody's");
    // A kernel without that file: everybody is asked for the parent.
    node.0.remove("proc/70/task/70");
    node.0.file("proc/70/task/70/stat", "");
    assert_eq!(pids(&node.once(&[70], &[])), [30, 40, 50, 60, 70, 80, 81]);
}

#[test]
fn a_process_that_is_gone_or_replaced_is_left_out() {
    let node = Node::new();
    node.process(70, 1, "a");
    assert_eq!(pids(&node.once(&[70, 71], &[])), [70]);
    node.0.file("proc/70/stat", "70 (torn");
    assert_eq!(node.once(&[70, 71], &[]), []);
}

#[test]
fn who_listens_on_an_engines_port_is_found_and_remembered() {
    let node = Node::new();
    node.process(500, 1, "server");
    node.process(600, 1, "other");
    node.open(500, 3, "socket:[31337]");
    node.open(600, 3, "socket:[7]");
    for pid in [500, 600] {
        node.0.link(&format!("proc/{pid}/ns/net"), "net:[1]");
        node.0.file(&format!("proc/{pid}/net/tcp"), "sl\n");
        node.0.file(&format!("proc/{pid}/net/tcp6"), &tree::text(&fixture("proc/net-tcp6")).unwrap());
    }
    let mut collector = GpuProcesses::default();
    assert_eq!(node.collect(&mut collector, &[], &[8000]), [], "nobody there");
    let found = node.collect(&mut collector, &[], &[8081]);
    assert_eq!(pids(&found), [500]);
    assert_eq!(found[0].listens.get().unwrap(), &[8081]);
    // Another process under the pid is not the one that listened.
    node.0.file("proc/500/stat", &stat_line(500, "new", 'S', 1, 1, 2000));
    node.0.remove("proc/500/fd");
    assert_eq!(node.collect(&mut collector, &[], &[8081]), []);
}

#[test]
fn the_search_for_a_port_reaches_everybody_in_turns() {
    let node = Node::new();
    for pid in 100..700 {
        node.0.file(&format!("proc/{pid}/stat"), &stat_line(pid, "a", 'S', 1, 1, 1));
    }
    node.process(100, 1, "server");
    node.open(100, 3, "socket:[31337]");
    node.0.file("proc/100/net/tcp6", &tree::text(&fixture("proc/net-tcp6")).unwrap());
    let mut collector = GpuProcesses::default();
    let found: Vec<usize> = (0..4).map(|_| node.collect(&mut collector, &[], &[8081]).len()).collect();
    assert_eq!(found, [0, 0, 1, 1], "256 processes in one collection");
}

#[test]
fn a_fork_bomb_costs_a_bounded_number_of_processes() {
    let node = Node::new();
    node.process(70, 1, "a");
    let children: Vec<String> = (1000..3000).map(|pid: u32| pid.to_string()).collect();
    for pid in 1000..1200 {
        node.process(pid, 70, "child");
    }
    node.0.file("proc/70/task/70/children", &children.join(" "));
    assert_eq!(node.once(&[70], &[]).len(), 65);
}

#[test]
fn a_name_may_hold_anything() {
    for name in ["a b", ")", "(", ") S 1 (", "", "日本"] {
        let stat = text::stat(&stat_line(5, name, 'D', 4, 2, 9)).unwrap();
        assert_eq!((stat.comm.as_str(), stat.state, stat.ppid, stat.threads), (name, 'D', 4, 2));
    }
    for bad in ["", "1 (a", "1 (a) S", "1 (a) SS 1", "1 a S 1"] {
        assert_eq!(text::stat(bad), None, "{bad}");
    }
    let huge = stat_line(5, "a", 'S', 4, 2, u64::MAX);
    assert_eq!(text::stat(&huge), None, "does not wrap");
}

#[test]
fn a_zombie_has_no_memory() {
    let Status { uid, rss, anonymous, cpus, .. } = text::status("Name:\tz\nState:\tZ (zombie)\nUid:\t0\t0\t0\t0\n");
    assert_eq!((uid.copied(), rss.missing(), anonymous.missing()), (Some(0), Some(Missing::Gone), Some(Missing::Gone)));
    assert_eq!(cpus.missing(), Some(Missing::Unsupported));
    let Status { rss, anonymous, .. } =
        text::status("VmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\nRssFile:\t 1024 kB\n");
    assert_eq!((rss.copied(), anonymous.copied()), (Some(Bytes(2 << 20)), Some(Bytes(1 << 20))));
}

/// As `task_cpus_allowed` of the kernel prints them, from a process bound with `taskset -c 1`.
#[test]
fn masks_are_kept_as_printed_and_nonsense_is_malformed() {
    let text = "Cpus_allowed:\t2\nCpus_allowed_list:\t1\nMems_allowed:\t00000000,00000001\nMems_allowed_list:\t0-1,8\n";
    let Status { cpus, mems, .. } = text::status(text);
    assert_eq!((cpus.get().unwrap().as_str(), mems.get().unwrap().as_str()), ("1", "0-1,8"));
    for bad in ["", "-1", "0-", "5-3", "0-3,x", &"0,".repeat(9000)] {
        let Status { cpus, .. } = text::status(&format!("Cpus_allowed_list:\t{bad}\n"));
        assert_eq!(cpus.missing(), Some(Missing::Malformed), "{bad}");
    }
}

#[test]
fn cpu_time_counts_to_the_node_on_which_each_thread_is() {
    let node = Node::new();
    node.0.file("sys/devices/system/node/node0/cpulist", "0-3,8\n");
    node.0.file("sys/devices/system/node/node1/cpulist", "4-7\n");
    node.0.file("sys/devices/system/node/node2/cpulist", "\n");
    node.process(70, 1, "a");
    let task = |task: u32, used: u32, cpu: u32| {
        let line = stat_line(task, "a", 'S', 1, 2, 1000).replace(" 250 50 ", &format!(" {used} 0 "));
        node.0.file(&format!("proc/70/task/{task}/stat"), &line.replace(" 17 3 ", &format!(" 17 {cpu} ")));
    };
    let leader = stat_line(70, "a", 'S', 1, 2, 1000);
    node.0.file("proc/70/stat", &leader);
    let mut collector = GpuProcesses::default();
    let mut look = || {
        let process = node.collect(&mut collector, &[70], &[]).remove(0);
        process.cpu_by_node.get().unwrap().iter().map(|time| (time.node, time.cpu.0 / 10_000_000)).collect::<Vec<_>>()
    };
    // What was used before the first look counts to where the threads are then.
    task(70, 300, 3);
    task(71, 100, 5);
    assert_eq!(look(), [(0, 300), (1, 100)]);
    // A thread moves: what it used before stays where it was.
    task(70, 310, 3);
    task(71, 150, 8);
    assert_eq!(look(), [(0, 360), (1, 100)]);
    // One ended, another has its number: it begins at zero. A CPU of no node counts nowhere.
    task(70, 330, 99);
    task(71, 20, 4);
    assert_eq!(look(), [(0, 360), (1, 120)]);
    // Another process under the pid.
    node.0.file("proc/70/stat", &stat_line(70, "a", 'S', 1, 2, 2000));
    assert_eq!(look(), [(1, 20)]);
    let process = node.once(&[70], &[]).remove(0);
    assert_eq!(process.processor.copied(), Some(3));
}

#[test]
fn without_nodes_of_the_kernel_no_time_is_told_by_node() {
    let node = Node::new();
    node.process(70, 1, "a");
    let process = node.once(&[70], &[]).remove(0);
    assert_eq!(process.cpu_by_node.missing(), Some(Missing::Unsupported));
    assert_eq!(process.cpus_allowed.missing(), Some(Missing::Unsupported));
}

/// This test's own process is read on the machine that runs the tests.
#[test]
fn our_own_process_is_seen_as_the_kernel_shows_it() {
    let host = Host::at(std::path::Path::new("/"));
    if !host.proc.join("self/stat").exists() {
        println!("skipped: no /proc");
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let pid = std::process::id();
    let focus = Focus { pids: BTreeSet::from([pid]), ports: BTreeSet::from([port]), ..Focus::default() };
    let part = GpuProcesses::default().collect(&host, &focus).unwrap();
    let Part::Proc(found) = part else { panic!("{part:?}") };
    let own = found.processes.iter().find(|process| process.pid == pid).unwrap();
    assert!(own.listens.get().unwrap().contains(&port), "{own:?}");
    assert!(own.rss.copied().unwrap() > Bytes(100_000));
    assert!(own.threads.copied().unwrap() >= 2);
    assert!(own.start.copied().unwrap() > Nanos(0));
    assert_eq!(own.threads_blocked.copied(), Some(0));
    let allowed = CpuList::parse(own.cpus_allowed.get().unwrap()).unwrap();
    assert!(allowed.contains(own.processor.copied().unwrap()), "{own:?}");
    if host.sys.join("devices/system/node/node0").exists() {
        assert!(!own.cpu_by_node.get().unwrap().is_empty(), "{own:?}");
    }
}

proptest! {
    #[test]
    fn hostile_text_is_refused_without_a_panic(text in "\\PC{0,300}", words in proptest::collection::vec("[-0-9A-F:()]{0,24}", 0..60)) {
        for text in [text, format!("1 (x) {}", words.join(" ")), format!("head\n{}\n", words.join(" "))] {
            let _ = text::stat(&text);
            let _ = text::status(&text);
            let _ = text::io(&text, "rchar");
            let _ = text::listening(&text);
        }
    }
}

/// Rows as `net/ipv4/tcp_ipv4.c` prints them: 10.0.0.5 is `0500000A`.
const SOCKETS: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:735F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0500000A:9C40 0600000A:9C41 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0500000A:9C42 0500000A:9C43 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
   3: 0500000A:9C44 0600000A:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4 1 0 20 4 30 10 -1
   4: 0100007F:9C45 0100007F:9C46 01 00000000:00000000 00:00000000 00000000  1000        0 5 1 0 20 4 30 10 -1
   5: 0500000A:9C47 0700000A:9C48 06 00000000:00000000 00:00000000 00000000  1000        0 6 1 0 20 4 30 10 -1
";

#[test]
fn peers_are_connections_that_lead_to_another_host() {
    let row = |local: &str, remote: &str, inode| format!("0: {local}:9C40 {remote}:9C41 01 0:0 0:0 0 0 0 {inode} 1");
    let v4 = |last: &str| format!("0000000000000000FFFF0000{last}00000A");
    let one = "00000000000000000000000001000000";
    let six = ["sl".into(), row(&v4("05"), &v4("08"), 7), row(&v4("05"), &v4("05"), 8), row(one, one, 9)].join("\n");
    // Another host; not our own outer address, not HTTPS, not loopback, not a connection that is closing.
    assert_eq!(text::remote([SOCKETS].into_iter()), BTreeSet::from([2]));
    assert_eq!(text::remote([SOCKETS, six.as_str()].into_iter()), BTreeSet::from([2, 7]));
}

#[test]
fn a_process_has_its_own_peers_and_devices_only() {
    let node = Node::new();
    for pid in [70, 80] {
        node.process(pid, 1, "python");
        node.0.file(&format!("proc/{pid}/net/tcp"), SOCKETS);
        node.open(pid, 3, "socket:[3]");
    }
    node.open(70, 4, "socket:[2]");
    node.open(70, 5, "/dev/infiniband/uverbs1");
    let found = node.once(&[70, 80], &[]);
    let facts: Vec<_> = found.iter().map(|process| (process.remote_peers.copied(), process.rdma.copied())).collect();
    assert_eq!(facts, [(Some(1), Some(true)), (Some(0), Some(false))]);
}
