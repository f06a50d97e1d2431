//! What the agent knows of itself and shows with every frame: its configuration's fate, and a lease of the GPUs.

use gpuprod_snapshot::units::Nanos;
use serde::{Deserialize, Serialize};

/// With every frame of an agent; all empty in a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Own {
    /// What came of the configuration.
    pub config: ConfigState,
    /// While the driver's handles are let go of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

/// What came of the configuration since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigState {
    /// When the one in force was read (CLOCK_REALTIME); 0 where there is no agent.
    #[serde(rename = "taken_realtime_ns")]
    pub taken: Nanos,
    /// Files that were taken over without a restart.
    pub reloads: u64,
    /// Files that were refused: the one before stays in force.
    pub failures: u64,
    /// The last file was refused.
    pub refused: bool,
    /// Keys that the last file changes and that only a restart takes over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_for: Vec<String>,
}

/// A time for which the agent keeps its hands off the driver (`gpuprod release-gpu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Asked for at (CLOCK_BOOTTIME).
    #[serde(rename = "since_ns")]
    pub since: Nanos,
    /// Ends by itself at (CLOCK_BOOTTIME).
    #[serde(rename = "until_ns")]
    pub until: Nanos,
}
