//! Arrays and drives: what they do, and how that stands to their own normal.

use gpuprod_rules::VitalKind;
use gpuprod_snapshot::Source;
use gpuprod_snapshot::storage::{BlockDevice, IoCounters, MdArray, SyncState};
use gpuprod_snapshot::units::{Nanos, to_f64};
use ratatui::text::{Line, Span};

use super::super::paint;
use super::super::view::View;
use super::super::words::{millis, number, per_second, span};
use super::{known, rate};
use crate::{seen, text};

/// From so many times its own normal on, a latency is pointed out.
const OFF: f64 = 1.5;
/// From this width on there is room for more.
const WIDE: usize = 90;

pub(super) fn arrays(view: &View, width: usize) -> Vec<Line<'static>> {
    let md = match known(view, Source::Md, |tick| tick.md.as_deref()) {
        Ok(md) => md,
        Err(why) => return vec![why],
    };
    let arrays: Vec<&MdArray> = md.arrays.iter().filter(|array| !array.is_container).collect();
    if arrays.is_empty() {
        return vec![Line::styled("no md array", paint::dim(view))];
    }
    arrays.into_iter().map(|array| self::array(array, view, width)).collect()
}

/// `md0 raid5 [UU_] recover 15.4 % 180 MB/s, 1 h 2 min left  20.1 ms, 26x normal 0.759 ms`.
fn array(array: &MdArray, view: &View, width: usize) -> Line<'static> {
    let show = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let level = show(array.level.get().map(|level| text::clean(level)));
    let missing = array.degraded.copied().filter(|missing| *missing > 0);
    let state = match (array.slots.get(), array.state.get()) {
        (Some(slots), _) => text::clip(&text::clean(slots), 18),
        (None, Some(state)) => state.to_string(),
        (None, None) => "?".to_owned(),
    };
    let name = text::clip(&text::clean(&array.name), 12);
    let mut spans = vec![Span::raw(format!("{name} {level} "))];
    spans.push(Span::styled(state, if missing.is_some() { paint::off(view) } else { paint::dim(view) }));
    let running = array.sync.get().is_some_and(|sync| *sync != SyncState::None);
    if running {
        let action = show(array.action.get().map(ToString::to_string));
        let mut sync = format!(" {action}");
        if let Some(state) = array.sync.get().filter(|sync| **sync != SyncState::Running) {
            sync += &format!(" {state}");
        }
        if let Some(done) = seen::sync_percent(array) {
            sync += &format!(" {}", text::percent_ppb(done));
        }
        if let Some(speed) = array.sync_speed.copied() {
            sync += &format!(" {}", per_second(to_f64(speed.0)));
        }
        if let Some(left) = array.sync_finish.copied().filter(|left| left.0 > 0 && width >= WIDE) {
            sync += &format!(", {} left", span(left));
        }
        spans.push(Span::styled(sync, paint::off(view)));
    }
    spans.push(Span::raw("  "));
    spans.push(latency(VitalKind::ArrayLatency, &array.name, view));
    Line::from(spans)
}

/// `20.1 ms, 26x normal 0.759 ms`.
fn latency(kind: VitalKind, of: &str, view: &View) -> Span<'static> {
    match view.vital(kind, of) {
        Some((Some(value), Some(normal), _)) if normal > 0.0 => {
            let times = value / normal;
            let text = format!("{}, {}x normal {}", millis(value), number(times), millis(normal));
            Span::styled(text, if times >= OFF { paint::off(view) } else { paint::dim(view) })
        }
        Some((Some(value), _, n)) => Span::raw(format!("{} (normal: learning, {n})", millis(value))),
        Some((None, Some(normal), _)) => Span::styled(format!("quiet (normal {})", millis(normal)), paint::dim(view)),
        Some((None, None, n)) if n > 0 => Span::styled(format!("quiet (normal: learning, {n})"), paint::dim(view)),
        Some(_) => Span::styled("quiet", paint::dim(view)),
        None => Span::styled("latency ?", paint::dim(view)),
    }
}

pub(super) fn drives(view: &View, width: usize) -> Vec<Line<'static>> {
    let block = match known(view, Source::Block, |tick| tick.block.as_deref()) {
        Ok(block) => block,
        Err(why) => return vec![why],
    };
    let arrays = view.frame.as_ref().and_then(|frame| frame.known.md.as_ref()?.value.get());
    let is_array = |name: &str| arrays.is_some_and(|md| md.arrays.iter().any(|array| array.name == name));
    let whole = |device: &&BlockDevice| device.partition_of.is_none() && !is_array(&device.name);
    let mut drives: Vec<&BlockDevice> = block.devices.iter().filter(whole).collect();
    if drives.is_empty() {
        return vec![Line::styled("no drive", paint::dim(view))];
    }
    let is_off = |device: &BlockDevice| match view.vital(VitalKind::DiskLatency, &device.name) {
        Some((Some(value), Some(normal), _)) => normal > 0.0 && value / normal >= OFF,
        _ => false,
    };
    let is_known = |device: &BlockDevice| {
        view.vital(VitalKind::DiskLatency, &device.name).is_some_and(|(value, normal, _)| value.or(normal).is_some())
    };
    // What is out of its normal comes first, what never did anything last.
    drives.sort_by_key(|device| (!is_off(device), !is_known(device), device.name.clone()));
    drives.into_iter().map(|device| drive(device, view, width)).collect()
}

fn drive(device: &BlockDevice, view: &View, width: usize) -> Line<'static> {
    let name = text::clip(&text::clean(&device.name), 11);
    let Some(io) = device.io.get() else {
        return Line::styled(format!("{name:<12} ?"), paint::dim(view));
    };
    let rates = before(device, view).and_then(|(old, between)| {
        let per = |pick: fn(&IoCounters) -> u64| rate(pick(old), pick(io), between);
        Some((per(|io| io.reads)?, per(|io| io.writes)?, per(|io| io.sectors_read)?, per(|io| io.sectors_written)?))
    });
    let rates = match rates {
        Some((reads, writes, read, written)) => {
            let (read, written) = (per_second(read * 512.0), per_second(written * 512.0));
            if width >= WIDE {
                format!("{:>7} r/s {read:>9}  {:>7} w/s {written:>9}", count(reads), count(writes))
            } else {
                format!("r {read:>9}  w {written:>9}")
            }
        }
        None => "  rates ?".to_owned(),
    };
    Line::from(vec![Span::raw(format!("{name:<9} {rates}  ")), latency(VitalKind::DiskLatency, &device.name, view)])
}

/// Operations per second: whole ones.
fn count(rate: f64) -> String {
    number(rate.round()).trim_end_matches(".0").to_owned()
}

/// The counters one sample before, and the time between.
fn before<'a>(device: &BlockDevice, view: &'a View) -> Option<(&'a IoCounters, Nanos)> {
    let old = view.before.as_ref()?.block.as_ref()?;
    let new = view.frame.as_ref()?.known.block.as_ref()?;
    let between = new.at.checked_sub(old.at)?;
    let devices = &old.value.get()?.devices;
    let same = devices.iter().find(|old| old.name == device.name && old.dev == device.dev)?;
    Some((same.io.get()?, between))
}
