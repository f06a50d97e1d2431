//! The node on one plain page of 80 columns.

use std::fmt::Write as _;

use gpuprod_rules::{State, UnitJudgement};
use gpuprod_snapshot::gpu::Gpu;
use gpuprod_snapshot::{Reading, Source};

use crate::pipeline::Frame;
use crate::{check, seen, text};

const WIDTH: usize = 80;

/// The page.
#[must_use]
pub fn page(frame: &Frame<'_>, host: &str) -> String {
    let mut page = Page(String::new());
    page.line(&format!("{host}  {}", text::utc(frame.known.stamp.realtime)));
    let cause = super::cause::line(frame);
    for line in text::wrap(&cause.sentence, WIDTH) {
        page.line(&line);
    }
    if !cause.detail.is_empty() && cause.level != check::Level::Critical && cause.level != check::Level::Warning {
        page.wrapped(&cause.detail);
    }
    gpus(&mut page, frame);
    for (title, source) in
        [("ARRAYS", Source::Md), ("DISKS", Source::Block), ("PRESSURE", Source::Psi), ("ENGINES", Source::Engine)]
    {
        let lines = seen::of(&frame.known, source);
        for (place, line) in lines.iter().enumerate() {
            let title = if place == 0 { title } else { "" };
            page.line(&format!("{title:<9} {line}"));
        }
    }
    page.line("FINDINGS");
    if frame.judgement.findings.is_empty() {
        page.line("  none");
    }
    for finding in &frame.judgement.findings {
        page.line(&format!("  {} {} {}", finding.severity.as_str(), finding.rule, finding.subject));
        page.wrapped(&finding.summary);
    }
    page.0
}

struct Page(String);

impl Page {
    /// Everything of the page comes through here: what it holds of foreign text (a recording's, another agent's) is clean.
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.0, "{}", text::clean(&text::clip(line, WIDTH)).trim_end());
    }

    fn wrapped(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + word.chars().count() + 5 > WIDTH {
                self.line(&format!("    {line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&format!("    {line}"));
    }
}

fn gpus(page: &mut Page, frame: &Frame<'_>) {
    if frame.judgement.units.is_empty() {
        page.line("GPUS");
        for line in seen::of(&frame.known, Source::Gpu) {
            page.wrapped(&line);
        }
        return;
    }
    page.line(&format!(
        "{:<8}{:<24}{:>6}{:>6}{:>9}{:>12}  {}",
        "GPU", "STATE", "PROD", "UTIL", "POWER", "MEMORY", "OWNER"
    ));
    for unit in &frame.judgement.units {
        page.line(&row(unit, frame));
        cause(page, unit, frame);
    }
}

fn row(unit: &UnitJudgement, frame: &Frame<'_>) -> String {
    let gpu = device(unit, frame);
    let show = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let state = match unit.state.reason() {
        "" => unit.state.as_str().to_owned(),
        reason => format!("{} {reason}", unit.state.as_str()),
    };
    let util = show(gpu.and_then(|gpu| gpu.util.copied()).map(text::percent));
    let power = show(gpu.and_then(|gpu| gpu.power.copied()).map(|power| format!("{} W", power.0 / 1_000)));
    let memory = show(gpu.and_then(|gpu| gpu.mem_used.copied()).map(|used| text::bytes(used.0)));
    format!(
        "{:<8}{:<24}{:>6}{util:>6}{power:>9}{memory:>12}  {}",
        text::clip(&check::about(unit), 7),
        text::clip(&state, 23),
        format!("{:.0} %", unit.weight.w.as_fraction() * 100.0),
        unit.tenant.as_deref().unwrap_or("-"),
    )
}

/// Under a GPU that loses time: what the rules say of it.
fn cause(page: &mut Page, unit: &UnitJudgement, frame: &Frame<'_>) {
    if matches!(unit.state, State::Productive(_) | State::Headroom | State::Idle) {
        return;
    }
    let about = frame.judgement.findings.iter().find(|finding| finding.victims.contains(&unit.unit));
    if let Some(finding) = about {
        page.line(&format!("        {} {}", finding.rule, finding.subject));
    }
}

fn device<'a>(unit: &UnitJudgement, frame: &'a Frame<'_>) -> Option<&'a Gpu> {
    let gpus = frame.known.gpu.as_ref()?.value.get()?;
    let uuid = &*unit.unit.0;
    gpus.devices.iter().find(|gpu| matches!(&gpu.uuid, Reading::Value(id) if id == uuid))
}

#[cfg(test)]
mod tests {
    use gpuprod_snapshot::engine::{Engine, EngineKind, Engines, PageSize};
    use gpuprod_snapshot::storage::{Md, MdArray, MdState};
    use gpuprod_snapshot::units::Nanos;
    use gpuprod_snapshot::{Part, Sample, Tick, is_unseen};

    use super::*;
    use crate::pipeline::Pipeline;

    #[test]
    fn words_of_a_recording_reach_no_terminal_as_they_are() {
        let evil = "a\x1b]0;pwn\x07\u{9b}31m\u{202e}\u{61c}";
        let array = MdArray { name: evil.into(), state: Reading::Value(MdState::from(evil)), ..MdArray::default() };
        let engine = Engine {
            url: evil.into(),
            page: Reading::Value(PageSize::default()),
            kind: Reading::Value(EngineKind::from(evil)),
            ..Engine::default()
        };
        let mut tick = Tick { period: Nanos::from_secs(1), ..Tick::default() };
        let parts = [Part::Md(Md { arrays: vec![array] }), Part::Engine(Engines { engines: vec![engine] })];
        for part in parts {
            let value = Reading::Value(part);
            tick.put(Sample { at: Nanos(1), took: Nanos(1), value, why: String::new(), hung: None });
        }
        let page = page(&Pipeline::default().feed(&tick), evil);
        assert!(page.contains("a?]0;pwn??31m"), "{page:?}");
        assert!(!page.chars().any(|c| c != '\n' && is_unseen(c)), "{page:?}");
        let shown: Vec<String> = seen::lines(&tick).into_iter().flat_map(|(_, lines)| lines).collect();
        assert!(!shown.iter().any(|line| line.chars().any(is_unseen)), "{shown:?}");
    }
}
