//! Drawn values: `draw NAME …` gives a name a value that depends on the seed, and `$NAME` stands for it.
//!
//! A template is a scenario with such lines; each seed makes one scenario of it. This is done on the text, before the
//! verbs are read, so that every quantity of every verb can be drawn.

use std::collections::BTreeMap;

use crate::rng::Rng;
use crate::words::{ParseError, float, seconds, whole};

/// Names that a template may draw.
const MOST_NAMES: usize = 256;

/// What was drawn, by name.
pub(crate) type Drawn = BTreeMap<String, String>;

/// The text with every drawn value in its place, line for line, and what was drawn.
pub(crate) fn expand(text: &str, seed: u64) -> Result<(String, Drawn), ParseError> {
    let mut drawn = Drawn::new();
    // Two templates do not draw the same with one seed.
    let whose = text.lines().find_map(|line| line.trim_start().strip_prefix("scenario ")).unwrap_or_default().trim();
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        let error = |message: String| ParseError { line: index + 1, message };
        let line = fill(line, &drawn).map_err(error)?;
        let code = line.split('#').next().unwrap_or_default();
        let mut words = code.split_whitespace();
        if words.next() == Some("draw") {
            let name = words.next().ok_or_else(|| error("draw needs a name and a range".into()))?;
            let rest: Vec<&str> = words.collect();
            let value = one(&format!("draw {whose} {name}"), &rest, seed).map_err(error)?;
            if drawn.len() >= MOST_NAMES {
                return Err(error(format!("more than {MOST_NAMES} draws")));
            }
            drawn.insert(name.to_owned(), value);
        } else {
            out += &line;
        }
        out.push('\n');
    }
    Ok((out, drawn))
}

/// A line with its `$NAME`s replaced.
fn fill(line: &str, drawn: &Drawn) -> Result<String, String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    // A comment may speak of money.
    while let Some((before, after)) = rest.split_once('$').filter(|(before, _)| !before.contains('#')) {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let name = &after[..end];
        let value = drawn.get(name).ok_or_else(|| format!("`${name}` is drawn nowhere above this line"))?;
        out += before;
        out += value;
        rest = &after[end..];
    }
    out += rest;
    Ok(out)
}

/// One draw: `FROM..TO [log|whole]`, `of WORD WORD …`.
fn one(stream: &str, rest: &[&str], seed: u64) -> Result<String, String> {
    let mut rng = Rng::new(seed, stream);
    // The first numbers of neighbouring seeds are not far enough from each other.
    rng.bits();
    let share = rng.unit();
    if let ["of", words @ ..] = rest
        && !words.is_empty()
    {
        let at = usize::try_from(whole((share * float(words.len())).floor())).unwrap_or(0);
        return Ok((*words.get(at.min(words.len() - 1)).unwrap_or(&"")).to_owned());
    }
    let (range, how) = match rest {
        [range] => (*range, ""),
        [range, how @ ("log" | "whole")] => (*range, *how),
        _ => return Err("a draw is `draw NAME 0.4..0.9`, with `log` or `whole`, or `draw NAME of WORD WORD`".into()),
    };
    let (from, to) = range.split_once("..").ok_or_else(|| format!("`{range}` is no range (0.4..0.9, 30s..5m)"))?;
    let time = |word: &str| seconds(word).filter(|_| word.ends_with(['s', 'm', 'h', 'd']));
    if let (Some(from), Some(to)) = (time(from), time(to)) {
        let value = between(f64_of(from), f64_of(to), how == "log", share).ok_or("the range is empty")?;
        return Ok(format!("{}s", whole(value)));
    }
    let split = |word: &str| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let number: Option<f64> = word[..end].parse().ok();
        number.map(|number| (number, word[end..].to_owned()))
    };
    let ((low, first), (high, unit)) = (
        split(from).ok_or_else(|| format!("`{from}` is no number"))?,
        split(to).ok_or_else(|| format!("`{to}` is no number"))?,
    );
    if !first.is_empty() && first != unit {
        return Err(format!("`{range}`: both ends have the same unit (0.4GB/s..2GB/s)"));
    }
    if how == "whole" {
        let value = between(low, high + 1.0, false, share).ok_or("the range is empty")?;
        return Ok(format!("{}{unit}", whole(value.floor().min(high))));
    }
    let value = between(low, high, how == "log", share).ok_or("the range is empty")?;
    Ok(format!("{value:.4}{unit}"))
}

fn f64_of(value: u64) -> f64 {
    gpuprod_snapshot::units::to_f64(value)
}

/// Evenly between two numbers, or evenly between their logarithms. Roots are exact on every machine, so a
/// logarithmic draw is a bisection by square roots.
fn between(low: f64, high: f64, log: bool, share: f64) -> Option<f64> {
    if low > high || (log && low <= 0.0) {
        return None;
    }
    if !log {
        return Some(low + (high - low) * share);
    }
    let (mut low, mut high, mut left, mut right) = (low, high, 0.0, 1.0);
    for _ in 0..40 {
        let (middle, half) = ((low * high).sqrt(), f64::midpoint(left, right));
        if share < half { (high, right) = (middle, half) } else { (low, left) = (middle, half) }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(line: &str, seed: u64) -> String {
        expand(&format!("draw x {line}\n"), seed).unwrap().1.remove("x").unwrap()
    }

    #[test]
    fn draws_fill_their_range_and_keep_their_unit() {
        let times: Vec<u64> = (0..400).map(|seed| seconds(&drawn("30s..5m", seed)).unwrap()).collect();
        assert!(times.iter().min() < Some(&40) && times.iter().max() > Some(&290));
        let shares: Vec<f64> =
            (0..400).map(|seed| drawn("40%..90%", seed).trim_end_matches('%').parse().unwrap()).collect();
        assert!(shares.iter().all(|share| (40.0..90.0).contains(share)));
        let mean = shares.iter().sum::<f64>() / 400.0;
        assert!((mean - 65.0).abs() < 3.0, "{mean}");
        // Half of the logarithmic draws lie below the geometric middle.
        let low = (0..400).filter(|seed| drawn("1..100 log", *seed).parse::<f64>().unwrap() < 10.0).count();
        assert!((160..240).contains(&low), "{low}");
        let gpus: std::collections::BTreeSet<String> = (0..100).map(|seed| drawn("0..3 whole", seed)).collect();
        assert_eq!(gpus.into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
        assert!(["a", "b"].contains(&drawn("of a b", 3).as_str()));
    }

    #[test]
    fn names_stand_for_what_was_drawn() {
        let (text, drawn) = expand("draw t 60s..60s\nat $t slow x to 0.5 for $t # costs $5\n", 1).unwrap();
        assert_eq!(text, "\nat 60s slow x to 0.5 for 60s # costs $5\n");
        assert_eq!(drawn["t"], "60s");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, part) in [
            ("\nat $t gap for 5s", 2, "`$t` is drawn nowhere"),
            ("draw x 5..1", 1, "empty"),
            ("draw x", 1, "a draw is"),
            ("draw x 0..5 log", 1, "empty"),
            ("draw x a..b", 1, "no number"),
            ("draw x 400MB..2GB", 1, "same unit"),
        ] {
            let error = expand(text, 1).unwrap_err();
            assert!(error.line == line && error.message.contains(part), "{text}: {error}");
        }
    }
}
