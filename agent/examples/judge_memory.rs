//! How much memory judge and ledger keep per GPU: `cargo run --release --example judge_memory`.
//! Counts what they hold after an hour of serving with a rebuild in it, for nodes of 1, 8, 16 and 64 GPUs with one engine,
//! and for one of 8 with an engine of its own under real traffic on each GPU. Fails when a GPU of a node of 8 or more
//! costs more than 64 KiB, whatever the layout (the node's own share, its disks and ports, is in the figure of eight), or
//! when memory grows faster than the number of GPUs. Sizes, not times: the same on every machine.

#![allow(clippy::print_stdout, reason = "a measurement for people, never shipped")]

use std::fmt::Write;
use std::process::ExitCode;

use gpuprod::pipeline::Pipeline;
use gpuprod_rules::Policy;
use gpuprod_sim::Scenario;
use peak_alloc::PeakAlloc;

/// Bytes per GPU.
const BAR: usize = 64 << 10;
/// Ticks of an hour.
const HOUR: usize = 3600;

#[global_allocator]
static HELD: PeakAlloc = PeakAlloc;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut sizes = Vec::new();
    for gpus in [1_usize, 8, 16, 64] {
        let all = held(gpus, &one(gpus))?;
        println!("{gpus} GPUs: {all} bytes, {} a GPU", all / gpus);
        sizes.push((gpus, all));
    }
    let each_of_8 = held(8, &each(8)?)?;
    println!("8 GPUs, an engine on each: {each_of_8} bytes, {} a GPU", each_of_8 / 8);
    let size = |gpus| sizes.iter().find(|(known, _)| *known == gpus).map_or(0, |(_, all)| *all);
    let (few, many) = (size(16).saturating_sub(size(8)) / 8, size(64).saturating_sub(size(16)) / 48);
    println!("each further GPU: {few} bytes from 8 to 16, {many} from 16 to 64 (bar {BAR})");
    let mut layouts = sizes.iter().copied().filter(|(gpus, _)| *gpus >= 8).chain([(8, each_of_8)]);
    let within = layouts.all(|(gpus, all)| all / gpus <= BAR);
    // A square would quadruple the step; a tenth is for capacities that double.
    let linear = few > 0 && many <= few + few / 10;
    println!("{}; {}", if within { "met" } else { "MISSED" }, if linear { "linear" } else { "NOT LINEAR" });
    Ok(if within && linear { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One engine over all GPUs.
fn one(gpus: usize) -> String {
    let last = gpus - 1;
    format!(
        "engine e0 gpus 0-{last} rate 2400tok/s running 32 waiting 4 util 84% power 480W\n{ARRAY}reads e0 md0 900MB/s\n"
    )
}

/// One engine on each GPU, with the batches that real requests make.
fn each(gpus: usize) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for gpu in 0..gpus {
        let from = gpu * 2;
        writeln!(
            text,
            "engine e{gpu} gpus {gpu} traffic azure_conv from {from}m scale 0.5 power 480W port {}",
            8000 + gpu
        )?;
    }
    text.push_str(ARRAY);
    for gpu in 0..gpus {
        writeln!(text, "reads e{gpu} md0 100MB/s")?;
    }
    Ok(text)
}

const ARRAY: &str = "array md0 raid5 members nvme0n1 nvme1n1 nvme2n1 spare nvme3n1 mount /models\n";

/// Bytes of everything that is kept, the samples that it compares included.
fn held(gpus: usize, who: &str) -> Result<usize, Box<dyn std::error::Error>> {
    let text = format!(
        "scenario memory\nabout an hour of serving with a rebuild\nseed 7\nlength 60m\n\
         gpu {gpus} model \"NVIDIA H100 80GB HBM3\" limit 700W\n{who}\
         at 40m rebuild md0 speed 180MB/s done 12% slows e0 to 0.5\n"
    );
    let scenario = Scenario::parse(&text)?;
    let before = HELD.current_usage();
    let mut pipeline = Pipeline::new(Policy::default());
    let mut ticks = 0;
    let mut found = false;
    let mut simulated = scenario.ticks();
    for tick in simulated.by_ref().take(HOUR) {
        found |= !pipeline.feed(&tick).judgement.findings.is_empty();
        ticks += 1;
    }
    drop(simulated);
    if ticks != HOUR || !found {
        return Err(format!("{ticks} ticks, findings: {found}: this is not the hour that was meant").into());
    }
    Ok(HELD.current_usage().saturating_sub(before))
}
