//! What is true of each second, and how much useful work was lost in it.

use gpuprod_sim::{Scenario, Truth, vocabulary};
use gpuprod_snapshot::units::{Nanos, to_f64};

/// Seconds over which a deficit is looked at.
const OVER: usize = 30;
/// Deficits (1 - w) that make a starved unit, and that do not; between them nobody is wrong
/// (the definition is .15; a mean over seconds of real noise comes no closer than this).
const STARVED: f64 = 0.18;
const WELL: f64 = 0.12;
/// The same of throttled ones (the definition is .05: clocks scatter less).
const THROTTLED: f64 = 0.08;
const FREE: f64 = 0.03;
/// From this deficit on trouble can be asked for.
pub(crate) const DETECTABLE: f64 = 0.15;
/// From this deficit on it must be told sooner.
pub(crate) const LARGE: f64 = 0.30;

/// What is expected of each unit, second by second.
pub(crate) struct Expected {
    truths: Vec<Truth>,
    /// Index into `truths` plus one, per unit and second; 0 is none.
    at: Vec<Vec<u16>>,
    /// The last deficits of each unit.
    deficits: Vec<Vec<f64>>,
    /// Since when the mean deficit of a unit has been that of a starved one.
    bad: Vec<Option<u64>>,
}

/// What is right in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Right<'a> {
    pub(crate) state: &'a str,
    pub(crate) cause: Option<&'a str>,
    pub(crate) w: Option<f64>,
    /// Whether the state may be asked for by now.
    pub(crate) due: bool,
}

/// Seconds that a state may take to be recognised: the targets of detection (`docs/validation.md`).
fn grace(state: &str, deficit: f64) -> u64 {
    match state {
        "starved" if deficit >= LARGE => 45,
        "starved" => 90,
        "throttled" => 15,
        "stalled" => 20,
        "faulted" => 2,
        _ => 5,
    }
}

impl Expected {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut truths = scenario.truth();
        for truth in &mut truths {
            truth.cause = truth.cause.take().filter(|reason| vocabulary::compared(&truth.state, reason));
        }
        let seconds = usize::try_from(scenario.length).unwrap_or(0);
        let mut at = vec![vec![0; seconds]; scenario.gpus.count];
        for (index, truth) in truths.iter().enumerate() {
            let (from, to) = (second(truth.from), second(truth.to).min(seconds));
            let index = u16::try_from(index + 1).unwrap_or(0);
            if let Some(row) = at.get_mut(truth.unit).and_then(|row| row.get_mut(from.min(to)..to)) {
                row.fill(index);
            }
        }
        Self { truths, at, deficits: vec![Vec::new(); scenario.gpus.count], bad: vec![None; scenario.gpus.count] }
    }

    /// One second passes: the deficit of a unit, where there is a twin to compare with.
    pub(crate) fn step(&mut self, unit: usize, second: u64, deficit: f64) {
        let (Some(deficits), Some(bad)) = (self.deficits.get_mut(unit), self.bad.get_mut(unit)) else { return };
        if deficits.len() == OVER {
            deficits.remove(0);
        }
        deficits.push(deficit);
        let mean = mean(deficits);
        let truth =
            |row: &Vec<u16>| self.truths.get(usize::from(*row.get(usize::try_from(second).ok()?)?).checked_sub(1)?);
        let throttled = self.at.get(unit).and_then(truth).is_some_and(|truth| truth.state == "throttled");
        let limit = if throttled { THROTTLED } else { STARVED };
        *bad = (mean >= limit).then_some(bad.unwrap_or(second));
    }

    /// What is right for a unit now; nothing where nobody can say.
    pub(crate) fn right(&self, unit: usize, second: u64, twin: bool) -> Option<Right<'_>> {
        let index = *self.at.get(unit)?.get(usize::try_from(second).ok()?)?;
        let truth = self.truths.get(usize::from(index).checked_sub(1)?)?;
        let mean = self.deficits.get(unit).map_or(0.0, |deficits| mean(deficits));
        let (mut state, mut cause, mut since) =
            (truth.state.as_str(), truth.cause.as_deref(), truth.from.0 / 1_000_000_000);
        if twin && (state == "starved" || state == "throttled") {
            match self.bad.get(unit).copied().flatten() {
                Some(bad) => since = since.max(bad),
                None if mean <= if state == "throttled" { FREE } else { WELL } => (state, cause) = ("productive", None),
                None => return None,
            }
        }
        let due = second >= since + grace(state, if twin { mean } else { 1.0 });
        Some(Right { state, cause, w: truth.w, due })
    }
}

fn second(at: Nanos) -> usize {
    usize::try_from(at.0 / 1_000_000_000).unwrap_or(usize::MAX)
}

/// The mean; of nothing it is nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / to_f64(u64::try_from(values.len()).unwrap_or(1))
}
