//! Targets and floors: one table file. A target is what the project promises itself; a floor is what today's rules hold
//! and may not lose again.

use std::path::Path;

use crate::score::Score;
use crate::variant::read;

/// One line of the table with its figure.
#[derive(Debug, PartialEq)]
pub(crate) struct Floor {
    pub(crate) name: String,
    pub(crate) at_least: bool,
    pub(crate) target: f64,
    pub(crate) floor: Option<f64>,
    pub(crate) value: Option<f64>,
    /// The target is met.
    pub(crate) met: bool,
    /// The floor holds.
    pub(crate) holds: bool,
}

/// Every floor with its figure.
pub(crate) fn check(score: &Score) -> Result<Vec<Floor>, String> {
    let metrics = score.metrics();
    let text = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("floors.txt"))?;
    parse(&text, |name| metrics.get(name).copied())
}

fn parse(text: &str, value: impl Fn(&str) -> Option<f64>) -> Result<Vec<Floor>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default()));
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            let wrong = || format!("floors.txt: line {at}: NAME >=|<= TARGET FLOOR, where a floor may be -");
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, sign @ (">=" | "<="), target, floor] = words.as_slice() else { return Err(wrong()) };
            let at_least = *sign == ">=";
            let target: f64 = target.parse().map_err(|_| wrong())?;
            let floor = if *floor == "-" { None } else { Some(floor.parse::<f64>().map_err(|_| wrong())?) };
            let value = value(name);
            let holds = |bound: f64| value.is_some_and(|value| if at_least { value >= bound } else { value <= bound });
            Ok(Floor {
                name: (*name).to_owned(),
                at_least,
                target,
                floor,
                value,
                met: holds(target),
                holds: floor.is_none_or(holds),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_holds_or_not_and_an_unknown_figure_holds_none() {
        let text = "a >= .98 .5 # why\nb <= 2 3\nc >= 1 -\nd >= 1 1\n";
        let figure = |name: &str| match name {
            "a" => Some(0.9),
            "b" => Some(4.0),
            _ => None,
        };
        let floors = parse(text, figure).unwrap();
        let seen: Vec<(bool, bool)> = floors.iter().map(|floor| (floor.met, floor.holds)).collect();
        assert_eq!(seen, [(false, true), (false, false), (false, true), (false, false)]);
        assert!(parse("a > 1 2", figure).is_err());
    }
}
