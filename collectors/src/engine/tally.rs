//! Many series of one name become one number.

use std::collections::BTreeMap;

use gpuprod_snapshot::Missing;

use super::exposition::Sample;

/// Labels that tell the ranks of one model replica apart. All ranks report the same requests, so the largest
/// counts and they are never added; replicas (`engine`, `dp_rank`) are.
const RANKS: &[&str] = &["tp_rank", "pp_rank", "moe_ep_rank"];

/// Adds up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    seen: bool,
    not_finite: bool,
    negative: bool,
    sum: f64,
    max: f64,
    /// By the other labels: the largest over the ranks.
    replicas: BTreeMap<String, f64>,
    /// Series with a priority. Where there is one without (`priority=""`), that is their total.
    by_priority: Option<Box<Self>>,
}

impl Tally {
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        let (mut ranked, mut prioritised) = (false, false);
        sample.labels.each(|name, value| {
            ranked |= RANKS.contains(&name);
            prioritised |= name == "priority" && !value.is_empty();
        });
        if prioritised {
            self.by_priority.get_or_insert_default().put(sample, ranked);
        } else {
            self.put(sample, ranked);
        }
    }

    fn put(&mut self, sample: &Sample<'_>, ranked: bool) {
        let value = sample.value;
        if !value.is_finite() {
            self.not_finite = true;
            return;
        }
        // -1 is how engines write "not available".
        if value < 0.0 {
            self.negative = true;
            return;
        }
        self.seen = true;
        if ranked {
            let mut key = String::new();
            sample.labels.each(|name, value| {
                if !RANKS.contains(&name) {
                    key.extend([name, "=", value, ","]);
                }
            });
            let largest = self.replicas.entry(key).or_insert(0.0);
            *largest = largest.max(value);
        } else {
            self.sum += value;
            self.max = self.max.max(value);
        }
    }

    fn chosen(&self) -> &Self {
        match &self.by_priority {
            Some(parts) if !self.seen && !self.not_finite => parts,
            _ => self,
        }
    }

    /// Whether the page had a series, good or not.
    pub(super) fn met(&self) -> bool {
        let chosen = self.chosen();
        chosen.seen || chosen.not_finite || chosen.negative
    }

    /// The sum, or why there is none.
    pub(super) fn sum(&self) -> Result<f64, Missing> {
        let chosen = self.chosen();
        let replicas: f64 = chosen.replicas.values().sum();
        chosen.sound(chosen.sum + replicas)
    }

    /// The largest, or why there is none.
    pub(super) fn max(&self) -> Result<f64, Missing> {
        let chosen = self.chosen();
        let replicas = chosen.replicas.values().copied();
        chosen.sound(replicas.fold(chosen.max, f64::max))
    }

    fn sound(&self, value: f64) -> Result<f64, Missing> {
        match self {
            // One engine of two that cannot tell makes the sum a lie.
            Self { not_finite: true, .. } => Err(Missing::Malformed),
            Self { seen: true, .. } => Ok(value),
            _ => Err(Missing::Unsupported),
        }
    }
}
