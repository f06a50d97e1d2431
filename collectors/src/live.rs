//! The collectors of storage, pressure and processes on the machine that runs the tests, whoever runs them.

#![expect(clippy::disallowed_methods, reason = "held against the kernel's files, read by other means")]

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
    // The kernel's own words, read by other means.
    let kernel = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let own = processes.iter().find(|process| process.pid == std::process::id()).expect("ourselves");
    assert_eq!(own.ppid.copied(), Some(std::os::unix::process::parent_id()));
    assert_eq!(own.comm.get().map(String::as_str), Some(kernel("/proc/self/comm").trim_end()));
    assert!(
        own.rss.get().is_some_and(|rss| rss.0 > 100_000) && own.threads.copied().is_some_and(|n| n >= 2),
        "{own:?}"
    );
    let groups = kernel("/proc/self/cgroup");
    let group = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    assert!(groups.lines().filter_map(group).any(|path| Some(&path) == own.cgroup.get()), "{groups}: {own:?}");
    focus.cgroups = processes.iter().filter_map(|process| process.cgroup.get().cloned()).collect();
    look(&mut cgroup::GpuCgroups::new(None), &focus).unwrap();
    let pressure = look(&mut psi::PressureFiles, &focus);
    assert_eq!(
        pressure.is_some(),
        !kernel("/proc/pressure/io").is_empty(),
        "where the kernel tells it, and only there"
    );
    let Some(Part::Md(md)) = look(&mut md::Arrays, &focus) else { panic!("no array is an answer too") };
    let arrays = kernel("/proc/mdstat").lines().filter(|line| line.starts_with("md")).count();
    assert_eq!(md.arrays.len(), arrays);
    if let Some(Part::Block(block)) = look(&mut block::Devices::default(), &focus) {
        let stats = kernel("/proc/diskstats");
        let names: Vec<&str> = stats.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).collect();
        assert!(block.devices.iter().all(|device| names.contains(&device.name.as_str())), "{names:?}");
    }
}
