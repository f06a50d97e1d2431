//! A report as text: a table for people, CSV for spreadsheets. Numbers are cut, never rounded up: what is printed is
//! not more than was booked.

use std::fmt::Write as _;

use super::sum::{Report, Row, Times};
use super::used::Used;
use crate::text;

/// Word for what nobody could tell.
const UNTOLD: &str = "(unknown)";

type Extra = (&'static str, &'static str, fn(&Used) -> Option<u64>, fn(u64) -> String);

/// Beside the time; shown where anybody measured it and it is known by what the report is split by.
const EXTRAS: &[Extra] = &[
    // A ten-thousandth of a kilowatt-hour has as many microjoules as that of an hour has nanoseconds.
    ("KWH", "energy_microjoules", |used| used.energy_microjoules, hours),
    ("READ", "read_bytes", |used| used.read_bytes, text::bytes),
    ("WRITTEN", "written_bytes", |used| used.written_bytes, text::bytes),
];

fn extras(report: &Report) -> impl Iterator<Item = &'static Extra> {
    EXTRAS.iter().filter(|extra| report.rows.iter().any(|row| extra.2(&row.used).is_some()))
}

type Column = (&'static str, fn(&Times) -> u64);

const COLUMNS: &[Column] = &[
    ("observed", |times| times.observed_ns),
    ("productive", |times| times.productive_ns),
    ("lost", |times| times.lost_ns),
    ("headroom", |times| times.headroom_ns),
    ("overhead", |times| times.overhead_ns),
    ("idle", |times| times.idle_ns),
    ("unallocated", |times| times.unallocated_ns),
    ("unknown", |times| times.unknown_ns),
];

/// For people: GPU-hours, and the parts of the observed.
#[must_use]
pub fn table(report: &Report, to_realtime_ns: u64) -> String {
    let mut page = String::new();
    let at = |ns| text::utc(gpuprod_snapshot::units::Nanos(ns));
    let _ =
        writeln!(page, "GPU-hours from {} to {} (whole hours, UTC)\n", at(report.from_realtime_ns), at(to_realtime_ns));
    let mut lines = vec![head(report)];
    lines.extend(report.rows.iter().map(|row| line(report, row, &names(report, row))));
    let mut total = vec!["all".to_owned()];
    total.resize(report.by.len().max(1), String::new());
    lines.push(line(report, &report.total, &total));
    let left = report.by.len().max(1);
    aligned(&mut page, &lines, left);
    remarks(&mut page, report);
    externality(&mut page, report);
    page
}

/// Who cost whom how much; nothing where nobody did.
fn externality(page: &mut String, report: &Report) {
    let found = &report.externality;
    if found.rows.is_empty() {
        return;
    }
    page.push_str("\nwhat one tenant's use cost another (a part of what was lost, not on top of it");
    page.push_str(if report.is_priced() { "; at the victim's price)\n" } else { ")\n" });
    let mut head = ["CAUSED BY", "VICTIM", "RESOURCE", "GPU-HOURS"].map(str::to_owned).to_vec();
    if report.is_priced() {
        head.push(format!("COST{}", currency(report)));
    }
    let mut lines = vec![head];
    for row in &found.rows {
        let victim = row.victim_tenant.as_deref().map_or_else(|| UNTOLD.to_owned(), text::clean);
        let mut line = vec![text::clean(&row.cause_tenant), victim, row.resource.to_owned(), hours(row.gpu_ns)];
        if let Some((least, most)) = row.cost_millionths.zip(row.cost_most_millionths) {
            line.push(span(least, most));
        }
        lines.push(line);
    }
    aligned(page, &lines, 3);
    for cause in &found.causes {
        let (caused, lost) = (hours(cause.caused_ns), hours(cause.lost_ns));
        let _ = writeln!(page, "of {lost} h lost to {}: {caused} h by the use of others", cause.resource);
    }
}

fn currency(report: &Report) -> String {
    report.currency.as_deref().map_or_else(String::new, |word| format!(", {word}"))
}

fn span(least: u64, most: u64) -> String {
    if least == most { money(least) } else { format!("{} to {}", money(least), money(most)) }
}

fn head(report: &Report) -> Vec<String> {
    let mut head: Vec<String> = report.by.iter().map(|by| by.as_str().to_uppercase()).collect();
    if head.is_empty() {
        head.push(String::new());
    }
    for (name, _) in COLUMNS {
        head.push(name.to_uppercase());
        if matches!(*name, "productive" | "lost") {
            head.push("%".to_owned());
        }
    }
    if report.is_priced() {
        head.push(format!("LOST COST{}", currency(report)));
    }
    head.extend(extras(report).map(|extra| extra.0.to_owned()));
    head
}

fn names(report: &Report, row: &Row) -> Vec<String> {
    let mut names: Vec<String> = report
        .by
        .iter()
        .map(|by| {
            row.key.get(by.as_str()).cloned().flatten().map_or_else(|| UNTOLD.to_owned(), |name| text::clean(&name))
        })
        .collect();
    if names.is_empty() {
        names.push(String::new());
    }
    names
}

fn line(report: &Report, row: &Row, names: &[String]) -> Vec<String> {
    let mut line = names.to_vec();
    for (name, read) in COLUMNS {
        let ns = read(&row.times);
        line.push(hours(ns));
        if matches!(*name, "productive" | "lost") {
            line.push(percent(ns, row.times.observed_ns));
        }
    }
    if report.is_priced() {
        line.push(span(row.lost_cost_millionths.unwrap_or(0), row.lost_cost_most_millionths.unwrap_or(0)));
    }
    let shown = |extra: &Extra| extra.2(&row.used).map_or_else(|| "-".to_owned(), extra.3);
    line.extend(extras(report).map(shown));
    line
}

/// Longest cell of the table: tenants name themselves. The other forms have the whole of it.
const CELL: usize = 64;

/// The first columns to the left, the others to the right.
fn aligned(page: &mut String, lines: &[Vec<String>], left: usize) {
    let clipped = |line: &Vec<String>| line.iter().map(|cell| text::clip(cell, CELL)).collect();
    let lines: Vec<Vec<String>> = lines.iter().map(clipped).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for line in &lines {
        let mut text = String::new();
        for (place, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if place == 0 { "" } else { "  " };
            let _ =
                if place < left { write!(text, "{gap}{cell:<width$}") } else { write!(text, "{gap}{cell:>width$}") };
        }
        let _ = writeln!(page, "{}", text.trim_end());
    }
}

fn remarks(page: &mut String, report: &Report) {
    let times = &report.total.times;
    if times.observed_ns == 0 {
        page.push_str("\nno second was booked in this time\n");
        return;
    }
    let known = times.observed_ns.saturating_sub(times.unknown_ns);
    let _ = writeln!(page, "\nseen: {} of the observed time; the rest is unknown", percent(known, times.observed_ns));
    if report.is_priced() {
        let _ = writeln!(
            page,
            "priced: what was lost by tokens, steps or GPM, or faulted, squatted or stalled ({} h)",
            hours(times.lost_firm_ns)
        );
        if let Some(ns) = report.lost_without_price_ns {
            let _ =
                writeln!(page, "without a price: {} h of that, in no sum of money (prices of the config)", hours(ns));
        }
        if times.lost_proxy_ns > 0 {
            let proxy = hours(times.lost_proxy_ns);
            let _ = writeln!(
                page,
                "range: {proxy} h were lost by the proxy of power and utilization, from nothing to all of it"
            );
        }
        if times.lost_unpriced_ns > 0 {
            let rest = hours(times.lost_unpriced_ns);
            let _ = writeln!(page, "not priced: {rest} h were lost by utilization alone");
        }
    }
}

/// For spreadsheets: nanoseconds and millionths, whole numbers.
#[must_use]
pub fn csv(report: &Report) -> String {
    let mut page = String::new();
    let mut head: Vec<String> = report.by.iter().map(|by| by.as_str().to_owned()).collect();
    head.extend(COLUMNS.iter().map(|(name, _)| format!("{name}_ns")));
    head.extend(["lost_firm_ns", "lost_proxy_ns", "lost_unpriced_ns"].map(str::to_owned));
    if report.is_priced() {
        head.extend(["lost_cost_millionths", "lost_cost_most_millionths"].map(str::to_owned));
    }
    head.extend(extras(report).map(|extra| extra.1.to_owned()));
    let _ = writeln!(page, "{}", head.join(","));
    for row in &report.rows {
        let names = report.by.iter().map(|by| row.key.get(by.as_str()).cloned().flatten().unwrap_or_default());
        let mut cells: Vec<String> = names.map(|name| quoted(&name)).collect();
        cells.extend(COLUMNS.iter().map(|(_, read)| read(&row.times).to_string()));
        let times = &row.times;
        cells.extend([times.lost_firm_ns, times.lost_proxy_ns, times.lost_unpriced_ns].map(|ns| ns.to_string()));
        cells.extend(row.lost_cost_millionths.iter().chain(&row.lost_cost_most_millionths).map(u64::to_string));
        cells
            .extend(extras(report).map(|extra| extra.2(&row.used).map_or_else(String::new, |value| value.to_string())));
        let _ = writeln!(page, "{}", cells.join(","));
    }
    page
}

/// Quoted where it must be; a cell never begins as a formula.
fn quoted(cell: &str) -> String {
    let cell = text::clean(cell);
    let cell = if cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}") } else { cell };
    if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

/// Hours with four decimals: a third of a second.
fn hours(ns: u64) -> String {
    let units = ns / 360_000_000;
    format!("{}.{:04}", units / 10_000, units % 10_000)
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let permille = u128::from(part) * 1_000 / u128::from(whole);
    format!("{}.{} %", permille / 10, permille % 10)
}

fn money(millionths: u64) -> String {
    let cents = millionths / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[cfg(test)]
mod tests {
    use gpuprod_rules::{Bucket, Class, UnitId, WeightSource};

    use super::super::sum::{By, sum};
    use super::*;
    use crate::store::rows::{Key, Rows};

    #[test]
    fn a_name_longer_than_a_line_is_clipped_in_the_table_alone() {
        let tenant = "x".repeat(70_000);
        let key = Key {
            hour: 5,
            unit: UnitId("GPU-a".into()),
            tenant: Some(tenant.clone()),
            class: Class::Batch,
            bucket: Bucket::Productive,
            source: WeightSource::Gpm,
            slices_whole: 1,
        };
        let report = sum(&Rows::from([(key, 7)]), 5, &[By::Tenant], None);
        let table = table(&report, 0);
        assert!(table.contains(&format!("{}…", "x".repeat(CELL - 1))), "{table:.2000}");
        assert!(table.len() < 4_000, "{}", table.len());
        assert!(csv(&report).contains(&tenant));
    }
}
