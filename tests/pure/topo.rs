//! `topo`: who holds a GPU, where it may run, and whether that is near.

use gpuprod::topo::{Placement, Topo, page};
use gpuprod_sim::Scenario;
use gpuprod_snapshot::host::{NodeTime, Process};
use gpuprod_snapshot::topology::NumaNode;
use gpuprod_snapshot::units::Nanos;
use gpuprod_snapshot::{Missing, Reading, Tick};
use std::sync::Arc;

/// Four GPUs on two sockets (CPUs 0-55 and 56-111), the drive on the second one.
const NODE: &str = "scenario places\nlength 2m\nnoise 0%\ngpu 4\njob near gpus 0\njob far gpus 1\njob third gpus 2\n\
                    disk nvme0n1 mount /data\nreads third nvme0n1 100MB/s\n";

/// A minute of it, all sources together, changed as the test likes.
fn at(change: impl Fn(&mut Tick)) -> Topo {
    let scenario = Scenario::parse(NODE).unwrap();
    let (mut known, mut older) = (Tick::default(), Tick::default());
    scenario.ticks().take(90).for_each(|tick| known.advance(&mut older, &tick));
    change(&mut known);
    Topo::of(&known)
}

fn process<'a>(tick: &'a mut Tick, comm: &str) -> &'a mut Process {
    let Some(Reading::Value(all)) = tick.proc.as_mut().map(|sample| &mut Arc::make_mut(sample).value) else {
        panic!("no processes")
    };
    all.processes.iter_mut().find(|process| process.comm.get().is_some_and(|name| name == comm)).unwrap()
}

fn nodes(tick: &mut Tick) -> &mut Vec<NumaNode> {
    let Some(Reading::Value(numa)) = tick.numa.as_mut().map(|sample| &mut Arc::make_mut(sample).value) else {
        panic!("no nodes")
    };
    &mut numa.nodes
}

fn bind(tick: &mut Tick, comm: &str, cpus: &str) {
    process(tick, comm).cpus_allowed = cpus.to_owned().into();
}

fn of(topo: &Topo, comm: &str) -> Placement {
    topo.processes.iter().find(|held| held.comm.get().is_some_and(|name| name == comm)).unwrap().placement
}

/// What is said about a GPU's process, and whether somebody should act.
fn said(topo: &Topo, gpu: &str) -> Option<(bool, String)> {
    let mut notes = topo.findings.iter().filter(|note| note.about == gpu && note.says.starts_with("pid "));
    notes.next().map(|note| (note.warn, note.says.clone()))
}

#[test]
fn a_process_bound_to_the_other_socket_is_flagged_and_others_are_not() {
    let topo = at(|tick| {
        bind(tick, "near", "0-55");
        bind(tick, "far", "56-111");
        process(tick, "far").cpu_by_node = vec![NodeTime { node: 1, cpu: Nanos::from_secs(9) }].into();
    });
    assert_eq!(
        (of(&topo, "near"), of(&topo, "far"), of(&topo, "third")),
        (Placement::Near, Placement::Away, Placement::Anywhere)
    );
    let (warn, says) = said(&topo, "GPU 1").unwrap();
    assert!(warn && says.contains("CPUs 56-111 alone, all on another socket than the GPU (node 0)"), "{says}");
    assert!(says.contains("no drive open") && says.contains("--cpunodebind"), "{says}");
    assert_eq!((said(&topo, "GPU 0"), said(&topo, "GPU 2")), (None, None));
    let text = page(&topo);
    assert!(text.contains("(far): AWAY; may run on CPUs 56-111 (node 1); ran on node 1 100 %; storage none"), "{text}");
    assert!(text.contains("(third): not bound to one socket; may run on CPUs 0-111 (node 0,1); ran on node 1 100 %; storage nvme0n1 (node 1)"), "{text}");
}

#[test]
fn storage_near_the_cpus_excuses_them_and_storage_near_the_gpu_does_not() {
    // The drive is on node 1, as the CPUs: one of the two is far in any case.
    let reads = |tick: &mut Tick, comm: &str| process(tick, comm).opens = vec!["/data".to_owned()].into();
    let topo = at(|tick| (bind(tick, "far", "56-111"), reads(tick, "far")).0);
    let (warn, says) = said(&topo, "GPU 1").unwrap();
    assert!(!warn && says.contains("nvme0n1 is near its CPUs"), "{says}");
    // GPU 2 and the drive are both on node 1, the CPUs are not.
    let topo = at(|tick| bind(tick, "third", "0-55"));
    let (warn, says) = said(&topo, "GPU 2").unwrap();
    assert!(warn && says.contains("nvme0n1 too"), "{says}");
}

#[test]
fn what_may_not_be_read_is_cannot_tell_and_never_a_warning() {
    // The driver lists it, the process table does not.
    let topo = at(|tick| {
        let Some(Reading::Value(all)) = tick.proc.as_mut().map(|sample| &mut Arc::make_mut(sample).value) else {
            panic!()
        };
        all.processes.clear();
    });
    assert!(topo.processes.len() == 3 && topo.processes.iter().all(|held| held.placement == Placement::CannotTell));
    let (warn, says) = said(&topo, "GPU 1").unwrap();
    assert!(!warn && says.contains("may not be looked at") && says.contains("cannot tell"), "{says}");
    assert!(page(&topo).contains("cannot tell; may run on CPUs ? (not read); ran on ?"), "{}", page(&topo));
    // Its open files may not be seen: whether storage speaks for its CPUs is not known.
    let topo = at(|tick| {
        bind(tick, "far", "56-111");
        process(tick, "far").opens = Reading::Missing(Missing::Denied);
    });
    let (warn, says) = said(&topo, "GPU 1").unwrap();
    assert!(!warn && says.contains("what it reads cannot be told"), "{says}");
    // The driver does not list processes at all.
    let topo = at(|tick| {
        let Some(Reading::Value(gpus)) = tick.gpu.as_mut().map(|sample| &mut Arc::make_mut(sample).value) else {
            panic!()
        };
        gpus.devices[1].processes = Reading::Missing(Missing::Denied);
    });
    assert!(topo.findings.iter().any(|note| !note.warn && note.about == "GPU 1" && note.says.contains("(denied)")));
    // An older recording holds none of it.
    let topo = at(|tick| process(tick, "far").cpus_allowed = Reading::default());
    assert!(said(&topo, "GPU 1").is_some_and(|(warn, says)| !warn && says.contains("cannot tell")));
}

#[test]
fn nodes_of_one_socket_are_near_each_other() {
    let far = |tick: &mut Tick| bind(tick, "far", "56-111");
    // Where the package is not known, distances tell.
    let distances = |first: u32| {
        move |tick: &mut Tick| {
            far(tick);
            for (node, row) in nodes(tick).iter_mut().zip([vec![10, first], vec![first, 10]]) {
                (node.package, node.distances) = (Reading::Missing(Missing::Unsupported), row.into());
            }
        }
    };
    assert_eq!(of(&at(distances(12)), "far"), Placement::Near);
    assert_eq!(of(&at(distances(21)), "far"), Placement::Away);
    // Two nodes of one package (SNC, NPS) are 11 or 12 apart; QEMU says one package for nodes that are 20 apart.
    let package = |first: u32| {
        move |tick: &mut Tick| {
            distances(first)(tick);
            nodes(tick).iter_mut().for_each(|node| node.package = 0.into());
        }
    };
    assert_eq!((of(&at(package(12)), "far"), said(&at(package(12)), "GPU 1")), (Placement::Near, None));
    assert_eq!(of(&at(package(20)), "far"), Placement::Away);
    // A node without CPUs is memory of a device: nobody can be away on it.
    let topo = at(|tick| (far(tick), nodes(tick)[1].cpulist = String::new().into()).0);
    assert!(said(&topo, "GPU 1").is_none());
}
