//! The status page at `/`: plain HTML without scripts or anything fetched from elsewhere. What a frame carries is
//! foreign text: all of it is escaped.

use std::fmt::Write as _;

use gpuprod_snapshot::Reading;

use crate::check::{self, By, Verdict};
use crate::pipeline::Frame;
use crate::store::Status;
use crate::text;

/// What a browser may do with the page: show it.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
    <meta http-equiv=\"refresh\" content=\"5\"><title>gpuprod</title>\n\
    <style>body{font:14px/1.5 sans-serif;margin:2em;max-width:70em}td,th{text-align:left;padding:.1em 1em .1em 0;\
    vertical-align:top}p.why{margin:0 0 0 2em}</style></head><body>\n";

const LINKS: &[(&str, &str)] = &[
    ("/metrics", "series"),
    ("/api/v1/frame", "the whole frame as JSON"),
    ("/healthz", "do ticks go on"),
    ("/readyz", "can it be relied on"),
];

/// The page.
#[must_use]
pub fn page(frame: &Frame<'_>) -> String {
    let frame = &frame.public();
    let report = check::report(frame, By::Agent);
    let mut out = String::from(HEAD);
    let _ = write!(out, "<h1>gpuprod {}</h1>\n<p>", env!("CARGO_PKG_VERSION"));
    escape(
        &mut out,
        &format!("{}, ticks of {}", text::utc(frame.known.stamp.realtime), text::duration(frame.known.period)),
    );
    out.push_str("</p>\n");
    for note in notes(frame) {
        paragraph(&mut out, "", &note);
    }
    out.push_str("<h2>Node</h2>\n");
    verdict(&mut out, &report.node);
    out.push_str("<h2>GPUs</h2>\n<table><tr><th>GPU<th>verdict<th>state<th>why</tr>\n");
    for gpu in &report.gpus {
        row(&mut out, &[&gpu.about, gpu.level.word(), &gpu.says, &gpu.because.join("; ")]);
    }
    out.push_str("</table>\n<h2>Seen</h2>\n");
    for line in &report.seen {
        paragraph(&mut out, "", line);
    }
    out.push_str("<h2>More</h2>\n<ul>\n");
    for (path, what) in LINKS {
        let _ = writeln!(out, "<li><a href=\"{path}\">{path}</a>: {what}</li>");
    }
    out.push_str("</ul>\n</body></html>\n");
    out
}

/// What the operator has to know of the agent itself.
fn notes(frame: &Frame<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(lease) = frame.own.lease {
        let left = lease.until.saturating_sub(frame.known.stamp.boottime);
        notes.push(format!(
            "The GPUs are let go of for another {} (gpuprod resume-gpu takes them back).",
            text::duration(left)
        ));
    }
    if let Some(late) = frame.own.store.as_ref().and_then(Status::late) {
        notes.push(format!(
            "{late} (/metrics: gpuprod_self_store_errors_total; the log says why, if the disk says anything)."
        ));
    }
    if frame.own.config.refused {
        notes.push("The configuration file was refused: the one before is in force (the log says why).".to_owned());
    }
    if !frame.own.config.restart_for.is_empty() {
        notes.push(format!(
            "Changed in the file and waiting for a restart: {}.",
            frame.own.config.restart_for.join(", ")
        ));
    }
    if let Some(Reading::Missing(_)) = frame.known.gpu.as_ref().map(|sample| &sample.value)
        && frame.judgement.units.is_empty()
    {
        notes.push("No GPU is seen here.".to_owned());
    }
    notes
}

fn verdict(out: &mut String, verdict: &Verdict) {
    paragraph(out, "", &format!("{}: {}", verdict.level.word(), verdict.says));
    for line in &verdict.because {
        paragraph(out, " class=\"why\"", line);
    }
}

fn row(out: &mut String, cells: &[&str]) {
    out.push_str("<tr>");
    for cell in cells {
        out.push_str("<td>");
        escape(out, cell);
    }
    out.push_str("</tr>\n");
}

fn paragraph(out: &mut String, class: &str, words: &str) {
    let _ = write!(out, "<p{class}>");
    escape(out, words);
    out.push_str("</p>\n");
}

fn escape(out: &mut String, words: &str) {
    for c in text::clean(words).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuprod_rules::{Judgement, Probe};
    use gpuprod_snapshot::units::Nanos;

    use super::*;

    #[test]
    fn foreign_names_stay_text() {
        let mut judgement = Judgement::default();
        let call = "<script>alert('x')</script>&\"\u{1b}[2J".to_owned();
        judgement.probes.push(Probe { collector: "gpu".to_owned(), call, age: Nanos::from_secs(9) });
        let frame = Frame {
            known: std::borrow::Cow::Owned(gpuprod_snapshot::Tick::default()),
            judgement: std::borrow::Cow::Owned(judgement),
            ledger: std::borrow::Cow::Owned(gpuprod_rules::Ledger::default()),
            alerts: std::borrow::Cow::default(),
            own: crate::own::Own::default(),
        };
        let page = page(&frame);
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;?[2J"), "{page}");
        assert!(!page.contains("<script") && !page.contains("://") && !page.contains("src="), "{page}");
    }
}
