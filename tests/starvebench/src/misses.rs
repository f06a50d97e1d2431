//! What went wrong in a run, in words that lead to the run.

use crate::alerts::Verdict;
use crate::pages::renamed;
use crate::play::Play;
use crate::score::{base, late, visible};
use crate::variant::Variant;

/// Whatever went wrong in a run, a line each.
pub(crate) fn of(variant: &Variant, play: &Play) -> Vec<String> {
    let seed = play.seed.map_or_else(String::new, |seed| format!(" seed {seed}"));
    let drawn: Vec<String> = play.drawn.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let head = format!("{}{seed}", variant.name);
    let mut lines = Vec::new();
    for asked in play.asked.iter().filter(|asked| !asked.found && visible(asked)) {
        let object = asked.object.as_deref().unwrap_or("");
        let effect = asked.effect.map_or_else(String::new, |effect| format!(", effect {effect:.2}"));
        let instead = asked.instead.as_deref().unwrap_or("nothing");
        lines.push(format!(
            "{head}: MISSED {} {object} from {} s{effect}; said instead: {instead} [{}]",
            asked.word,
            asked.from,
            drawn.join(" ")
        ));
    }
    for asked in &play.asked {
        let (object, effect) = (asked.object.as_deref().unwrap_or(""), asked.effect.unwrap_or(1.0));
        for (kind, seconds, target) in late(asked) {
            lines.push(format!(
                "{head}: LATE {} {object} from {} s, effect {effect:.2}: {seconds} s, {kind} is due within {target} s [{}]",
                asked.word,
                asked.from,
                drawn.join(" ")
            ));
        }
    }
    for alert in play.alerts.0.iter().filter(|alert| matches!(alert.verdict, Verdict::False | Verdict::Again)) {
        let (kind, level) = (
            if alert.verdict == Verdict::Again { "AGAIN" } else { "FALSE" },
            if alert.critical { "critical" } else { "warn" },
        );
        lines.push(format!(
            "{head}: {kind} {level} {} {} {}..{} s: {} [{}]",
            alert.named(),
            alert.subject,
            alert.from,
            alert.to,
            alert.summary,
            drawn.join(" ")
        ));
    }
    for (object, names) in renamed(&play.pages) {
        lines.push(format!("{head}: PAGED AGAIN {object}: {} [{}]", names.join(", "), drawn.join(" ")));
    }
    let total: u64 = play.states.values().sum();
    for ((right, said), seconds) in play.states.iter().filter(|((right, said), _)| right != said) {
        if seconds * 20 > total {
            lines.push(format!(
                "{head}: STATE {seconds} of {total} GPU-seconds are {right}, said {said} [{}]",
                drawn.join(" ")
            ));
        }
    }
    for (source, (truth, said, seconds)) in &play.productive {
        let error = (said - truth) / base(*truth, *seconds);
        let limit = match *source {
            "tokens" | "steps" => 0.03,
            "gpm" => 0.08,
            "proxy" => 0.20,
            _ => 1.0,
        };
        if error.abs() > limit && *seconds >= 60.0 {
            lines.push(format!(
                "{head}: PRODUCTIVE on {source} {:+.1} % over {seconds:.0} GPU-seconds [{}]",
                error * 100.0,
                drawn.join(" ")
            ));
        }
    }
    for ranked in play.causes.iter().filter(|ranked| ranked.said.first() != Some(&ranked.right)) {
        lines.push(format!("{head}: CAUSE {} booked as {:?} [{}]", ranked.right, ranked.said, drawn.join(" ")));
    }
    lines
}
