//! The words that a scenario may expect, blame or want silent. They are the verdict's; the generator may not know the rules,
//! so this is a list of its own: a new word of `rules/src/words.rs` is added here too.

/// Every state, and the reasons that it may have.
pub const STATES: &[(&str, &[&str])] = &[
    ("faulted", &["xid", "ecc", "lost", "remap", "reset"]),
    (
        "unknown",
        &["agent_down", "host_down", "missed", "suspended", "hung", "nvml_error", "released", "stale", "unsupported"],
    ),
    ("unallocated", &[]),
    ("loading", &["weights", "warmup", "compile", "restore", "sleep_wake"]),
    ("stalled", &[]),
    ("squatted", &[]),
    ("throttled", &[]),
    ("starved", CAUSES),
    ("productive", &["train", "prefill", "decode", "checkpoint", "eval", "other"]),
    ("headroom", &[]),
    ("idle", &[]),
];

/// Whether a reason is compared when a state is. What a productive GPU works at and what a loading one loads is told apart by
/// words that need the workload's own counters, and no account depends on them but these.
#[must_use]
pub fn compared(state: &str, reason: &str) -> bool {
    !matches!(state, "productive" | "loading") || matches!(reason, "checkpoint" | "eval")
}

/// What takes a GPU's time.
pub const CAUSES: &[&str] = &[
    "fault",
    "throttle",
    "squat",
    "stall",
    "storage",
    "background_io",
    "host_mem",
    "host_cpu",
    "pcie_numa",
    "network",
    "kv",
    "peer",
    "upstream",
    "unexplained",
];

/// Every rule, and the variants that it tells apart.
pub const RULES: &[(&str, &[&str])] = &[
    ("gpu_fault", &["xid", "ecc", "lost", "remap", "reset", "peer", "remap_pending", "recovery_action"]),
    (
        "telemetry_degraded",
        &[
            "probe_hung",
            "driver_errors",
            "frozen",
            "dead_utilization",
            "ghost_utilization",
            "page_dead",
            "provenance_conflict",
            "coverage",
        ],
    ),
    ("squatter", &["crashed_holder", "orphan", "hung_spin", "seed_signature", "idle_reserve", "peer_wait"]),
    ("silent_throttling", &["thermal", "power_brake", "hw_slowdown", "power_cap"]),
    ("raid_rebuild_impact", &["recover", "resync", "check", "repair", "reshape"]),
    ("io_stall", &["late", "background", "stuck", "server_late", "server_stuck", "cache_thrash", "metadata"]),
    ("cpu_starved_loader", &["cfs_quota", "steal", "irq", "contended", "decode"]),
    ("memory_leak", &["host", "gpu", "oom_kill", "pressure"]),
    ("cross_socket_feeding", &[]),
    ("shared_uplink_contention", &[]),
    ("pcie_link_degraded", &["narrow", "slow", "replays"]),
    ("fabric_congestion", &["fabric_fault"]),
    ("kv_saturation", &[]),
    ("queue_instability", &["linear", "accelerating", "mrqi"]),
    ("preemption_thrash", &["recompute", "swap"]),
    ("engine_stall", &["page_timeout", "kv_full", "no_admission", "page_frozen", "running_frozen"]),
    ("loading_slow", &["cold_start_storm"]),
    ("straggler_local", &["throttled", "starved", "slow"]),
    ("noisy_neighbour", &["storage", "gpu", "class_mismatch"]),
    ("latency_class_violation", &["slo", "own_normal"]),
    ("headroom_breach", &["over_reserved", "queue_share", "burst"]),
    ("throughput_regression", &[]),
    (
        "stranded_capacity",
        &["gpu", "hbm", "pcie", "storage_bandwidth", "storage_iops", "io_cpu", "cpu", "host_memory", "network"],
    ),
    ("node_fit", &[]),
    ("allocated_without_process", &[]),
    ("busy_but_starved", &[]),
];

/// Words about a finding as a whole.
const WHOLE: &[&str] = &["critical", "all"];

/// Why a word names nothing that a finding could say, and what would be right.
pub(crate) fn unknown(word: &str) -> Option<String> {
    let rules = RULES.iter().map(|(rule, _)| *rule);
    let variants = RULES.iter().flat_map(|(_, variants)| variants.iter().copied());
    let mut all = CAUSES.iter().copied().chain(rules.clone()).chain(variants).chain(WHOLE.iter().copied());
    if all.any(|known| known == word) {
        return None;
    }
    Some(format!(
        "`{word}` is no cause, rule or variant; causes: {}; rules: {}; variants stand in docs/scenarios.md",
        CAUSES.join(", "),
        rules.collect::<Vec<_>>().join(", ")
    ))
}

/// Why a state or its reason is none, and what would be right.
pub(crate) fn no_state(state: &str, reason: Option<&str>) -> Option<String> {
    let Some((_, reasons)) = STATES.iter().find(|(known, _)| *known == state) else {
        let states: Vec<&str> = STATES.iter().map(|(state, _)| *state).collect();
        return Some(format!("`{state}` is no state; there are {}", states.join(", ")));
    };
    let reason = reason?;
    match reasons {
        [] => Some(format!("`{reason}`: `{state}` has no cause (next comes `w SHARE` or `every TIME`)")),
        reasons if reasons.contains(&reason) => None,
        reasons => Some(format!("`{reason}` is nothing that `{state}` has; there are {}", reasons.join(", "))),
    }
}
