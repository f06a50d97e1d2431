//! What can be set of a workload: one row each.

use crate::scenario::Knobs;
use crate::words::{ParseError, Unit, Words};

impl Knobs {
    pub(crate) const fn new(engine: bool) -> Self {
        Self {
            rate: if engine { 1200.0 } else { 0.0 },
            prompt: if engine { 3000.0 } else { 0.0 },
            hits: 0.3,
            running: if engine { 16.0 } else { 0.0 },
            waiting: 0.0,
            kv: if engine { 0.6 } else { 0.0 },
            util: 0.84,
            power: 450.0,
            mem: 72e9,
            cpus: if engine { 1.5 } else { 8.0 },
            preemptions: 0.0,
            work: -1.0,
            writes: 0.0,
            cached: 0.0,
            peers: 0.0,
            rdma: 0.0,
            ram: 12_884_901_888.0,
            ram_grows: 0.0,
            ram_limit: 0.0,
            maps: 0.0,
            mem_grows: 0.0,
            capacity: 0.0,
            h2d: 2e9,
            step: 0.0,
            waits: 0.0,
        }
    }
}

/// One row per knob: name, unit, place.
type Knob = (&'static str, Unit, fn(&mut Knobs) -> &mut f64);

const KNOBS: &[Knob] = &[
    ("rate", Unit::TokensPerSecond, |k| &mut k.rate),
    ("prompt", Unit::TokensPerSecond, |k| &mut k.prompt),
    ("hits", Unit::Fraction, |k| &mut k.hits),
    ("running", Unit::Count, |k| &mut k.running),
    ("waiting", Unit::Count, |k| &mut k.waiting),
    ("kv", Unit::Fraction, |k| &mut k.kv),
    ("util", Unit::Fraction, |k| &mut k.util),
    ("power", Unit::Watts, |k| &mut k.power),
    ("mem", Unit::Bytes, |k| &mut k.mem),
    ("cpus", Unit::Count, |k| &mut k.cpus),
    ("preemptions", Unit::TokensPerSecond, |k| &mut k.preemptions),
    ("work", Unit::Fraction, |k| &mut k.work),
    ("writes", Unit::BytesPerSecond, |k| &mut k.writes),
    ("cached", Unit::BytesPerSecond, |k| &mut k.cached),
    ("peers", Unit::Count, |k| &mut k.peers),
    ("rdma", Unit::Count, |k| &mut k.rdma),
    ("ram", Unit::Bytes, |k| &mut k.ram),
    ("ram_grows", Unit::BytesPerSecond, |k| &mut k.ram_grows),
    ("ram_limit", Unit::Bytes, |k| &mut k.ram_limit),
    ("maps", Unit::BytesPerSecond, |k| &mut k.maps),
    ("mem_grows", Unit::BytesPerSecond, |k| &mut k.mem_grows),
    ("h2d", Unit::BytesPerSecond, |k| &mut k.h2d),
    ("step", Unit::Latency, |k| &mut k.step),
    ("capacity", Unit::TokensPerSecond, |k| &mut k.capacity),
    ("waits", Unit::Fraction, |k| &mut k.waits),
];

/// Reads the value of a knob; nothing if there is no knob of that name.
pub(crate) fn knob(name: &str, words: &mut Words) -> Result<Option<f64>, ParseError> {
    match KNOBS.iter().find(|knob| knob.0 == name) {
        Some((_, unit, _)) => words.number(name, *unit).map(Some),
        None => Ok(None),
    }
}

/// Looks at a knob.
pub(crate) fn look(knobs: &Knobs, name: &str) -> f64 {
    let mut knobs = knobs.clone();
    KNOBS.iter().find(|knob| knob.0 == name).map_or(0.0, |(_, _, place)| *place(&mut knobs))
}

/// Turns a knob.
pub(crate) fn turn(knobs: &mut Knobs, name: &str, value: f64) {
    if let Some((_, _, place)) = KNOBS.iter().find(|knob| knob.0 == name) {
        *place(knobs) = value;
    }
}

pub(crate) fn knob_names() -> String {
    KNOBS.iter().map(|knob| knob.0).collect::<Vec<_>>().join(", ")
}
