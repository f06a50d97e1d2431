//! The dashboard as Grafana's own typed models read it: nobody here has a Grafana, which no Debian ships.

use std::path::Path;
use std::process::Command;

use super::Scratch;

/// The folders with Grafana's models, one for each version.
fn models() -> Vec<String> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tools/grafana-python");
    let output = Command::new(tool).output().unwrap();
    assert!(output.status.success(), "tests/tools/grafana-python");
    let root = String::from_utf8(output.stdout).unwrap();
    ["10.1.0", "11.6.0"].map(|version| format!("{}/{version}", root.trim())).to_vec()
}

/// What they say of a dashboard, and whether they know all of it.
fn read(models: &str, dashboard: &Path) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/e2e/grafana.py");
    let output = Command::new("python3").arg(script).arg(dashboard).env("PYTHONPATH", models).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    (output.status.success(), said)
}

#[test]
#[ignore = "needs Grafana's Python models (tests/tools/grafana-python)"]
fn grafanas_own_models_know_all_of_the_dashboard() {
    let scratch = Scratch::new("grafana");
    let written = scratch.0.join("out");
    let command = Command::new(env!("CARGO_BIN_EXE_gpuprod")).args(["dashboards"]).arg(&written).output().unwrap();
    assert!(command.status.success());
    let shipped = written.join("node.json");
    let text = std::fs::read_to_string(&shipped).unwrap();
    // Each is a fault that a person makes, and what must be said of it.
    let faults = [
        ("\"legend\"", "\"legende\"", "/options/legende: no such key"),
        ("\"expr\"", "\"expression\"", "/expression: no such key"),
        ("\"type\": \"timeseries\"", "\"type\": \"timeserie\"", "'timeserie' is no panel of Grafana's"),
        ("\"mode\": \"multi\"", "\"mode\": \"many\"", "'many' is no <enum"),
        ("\"w\": 24", "\"w\": \"24\"", "'24' is no <class 'int'>"),
    ];
    let models = models();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let queries: usize = panels.iter().filter_map(|panel| Some(panel["targets"].as_array()?.len())).sum();
    let counted = format!("{} panels, {queries} queries", panels.len());
    for models in &models {
        let (fine, said) = read(models, &shipped);
        assert!(fine && queries > 20 && said.contains(&counted), "{models}: {said}");
    }
    for (right, wrong, told) in faults {
        assert!(text.contains(right), "{right} is not in the dashboard");
        let broken = scratch.0.join("broken.json");
        std::fs::write(&broken, text.replacen(right, wrong, 1)).unwrap();
        let (fine, said) = read(&models[1], &broken);
        assert!(!fine && said.contains(told), "{wrong}: {said}");
    }
}
