//! The section of tenants.

use std::path::PathBuf;

use gpuprod_rules::{ClassRule, TenantBy};
use serde::{Deserialize, Serialize};

/// Whose the GPUs are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenants {
    /// What counts as a tenant.
    pub by: TenantBy,
    /// Where the site's scheduler leaves its notes about jobs.
    pub notes: Option<PathBuf>,
    /// Whether names of tenants go onto series.
    pub exported: bool,
}

impl Default for Tenants {
    fn default() -> Self {
        Self { by: TenantBy::Auto, notes: None, exported: true }
    }
}

/// What is wrong with the table of classes.
pub(super) fn classes(classes: &[ClassRule]) -> Result<(), String> {
    match classes.iter().position(|rule| !rule.names()) {
        Some(place) => Err(format!("line {}: name at least one of cgroup, account, partition, namespace", place + 1)),
        None => Ok(()),
    }
}
