//! The collectors of storage, pressure and processes on the machine that runs the tests, whoever runs them.

use std::path::Path;

use gpuprod_snapshot::host::Processes;

use crate::{Collector, Focus, Host, Part, block, cgroup, md, proc, psi};

fn look(collector: &mut dyn Collector, focus: &Focus) -> Option<Part> {
    let source = collector.source();
    match collector.collect(&Host::at(Path::new("/")), focus) {
        Ok(part) => {
            let text = serde_json::to_string(&part_json(&part)).unwrap();
            println!("{source:?}: {text}");
            Some(part)
        }
        Err(error) => {
            println!("{source:?}: {error}");
            assert!(!error.tried.is_empty());
            None
        }
    }
}

fn part_json(part: &Part) -> serde_json::Value {
    match part {
        Part::Md(part) => serde_json::to_value(part),
        Part::Block(part) => serde_json::to_value(part),
        Part::Psi(part) => serde_json::to_value(part),
        Part::Proc(part) => serde_json::to_value(part),
        Part::Cgroup(part) => serde_json::to_value(part),
        other => panic!("{other:?}"),
    }
    .unwrap()
}

/// Shown with `--nocapture`. Nothing may panic; what is denied says so.
#[test]
fn this_machine() {
    if !Path::new("/proc/self/stat").exists() {
        println!("skipped: no /proc");
        return;
    }
    let mut focus =
        Focus { pids: [std::process::id(), std::os::unix::process::parent_id(), 1].into(), ..Focus::default() };
    let mut processes = proc::GpuProcesses::default();
    let Some(Part::Proc(Processes { processes })) = look(&mut processes, &focus) else {
        panic!("our own processes can always be read");
    };
    assert!(processes.iter().any(|process| process.pid == std::process::id()));
    focus.cgroups = processes.iter().filter_map(|process| process.cgroup.get().cloned()).collect();
    look(&mut cgroup::GpuCgroups, &focus).unwrap();
    look(&mut psi::PressureFiles, &focus);
    look(&mut md::Arrays, &focus).unwrap();
    look(&mut block::Devices::default(), &focus);
}
