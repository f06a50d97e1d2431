//! Fragmentation against a public cluster: Alibaba's OpenB trace, and the curves that FGD's authors published.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gpuprod_rules::fgd::{Free, Shape, Typical, fragmentation, typical};

/// Where the public data lies beside the clone; a clone without it says so and goes on.
fn openb() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/datasets/openb");
    if beside.is_dir() {
        return Some(beside);
    }
    println!("skipped: no public data in {} (see docs/validation.md)", beside.display());
    None
}

fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text
}

/// Rows by column name.
fn rows(text: &str) -> impl Iterator<Item = BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(move |line| names.iter().copied().zip(line.split(',')).collect())
}

fn number(row: &BTreeMap<&str, &str>, name: &str) -> u64 {
    row[name].parse().unwrap()
}

fn cluster(dir: &Path) -> Vec<Free> {
    let text = text(&dir.join("openb_node_list_gpu_node.csv"));
    rows(&text)
        .map(|row| Free {
            cpu_milli: number(&row, "cpu_milli"),
            gpus: vec![1_000; usize::try_from(number(&row, "gpu")).unwrap()],
            model: row["model"].to_owned(),
        })
        .collect()
}

fn tasks(dir: &Path, workload: &str) -> Vec<Typical> {
    let text = text(&dir.join(format!("openb_pod_list_{workload}.csv.gz")));
    let shapes = rows(&text).map(|row| {
        let gpus = number(&row, "num_gpu");
        Shape {
            cpu_milli: number(&row, "cpu_milli"),
            gpu_milli: if gpus > 0 { number(&row, "gpu_milli") } else { 0 },
            gpus,
            models: row["gpu_spec"].split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect(),
        }
    });
    typical(shapes, 950)
}

/// Percent of all GPUs.
fn percent(cluster: &[Free], tasks: &[Typical]) -> f64 {
    let gpus: usize = cluster.iter().map(|free| free.gpus.len()).sum();
    let (sum, weights) = cluster
        .iter()
        .map(|free| fragmentation(free, tasks))
        .fold((0, 0), |(sum, _), (part, weights)| (sum + part, weights));
    100.0 * sum as f64 / weights as f64 / (1_000.0 * gpus as f64)
}

/// Column 0 of the published curves, over all policies and seeds of a workload.
fn published(dir: &Path, workload: &str) -> f64 {
    let text = text(&dir.join("frag_curves.csv.gz"));
    let name = format!("openb_pod_list_{workload}");
    let mut first: Vec<f64> =
        rows(&text).filter(|row| row["workload"] == name).map(|row| row["0"].parse().unwrap()).collect();
    assert_eq!(first.len(), 60, "{workload}");
    first.sort_by(f64::total_cmp);
    f64::midpoint(first[29], first[30])
}

#[test]
fn the_empty_openb_cluster_is_as_fragmented_as_its_authors_found() {
    let Some(dir) = openb() else { return };
    let cluster = cluster(&dir);
    assert_eq!((cluster.len(), cluster.iter().map(|free| free.gpus.len()).sum::<usize>()), (1213, 6212));
    for (workload, types, expected) in [("default", 35, 13.945), ("cpu050", 35, 5.553), ("gpuspec33", 127, 35.487)] {
        let tasks = tasks(&dir, workload);
        let own = percent(&cluster, &tasks);
        let published = published(&dir, workload);
        println!("{workload}: {} typical tasks, {own:.3} % of the GPUs, published {published:.3} %", tasks.len());
        assert_eq!(tasks.len(), types, "{workload}");
        assert!((own - expected).abs() < 0.05, "{workload}: {own} instead of {expected}");
        assert!((own - published).abs() < 0.05, "{workload}: {own}, published {published}");
    }
}
