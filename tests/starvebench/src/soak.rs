//! Long healthy days of eight GPUs: whatever is said in them is false.

use std::path::Path;

use gpuprod_sim::Recorded;

use crate::alerts::{Alerts, Beginnings, add};
use crate::options::Options;
use crate::play;
use crate::pool;
use crate::variant::{Group, Variant, list, read};

/// What was said in how much time.
#[derive(Default)]
pub(crate) struct Soak {
    pub(crate) weeks: f64,
    /// Critical findings.
    pub(crate) pages: u64,
    /// Findings that warn.
    pub(crate) lesser: u64,
    pub(crate) informed: Beginnings,
    pub(crate) said: Vec<String>,
}

/// Plays days of the soak's templates in turn until there are so many GPU-weeks.
pub(crate) fn run(options: &Options, recorded: &Recorded) -> Result<Soak, String> {
    let templates = list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("soak"))?;
    let days: Vec<Variant> = templates
        .iter()
        .map(|path| {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            Ok(Variant {
                name,
                group: Group::Healthy,
                text: read(path)?,
                missing: false,
                recorded: Some(recorded.clone()),
            })
        })
        .collect::<Result<_, String>>()?;
    if days.is_empty() {
        return Err("tests/starvebench/soak holds no templates".into());
    }
    // A day of eight GPUs is eight sevenths of a GPU-week.
    let day = |week: u64| (week * 7).div_ceil(8);
    let jobs: Vec<u64> = (day(options.first_week)..day(options.first_week + options.weeks)).collect();
    let policy = play::policy(&[])?;
    let parts = pool::map(&jobs, |seed| {
        let at = usize::try_from(*seed).unwrap_or(0) % days.len();
        let Some(day) = days.get(at) else { return Err("no such day".into()) };
        // Only what is said is kept of a day.
        play::play(day, Some(10_000 + seed), &policy)
            .map(|play| (day.name.clone(), *seed, play.gpu_seconds, play.alerts))
    })?;
    let mut soak = Soak::default();
    for (name, seed, gpu_seconds, Alerts(alerts, _, informed)) in parts {
        soak.weeks += play::weeks(gpu_seconds);
        add(&mut soak.informed, &informed.of);
        for alert in alerts {
            if alert.critical {
                soak.pages += 1
            } else {
                soak.lesser += 1
            }
            soak.said.push(format!(
                "{name} seed {}: {} {} {}..{} s: {}",
                10_000 + seed,
                alert.rule,
                alert.subject,
                alert.from,
                alert.to,
                alert.summary
            ));
        }
    }
    Ok(soak)
}
