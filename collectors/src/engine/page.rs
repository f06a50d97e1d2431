//! From a metrics page to canonical signals. Pure.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod_snapshot::engine::{Engine, Histogram, PageSize, SleepState};
use gpuprod_snapshot::units::{Nanos, Ppb, from_f64};
use gpuprod_snapshot::{Missing, Reading};

use super::aliases::{self, ENGINES, Name, Row, Rule, Signal};
use super::exposition::{Labels, Line, SAMPLES, Sample, lines};
use super::steps::Steps;
use super::tally::Tally;

/// Lines kept between the two looks at a page: which engine, then which signals.
const SAID: usize = 2 * SAMPLES;
/// Histograms with more bounds are cut here.
const BOUNDS: usize = 512;
/// Cache usage beyond this is no share; a little over one is the engines' own rounding.
const FULL: f64 = 1.5;
const NANOS: f64 = 1e9;
/// A name or a word of a page is kept up to so many characters.
const TEXT: usize = 256;

/// Reads a page; the caller knows where and when it was read.
///
/// # Errors
/// The reason and the words when this is no metrics page at all.
pub fn read(text: &str) -> Result<Engine, (Missing, String)> {
    read_as(text, None)
}

/// The same of a page that is known to be a training job's, whose counter of steps has this name.
pub(super) fn read_as(text: &str, steps: Option<&str>) -> Result<Engine, (Missing, String)> {
    if text.trim().is_empty() {
        return Err((Missing::Malformed, "empty body".into()));
    }
    if text.trim_start().starts_with('[') {
        return super::iterations::read(text);
    }
    let mut size = PageSize { bytes: u64::try_from(text.len()).unwrap_or(u64::MAX), ..PageSize::default() };
    let mut kind = ENGINES.len();
    let mut said = Vec::new();
    for line in lines(text) {
        let name = match line {
            Line::Sample(sample) => {
                size.samples += 1;
                sample.name
            }
            Line::Type { name, .. } => name,
            Line::Bad(_) => {
                size.bad_lines += 1;
                continue;
            }
        };
        let name = aliases::plain(name);
        let earlier =
            ENGINES[..kind].iter().position(|engine| engine.marks.iter().any(|mark| aliases::begins(name, mark)));
        kind = earlier.unwrap_or(kind);
        if said.len() < SAID {
            said.push(line);
        }
    }
    if said.is_empty() {
        return Err((Missing::Malformed, "not a metrics page".into()));
    }
    let mut engine = blank(Missing::Unsupported);
    engine.page = Reading::Value(size);
    let mut sheet = Sheet { steps: Steps::new(steps), ..Sheet::default() };
    if let Some(known) = ENGINES.get(kind).filter(|_| steps.is_none()) {
        engine.kind = Reading::Value(known.kind.clone());
        sheet.rows = known.rows.iter().map(Entry::new).collect();
    }
    for line in said {
        match line {
            Line::Sample(sample) => sheet.add(&sample),
            Line::Type { name, .. } => sheet.declare(aliases::plain(name)),
            Line::Bad(_) => {}
        }
    }
    sheet.write(&mut engine);
    Ok(engine)
}

/// The beginning of a text that a page or a server wrote: recordings and screens are not theirs to fill.
#[must_use]
pub fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

/// An engine of which nothing is known, for one reason.
#[must_use]
pub fn blank(missing: Missing) -> Engine {
    Engine {
        page: Reading::Missing(missing),
        kind: Reading::Missing(missing),
        model: Reading::Missing(missing),
        started: Reading::Missing(missing),
        running: Reading::Missing(missing),
        waiting: Reading::Missing(missing),
        swapped: Reading::Missing(missing),
        kv_usage: Reading::Missing(missing),
        kv_capacity_tokens: Reading::Missing(missing),
        prompt_tokens: Reading::Missing(missing),
        generation_tokens: Reading::Missing(missing),
        preemptions: Reading::Missing(missing),
        requests_success: Reading::Missing(missing),
        prefix_queries: Reading::Missing(missing),
        prefix_hits: Reading::Missing(missing),
        sleep: Reading::Missing(missing),
        ttft: Reading::Missing(missing),
        itl: Reading::Missing(missing),
        e2e: Reading::Missing(missing),
        queue_time: Reading::Missing(missing),
        ..Engine::default()
    }
}

/// What a page gave for the rows of its engine.
#[derive(Default)]
struct Sheet {
    rows: Vec<Entry>,
    models: BTreeSet<String>,
    started: Option<f64>,
    steps: Steps,
    sleep: Option<SleepState>,
    blocks: Option<u64>,
}

/// What it gave for one row: a cell per name, in the row's order.
struct Entry {
    row: &'static Row,
    cells: Vec<Cell>,
    factor: Tally,
}

#[derive(Default)]
struct Cell {
    /// As the page writes it.
    name: String,
    declared: bool,
    value: Tally,
    count: Tally,
    buckets: BTreeMap<u64, Tally>,
}

impl Entry {
    fn new(row: &'static Row) -> Self {
        Self { row, cells: row.names.iter().map(|_| Cell::default()).collect(), factor: Tally::default() }
    }

    fn add(&mut self, plain: &str, sample: &Sample<'_>) -> bool {
        if let Rule::Product(factor) = self.row.rule
            && aliases::suffix(plain, factor) == Some("")
        {
            self.factor.add(sample);
        }
        for (name, cell) in self.row.names.iter().zip(&mut self.cells) {
            let Some(suffix) = aliases::suffix(plain, name.name) else {
                continue;
            };
            let timed = self.row.rule == Rule::Time;
            let tally = match suffix {
                "" if !timed && counts(name, sample.labels) => &mut cell.value,
                "_sum" if timed => &mut cell.value,
                "_count" if timed => &mut cell.count,
                "_bucket" if timed => {
                    let Some(bound) = bound(&sample.labels.get("le"), unit(name.name)) else {
                        continue;
                    };
                    if cell.buckets.len() >= BOUNDS && !cell.buckets.contains_key(&bound) {
                        continue;
                    }
                    cell.buckets.entry(bound).or_default()
                }
                _ => continue,
            };
            tally.add(sample);
            if cell.name.is_empty() {
                let family = sample.name.strip_suffix(suffix);
                cell.name = short(family.unwrap_or(sample.name));
            }
            return true;
        }
        false
    }

    /// The first name with a sound value, else the first that was met, else whether one is declared.
    fn settle<T>(&self, read: impl Fn(&Cell) -> Result<T, Missing>) -> (Reading<T>, &str) {
        let mut reason = None;
        for cell in self.cells.iter().filter(|cell| cell.met()) {
            match read(cell) {
                Ok(value) => return (Reading::Value(value), &cell.name),
                Err(missing) => reason = reason.or(Some(missing)),
            }
        }
        let declared = self.cells.iter().any(|cell| cell.declared);
        let absent = if declared { Missing::NotYet } else { Missing::Unsupported };
        (Reading::Missing(reason.unwrap_or(absent)), "")
    }

    fn number(&self, cell: &Cell) -> Result<f64, Missing> {
        match self.row.rule {
            Rule::Max => cell.value.max(),
            Rule::Product(_) => Ok(cell.value.sum()? * self.factor.max()?),
            Rule::Sum | Rule::Time => cell.value.sum(),
        }
    }
}

impl Cell {
    fn met(&self) -> bool {
        self.value.met() || self.count.met()
    }

    fn histogram(&self, unit: f64) -> Result<Histogram, Missing> {
        let whole = |value: f64| from_f64(value).ok_or(Missing::Malformed);
        let infinite = self.buckets.get(&u64::MAX);
        let count = match (&self.count, infinite) {
            (count, _) if count.met() => count.sum()?,
            (_, Some(infinite)) => infinite.sum()?,
            _ => return Err(Missing::Malformed),
        };
        let count = whole(count)?;
        let mut buckets = Vec::new();
        let mut below = 0;
        for (bound, tally) in self.buckets.range(..u64::MAX) {
            let within = whole(tally.sum()?)?;
            // Engines with bounds of their own each cannot be added up: better none than crooked ones.
            if within < below || within > count {
                buckets.clear();
                break;
            }
            below = within;
            buckets.push((Nanos(*bound), within));
        }
        Ok(Histogram { count, sum: Nanos(whole(self.value.sum()? * unit)?), buckets })
    }
}

fn counts(name: &Name, labels: Labels<'_>) -> bool {
    if name.label.is_empty() {
        return true;
    }
    let value = labels.get(name.label);
    match name.values {
        ["!", others @ ..] => !others.contains(&&*value),
        values => values.contains(&&*value),
    }
}

fn unit(name: &str) -> f64 {
    if name.ends_with("_ms") { 1e6 } else { NANOS }
}

fn bound(le: &str, unit: f64) -> Option<u64> {
    let bound: f64 = le.parse().ok()?;
    if bound == f64::INFINITY {
        return Some(u64::MAX);
    }
    from_f64(bound * unit)
}

impl Sheet {
    fn declare(&mut self, family: &str) {
        self.steps.declare(family);
        for entry in &mut self.rows {
            for (name, cell) in entry.row.names.iter().zip(&mut entry.cells) {
                // OpenMetrics declares a counter without its `_total`.
                let base = name.name.strip_suffix("_total").unwrap_or(name.name);
                cell.declared |= matches!(aliases::suffix(family, base), Some("" | "_total"));
            }
        }
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let plain = aliases::plain(sample.name);
        let mut ours = self.steps.add(sample);
        for entry in &mut self.rows {
            ours |= entry.add(plain, sample);
        }
        if ours {
            self.note_model(sample.labels);
        } else if sample.name == "process_start_time_seconds" {
            self.started = self.started.or(Some(sample.value));
        } else if aliases::suffix(plain, "vllm:engine_sleep_state") == Some("") {
            self.note_sleep(sample);
        } else if aliases::suffix(plain, "vllm:cache_config_info") == Some("") {
            let tokens = capacity(sample.labels);
            self.blocks = match (self.blocks, tokens) {
                (Some(sum), Some(tokens)) => sum.checked_add(tokens),
                (sum, tokens) => sum.or(tokens),
            };
        }
    }

    fn note_model(&mut self, labels: Labels<'_>) {
        // The first SGLang called it `name`, Triton and Dynamo call it `model`.
        let model = ["model_name", "name", "model"]
            .iter()
            .map(|label| short(&labels.get(label)))
            .find(|model| !model.is_empty() && *model != "undefined");
        if let Some(model) = model
            && self.models.len() < 2
            && !self.models.contains(&model)
        {
            self.models.insert(model);
        }
    }

    fn note_sleep(&mut self, sample: &Sample<'_>) {
        // One series per state, 1 for the one that holds. Of several engines, one that is awake counts.
        if sample.value == 1.0 && self.sleep != Some(SleepState::Awake) {
            self.sleep = Some(SleepState::from(&*short(&sample.labels.get("sleep_state"))));
        }
    }

    fn write(self, engine: &mut Engine) {
        let mut models = self.models.into_iter();
        // With several models on a page, it is nobody's name.
        if let (Some(model), None) = (models.next(), models.next()) {
            engine.model = Reading::Value(model);
        }
        if let Some(started) = self.started {
            let started = from_f64(started * NANOS).map(Nanos);
            engine.started = Reading::from_option(started, Missing::Malformed);
        }
        self.steps.write(engine);
        engine.sleep = Reading::from_option(self.sleep, Missing::Unsupported);
        engine.kv_capacity_tokens = Reading::from_option(self.blocks, Missing::Unsupported);
        for entry in &self.rows {
            let name = match slot(engine, entry.row.signal) {
                Slot::Count(count) => {
                    let read = |cell: &Cell| from_f64(entry.number(cell)?).ok_or(Missing::Malformed);
                    let (value, name) = entry.settle(read);
                    *count = value;
                    name
                }
                Slot::Share(share) => {
                    let read = |cell: &Cell| {
                        let value = entry.number(cell)?;
                        let sane = (value <= FULL).then(|| Ppb::from_fraction(value));
                        sane.flatten().ok_or(Missing::Malformed)
                    };
                    let (value, name) = entry.settle(read);
                    *share = value;
                    name
                }
                Slot::Time(time) => {
                    let units = |cell: &Cell| cell.histogram(unit(&cell.name));
                    let (value, name) = entry.settle(units);
                    *time = value;
                    name
                }
            };
            if !name.is_empty() {
                let evidence = format!("{}={name}", entry.row.signal.as_str());
                engine.names.push(evidence);
            }
        }
    }
}

/// vLLM writes its cache's size into the labels of an info series.
fn capacity(labels: Labels<'_>) -> Option<u64> {
    let number = |label: &str| labels.get(label).parse::<u64>().ok();
    number("kv_cache_size_tokens").or_else(|| number("num_gpu_blocks")?.checked_mul(number("block_size")?))
}

enum Slot<'a> {
    Count(&'a mut Reading<u64>),
    Share(&'a mut Reading<Ppb>),
    Time(&'a mut Reading<Histogram>),
}

fn slot(engine: &mut Engine, signal: Signal) -> Slot<'_> {
    match signal {
        Signal::Running => Slot::Count(&mut engine.running),
        Signal::Waiting => Slot::Count(&mut engine.waiting),
        Signal::Swapped => Slot::Count(&mut engine.swapped),
        Signal::KvUsage => Slot::Share(&mut engine.kv_usage),
        Signal::KvCapacity => Slot::Count(&mut engine.kv_capacity_tokens),
        Signal::PromptTokens => Slot::Count(&mut engine.prompt_tokens),
        Signal::GenerationTokens => Slot::Count(&mut engine.generation_tokens),
        Signal::Preemptions => Slot::Count(&mut engine.preemptions),
        Signal::Success => Slot::Count(&mut engine.requests_success),
        Signal::PrefixQueries => Slot::Count(&mut engine.prefix_queries),
        Signal::PrefixHits => Slot::Count(&mut engine.prefix_hits),
        Signal::Ttft => Slot::Time(&mut engine.ttft),
        Signal::Itl => Slot::Time(&mut engine.itl),
        Signal::E2e => Slot::Time(&mut engine.e2e),
        Signal::QueueTime => Slot::Time(&mut engine.queue_time),
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
