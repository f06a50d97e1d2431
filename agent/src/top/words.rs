//! Numbers and names of the screen. For printing only.

use std::fmt::Write as _;

use gpuprod_rules::{Bucket, Micro, State, UnitJudgement, WeightSource};
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::units::{Nanos, to_f64};
use gpuprod_snapshot::{Reading, Stamp};

use crate::pipeline::Frame;
use crate::text;

/// A verdict's number as a float.
pub(super) fn float(value: Micro) -> f64 {
    let magnitude = to_f64(value.0.unsigned_abs()) / 1e6;
    if value.0 < 0 { -magnitude } else { magnitude }
}

/// `02:10:32`, the wall clock's time of day (UTC).
pub(super) fn clock(realtime: Nanos) -> String {
    text::utc(realtime).get(11..19).unwrap_or_default().to_owned()
}

/// The wall clock at an instant of the boot clock, as far as a stamp of the same boot tells.
pub(super) fn wall(stamp: &Stamp, boottime: Nanos) -> Nanos {
    stamp.realtime.saturating_sub(stamp.boottime.saturating_sub(boottime))
}

/// `5,120`; from 100,000 on `120 k`.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value >= 1e6 {
        return format!("{:.1} M", value / 1e6);
    }
    if value >= 1e5 {
        return format!("{:.0} k", value / 1e3);
    }
    let plain = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let (whole, rest) = plain.split_once('.').map_or((plain.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(rest) = rest {
        let _ = write!(out, ".{rest}");
    }
    out
}

/// Milliseconds, with as many digits as say something.
pub(super) fn millis(value: f64) -> String {
    match value {
        _ if value < 1.0 => format!("{value:.3} ms"),
        _ if value < 10.0 => format!("{value:.2} ms"),
        _ if value < 1000.0 => format!("{value:.0} ms"),
        _ => format!("{:.1} s", value / 1000.0),
    }
}

/// `180 MB/s`.
pub(super) fn per_second(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1.0 => "0".to_owned(),
        _ if bytes < 1e6 => format!("{:.0} kB/s", bytes / 1e3),
        _ if bytes < 1e10 => format!("{:.0} MB/s", bytes / 1e6),
        _ => format!("{:.1} GB/s", bytes / 1e9),
    }
}

/// A duration in seven characters or so: `12 s`, `3:12`, `2 h 10`.
pub(super) fn span(value: Nanos) -> String {
    let seconds = value.0 / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// `3`, `3/1` for instance 1 of GPU 3, `3/rest`; the identity where nothing has a number.
pub(super) fn unit_name(unit: &UnitJudgement, frame: &Frame<'_>) -> String {
    let gpu = device(unit, frame);
    let index = unit.index.or_else(|| gpu.map(|gpu| gpu.index));
    let Some(index) = index else {
        return text::clean(&unit.unit.0);
    };
    if unit.gpu.is_none() {
        return index.to_string();
    }
    let instances = gpu.map_or(&[][..], |gpu| &gpu.instances);
    let own = instances.iter().find(|instance| instance.uuid.get().is_some_and(|uuid| **uuid == *unit.unit.0));
    match own {
        Some(instance) => format!("{index}/{}", instance.gi),
        None if unit.unit.0.ends_with("/rest") => format!("{index}/rest"),
        None => format!("{index}/?"),
    }
}

/// The GPU that a unit is, or is a part of.
pub(super) fn device<'a>(unit: &UnitJudgement, frame: &'a Frame<'_>) -> Option<&'a Gpu> {
    let gpus = frame.known.gpu.as_ref()?.value.get()?;
    let uuid = unit.gpu.as_ref().unwrap_or(&unit.unit).0.as_ref();
    gpus.devices.iter().find(|gpu| matches!(&gpu.uuid, Reading::Value(id) if id == uuid))
}

/// `starved storage`.
pub(super) fn state(state: State) -> String {
    match state.reason() {
        "" => state.as_str().to_owned(),
        reason => format!("{} {reason}", state.as_str()),
    }
}

/// w in percent; `?` where nothing can be said, `-` where no work was to be done.
pub(super) fn productive(unit: &UnitJudgement) -> String {
    match (unit.state, unit.weight.source) {
        (State::Unknown(_), _) => "?".to_owned(),
        (_, WeightSource::None) => "-".to_owned(),
        _ => format!("{:.0} %", unit.weight.w.as_fraction() * 100.0),
    }
}

/// The part of a unit's time that is lost now, as a part of its GPU.
#[must_use]
pub fn lost(unit: &UnitJudgement) -> f64 {
    let lost: f64 = unit
        .split
        .iter()
        .filter(|(bucket, _)| matches!(bucket, Bucket::Lost(_)))
        .map(|(_, part)| part.as_fraction())
        .sum();
    lost * f64::from(unit.slices) / f64::from(unit.slices_whole.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        for (value, text) in
            [(0.0, "0.0"), (5_120.4, "5,120"), (99_999.0, "99,999"), (123_456.0, "123 k"), (2.5e6, "2.5 M")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(
            (millis(0.3051), millis(12.4), millis(2_500.0)),
            ("0.305 ms".into(), "12 ms".into(), "2.5 s".into())
        );
        assert_eq!((per_second(180e6), per_second(512e3)), ("180 MB/s".into(), "512 kB/s".into()));
        assert_eq!(float(Micro(-1_500_000)), -1.5);
    }
}
