//! The units: state, how productive, and the readings beside it.

use std::collections::BTreeMap;

use gpuprod_rules::UnitJudgement;
use gpuprod_snapshot::gpu::{Gpu, GpuHealth};
use gpuprod_snapshot::units::{Bytes, to_f64};
use gpuprod_snapshot::{Missing, Reading, Source};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::view::View;
use super::super::words::{device, productive, state, unit_name};
use super::super::{paint, words};
use super::{known, why};
use crate::pipeline::Frame;
use crate::text;

/// Columns of the history on a narrow screen.
const HISTORY: usize = 9;
/// From this width on there is room for more columns.
const WIDE: usize = 119;

/// What could not be read, per field and reason, and on how many units: said once below the table.
type Gaps = BTreeMap<(&'static str, Missing), usize>;

pub(super) fn lines(view: &View, width: usize) -> Vec<Line<'static>> {
    let wide = width >= WIDE;
    let Some(frame) = &view.frame else {
        return Vec::new();
    };
    if frame.judgement.units.is_empty() {
        let mut lines = vec![Line::styled("no unit can be judged", paint::dim(view))];
        match known(view, Source::Gpu, |tick| tick.gpu.as_deref()) {
            Err(why) => lines.push(why),
            Ok(gpus) => lines.extend(gpus.devices.iter().map(|gpu| {
                let health = gpu.health.get().map_or("?", |health| health.as_str());
                Line::raw(format!("GPU {}: {health}", gpu.index))
            })),
        }
        return lines;
    }
    let history = if wide { width.saturating_sub(110).clamp(HISTORY, 60) } else { HISTORY };
    let mut lines = vec![head(history, wide, view)];
    let mut gaps = Gaps::new();
    lines.extend(frame.judgement.units.iter().map(|unit| row(unit, frame, view, history, wide, &mut gaps)));
    let count = frame.judgement.units.len();
    for ((field, missing), times) in gaps {
        let of = if times == count { String::new() } else { format!(" ({times} of {count})") };
        lines.push(Line::styled(format!("? {field}: {}{of}", why(missing)), paint::dim(view)));
    }
    lines
}

fn head(history: usize, wide: bool, view: &View) -> Line<'static> {
    let mut text = format!("{:<5}{:<18}{:>5} {:<6} {:<history$}", "GPU", "STATE", "PROD", "BY", "HISTORY");
    text += &format!("{:>6}{:>7}{:>9}", "UTIL", "POWER", "MEMORY");
    if wide {
        text += &format!("{:>7}{:>7}{:>11}{:>9}{:>9}", "LIMIT", "TEMP", "SM CLOCK", "TENSOR", "LINK");
    }
    text += "  OWNER";
    Line::styled(text, paint::dim(view).add_modifier(Modifier::BOLD))
}

fn row(
    unit: &UnitJudgement,
    frame: &Frame<'_>,
    view: &View,
    history: usize,
    wide: bool,
    gaps: &mut Gaps,
) -> Line<'static> {
    let gpu = device(unit, frame).filter(|_| known(view, Source::Gpu, |tick| tick.gpu.as_deref()).is_ok());
    let mut cells = Cells { gpu, unit, gaps };
    let lost = gpu.is_some_and(|gpu| gpu.health.get().is_some_and(|health| *health != GpuHealth::Ok));
    let style = if lost { paint::off(view) } else { Style::new() };
    let util = cells.show("utilization", |gpu| gpu.util, text::percent);
    let power = cells.show("power", |gpu| gpu.power, |power| format!("{} W", power.0 / 1000));
    let memory = cells.memory();
    let mut spans = vec![
        Span::styled(format!("{:<5}", name(unit, frame)), style),
        Span::styled(format!("{:<18}", text::clip(&state(unit.state), 17)), paint::state(unit.state, view)),
        Span::styled(format!("{:>5}", productive(unit)), paint::state(unit.state, view)),
        Span::styled(format!(" {:<6} ", source(unit)), paint::dim(view)),
        Span::styled(format!("{:<history$}", spark(unit, view, history)), paint::state(unit.state, view)),
        Span::raw(format!("{util:>6}{power:>7}{memory:>9}")),
    ];
    if wide {
        let limit = cells.show("power limit", |gpu| gpu.power_limit, |power| format!("{} W", power.0 / 1000));
        let temp = cells.show("temperature", |gpu| gpu.temp, |temp| format!("{} C", temp.0));
        let clock = cells.show("SM clock", |gpu| gpu.clock_sm, |clock| format!("{} MHz", clock.0));
        let tensor =
            gpu.and_then(|gpu| gpu.gpm.get()?.tensor.copied()).map_or_else(|| "-".to_owned(), text::percent_ppb);
        let link = match gpu.map(|gpu| (gpu.pcie.generation.copied(), gpu.pcie.width.copied())) {
            Some((Some(generation), Some(width))) => format!("g{generation} x{width}"),
            _ => "?".to_owned(),
        };
        spans.push(Span::raw(format!("{limit:>7}{temp:>7}{clock:>11}{tensor:>9}{link:>9}")));
    }
    spans.push(Span::raw(format!("  {}", owner(unit, frame, wide))));
    Line::from(spans)
}

/// At most four characters: of an identity its end, which differs.
fn name(unit: &UnitJudgement, frame: &Frame<'_>) -> String {
    let name = unit_name(unit, frame);
    let length = name.chars().count();
    if length <= 4 || unit.index.is_some() {
        return text::clip(&name, 4);
    }
    let end: String = name.chars().skip(length - 3).collect();
    format!("…{end}")
}

/// On whose word w is.
fn source(unit: &UnitJudgement) -> &'static str {
    match unit.weight.source {
        gpuprod_rules::WeightSource::None => "-",
        source => source.as_str(),
    }
}

/// Whose it is; the process where no tenant is known and pids may be seen.
fn owner(unit: &UnitJudgement, frame: &Frame<'_>, wide: bool) -> String {
    let most = if wide { 40 } else { 12 };
    if let Some(tenant) = &unit.tenant {
        return text::clip(&text::clean(tenant), most);
    }
    let held = device(unit, frame).and_then(|gpu| gpu.processes.get());
    match held.map(|processes| processes.as_slice()) {
        None => "?".to_owned(),
        Some([]) => "-".to_owned(),
        Some([one]) => {
            let known = frame.known.proc.as_ref().and_then(|sample| sample.value.get());
            let process = known.and_then(|known| known.processes.iter().find(|process| process.pid == one.pid));
            let name = process.and_then(|process| process.comm.get());
            let name = name.map_or_else(|| format!("pid {}", one.pid), |name| text::clean(name));
            text::clip(&name, most)
        }
        Some(more) => format!("{} pids", more.len()),
    }
}

/// w of the last minutes, newest right, each column the mean of what falls into it.
fn spark(unit: &UnitJudgement, view: &View, columns: usize) -> String {
    let Some(trail) = view.trail.get(&unit.unit) else {
        return String::new();
    };
    // A column is at least ten ticks on a narrow screen, so that nine columns say something.
    let per = if columns <= HISTORY { 10 } else { 5 };
    let values: Vec<Option<u32>> = trail.iter().copied().collect();
    let chunks: Vec<&[Option<u32>]> = values.rchunks(per).take(columns.saturating_sub(1)).collect();
    chunks.into_iter().rev().map(column).collect()
}

fn column(values: &[Option<u32>]) -> &'static str {
    let known: Vec<u64> = values.iter().flatten().map(|w| u64::from(*w)).collect();
    let Some(count) = u64::try_from(known.len()).ok().filter(|count| *count > 0) else {
        return "?";
    };
    let mean = known.iter().sum::<u64>() / count;
    let step = usize::try_from(mean.saturating_mul(7).saturating_add(500_000) / 1_000_000).unwrap_or(0);
    paint::STEPS.get(step.min(7)).copied().unwrap_or("?")
}

struct Cells<'a, 'g> {
    gpu: Option<&'a Gpu>,
    unit: &'a UnitJudgement,
    gaps: &'g mut Gaps,
}

impl Cells<'_, '_> {
    /// A reading, or `?` and a note of the reason.
    fn show<T: Copy>(
        &mut self,
        field: &'static str,
        read: impl Fn(&Gpu) -> Reading<T>,
        print: impl Fn(T) -> String,
    ) -> String {
        let reading = self.gpu.map_or(Reading::Missing(Missing::Stale), read);
        match reading {
            Reading::Value(value) => print(value),
            Reading::Missing(missing) => {
                *self.gaps.entry((field, missing)).or_default() += 1;
                "?".to_owned()
            }
        }
    }

    /// `64/80 G`: of the instance, for an instance.
    fn memory(&mut self) -> String {
        let id = &self.unit.unit.0;
        let read = |gpu: &Gpu| {
            let instance = gpu.instances.iter().find(|instance| instance.uuid.get().is_some_and(|uuid| **uuid == **id));
            instance.map_or((gpu.mem_used, gpu.mem_total), |instance| (instance.mem_used, instance.mem_total))
        };
        let (used, total) = self.gpu.map_or((Reading::Missing(Missing::Stale), Reading::default()), read);
        let gib = |bytes: Bytes| to_f64(bytes.0) / f64::from(1_u32 << 30);
        match (used, total) {
            (Reading::Value(used), Reading::Value(total)) => format!("{:.0}/{:.0} G", gib(used), gib(total)),
            (used, _) => self.show("memory", |_| used, |used| words::number(gib(used)) + " G"),
        }
    }
}
