//! What is wrong with a GPU as a device: `at TIME ail gpu LIST WHAT`, and how it shows.

use gpuprod_snapshot::gpu::{Gpu, GpuEcc};
use gpuprod_snapshot::units::{Milliwatts, Permille};

use crate::scenario::{Scenario, What};
use crate::words::{ParseError, Unit, Words, whole};

/// What is wrong with a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ail {
    /// So many uncorrected memory errors happened.
    Uncorrected(u64),
    /// A row remap waits for a reset.
    RemapPending,
    /// A row remap failed.
    RemapFailed,
    /// The power limit in force, watts.
    Limit(f64),
    /// All that the driver says of it stands still.
    Frozen,
    /// Utilization reads zero, whatever it does.
    DeadUtilization,
    /// Utilization reads full while nobody is on it.
    Ghost,
    /// The driver asks for this recovery action (NVML field 230).
    Asks(u32),
}

/// What a driver asks for, and its number (NVML field 230).
const ASKS: &[(&str, u32)] = &[
    ("wants_reset", 1),
    ("wants_reboot", 2),
    ("wants_p2p_drain", 3),
    ("wants_drain_and_reset", 4),
    ("wants_imex_recovery", 5),
];

pub(crate) fn ail(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    words.need("gpu")?;
    let word = words.peek().unwrap_or_default().to_owned();
    let gpus = words.gpus(s.gpus.count)?;
    let ail = match words.take("what is wrong")?.as_str() {
        "uncorrected" => Ail::Uncorrected(whole(words.number("the number of errors", Unit::Count)?)),
        "limit" => Ail::Limit(words.number("the limit", Unit::Watts)?),
        "frozen" => Ail::Frozen,
        "dead_utilization" => Ail::DeadUtilization,
        "ghost_utilization" => Ail::Ghost,
        "remap_pending" => Ail::RemapPending,
        "remap_failed" => Ail::RemapFailed,
        name => match ASKS.iter().find(|(known, _)| *known == name) {
            Some((_, action)) => Ail::Asks(*action),
            None => {
                let asks: Vec<&str> = ASKS.iter().map(|row| row.0).collect();
                return Err(words.error(format!(
                    "`{name}`: there are frozen, dead_utilization, ghost_utilization, limit 400W, uncorrected N, remap_pending, remap_failed, {}",
                    asks.join(", ")
                )));
            }
        },
    };
    Ok((format!("gpu {word}"), What::Ail { gpus, ail }))
}

impl Scenario {
    /// What is wrong with a GPU at a second. Errors that were counted stay counted.
    pub(crate) fn ails(&self, gpu: usize, second: u64) -> Vec<Ail> {
        let events = self.events.iter().filter(|event| event.at <= second);
        let ails = events.filter_map(|event| match &event.what {
            What::Ail { gpus, ail } if gpus.contains(&gpu) => {
                (event.on(second) || matches!(ail, Ail::Uncorrected(_))).then_some(*ail)
            }
            _ => None,
        });
        ails.collect()
    }
}

/// How it shows in what NVML says.
pub(crate) fn show(gpu: &mut Gpu, ails: &[Ail]) {
    gpu.ecc = ecc(ails);
    for ail in ails {
        match ail {
            Ail::Limit(watts) => {
                let limit = Milliwatts(whole(watts * 1e3));
                gpu.power_limit = limit.into();
                gpu.power = gpu.power.copied().map_or(gpu.power, |power| power.min(limit).into());
            }
            Ail::DeadUtilization => (gpu.util, gpu.util_mem) = (Permille(0).into(), Permille(0).into()),
            // Public cases: about 100 W, latched for days after a process died in a kernel.
            Ail::Ghost => (gpu.util, gpu.power) = (Permille(1000).into(), Milliwatts(100_000).into()),
            _ => {}
        }
    }
}

fn ecc(ails: &[Ail]) -> GpuEcc {
    let errors = ails.iter().map(|ail| if let Ail::Uncorrected(errors) = ail { *errors } else { 0 });
    let asks = ails.iter().find_map(|ail| if let Ail::Asks(action) = ail { Some(*action) } else { None });
    GpuEcc {
        corrected: 0.into(),
        uncorrected: errors.sum::<u64>().into(),
        remap_pending: ails.contains(&Ail::RemapPending).into(),
        remap_failed: ails.contains(&Ail::RemapFailed).into(),
        recovery_action: asks.unwrap_or(0).into(),
    }
}
