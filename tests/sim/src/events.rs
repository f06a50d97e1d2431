//! `at TIME VERB …`: what happens.

use gpuprod_snapshot::Source;

use crate::engine_sim::events as engines;
use crate::knobs::{knob, knob_names};
use crate::node::NodeEvent;
use crate::scenario::{Event, Fate, Harm, Scenario, SyncVerb, What};
use crate::words::{ParseError, Unit, Words, whole32};

/// A verb and what it reads: the subject for `end`, and the event.
type Verb = (&'static str, fn(&Scenario, &mut Words) -> Result<(String, What), ParseError>);

const VERBS: &[Verb] = &[
    ("rebuild", |s, w| sync(s, w, SyncVerb::Rebuild)),
    ("check", |s, w| sync(s, w, SyncVerb::Check)),
    ("resync", |s, w| sync(s, w, SyncVerb::Resync)),
    ("repair", |s, w| sync(s, w, SyncVerb::Repair)),
    ("load", load),
    ("slow", slow),
    ("limit", |s, w| {
        slow(s, w).map(|(who, what)| match what {
            What::Slow { who: whom, to } => (who, What::Limit { who: whom, to }),
            other => (who, other),
        })
    }),
    ("mute", |s, w| s.need_work(w).map(|who| (who.clone(), What::Mute { who }))),
    ("crash", |s, w| fate(s, w, Fate::Crash)),
    ("vanish", |s, w| fate(s, w, Fate::Vanish)),
    ("orphan", |s, w| fate(s, w, Fate::Orphan)),
    ("stop", |s, w| fate(s, w, Fate::Stop)),
    ("block", block),
    ("set", set),
    ("wedge", engines::wedge),
    ("sleep", |s, w| s.need_work(w).map(|who| (who.clone(), What::Sleep { who }))),
    ("demand", engines::demand),
    ("fallback", |s, w| {
        slow(s, w).map(|(who, what)| match what {
            What::Slow { who: whom, to } => (who, What::Fallback { who: whom, to }),
            other => (who, other),
        })
    }),
    ("restart", |s, w| s.need_work(w).map(|who| (who.clone(), What::Restart { who }))),
    // Whoever ends is like whoever restarts, and need not come back.
    ("exit", |s, w| s.need_work(w).map(|who| (who.clone(), What::Restart { who }))),
    ("hang", hang),
    ("cpu", |s, w| node(crate::node::cpu(s, w))),
    ("memory", |s, w| node(crate::node::memory(s, w))),
    ("thrash", |s, w| node(crate::node::thrash(s, w))),
    ("oom", |s, w| node(crate::node::oom(s, w))),
    ("congest", |s, w| node(crate::node::congest(s, w))),
    ("flap", |s, w| node(crate::node::flap(s, w))),
    ("start", |s, w| node(crate::node::start(s, w))),
    ("link", crate::pcie::link),
    ("socket", crate::pcie::socket),
    ("transfer", crate::pcie::transfer),
    ("lose", lose),
    ("xid", xid),
    ("ail", crate::device::ail),
    ("throttle", throttle),
    ("driver", |_, w| w.take("its version").map(|version| ("driver".into(), What::Driver { version }))),
    ("gap", |_, _| Ok(("agent".into(), What::Gap))),
    ("suspend", |_, _| Ok(("suspend".into(), What::Suspend))),
    ("reboot", |_, _| Ok(("reboot".into(), What::Reboot))),
    ("clock", clock),
    ("drop", drop),
    ("fail", |s, w| source(s, w).map(|(name, source)| (name, What::Fail { source }))),
    ("reset", |s, w| s.need_work(w).map(|who| (who.clone(), What::Reset { who }))),
];

/// Why clocks are held down, and NVML's bit for it.
const REASONS: &[(&str, u64)] =
    &[("power_cap", 0x4), ("hw_slowdown", 0x8), ("sw_thermal", 0x20), ("hw_thermal", 0x40), ("power_brake", 0x80)];

/// What comes again comes so often at most.
const MOST_REPEATS: usize = 10_000;

pub(crate) fn at(s: &mut Scenario, words: &mut Words, fault: bool) -> Result<(), ParseError> {
    let at = words.seconds("the time")?;
    let verb = words.take("what happens")?;
    if verb == "end" {
        return end(s, words, at);
    }
    if verb == "wake" {
        return engines::wake(s, words, at);
    }
    let Some((_, read)) = VERBS.iter().find(|(name, _)| *name == verb) else {
        let known: Vec<&str> = VERBS.iter().map(|(name, _)| *name).collect();
        return Err(words.error(format!("`{verb}` cannot happen; there are {}, wake, end", known.join(", "))));
    };
    let (subject, what) = read(s, words)?;
    let (mut until, mut over, mut every) = (u64::MAX, 0, None);
    while !words.is_empty() {
        match words.take("a key")?.as_str() {
            "for" => until = at.saturating_add(words.seconds("how long")?),
            "over" => over = words.seconds("how long it grows")?,
            "every" => every = Some(words.seconds("how often")?.max(1)),
            other => return Err(words.error(format!("`{other}` is not understood here (for, over, every TIME)"))),
        }
    }
    let needs_length = matches!(
        what,
        What::Gap
            | What::Suspend
            | What::Reboot
            | What::Restart { .. }
            | What::Node(NodeEvent::Start { .. } | NodeEvent::Flap { .. })
    );
    if needs_length && verb != "exit" && until == u64::MAX {
        return Err(words.error(format!("`{verb}` needs `for` and how long")));
    }
    let lasts = until.saturating_sub(at);
    if every.is_some_and(|every| lasts > every) {
        return Err(words.error("what comes again needs a `for` that is shorter than `every`"));
    }
    let step = usize::try_from(every.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let end = if every.is_some() { s.length.max(at + 1) } else { at + 1 };
    let starts = (at..end).step_by(step).take(MOST_REPEATS);
    s.events.extend(starts.map(|at| Event {
        at,
        until: at.saturating_add(lasts),
        over,
        fault,
        subject: subject.clone(),
        what: what.clone(),
    }));
    Ok(())
}

fn end(s: &mut Scenario, words: &mut Words, at: u64) -> Result<(), ParseError> {
    let mut subject = words.take("what ends")?;
    if subject == "gpu" {
        subject += " ";
        subject += &words.take("a GPU")?;
    }
    let open = s.events.iter_mut().filter(|event| {
        event.subject == subject && event.until == u64::MAX && event.at < at && !matches!(event.what, What::Set { .. })
    });
    let mut ended = 0;
    for event in open {
        event.until = at;
        ended += 1;
    }
    if ended == 0 {
        Err(words.error(format!("nothing about `{subject}` is going on before this time")))
    } else {
        Ok(())
    }
}

fn node(read: Result<(String, NodeEvent), ParseError>) -> Result<(String, What), ParseError> {
    read.map(|(subject, what)| (subject, What::Node(what)))
}

fn harm(s: &Scenario, words: &mut Words, harm: &mut Harm, key: &str) -> Result<(), ParseError> {
    match key {
        "slows" => {
            let who = s.need_work(words)?;
            words.need("to")?;
            harm.slows.push((who, words.number("the share that is left", Unit::Fraction)?));
            Ok(())
        }
        "latency" => {
            harm.latency = Some(words.number("the factor", Unit::Factor)?);
            Ok(())
        }
        other => Err(words.error(format!(
            "`{other}` is not understood here (slows WHO to SHARE, latency xN, for, over, every TIME)"
        ))),
    }
}

fn more(words: &Words) -> bool {
    words.peek().is_some_and(|word| !["for", "over", "every"].contains(&word))
}

fn sync(s: &Scenario, words: &mut Words, action: SyncVerb) -> Result<(String, What), ParseError> {
    let array = words.take("an array")?;
    let Some(found) = s.arrays.iter().find(|known| known.name == array) else {
        return Err(words.error(format!("there is no array `{array}` above this line")));
    };
    if found.level == "raid0" {
        return Err(words.error("a raid0 has nothing to synchronise"));
    }
    if action == SyncVerb::Rebuild && found.spares.is_empty() {
        return Err(words.error(format!("`{array}` has no spare to rebuild on")));
    }
    let (mut speed, mut done, mut hurt) = (180e6, 0.0, Harm::default());
    while more(words) {
        match words.take("a key")?.as_str() {
            "speed" => speed = words.number("the speed", Unit::BytesPerSecond)?,
            "done" => done = words.number("the share done", Unit::Fraction)?,
            key => harm(s, words, &mut hurt, key)?,
        }
    }
    Ok((array.clone(), What::Sync { array, action, speed, done, harm: hurt }))
}

fn load(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let device = s.need_device(words)?;
    let rate = words.number("the rate", Unit::BytesPerSecond)?;
    let mut hurt = Harm::default();
    while more(words) {
        let key = words.take("a key")?;
        harm(s, words, &mut hurt, &key)?;
    }
    Ok((device.clone(), What::Load { device, rate, harm: hurt }))
}

fn slow(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    words.need("to")?;
    let to = words.number("the share that is left", Unit::Fraction)?;
    Ok((who.clone(), What::Slow { who, to }))
}

fn set(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    let mut changes = Vec::new();
    while more(words) {
        let name = words.take("a key")?;
        match knob(&name, words)? {
            Some(value) => changes.push((name, value)),
            None => return Err(words.error(format!("`{name}` cannot be set; there are {}", knob_names()))),
        }
    }
    Ok((who.clone(), What::Set { who, changes }))
}

fn fate(s: &Scenario, words: &mut Words, fate: Fate) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    Ok((who.clone(), What::Fate { who, fate }))
}

fn block(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let who = s.need_work(words)?;
    words.need("in")?;
    let place = words.take("a function of the kernel")?;
    Ok((who.clone(), What::Fate { who, fate: Fate::Block(place) }))
}

fn hang(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    if words.peek() != Some("nvml") {
        let device = s.need_device(words)?;
        return Ok((device.clone(), What::Stuck { device }));
    }
    words.need("nvml")?;
    let call = if more(words) { words.take("a call")? } else { "nvmlDeviceGetPowerUsage".into() };
    Ok(("nvml".into(), What::HangNvml { call }))
}

fn lose(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    words.need("gpu")?;
    let word = words.peek().unwrap_or_default().to_owned();
    let gpus = words.gpus(s.gpus.count)?;
    Ok((format!("gpu {word}"), What::Lose { gpus }))
}

fn xid(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    words.need("gpu")?;
    let gpus = words.gpus(s.gpus.count)?;
    let code = whole32(words.number("the code", Unit::Count)?);
    match gpus.as_slice() {
        [gpu] => Ok(("xid".into(), What::Xid { gpu: *gpu, code })),
        _ => Err(words.error("one GPU per line")),
    }
}

fn throttle(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    words.need("gpu")?;
    let word = words.peek().unwrap_or_default().to_owned();
    let gpus = words.gpus(s.gpus.count)?;
    words.need("to")?;
    let to = words.number("the share of the clock", Unit::Fraction)?;
    let name = if more(words) { words.take("a reason")? } else { "hw_thermal".into() };
    match REASONS.iter().find(|(known, _)| *known == name) {
        Some((_, reason)) => Ok((format!("gpu {word}"), What::Throttle { gpus, to, reason: *reason })),
        None => Err(words.error(format!(
            "`{name}` is no reason; there are {}",
            REASONS.iter().map(|row| row.0).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// `drop SHARE [SOURCE]`: of all sources if none is named.
fn drop(s: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let share = words.number("the share that is lost", Unit::Fraction)?;
    let (name, source) =
        if more(words) { source(s, words).map(|(name, source)| (name, Some(source)))? } else { ("drop".into(), None) };
    Ok((name, What::Drop { share, source }))
}

fn source(_: &Scenario, words: &mut Words) -> Result<(String, Source), ParseError> {
    let name = words.take("a source")?;
    match Source::ALL.iter().find(|source| source.as_str() == name) {
        Some(source) => Ok((name, *source)),
        None => Err(words.error(format!(
            "`{name}` is no source; there are {}",
            Source::ALL.iter().map(|source| source.as_str()).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn clock(_: &Scenario, words: &mut Words) -> Result<(String, What), ParseError> {
    let word = words.take("a step (+1h, -1h)")?;
    let (sign, rest) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.strip_prefix('+').unwrap_or(&word)),
    };
    let seconds = crate::words::seconds(rest).and_then(|by| i64::try_from(by).ok());
    match seconds {
        Some(by) => Ok(("clock".into(), What::Clock { by: sign * by })),
        None => Err(words.error(format!("`{word}` is no step of the clock (for instance +1h)"))),
    }
}
