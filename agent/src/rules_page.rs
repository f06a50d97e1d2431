//! `docs/rules.md` and `gpuprod rules`: what each rule says of itself, and its thresholds with their reasons.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gpuprod_rules::{Policy, RULES, Rule, Threshold};

use crate::config::keys;
use crate::selftest;

const HEAD: &str = "\
# The rules

Printed by `gpuprod rules`; a test holds this file against it (`GPUPROD_BLESS=1` writes it). In the order of precedence: of
several rules that find the same object, the first names the finding and the others stand beside it. Thresholds are config keys
(`rules.policy.RULE.KEY`); what all rules share (deficits, holds, the change-point test) stands at the end. Shares are in
millionths, durations in nanoseconds. The evidence samples are what the rule says of the fault that `gpuprod selftest` has for it,
up to a minute after it was found (some recordings end before), with a price of 2.50 USD per GPU-hour.

";

/// The page, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for rule in RULES {
        let _ = writeln!(out, "- [`{0}`](#{0}): {1}", rule.id, rule.text.means);
    }
    for rule in RULES {
        one(&mut out, rule);
    }
    shared(&mut out);
    out
}

/// The thresholds that all rules share, as the default config explains them.
fn shared(out: &mut String) {
    out.push_str("\n## What all rules share\n\n| threshold | default | why |\n|---|---|---|\n");
    for key in keys() {
        let name = key.key.strip_prefix("rules.policy.").filter(|name| !name.contains('.'));
        if let Some(name) = name {
            let _ = writeln!(out, "| `{name}` | {} | {} |", key.default, key.help.trim().replace('|', "\\|"));
        }
    }
    for (room, table) in Policy::ROOMS {
        let _ = writeln!(out, "\n### {room}");
        own(out, room, table);
    }
}

fn one(out: &mut String, rule: &Rule) {
    let text = rule.text;
    let table = Policy::SECTIONS.iter().find(|(name, _)| *name == rule.id.as_str()).map_or(&[][..], |(_, table)| table);
    let _ = write!(out, "\n## {}\n\n{}\n\n", rule.id, marked(text.means, table));
    for (title, words) in [
        ("Looks at", text.inputs),
        ("Speaks", text.formula),
        ("Stays silent", text.silent),
        ("What to do", text.advice),
        ("Cannot tell", text.blind),
    ] {
        let _ = writeln!(out, "- **{title}**: {}", marked(words, table));
    }
    if let Some(sample) = selftest::sample(rule.id) {
        let _ = writeln!(out, "- **Evidence sample**: {} (of `gpuprod selftest`).\n", sample.about);
        let _ = writeln!(out, "  ```text\n  {}\n  ```", sample.lines.join("\n  "));
    }
    own(out, rule.id.as_str(), table);
}

/// The thresholds of a section.
fn own(out: &mut String, section: &str, table: &[Threshold]) {
    if table.is_empty() {
        return;
    }
    let policy = serde_json::to_value(Policy::default()).unwrap_or_default();
    let section = policy.get(section);
    out.push_str("\n| threshold | default | why |\n|---|---|---|\n");
    for row in table {
        let default = section.and_then(|section| section.get(row.key)).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(out, "| `{}` | {default} | {} |", row.key, row.why.trim().replace('|', "\\|"));
    }
}

/// Keys of thresholds are set as code.
fn marked(words: &str, table: &[Threshold]) -> String {
    let shared = serde_json::to_value(Policy::default()).unwrap_or_default();
    let mut keys: BTreeSet<&str> = table.iter().map(|row| row.key).collect();
    keys.extend(shared.as_object().into_iter().flatten().map(|(key, _)| key.as_str()));
    // A word of plain language is no key in a sentence.
    let is_key = |word: &str| keys.contains(word) && (word.contains('_') || table.iter().any(|row| row.key == word));
    let mut out = String::new();
    let mut word = String::new();
    for c in words.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if is_key(&word) {
            let _ = write!(out, "`{word}`");
        } else {
            out.push_str(&word);
        }
        word.clear();
        if c != '\n' {
            out.push(c);
        }
    }
    out
}
