//! When requests come and how long they are: public traces, scaled.

use std::io::Read as _;

use crate::rng::Rng;
use crate::words::{ParseError, Unit, Words, float, whole};

/// Which trace (`traces/README.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Azure 2023, chat: steady, 5.5 requests a second.
    AzureConv,
    /// Azure 2023, code: bursts of long prompts and short answers, 2.6 a second.
    AzureCode,
    /// Mooncake, chat with long contexts and reused prefixes, 3 a second.
    Mooncake,
}

impl Trace {
    const ALL: &'static [(&'static str, Self)] =
        &[("azure_conv", Self::AzureConv), ("azure_code", Self::AzureCode), ("mooncake", Self::Mooncake)];

    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::AzureConv => include_bytes!("../../traces/azure_conv.csv.zst"),
            Self::AzureCode => include_bytes!("../../traces/azure_code.csv.zst"),
            Self::Mooncake => include_bytes!("../../traces/mooncake.csv.zst"),
        }
    }
}

/// What drives an engine, and how large it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The trace.
    pub trace: Trace,
    /// Factor on the number of requests.
    pub scale: f64,
    /// Second of the trace with which the scenario begins.
    pub from: u64,
    /// Tokens that the KV cache holds.
    pub kv: f64,
    /// Requests in a batch at most.
    pub batch: f64,
    /// A client sends its request again when it has waited so long, seconds.
    pub retries: Option<u64>,
    /// Share of the prompt tokens that the prefix cache has.
    pub hits: f64,
    /// An engine of the older generation: it swaps to the host's memory instead of computing again.
    pub swaps: bool,
    /// Time to the first token that clients were promised, seconds. Whoever judges is told of it; the engine does not change.
    pub promised: Option<u64>,
}

impl Traffic {
    /// `azure_conv [scale X] [from T] [kv TOKENS] [batch N] [retries 30s] [hits 30%] [swaps] [promised 3s]`
    pub(crate) fn read(words: &mut Words) -> Result<Self, ParseError> {
        let name = words.take("a trace")?;
        let Some((_, trace)) = Trace::ALL.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = Trace::ALL.iter().map(|row| row.0).collect();
            return Err(words.error(format!("`{name}` is no trace; there are {}", known.join(", "))));
        };
        let mut traffic = Self {
            trace: *trace,
            scale: 1.0,
            from: 0,
            kv: 200_000.0,
            batch: 256.0,
            retries: None,
            hits: 0.0,
            swaps: false,
            promised: None,
        };
        while !words.is_empty() {
            if words.skip("scale") {
                traffic.scale = words.number("the scale", Unit::Factor)?.min(1000.0);
            } else if words.skip("from") {
                traffic.from = words.seconds("the start")?;
            } else if words.skip("kv") {
                traffic.kv = (words.number("the tokens of the cache", Unit::Count)?.min(1e9) / 16.0).floor() * 16.0;
            } else if words.skip("batch") {
                traffic.batch = words.number("the batch", Unit::Count)?.max(1.0);
            } else if words.skip("retries") {
                traffic.retries = Some(words.seconds("the client's patience")?.max(1));
            } else if words.skip("hits") {
                traffic.hits = words.number("the share of hits", Unit::Fraction)?.min(1.0);
            } else if words.skip("swaps") {
                traffic.swaps = true;
            } else if words.skip("promised") {
                traffic.promised = Some(words.seconds("the time that was promised")?.max(1));
            } else {
                break;
            }
        }
        Ok(traffic)
    }
}

/// A request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    pub(crate) at: f64,
    pub(crate) prompt: u32,
    /// Of the prompt, what the prefix cache has.
    pub(crate) known: u32,
    pub(crate) output: u32,
}

/// Arrivals of a trace, from any second on, over and over.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    rows: Vec<Arrival>,
    pub(super) length: u64,
    from: u64,
    hits: f64,
    scale: f64,
    owed: f64,
    rng: Rng,
}

impl Arrivals {
    pub(crate) fn new(traffic: &Traffic, seed: u64, second: u64) -> Self {
        let rows = read(traffic.trace.bytes());
        let length = rows.last().map_or(1, |row| whole(row.at.ceil())).max(1);
        Self {
            rows,
            length,
            from: traffic.from,
            hits: traffic.hits,
            scale: traffic.scale,
            owed: 0.0,
            rng: Rng::new(seed.wrapping_add(second), "arrivals"),
        }
    }

    /// Those of one second, in order. A scaled trace keeps its bursts: each request comes several times, or some are left
    /// out.
    pub(crate) fn second(&mut self, second: u64, demand: f64) -> Vec<Arrival> {
        let of_trace = second.saturating_add(self.from) % self.length;
        let (begin, shown) = (seconds(of_trace), seconds(second));
        let first = self.rows.partition_point(|row| row.at < begin);
        let last = self.rows.partition_point(|row| row.at < begin + 1.0);
        let mut new = Vec::new();
        for row in self.rows.get(first..last).unwrap_or_default() {
            self.owed += self.scale * demand.max(0.0);
            let mut copies = 0;
            while self.owed >= 1.0 {
                self.owed -= 1.0;
                // The request itself comes when it came; its likes within the same second.
                let offset = if copies == 0 { row.at - begin } else { self.rng.unit() };
                let known = row.known.max(crate::words::whole32(f64::from(row.prompt) * self.hits));
                new.push(Arrival { at: shown + offset, known: known.min(row.prompt.saturating_sub(1)), ..*row });
                copies += 1;
            }
        }
        new.sort_by(|a, b| a.at.total_cmp(&b.at));
        new
    }
}

fn seconds(second: u64) -> f64 {
    float(usize::try_from(second).unwrap_or(0))
}

/// The rows of a trace, with their times from its start. The files are this crate's own: what is broken is left out,
/// and a test counts.
fn read(packed: &[u8]) -> Vec<Arrival> {
    let mut text = String::new();
    if zstd::Decoder::new(packed).and_then(|mut zstd| zstd.read_to_string(&mut text)).is_err() {
        return Vec::new();
    }
    let mut millis = 0.0;
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(',').map(|field| field.parse::<u32>().ok());
            let (after, prompt, output) = (fields.next()??, fields.next()??, fields.next()??);
            millis += f64::from(after);
            Some(Arrival { at: millis / 1e3, prompt, known: fields.next().flatten().unwrap_or(0), output })
        })
        .collect()
}
