//! What happens to an engine.

use super::Wedge;
use crate::scenario::{Scenario, What, Work, towards};
use crate::words::{ParseError, Unit, Words};

/// `wedge WHO HOW [spin]`
pub(crate) fn wedge(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    let name = words.take("how it is stuck")?;
    let Some((_, how)) = Wedge::ALL.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = Wedge::ALL.iter().map(|row| row.0).collect();
        return Err(words.error(format!("`{name}` is no way to be stuck; there are {}", known.join(", "))));
    };
    let spins = words.skip("spin");
    Ok((who.clone(), What::Wedge { who, how: *how, spins }))
}

/// `demand WHO xN`
pub(crate) fn demand(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    if s.work(&who).is_none_or(|work| work.traffic.is_none()) {
        return Err(words.error(format!("`{who}` has no traffic: its knobs say what it does (`set`)")));
    }
    let to = words.number("the factor", Unit::Factor)?.min(1000.0);
    Ok((who.clone(), What::Demand { who, to }))
}

/// `wake WHO`: ends its sleep.
pub(crate) fn wake(s: &mut Scenario, words: &mut Words, at: u64) -> Result<(), ParseError> {
    let who = s.need_work(words)?;
    let asleep = s.events.iter_mut().rev().find(|event| {
        event.at < at && event.until > at && matches!(&event.what, What::Sleep { who: whom } if *whom == who)
    });
    match asleep {
        Some(event) => {
            event.until = at;
            Ok(())
        }
        None => Err(words.error(format!("`{who}` does not sleep at this time"))),
    }
}

impl Scenario {
    /// Factor on the arrivals of an engine at a second.
    pub(crate) fn demand(&self, work: &Work, second: u64) -> f64 {
        self.growing(second).fold(1.0, |before, (what, grown)| match what {
            What::Demand { who, to } if *who == work.name => towards(before, *to, grown),
            _ => before,
        })
    }
}
