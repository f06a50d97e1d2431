//! What each gate is worth: the same runs without it.

use crate::boot::{Figure, mean_ratio};
use crate::options::Options;
use crate::play::{self, Play};
use crate::pool;
use crate::score::{precisions, recalls};
use crate::variant::{Group, Job, Variant};

/// Gates that the policy can do without.
const GATES: &[&str] = &["order", "counterfactual", "link", "liveness", "class"];

/// Precision and recall without a gate, over the same runs.
pub(crate) struct Ablation {
    pub(crate) name: String,
    pub(crate) precision: Option<Figure>,
    pub(crate) recall: Option<Figure>,
    /// Why there are no figures.
    pub(crate) why: Option<String>,
}

/// Every gate, over one seed of each template and all of the confounders, and all gates over the same runs.
pub(crate) fn all(
    variants: &[Variant],
    jobs: &[Job],
    plays: &[Play],
    options: &Options,
) -> Result<Vec<Ablation>, String> {
    let first = options.scored().next();
    let confounds = |job: &Job| variants.get(job.variant).is_some_and(|variant| variant.group == Group::Confounder);
    let few: Vec<(&Job, &Play)> = jobs
        .iter()
        .zip(plays)
        .filter(|(job, _)| {
            job.seed.is_some()
                && (job.seed == first || confounds(job) || options.seeds > 20 && job.seed.is_some_and(|seed| seed < 20))
        })
        .collect();
    let whole: Vec<(&Variant, &Play)> =
        few.iter().filter_map(|(job, play)| Some((variants.get(job.variant)?, *play))).collect();
    let mut ablations = vec![of("all gates", &whole)];
    for gate in GATES {
        let policy = match play::policy(&[gate]) {
            Ok(policy) => policy,
            Err(why) => {
                ablations.push(Ablation {
                    name: format!("without {gate}"),
                    precision: None,
                    recall: None,
                    why: Some(why),
                });
                continue;
            }
        };
        let played = pool::map(&few, |(job, _)| match variants.get(job.variant) {
            Some(variant) => play::play(variant, job.seed, &policy),
            None => Err("no such variant".into()),
        })?;
        let ran: Vec<(&Variant, &Play)> = whole.iter().map(|(variant, _)| *variant).zip(&played).collect();
        ablations.push(of(&format!("without {gate}"), &ran));
    }
    Ok(ablations)
}

fn of(name: &str, ran: &[(&Variant, &Play)]) -> Ablation {
    Ablation {
        name: name.to_owned(),
        precision: mean_ratio(&precisions(ran)),
        recall: mean_ratio(&recalls(ran)),
        why: None,
    }
}
