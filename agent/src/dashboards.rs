//! What is shipped beside the binary, inside of it: the Grafana dashboard, the Prometheus rules, the Alertmanager
//! example.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Name and text of each file.
pub const FILES: &[(&str, &str)] = &[
    ("node.json", include_str!("../../dashboards/node.json")),
    ("rules.yml", include_str!("../../dashboards/rules.yml")),
    ("alertmanager.yml", include_str!("../../dashboards/alertmanager.yml")),
];

/// Writes them into a directory, which is made if it is not there; says what it wrote. Files that are there already
/// are replaced only when `force` is given or nothing would change.
///
/// # Errors
/// When the directory or a file cannot be written, or a file is there with other words in it.
pub fn write(dir: &Path, force: bool) -> Result<String> {
    fs::create_dir_all(dir).with_context(|| format!("make the directory {}", dir.display()))?;
    let changed = |name: &str, text: &str| {
        let path = dir.join(name);
        // A file of more than we ship is none of ours; it need not be read whole.
        let known = gpuprod_collectors::tree::text(&path);
        path.exists() && known.ok().as_deref() != Some(text)
    };
    if !force && let Some((name, _)) = FILES.iter().find(|(name, text)| changed(name, text)) {
        anyhow::bail!(
            "{} is there and differs from what this version ships: --force replaces it",
            dir.join(name).display()
        );
    }
    let mut said = String::new();
    for (name, text) in FILES {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        said.push_str(&format!("{}\n", path.display()));
    }
    Ok(said)
}
