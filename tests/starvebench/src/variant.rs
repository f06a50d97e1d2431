//! The variants: one template file each, and those that are still missing.

use std::path::{Path, PathBuf};

use gpuprod_sim::{Recorded, Scenario};

use crate::options::Options;

/// What a variant is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Nothing is wrong: whatever is said is false.
    Healthy,
    /// One trouble.
    Fault,
    /// Trouble beside something that looks like it.
    Confounder,
    /// The agent's own view is bad.
    Telemetry,
    /// The scenarios of the tests, as they are.
    Scenario,
    /// Files of the command line.
    File,
}

impl Group {
    pub(crate) const ALL: [Self; 6] =
        [Self::Healthy, Self::Fault, Self::Confounder, Self::Telemetry, Self::Scenario, Self::File];

    /// Its label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Fault => "fault",
            Self::Confounder => "confounder",
            Self::Telemetry => "telemetry",
            Self::Scenario => "scenario",
            Self::File => "file",
        }
    }
}

/// A template, or a name that no template has yet.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) group: Group,
    pub(crate) text: String,
    pub(crate) missing: bool,
    pub(crate) recorded: Option<Recorded>,
}

/// One run: a variant and a seed; none for the file's own.
pub(crate) struct Job {
    pub(crate) variant: usize,
    pub(crate) seed: Option<u64>,
}

/// Every variant that there is to be, by group and name: `facts` of the project's order.
const NAMES: &[&str] = &[
    "H1_train_steady",
    "H2_train_checkpoint",
    "H3_train_eval",
    "H4_serve_idle_night",
    "H5_serve_busy",
    "H6_serve_headroom",
    "H7_decode_batch1",
    "H8_prefill_full_kv",
    "H9_model_load",
    "H10_compile_warmup",
    "H11_raid_check_no_victim",
    "H12_power_cap_normal",
    "H13_idle_pcie_gen1",
    "H14_notebook_pauses",
    "H15_diurnal_ramp",
    "H16_sleep_mode",
    "H17_batch_size_change",
    "H18_long_prefill",
    "H19_rank0_checkpoint",
    "H20_fake_engine_page",
    "H21_train_steps",
    "H22_promise_kept",
    "H23_batch1_by_power",
    "F1_raid_rebuild_serving",
    "F2_raid_rebuild_train",
    "F3_disk_neighbour",
    "F4_nvme_fail_slow",
    "F5_small_file_metadata",
    "F6_cache_thrash",
    "F7_cpu_quota_loader",
    "F8_cpu_steal",
    "F9_cross_socket",
    "F10_shared_uplink",
    "F11_pcie_downtrain",
    "F12_hung_nccl_spin",
    "F13_hung_dead_dstate",
    "F14_crashed_zombie",
    "F15_orphan_after_job",
    "F16_seed_signature",
    "F17_idle_reserve",
    "F18_thermal_throttle",
    "F19_hw_power_brake",
    "F20_admin_power_cap",
    "F21_kv_saturation_linear",
    "F22_retry_exponential",
    "F23_preempt_thrash_v1",
    "F24_swap_thrash_v0",
    "F25_engine_stall_running0",
    "F26_engine_frozen",
    "F27_scrape_dead_gpu_busy",
    "F28_noisy_batch",
    "F29_morning_ramp",
    "F30_cold_start_storm",
    "F31_rss_leak_oom",
    "F32_fabric_cnp_storm",
    "F33_link_flap",
    "F34_one_rank_starved",
    "F35_xid79_lost",
    "F36_quant_fallback",
    "F37_stranded",
    "F38_shared_fs_fails",
    "F39_allocated_no_process",
    "F40_steps_slower",
    "F41_straggler_throttled",
    "F42_promise_broken",
    "F43_long_contexts",
    "F44_traffic_rebuild",
    "F45_rebuild_by_power",
    "F46_thermal_by_power",
    "C1_rebuild_and_thermal",
    "C2_load_spike_and_rebuild",
    "C3_storage_after_slowdown",
    "C4_two_tenants",
    "C5_rebuild_elsewhere",
    "C6_remote_peer",
    "C7_reserve_holds_all",
    "C8_person_holds_all",
    "C9_both_slow",
    "C10_late_disks_elsewhere",
    "C11_ahead_and_both_slow",
    "T1_gpm_missing",
    "T2_nvml_errors",
    "T3_agent_restart",
    "T4_clock_step",
    "T5_suspend",
    "T6_samples_dropped",
    "T7_counter_reset",
];

/// Templates, the tests' scenarios, and the files of the command line.
pub(crate) fn load(options: &Options, recorded: &Recorded) -> Result<Vec<Variant>, String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<(Group, PathBuf)> = Vec::new();
    files.extend(list(&home.join("variants"))?.into_iter().map(|path| (Group::Fault, path)));
    files.extend(list(&home.join("../scenarios"))?.into_iter().map(|path| (Group::Scenario, path)));
    files.extend(options.files.iter().map(|path| (Group::File, path.clone())));
    let mut variants = Vec::new();
    for (kind, path) in files {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let group = if kind == Group::Fault { group(&name) } else { kind };
        let wanted = group == Group::File || options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
        if !wanted {
            continue;
        }
        let text = read(&path)?;
        // Errors come before the first run.
        Scenario::parse_seeded(&text, None).map_err(|error| format!("{}: {error}", path.display()))?;
        // Whoever writes a scenario chooses its noise; that of a template is real.
        let drawn = kind == Group::Fault;
        variants.push(Variant { name, group, text, missing: false, recorded: drawn.then(|| recorded.clone()) });
    }
    for name in NAMES.iter().filter(|name| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))) {
        if variants.iter().all(|variant| variant.name != *name) {
            let (name, text) = ((*name).to_owned(), String::new());
            variants.push(Variant { group: group(&name), name, text, missing: true, recorded: None });
        }
    }
    variants.sort_by_key(|variant| (variant.group, number(&variant.name), variant.name.clone()));
    Ok(variants)
}

fn group(name: &str) -> Group {
    match name.chars().next() {
        Some('H') => Group::Healthy,
        Some('C') => Group::Confounder,
        Some('T') => Group::Telemetry,
        _ => Group::Fault,
    }
}

/// `F9_cross_socket` stands before `F10_shared_uplink`.
fn number(name: &str) -> u64 {
    let digits: String = name.chars().skip(1).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Every run of the half that is scored: templates by seed, everything else as it is.
pub(crate) fn jobs(variants: &[Variant], options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (variant, it) in variants.iter().enumerate().filter(|(_, it)| !it.missing) {
        match it.group {
            Group::Scenario | Group::File => jobs.push(Job { variant, seed: None }),
            _ => jobs.extend(options.scored().map(|seed| Job { variant, seed: Some(seed) })),
        }
    }
    jobs
}

impl Variant {
    /// The scenario of a seed.
    pub(crate) fn scenario(&self, seed: Option<u64>) -> Result<Scenario, String> {
        let scenario = Scenario::parse_seeded(&self.text, seed).map_err(|error| format!("{}: {error}", self.name))?;
        Ok(Scenario { recorded: self.recorded.clone(), ..scenario })
    }
}

#[expect(clippy::disallowed_methods, reason = "the bench's own files")]
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "scn"));
    paths.sort_unstable();
    Ok(paths)
}

#[expect(clippy::disallowed_methods, reason = "the bench's own files")]
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::parse(std::iter::empty()).unwrap()
    }

    /// What is meant and what is found must not share code.
    #[test]
    fn the_generator_does_not_know_the_rules() {
        let tree = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--offline", "-p", "gpuprod-sim", "-e", "normal,build", "--prefix", "none"])
            .output()
            .unwrap();
        let tree = String::from_utf8(tree.stdout).unwrap();
        assert!(tree.contains("gpuprod-snapshot"), "{tree}");
        assert!(!tree.contains("gpuprod-rules"), "{tree}");
    }

    /// Every template is on the list and can be drawn; what is on the list without one is said to be missing.
    #[test]
    fn every_template_can_be_drawn() {
        let variants = load(&options(), &Recorded::default()).unwrap();
        for variant in variants.iter().filter(|variant| variant.recorded.is_some()) {
            assert!(NAMES.contains(&variant.name.as_str()), "{} is not on the list", variant.name);
            for seed in 0..40 {
                let scenario = variant.scenario(Some(seed)).unwrap();
                assert_eq!(scenario.name, variant.name);
                let end = gpuprod_snapshot::units::Nanos::from_secs(scenario.length);
                assert!(
                    scenario.blames.iter().all(|blame| blame.to <= end),
                    "{} seed {seed}: blame ends late",
                    variant.name
                );
                assert!(scenario.gpus.count > 0 && !scenario.works.is_empty(), "{}", variant.name);
            }
        }
        // Doubles lie side by side only when sorted.
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
    }
}
